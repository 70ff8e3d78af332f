#include "cachesvc/pipeline/lookup.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cachesvc/catalog/faithful.h"
#include "cachesvc/pipeline/read_tries.h"
#include "precis/block_digest.h"
#include "precis/entry_form.h"
#include "precis/keep.h"
#include "precis/limits.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

// The most times that a chain is counted if it changes during each count.
constexpr int kAttemptsMax = 4;

// The loop itself counts at most this many records per lookup, a quarter of a millisecond; each
// kEntriesARecord positions that it reads count as another record.
constexpr std::size_t kInlineRecordsMax = 512;
constexpr std::size_t kEntriesARecord = 512;
// The loop itself adds up at most this many counts to lease segments; each link counts as
// kCountsALink more. Above that, it would block for longer than waking a thread takes.
constexpr std::size_t kInlineCountsMax = 64u << 10;
constexpr std::size_t kCountsALink = 512;

// The error if the matched segments are no longer the stored ones. The client may ask again at
// once.
Status changed(const std::string& what) {
  return Status::rejected(what + "; look the path up again", 1);
}

// The layer's entry counts for all links, in the order that ServedLayout takes them.
std::vector<std::uint32_t> layer_counts(const ModelSpec& model,
                                        const std::vector<Catalog::Link>& links,
                                        std::uint32_t layer) {
  std::vector<std::uint32_t> counts;
  const std::uint32_t reader_end = links.back().matched_end;
  for (const Catalog::Link& link : links) {
    const bool hidden = is_out_of_sight(model.windows, layer, link.row->end, reader_end);
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      counts.push_back(hidden ? 0 : link.row->plan.at(layer, h));
    }
  }
  return counts;
}

msg::Match empty_match(const ModelSpec& model) {
  msg::Match match;
  match.plan = {model.num_layers, model.num_kv_heads, {}};
  match.plan.counts.resize(std::size_t{model.num_layers} * model.num_kv_heads);
  return match;
}

Status check_count_of(const ModelSpec& model, std::size_t num_links) {
  const std::uint64_t counts = std::uint64_t{num_links} * model.num_layers * model.num_kv_heads;
  if (counts <= limits::kMatchCountsMax) return {};
  return Status::invalid(
      "a match of " + std::to_string(num_links) + " segments of " +
      std::to_string(model.num_layers) + " layers and " + std::to_string(model.num_kv_heads) +
      " KV heads has " + std::to_string(counts) + " counts, the limit is " +
      std::to_string(limits::kMatchCountsMax) + "; look the path up without keep and align");
}

}  // namespace

struct Lookup::Counting {
  const ModelSpec& model;
  const std::vector<EntryForm> forms;  // of the links
  ReaderCut cut;
  CountedMatch made;

  void add(LayerCounts layer) {
    for (std::size_t link = 0; link < made.counts.size(); ++link) {
      const auto begin = layer.counts.begin() +
                         static_cast<std::ptrdiff_t>(link) * std::ptrdiff_t{model.num_kv_heads};
      made.counts[link].insert(made.counts[link].end(), begin, begin + model.num_kv_heads);
    }
    made.plan.counts.insert(made.plan.counts.end(), layer.plan.begin(), layer.plan.end());
    made.bytes += ServedLayout::of(layer.counts, model.num_kv_heads, forms).size_bytes;
  }
};

Task<Result<msg::Match>> Lookup::run(const Tenant& tenant, msg::Lookup request, const void* from,
                                     const bool& gone, std::optional<std::uint32_t> shard) const {
  const std::uint32_t lease_ms = request.lease_ms;
  const msg::Hints hints = request.hints;
  Links links;
  auto match = co_await find(tenant, std::move(request), from, gone, shard, links);
  if (!match.ok()) co_return match;
  for (msg::MatchLink& link : match->links) {
    parts_.layers.catalog.hint(tenant.name, link.segment.id, hints);
    take_hints(hints, parts_.clock.unix_ms(), link.segment);
  }
  if (lease_ms == 0) co_return match;
  const auto lease = [&] { return parts_.layers.catalog.lease(tenant.name, links, lease_ms); };
  if (links.size() * (match->plan.counts.size() + kCountsALink) <= kInlineCountsMax) {
    match->lease_ms = lease();
  } else {
    match->lease_ms = co_await run_on(parts_.reads, parts_.loop, tenant.owner(from), lease);
  }
  co_return match;
}

Task<Result<msg::Match>> Lookup::find(const Tenant& tenant, msg::Lookup request, const void* from,
                                      const bool& gone, std::optional<std::uint32_t> shard,
                                      Links& links) const {
  PRECIS_CO_ASSIGN(const ModelSpec model, parts_.layers.catalog.model(tenant.name, request.model));
  PRECIS_CO_TRY(PathHasher::check(request.tokens.size(), model.block_tokens));
  if (request.keep) {
    PRECIS_CO_TRY(check_reader_keep(*request.keep));
  }
  const Digest root = tenant.root(request.model, request.adapter, shard);
  Owner owner = tenant.owner(from);
  if (!asks_for_counts(request)) {
    const auto match_all = [&](const TokenPath& path) -> Result<msg::Match> {
      for (int tries = 0; tries < kReadTriesMax; ++tries) {
        links = parts_.layers.catalog.match(tenant.name, path, /*faithful_ppm=*/0);
        if (auto found = match(tenant.name, model, links)) return std::move(*found);
      }
      return changes_too_often("the prefix");
    };
    co_return co_await parts_.paths.with(std::move(owner), root, std::move(request.tokens),
                                         model.block_tokens, match_all);
  }
  links = co_await parts_.paths.with(
      owner, root, std::move(request.tokens), model.block_tokens, [&](const TokenPath& path) {
        return parts_.layers.catalog.match(tenant.name, path, faithful_for(request.keep));
      });
  if (links.empty()) co_return empty_match(model);
  auto counted = co_await count(std::move(owner), model, request, links, gone);
  parts_.layers.memory.retry();  // the count's memory is free now, on errors too
  co_return counted;
}

std::optional<msg::Match> Lookup::match(std::string_view tenant, const ModelSpec& model,
                                        const Links& links) const {
  if (links.empty()) return empty_match(model);
  auto described = describe(tenant, model, links);
  if (!described) return std::nullopt;
  msg::Match& match = described->match;
  std::vector<EntryForm> forms;
  for (const Catalog::Link& link : links) forms.push_back(EntryForm::of(model, link.row->encoding));
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    const std::vector<std::uint32_t> counts = layer_counts(model, links, l);
    match.bytes += ServedLayout::of(counts, model.num_kv_heads, forms).size_bytes;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      match.plan.counts[l * model.num_kv_heads + i % model.num_kv_heads] += counts[i];
    }
  }
  match.predicted_seconds =
      parts_.rate.predict_seconds(match.bytes, described->cold_bytes, described->shared_bytes);
  return std::move(match);
}

std::optional<Lookup::Described> Lookup::describe(std::string_view tenant, const ModelSpec& model,
                                                  const Links& links) const {
  Described described{empty_match(model)};
  msg::Match& match = described.match;
  match.matched_tokens = links.back().matched_end;
  for (const Catalog::Link& link : links) {
    auto found = parts_.layers.catalog.info(tenant, link.row->id, /*with_plan=*/false);
    // If the segment was removed, trimmed or put again, the stored one is another match. A replaced
    // row is never stored again, so otherwise `found` belongs to this row.
    const auto present = parts_.layers.catalog.segment(tenant, link.row->id);
    if (!found.ok() || !present.ok() || *present != link.row) return std::nullopt;
    msg::SegmentInfo info = std::move(found).value();
    info.in_memory = true;
    const std::vector<bool> hot =
        parts_.layers.hot_tier.present(info.id, model.num_layers, link.row);
    std::uint64_t cold_bytes = 0;
    for (std::uint32_t l = 0; l < model.num_layers; ++l) {
      if (hot[l]) continue;
      info.in_memory = false;
      cold_bytes += link.row->layer_bytes[l];
    }
    described.cold_bytes += cold_bytes;
    if (cold_bytes > 0 && parts_.rate.knows_shared()) {
      const std::uint64_t all = link.row->stored_bytes,
                          here = std::min(all, parts_.layers.catalog.local_bytes(info.id));
      described.shared_bytes += std::min(cold_bytes, all - here);
    }
    match.links.push_back({std::move(info), link.matched_end});
  }
  return described;
}

// If the chain changes during the count, the path is not matched again, because its tokens have
// been freed. Trimmed segments are counted as they are now. If a segment was removed, or has more
// entries so that its children may be approximations, the client is told to look the path up again.
Task<Result<msg::Match>> Lookup::count(Owner owner, const ModelSpec& model,
                                       const msg::Lookup& request, Links& links,
                                       const bool& gone) const {
  PRECIS_CO_TRY(check_count_of(model, links.size()));
  for (int attempts = 0; attempts < kAttemptsMax; ++attempts) {
    auto counted = co_await attempt(owner, model, request, links, gone);
    PRECIS_CO_TRY(counted.status());
    if (*counted) co_return std::move(**counted);
    for (Catalog::Link& link : links) {
      auto now = parts_.layers.catalog.segment(owner.tenant, link.row->id);
      if (now.status().code() == StatusCode::kNotFound) {
        co_return changed("segment " + link.row->id.hex() +
                          " was removed while its entries were counted");
      }
      PRECIS_CO_TRY(now.status());
      if ((*now)->plan.total() > link.row->plan.total()) {
        co_return changed("segment " + link.row->id.hex() +
                          " was put again while its entries were counted");
      }
      link.row = std::move(now).value();
    }
  }
  co_return changed("segment " + links.back().row->id.hex() +
                    " or an ancestor was changed each of the " + std::to_string(kAttemptsMax) +
                    " times that its entries were counted");
}

Task<Result<std::optional<msg::Match>>> Lookup::attempt(const Owner& owner, const ModelSpec& model,
                                                        const msg::Lookup& request,
                                                        const Links& links,
                                                        const bool& gone) const {
  CountedMatches::Key key;
  for (const Catalog::Link& link : links) {
    key.rows.push_back(link.row);
    PRECIS_CO_ASSIGN(const std::uint64_t entries,
                     cut_entries_at_most(*link.row, model, request.keep.value_or(Budget::all())));
    key.entries.push_back(entries);
  }
  key.matched_end = links.back().matched_end;
  key.align = request.align;
  CountedMatch counted;
  if (const CountedMatch* known = counted_.find(key)) {
    counted = *known;
  } else {
    auto made = co_await read_counts(owner, model, links, key, gone);
    PRECIS_CO_TRY(made.status());
    if (!*made) co_return std::optional<msg::Match>();
    counted = std::move(**made);
    counted_.add(std::move(key), counted);
  }

  auto described = describe(owner.tenant, model, links);
  if (!described) co_return std::optional<msg::Match>();
  msg::Match& match = described->match;
  for (std::size_t link = 0; link < links.size(); ++link) {
    match.links[link].counts = std::move(counted.counts[link]);
  }
  match.plan = std::move(counted.plan);
  match.bytes = counted.bytes;
  match.predicted_seconds =
      parts_.rate.predict_seconds(match.bytes, described->cold_bytes, described->shared_bytes);
  co_return std::optional<msg::Match>(std::move(match));
}

Task<Result<std::optional<CountedMatch>>> Lookup::read_counts(const Owner& owner,
                                                              const ModelSpec& model,
                                                              const Links& links,
                                                              const CountedMatches::Key& key,
                                                              const bool& gone) const {
  std::vector<Catalog::Row> rows;
  for (const Catalog::Link& link : links) rows.push_back(link.row);
  const bool in_part = key.matched_end < rows.back()->end;
  Counting counting{
      model, entry_forms(rows, model), {key.entries, key.align, in_part, key.matched_end}, {}};
  counting.made.counts.resize(rows.size());
  counting.made.plan = {model.num_layers, model.num_kv_heads, {}};

  // Leases one layer at a time and reads nothing ahead.
  ChainLayers layers(parts_.layers, std::move(rows), model.num_layers, owner, 0, {});
  std::size_t inline_left = kInlineRecordsMax;
  for (std::uint32_t layer = 0; layer < model.num_layers;) {
    if (gone) co_return Status::canceled("the client has left");
    auto leases = co_await layers.lease(layer);
    if (leases.status().code() == StatusCode::kNotFound) co_return std::optional<CountedMatch>();
    PRECIS_CO_TRY(leases.status());
    counting.cut.first_link =
        links_out_of_sight(model, layers.links(), layer, counting.cut.matched_end);
    auto counted = co_await count_records(counting, *leases, layer, inline_left, owner);
    if (counted.status().code() == StatusCode::kCorruption) {
      const bool again = co_await layers.doubt(layer, *leases, counted.status());
      if (again) continue;
    }
    PRECIS_CO_TRY(counted.status());
    counting.add(std::move(*counted));
    leases->clear();
    parts_.layers.memory.retry();
    ++layer;
  }
  co_return std::optional<CountedMatch>(std::move(counting.made));
}

Task<Result<LayerCounts>> Lookup::count_records(const Counting& counting,
                                                const ChainLayers::Leases& leases,
                                                std::uint32_t layer, std::size_t& inline_left,
                                                const Owner& owner) const {
  const ModelSpec& model = counting.model;
  std::vector<Bytes> records;
  for (const HotTier::Lease& lease : leases) records.push_back(lease->bytes());
  const auto count = [&]() -> Result<LayerCounts> {
    PRECIS_ASSIGN(const LayerRecords opened,
                  open_layer(records, {layer, 0, model.num_kv_heads, model.head_dim, model.dtype}));
    return count_layer(opened, counting.cut);
  };
  std::size_t work = records.size() * model.num_kv_heads;
  if (counting.cut.in_part) {  // counting reads the last link's positions
    work += records.back().size() / record_entry_bytes(counting.forms.back()) / kEntriesARecord;
  }
  if (work <= inline_left) {
    inline_left -= work;
    co_return count();
  }
  co_return co_await run_on(parts_.reads, parts_.loop, owner, count);
}

}  // namespace precis
