#include "cachesvc/pipeline/put_places.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cachesvc/catalog/faithful.h"
#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/split.h"
#include "precis/limits.h"
#include "precis/reader_budget.h"

namespace precis {
namespace {

// A split rewrites the whole segment. It is done unasked if it saves the put at least this part of
// the segment's tokens.
constexpr std::uint32_t kWorthASplit = 8;

// Records over how many entries of its parents the KV was computed: those that a read at budget
// `read` returns.
Status note_parents(const std::vector<Catalog::Row>& parents, const std::optional<Budget>& read,
                    const ModelSpec& model, SegmentRow& row) {
  row.parent_read = read;
  for (const Catalog::Row& parent : parents) {
    PRECIS_ASSIGN(const std::uint64_t entries,
                  cut_entries_at_most(*parent, model, read.value_or(Budget::all())));
    row.parent_entries += entries;
  }
  return {};
}

Status does_not_hold(const SegmentId& parent, std::uint32_t end) {
  return Status::invalid("parent " + parent.hex() + " does not hold tokens [0, " +
                         std::to_string(end) + ") of this path");
}

// Returns whether the path's tokens up to `position`, a block boundary inside the segment, are
// those of the segment and its ancestors.
bool holds(const SegmentRow& row, const TokenPath& path, std::uint32_t position) {
  const std::size_t block = position / path.block_tokens;
  return row.root == path.root && block <= path.blocks.size() &&
         row.blocks[block - row.begin / path.block_tokens - 1] == path.blocks[block - 1];
}

std::uint32_t end_of(const std::vector<Catalog::Row>& chain) {
  return chain.empty() ? 0 : chain.back()->end;
}

SegmentId tip_of(const std::vector<Catalog::Row>& chain) {
  return chain.empty() ? SegmentId{} : chain.back()->id;
}

Status too_long(std::size_t segments) {
  return Status::invalid("the path has " + std::to_string(segments) +
                         " segments before the new one, and a chain may have at most " +
                         std::to_string(limits::kChainSegmentsMax) +
                         "; put the whole path as one segment");
}

// The parent that a request names, with its ancestors, as far as they begin before `end`.
Result<std::vector<Catalog::Row>> named_chain(const Catalog& catalog, const Tenant& tenant,
                                              const msg::BeginPut& request, std::uint32_t end,
                                              const ModelSpec& model) {
  PRECIS_ASSIGN(std::vector<Catalog::Row> chain, catalog.chain(tenant.name, request.parent));
  if (end > end_of(chain)) {
    return Status::invalid("parent_end is " + std::to_string(end) + ", and parent " +
                           request.parent.hex() + " ends at token " +
                           std::to_string(end_of(chain)));
  }
  while (chain.back()->begin >= end) chain.pop_back();
  const SegmentRow& last = *chain.back();
  if (end != last.end && model.hides_tokens(last.end - last.begin)) {
    return Status::invalid("a put can't begin inside segment " + last.id.hex() + " at token " +
                           std::to_string(end) +
                           ": of layers with a sliding window, it has only the window of its end; "
                           "begin at token " +
                           std::to_string(last.begin) + " or " + std::to_string(last.end));
  }
  if (end != last.end && end % model.block_tokens != 0) {
    return Status::invalid("a put can begin inside segment " + last.id.hex() +
                           " only at a multiple of " + std::to_string(model.block_tokens) +
                           " tokens, and parent_end is " + std::to_string(end));
  }
  return chain;
}

}  // namespace

Status PutPlaces::find(const Tenant& tenant, const msg::BeginPut& request, const TokenPath& path,
                       OpenPut& put, Found& found) const {
  const auto kind = request.parent_kind;
  if (request.parent_end != 0 && kind != msg::BeginPut::ParentKind::kSegment) {
    return Status::invalid("parent_end is " + std::to_string(request.parent_end) +
                           ", and the put names no parent");
  }
  SegmentRow& row = put.row;
  row.tenant = tenant.name;
  row.model = request.model;
  row.adapter = request.adapter;
  row.root = path.root;
  std::vector<Catalog::Row> chain;
  if (kind == msg::BeginPut::ParentKind::kAuto) {
    const std::uint32_t ppm = faithful_for(request.parent_read);
    chain = catalog_.parents(tenant.name, path, ppm);
    found.split =
        split_of(catalog_.match(tenant.name, path, ppm),
                 static_cast<std::uint32_t>(path.tokens.size()), end_of(chain), put.model);
  } else if (request.parent_end != 0) {
    PRECIS_ASSIGN(chain, named_chain(catalog_, tenant, request, request.parent_end, put.model));
    found.must_split = request.parent_end != end_of(chain);
    if (found.must_split) {
      if (!holds(*chain.back(), path, request.parent_end)) {
        return does_not_hold(request.parent, request.parent_end);
      }
      if (chain.size() >= limits::kChainSegmentsMax) return too_long(chain.size());
      found.split = Split{chain.back()->id, request.parent_end, {}};
    }
  } else if (kind == msg::BeginPut::ParentKind::kSegment) {
    PRECIS_ASSIGN(chain, catalog_.chain(tenant.name, request.parent));
  }
  if (found.split) {
    Split& split = *found.split;
    split.row = row;
    const SegmentId parent = part_id(split.segment, split.position);
    PRECIS_TRY(place(request, path, parent, split.position, put, split.row));
    if (found.must_split) return {};
  }
  if (chain.size() >= limits::kChainSegmentsMax) return too_long(chain.size());
  PRECIS_TRY(note_parents(chain, request.parent_read, put.model, row));
  PRECIS_TRY(place(request, path, tip_of(chain), end_of(chain), put, row));
  if (!chain.empty() &&
      (chain.back()->tip != path.tip(row.begin) || chain.back()->root != row.root)) {
    return does_not_hold(request.parent, row.begin);
  }
  // The second part of a split segment has the id of the whole, and a consolidated segment that of
  // its last link, so a put of their tokens would not find them by id.
  const std::vector<Catalog::Link> links = catalog_.match(tenant.name, path, 0);
  if (!links.empty() && links.back().matched_end == row.end) {
    const SegmentRow& same = *links.back().row;
    const bool is_whole = same.whole_begin == same.begin && same.whole_end == same.end;
    const bool follows_part = !chain.empty() && chain.back()->whole_entries != 0;
    const bool is_part = same.whole_entries != 0 && (is_whole || follows_part);
    if (is_part && same.end == row.end && same.begin == row.begin && same.parent == row.parent &&
        same.recipe == row.recipe && same.budget == row.budget && is_as_good(same, row)) {
      row.id = same.id;
    }
  }
  return {};
}

Status PutPlaces::after_split(const msg::BeginPut& request, OpenPut& put, Found& found) const {
  SegmentRow row = std::move(found.split->row);
  PRECIS_ASSIGN(const std::vector<Catalog::Row> chain, catalog_.chain(row.tenant, row.parent));
  PRECIS_TRY(note_parents(chain, request.parent_read, put.model, row));
  put.row = std::move(row);
  return {};
}

bool PutPlaces::is_stored(const SegmentRow& row) const {
  if (const auto now = catalog_.info(row.tenant, row.id, /*with_plan=*/false);
      now.ok() && now->id != row.id) {  // consolidated: stored unless the new segment was split
    return !now->out_of_service && !now->trimmed && now->whole_begin == now->begin &&
           now->whole_end == now->end;
  }
  auto last = catalog_.segment(row.tenant, row.id);
  if (!last.ok() || !is_as_good(**last, row)) return false;
  std::vector<SegmentId> owners{row.id};  // segments of which parts were split off
  Catalog::Row part = std::move(last).value();
  while (part->begin > row.begin) {
    const auto before = catalog_.segment(row.tenant, part->parent);
    if (!before.ok() || (*before)->trimmed) return false;
    const auto is_of = [&](const SegmentId& owner) {
      return part_id(owner, part->begin) == (*before)->id;
    };
    if (std::ranges::none_of(owners, is_of)) return false;
    part = *before;
    owners.push_back(part->id);
  }
  return part->begin == row.begin && part->parent == row.parent;
}

// Returns the split that lets a put begin later than `begin`, if there is one and it is worth it.
// `end`: of the put's path.
std::optional<PutPlaces::Split> PutPlaces::split_of(const std::vector<Catalog::Link>& links,
                                                    std::uint32_t end, std::uint32_t begin,
                                                    const ModelSpec& model) const {
  if (links.empty() || links.size() >= limits::kChainSegmentsMax) return std::nullopt;
  const SegmentRow& row = *links.back().row;
  const std::uint32_t position = links.back().matched_end;
  if (position == row.end || position >= end || position <= begin) return std::nullopt;
  if (std::uint64_t{kWorthASplit} * (position - begin) < row.end - row.begin) return std::nullopt;
  if (SplitPath::needed_bytes(row, model) > arena_bytes_ / 2) return std::nullopt;
  return Split{row.id, position, {}};
}

// Sets the segment's tokens, its parent, its budget and its id.
Status PutPlaces::place(const msg::BeginPut& request, const TokenPath& path,
                        const SegmentId& parent, std::uint32_t begin, const OpenPut& put,
                        SegmentRow& row) const {
  const std::span<const TokenId> tokens = path.tokens;
  row.begin = begin;
  row.end = static_cast<std::uint32_t>(tokens.size());
  if (row.begin >= row.end) {
    return Status::invalid("parent " + parent.hex() + " ends at token " +
                           std::to_string(row.begin) + ", the path has only " +
                           std::to_string(row.end) + "; a put needs tokens past its parent's end");
  }
  row.parent = parent;
  row.budget = put.asked;
  Recipe recipe = put.recipe;
  const std::uint32_t count = row.end - row.begin;
  if (put.takes_fitting_rows) {
    recipe.encoding = Encoding::kInt8;
    recipe = with_fitting_rows(recipe, put.model, put.asked, count);
    row.recipe = canonical_recipe(recipe);
    row.encoding = recipe.encoding;
  }
  if (put.limit) {
    PRECIS_ASSIGN(recipe, with_floor_within(recipe, put.model, count, begin, *put.limit));
    PRECIS_ASSIGN(row.budget, within_limit(recipe, put.model, count, begin, put.asked, *put.limit));
    row.recipe = canonical_recipe(recipe);
  }
  row.tip = path.tip(row.end);
  row.blocks.assign(path.blocks.begin() + row.begin / put.model.block_tokens, path.blocks.end());
  row.tail.assign(tokens.end() - row.end % put.model.block_tokens, tokens.end());
  row.id = segment_id(
      {path.tip(row.begin), row.begin, row.tip, row.end, row.parent, request.parent_read}, recipe,
      row.budget);
  return {};
}

}  // namespace precis
