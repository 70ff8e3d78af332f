#include "cachesvc/pipeline/trim.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/read_tries.h"
#include "precis/kernels.h"
#include "precis/recipe.h"
#include "precis/record.h"
#include "precis/score_mass.h"

namespace precis {

// The trimmed records, layer after layer in one piece of memory.
struct TrimPath::Cut {
  SegmentRow row;
  Recipe recipe;
  std::uint64_t entries = 0;              // those with the first seats are left
  std::span<const std::uint32_t> counts;  // if not empty: the first of each head are left instead
  std::unique_ptr<Arena::Buffer> memory;
  std::vector<Catalog::Layer> layers;
  std::vector<float> kept_mass;  // [layers]
};

namespace {

constexpr std::size_t kScoresMax = 1 << 16;  // of a segment's, that are looked at

// The share of a layer's score mass that the first counts[h] entries of each record have.
float kept_mass(const Recipe& recipe, std::span<const kernels::RecordView> records,
                std::span<const std::uint32_t> counts) {
  float lowest = std::numeric_limits<float>::infinity();
  for (const kernels::RecordView& record : records) {
    for (const float score : record.scores) {
      if (std::isfinite(score)) lowest = std::min(lowest, score);
    }
  }
  double kept = 0, all = 0;
  for (std::size_t h = 0; h < records.size(); ++h) {
    for (std::size_t i = 0; i < records[h].scores.size(); ++i) {
      const double mass = kernels::entry_mass(recipe, records[h].scores[i], lowest);
      all += mass;
      if (i < counts[h]) kept += mass;
    }
  }
  return all > 0 ? static_cast<float>(kept / all) : 1;
}

// Appends the score of every `step`-th entry of the records. `next`: the index of the next entry to
// take, counted from the first of these records; on return, from the first of the next records.
Status take_scores(Bytes records, std::size_t step, std::size_t& next, std::vector<float>& scores) {
  while (!records.empty()) {
    std::size_t size = 0;
    PRECIS_ASSIGN(const kernels::RecordView record, kernels::open_record(records, &size));
    for (; next < record.scores.size(); next += step) scores.push_back(record.scores[next]);
    next -= record.scores.size();
    records = records.subspan(size);
  }
  return {};
}

// The number of entries that are left.
Result<std::uint64_t> left_entries(const SegmentRow& row, const ModelSpec& model,
                                   const Budget& budget, std::span<const std::uint32_t> counts) {
  if (counts.empty()) {
    PRECIS_TRY(cut_entries_at_most(row, model, budget).status());
    const auto entries = cut_entries(row, model, budget);
    if (!entries.ok()) return Status::conflict(entries.status().message());  // it stores less
    return *entries;
  }
  const std::vector<std::uint32_t>& stored = row.plan.counts;
  if (counts.size() != stored.size()) {
    return Status::invalid("segment " + row.id.hex() + ": " + counted(counts.size(), "count") +
                           " for " + std::to_string(model.num_layers) + " layers of " +
                           counted(model.num_kv_heads, "KV head") + "; give one for each head");
  }
  std::uint64_t entries = 0;
  for (std::size_t i = 0; i < stored.size(); ++i) entries += std::min(counts[i], stored[i]);
  return entries;
}

}  // namespace

Task<Result<msg::Trimmed>> TrimPath::run(Owner owner, msg::TrimPrefix request) {
  return try_often(std::move(owner), std::move(request), {});
}

Task<Result<msg::Trimmed>> TrimPath::would_keep(Owner owner, SegmentId segment, Counts counts) {
  return try_often(std::move(owner), {segment, Budget::all(), Durability::kWal, /*dry_run=*/true},
                   std::move(counts));
}

Task<Result<msg::Trimmed>> TrimPath::try_often(Owner owner, msg::TrimPrefix request,
                                               Counts counts) {
  for (int tries = 0; tries < kReadTriesMax; ++tries) {
    auto trimmed = co_await attempt(owner, request, counts);
    parts_.memory.retry();  // the attempt's memory is free now, on errors too
    PRECIS_CO_TRY(trimmed.status());
    if (*trimmed) co_return **trimmed;
    // The segment was trimmed or put again meanwhile: start again.
  }
  co_return changes_too_often("the segment");
}

// Returns none if the row that was read is no longer the stored one.
Task<Result<std::optional<msg::Trimmed>>> TrimPath::attempt(const Owner& owner,
                                                            const msg::TrimPrefix& request,
                                                            const Counts& counts) {
  const auto found = parts_.catalog.segment(owner.tenant, request.segment);
  if (!found.ok()) {
    const auto now = parts_.catalog.info(owner.tenant, request.segment, /*with_plan=*/false);
    if (!now.ok() || now->id == request.segment) co_return found.status();
    co_return Status::conflict(found.status().message() + "; trim segment " + now->id.hex());
  }
  const Catalog::Row row = *found;
  PRECIS_CO_ASSIGN(const ModelSpec model, parts_.catalog.model(owner.tenant, row->model));
  PRECIS_CO_ASSIGN(const std::uint64_t entries, left_entries(*row, model, request.budget, counts));
  if (entries == row->plan.total()) {
    if (!request.dry_run) {
      PRECIS_CO_TRY(co_await run_on(parts_.storage, parts_.loop, owner, [&] {
        return parts_.catalog.harden(owner.tenant, row->id, request.durability);
      }));
    }
    co_return msg::Trimmed{entries, row->stored_bytes, 0,
                           std::vector<float>(model.num_layers, 1.0f)};
  }

  Cut cut;
  cut.row = *row;
  PRECIS_CO_ASSIGN(cut.recipe, parse_recipe(row->recipe));
  cut.entries = entries;
  cut.counts = counts;
  cut.row.trimmed = request.budget;
  // The share of the whole that a part stores stays the same.
  if (row->whole_entries != 0 && cut.counts.empty()) {
    PRECIS_CO_ASSIGN(cut.row.whole_entries,
                     budget_entries(cut.recipe, model, row->whole_end - row->whole_begin,
                                    request.budget, row->whole_begin));
  }
  const std::size_t room = kernels::encoded_bytes_max(
      entries, model.num_layers * model.num_kv_heads, EntryForm::of(model, row->encoding));
  std::vector<PayloadMemory::Want> wants{{room},
                                         {std::ranges::max(row->layer_bytes), Arena::End::kHigh}};
  PRECIS_CO_ASSIGN(auto pieces, co_await parts_.memory.acquire(std::move(wants), owner));
  cut.memory = std::move(pieces.front());
  const Status filled = co_await fill(owner, row, pieces.back()->bytes(), cut);
  if (filled.code() == StatusCode::kNotFound &&
      parts_.catalog.segment(owner.tenant, row->id).ok()) {
    co_return std::optional<msg::Trimmed>();
  }
  PRECIS_CO_TRY(filled);
  const msg::Trimmed trimmed{entries, cut.row.stored_bytes,
                             row->stored_bytes - cut.row.stored_bytes, std::move(cut.kept_mass)};
  if (request.dry_run) co_return trimmed;

  PRECIS_CO_ASSIGN(const bool stored, co_await run_on(parts_.storage, parts_.loop, owner, [&] {
                     return parts_.catalog.trim(*row, cut.row, cut.layers, request.durability);
                   }));
  if (!stored) co_return std::optional<msg::Trimmed>();
  parts_.hot_tier.erase(row->id);
  ++parts_.metrics.trims;
  parts_.metrics.trimmed_bytes += static_cast<std::int64_t>(trimmed.freed_bytes);
  co_return trimmed;
}

Task<Result<ScoreCurve>> TrimPath::scores(Owner owner, Catalog::Row row) {
  auto curve = co_await read_scores(owner, row);
  parts_.memory.retry();  // its memory is free now, on errors too
  co_return curve;
}

Task<Result<ScoreCurve>> TrimPath::read_scores(const Owner& owner, const Catalog::Row& row) {
  const std::uint64_t entries = row->plan.total();
  const std::size_t step = 1 + entries / kScoresMax;  // every step-th entry is taken
  std::vector<float> scores;
  std::vector<PayloadMemory::Want> wants{{std::ranges::max(row->layer_bytes), Arena::End::kHigh}};
  PRECIS_CO_ASSIGN(auto pieces, co_await parts_.memory.acquire(std::move(wants), owner));
  std::size_t next = 0;
  for (std::uint32_t layer = 0; layer < row->layer_bytes.size(); ++layer) {
    const MutableBytes records = pieces.front()->bytes().first(row->layer_bytes[layer]);
    PRECIS_CO_TRY(co_await parts_.cold.read_to_change(row, layer, records, owner));
    PRECIS_CO_TRY(co_await run_on(parts_.reads, parts_.loop, owner,
                                  [&] { return take_scores(records, step, next, scores); }));
  }
  co_return ScoreCurve(std::move(scores), entries);
}

// Reads one layer after another into `layer_memory` and writes the cut of each.
Task<Status> TrimPath::fill(const Owner& owner, const Catalog::Row& row, MutableBytes layer_memory,
                            Cut& cut) {
  cut.row.plan.counts.clear();
  cut.row.layer_bytes.clear();
  cut.row.stored_bytes = 0;
  for (std::uint32_t layer = 0; layer < row->layer_bytes.size(); ++layer) {
    const MutableBytes records = layer_memory.first(row->layer_bytes[layer]);
    PRECIS_CO_TRY(co_await parts_.cold.read_to_change(row, layer, records, owner));
    PRECIS_CO_TRY(
        co_await run_on(parts_.reads, parts_.loop, owner, [&] { return add_layer(records, cut); }));
  }
  co_return Status();
}

Status TrimPath::add_layer(Bytes records, Cut& cut) {
  const std::size_t begin = cut.row.stored_bytes;
  std::size_t end = begin;
  std::vector<kernels::RecordView> views;
  while (!records.empty()) {
    std::size_t size = 0;
    PRECIS_ASSIGN(const kernels::RecordView record, kernels::open_record(records, &size));
    const std::size_t head = cut.row.plan.counts.size();  // of all layers
    const std::uint32_t count = cut.counts.empty() ? kernels::count_at(record, cut.entries)
                                                   : std::min(record.count, cut.counts[head]);
    const std::size_t cut_size = RecordLayout::of(count, record.entry_form()).size;
    PRECIS_TRY(kernels::write_cut(record, count, cut.memory->bytes().subspan(end, cut_size)));
    cut.row.plan.counts.push_back(count);
    views.push_back(record);
    end += cut_size;
    records = records.subspan(size);
  }
  cut.layers.push_back({cut.memory->bytes().subspan(begin, end - begin)});
  cut.row.layer_bytes.push_back(end - begin);
  const auto counts = std::span(cut.row.plan.counts).last(views.size());
  cut.kept_mass.push_back(kept_mass(cut.recipe, views, counts));
  cut.row.stored_bytes = end;
  return {};
}

}  // namespace precis
