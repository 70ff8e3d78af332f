#include "cachesvc/pipeline/consolidate.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "cachesvc/pipeline/merged_seats.h"
#include "precis/hint_limits.h"
#include "precis/kernels.h"
#include "precis/record_entries.h"

namespace precis {
namespace {

MergedSeats seats_of(const std::vector<Catalog::Row>& run) {
  std::vector<MergedSeats::Segment> segments;
  for (const Catalog::Row& row : run) {
    segments.push_back({row->end - row->begin, row->plan.total()});
  }
  return MergedSeats(std::move(segments));
}

std::uint64_t bytes_of(const std::vector<Catalog::Row>& run, std::uint32_t layer) {
  std::uint64_t bytes = 0;
  for (const Catalog::Row& row : run) bytes += row->layer_bytes[layer];
  return bytes;
}

// The share of the entries before compression that the row stores.
Budget stored_share(const SegmentRow& row) {
  constexpr std::uint64_t kAll = 1'000'000;
  const std::uint64_t all = std::uint64_t{row.end - row.begin} * row.plan.counts.size();
  return Budget::ratio_ppm(static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(row.plan.total() * kAll / all, 1, kAll)));
}

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

struct ConsolidatePath::Merge {
  Merge(std::vector<Catalog::Row> rows, SegmentRow merged)
      : run(std::move(rows)), row(std::move(merged)), seats(seats_of(run)) {}

  const std::vector<Catalog::Row> run;
  const SegmentRow row;
  const MergedSeats seats;
  MutableBytes read;                                   // one layer of all segments
  std::vector<std::shared_ptr<Arena::Buffer>> layers;  // of the merged segment

  // Writes a layer from its records in `read`.
  Status write(std::uint32_t layer) const {
    Bytes rest = read.first(bytes_of(run, layer));
    MutableBytes out = layers[layer]->bytes();
    const std::uint32_t heads = row.plan.num_kv_heads;
    std::vector<kernels::RecordView> views;  // [segments, heads]
    for (const Catalog::Row& from : run) {
      for (std::uint32_t h = 0; h < heads; ++h) {
        std::size_t size = 0;
        PRECIS_ASSIGN(const kernels::RecordView view, kernels::open_record(rest, &size));
        if (!view.seats.empty() && view.seats.back() > from->plan.total()) {
          return Status::corruption("a record has a seat above the entries of its segment");
        }
        views.push_back(view);
        rest = rest.subspan(size);
      }
    }
    std::vector<kernels::RecordView> of_head(run.size());
    std::vector<kernels::EntryCopy> entries;
    for (std::uint32_t h = 0; h < heads; ++h) {
      entries.clear();
      for (std::uint32_t i = 0; i < run.size(); ++i) {
        of_head[i] = views[std::size_t{i} * heads + h];
        for (std::uint32_t e = 0; e < of_head[i].count; ++e) {
          entries.push_back({i, e, seats.of(i, of_head[i].seats[e])});
        }
      }
      std::ranges::sort(entries, {}, &kernels::EntryCopy::seat);
      const kernels::RecordView& like = of_head.front();
      const auto count = static_cast<std::uint32_t>(entries.size());
      const std::size_t size = RecordLayout::of(count, like.entry_form()).size;
      kernels::write_entries(of_head, entries, row.id, out.first(size));
      kernels::seal_record(out.first(size), layer, h, count, like.entry_form(), row.id);
      out = out.subspan(size);
      yield_if_asked(size);
    }
    return {};
  }
};

// The sum of the run, with the last one's id. The counts of its segments were rounded. So the row
// is a part that is its own whole: its budget gives exactly the entries that it stores.
Result<SegmentRow> ConsolidatePath::merged_row(const std::vector<Catalog::Row>& run,
                                               const ModelSpec& model) {
  const SegmentRow& first = *run.front();
  SegmentRow row = *run.back();
  row.parent = first.parent;
  row.parent_read = first.parent_read;
  row.parent_entries = first.parent_entries;
  row.begin = first.begin;
  row.blocks.clear();
  row.former.clear();
  row.plan.counts.assign(row.plan.counts.size(), 0);
  row.layer_bytes.clear();
  row.original_bytes = row.stored_bytes = 0;
  row.compress_seconds = row.prefill_seconds = 0;
  for (const Catalog::Row& each : run) {
    append(row.blocks, each->blocks);
    append(row.former, each->former);
    if (each != run.back()) row.former.push_back(each->id);
    for (std::size_t i = 0; i < row.plan.counts.size(); ++i) {
      row.plan.counts[i] += each->plan.counts[i];
    }
    row.original_bytes += each->original_bytes;
    row.compress_seconds += each->compress_seconds;
    row.prefill_seconds += each->prefill_seconds;
  }
  // If one is unknown, the sum of the others is too small.
  const bool all_said =
      std::ranges::all_of(run, [](const auto& each) { return each->prefill_seconds > 0; });
  row.prefill_seconds = all_said ? std::min(row.prefill_seconds, limits::kPrefillSecondsMax) : 0;
  if (row.former.size() > limits::kFormerIdsMax) {
    row.former.erase(row.former.begin(), row.former.end() - limits::kFormerIdsMax);
  }
  const EntryForm rows = EntryForm::of(model, row.encoding);
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    std::uint64_t bytes = 0;
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      bytes += RecordLayout::of(row.plan.at(layer, h), rows).size;
    }
    row.layer_bytes.push_back(bytes);
    row.stored_bytes += bytes;
  }
  const auto differs = [&](const Catalog::Row& each) { return each->trimmed != row.trimmed; };
  if (std::ranges::any_of(run, differs)) row.trimmed = stored_share(row);
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(row.recipe));
  row.whole_begin = row.begin;
  row.whole_end = row.end;
  PRECIS_ASSIGN(row.whole_entries, budget_entries(recipe, model, row.end - row.begin,
                                                  row.trimmed.value_or(row.budget), row.begin));
  return row;
}

Task<Result<bool>> ConsolidatePath::run(Owner owner, std::vector<Catalog::Row> run) {
  PRECIS_CO_ASSIGN(const ModelSpec model, parts_.catalog.model(owner.tenant, run.front()->model));
  PRECIS_CO_ASSIGN(SegmentRow row, merged_row(run, model));
  Merge merge(std::move(run), std::move(row));
  std::vector<PayloadMemory::Want> wants{{0, Arena::End::kHigh}};
  for (std::uint32_t layer = 0; layer < model.num_layers; ++layer) {
    wants.front().size_bytes =
        std::max<std::size_t>(wants.front().size_bytes, bytes_of(merge.run, layer));
    wants.push_back({merge.row.layer_bytes[layer]});
  }
  PRECIS_CO_ASSIGN(auto pieces, parts_.memory.try_free(wants));
  merge.read = pieces.front()->bytes();
  merge.layers.assign(std::make_move_iterator(pieces.begin() + 1),
                      std::make_move_iterator(pieces.end()));
  Status filled = co_await fill(owner, merge);
  if (filled.code() == StatusCode::kNotFound) co_return false;
  PRECIS_CO_TRY(std::move(filled));

  std::vector<Catalog::Link> links;
  std::vector<Catalog::Layer> layers;
  for (const Catalog::Row& each : merge.run) links.push_back({each, each->end});
  for (const auto& layer : merge.layers) layers.push_back({layer->bytes()});
  if (parts_.catalog.lease(owner.tenant, links, kFormerMs) == 0) co_return false;
  std::vector<bool> hot(layers.size(), true);
  for (const Catalog::Row& each : merge.run) {
    for (std::uint32_t layer = 0; layer < hot.size(); ++layer) {
      hot[layer] = hot[layer] && parts_.hot_tier.contains(each->id, layer, each);
    }
  }
  PRECIS_CO_ASSIGN(const bool stored, co_await run_on(parts_.storage, parts_.loop, owner, [&] {
                     return parts_.catalog.merge(merge.run, {merge.row, layers});
                   }));
  if (!stored) co_return false;
  for (const Catalog::Row& each : merge.run) parts_.hot_tier.erase(each->id);
  const auto now = parts_.catalog.segment(owner.tenant, merge.row.id);
  for (std::uint32_t layer = 0; now.ok() && same_put(**now, merge.row) && layer < hot.size();
       ++layer) {
    if (hot[layer]) {
      parts_.hot_tier.insert(owner.tenant, merge.row.id, layer, *now,
                             std::move(merge.layers[layer]));
    }
  }
  ++parts_.metrics.consolidations;
  parts_.metrics.consolidated_bytes += static_cast<std::int64_t>(merge.row.stored_bytes);
  co_return true;
}

// Reads and checks one layer after another. The copies get new checksums, so a layer in the RAM
// tier, which nothing has checked since it was read, is not used.
Task<Status> ConsolidatePath::fill(const Owner& owner, Merge& merge) {
  for (std::uint32_t layer = 0; layer < merge.layers.size(); ++layer) {
    MutableBytes into = merge.read;
    for (const Catalog::Row& each : merge.run) {
      const std::size_t size = each->layer_bytes[layer];
      PRECIS_CO_TRY(co_await parts_.cold.read_to_change(each, layer, into.first(size), owner));
      into = into.subspan(size);
    }
    PRECIS_CO_TRY(
        co_await run_on(parts_.reads, parts_.loop, owner, [&] { return merge.write(layer); }));
  }
  co_return Status();
}

}  // namespace precis
