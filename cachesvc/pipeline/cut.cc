#include "cachesvc/pipeline/cut.h"

#include <string>

#include "cachesvc/base/counted.h"
#include "cachesvc/base/executor.h"
#include "precis/recipe.h"

namespace precis {
namespace {

// Brings a section to the layout's alignment: with what follows its last range in the record if
// that is still the record, which costs no range of its own, else with zeros.
void pad(std::vector<Bytes>& ranges, std::size_t bytes, Bytes inside, Bytes zeros) {
  if (bytes == 0) return;
  Bytes& last = ranges.back();
  const auto left =
      static_cast<std::size_t>(inside.data() + inside.size() - (last.data() + last.size()));
  if (left >= bytes) {
    last = {last.data(), last.size() + bytes};
  } else {
    ranges.push_back(zeros.first(bytes));
  }
}

}  // namespace

Status check_records(Bytes records, const SegmentRow& row, std::uint32_t layer) {
  for (std::uint32_t h = 0; h < row.plan.num_kv_heads; ++h) {
    std::size_t size = 0;
    const auto opened = kernels::open_record(records, &size);
    if (!opened.ok()) return Status::corruption(opened.status().message());  // of any version
    const kernels::RecordView& record = *opened;
    if (record.segment != row.id || record.layer != layer || record.head != h ||
        record.count != row.plan.at(layer, h)) {
      return Status::corruption(
          "the record of head " + std::to_string(h) + " is another's: of segment " +
          record.segment.hex() + ", layer " + std::to_string(record.layer) + ", head " +
          std::to_string(record.head) + ", " + counted(record.count, "entry", "entries"));
    }
    PRECIS_TRY(kernels::verify_record(record));
    records = records.subspan(size);
    give_way(size);
  }
  return records.empty() ? Status() : Status::corruption("bytes stand behind the last record");
}

Result<std::uint64_t> cut_entries(const SegmentRow& row, const ModelSpec& model,
                                  const Budget& budget) {
  const std::uint64_t stored = row.plan.total();
  if (budget.kind == Budget::Kind::kAll) return stored;
  if (budget.kind == Budget::Kind::kQuality) {
    return Status::invalid("a quality target is for puts; name a ratio, entries or bytes");
  }
  PRECIS_ASSIGN(const Recipe recipe, parse_recipe(row.recipe));
  PRECIS_ASSIGN(const std::uint64_t entries,
                budget_entries(recipe, model, row.end - row.begin, budget, row.begin));
  if (entries <= stored) return entries;
  return Status::invalid("a budget of " + budget.to_string() + " is " +
                         counted(entries, "entry", "entries") + " of segment " + row.id.hex() +
                         ", which stores " + std::to_string(stored) + " (" +
                         row.stored_budget().to_string() + "); ask for that or less");
}

Result<LayerCut> cut_layer(std::span<const Bytes> records, std::span<const std::uint64_t> entries,
                           std::uint32_t layer, std::uint32_t num_kv_heads, std::uint32_t head_dim,
                           Dtype dtype, Bytes zeros) {
  struct Piece {
    Bytes record;
    std::array<Bytes, kServedSections> sections;
  };
  LayerCut cut;
  std::vector<Piece> pieces;  // [num_links, num_kv_heads]
  for (std::size_t link = 0; link < records.size(); ++link) {
    Bytes rest = records[link];
    for (std::uint32_t h = 0; h < num_kv_heads; ++h) {
      std::size_t size = 0;
      const auto opened = kernels::open_record(rest, &size);
      if (!opened.ok()) return Status::corruption(opened.status().message());  // of any version
      const kernels::RecordView& record = *opened;
      if (record.layer != layer || record.head != h || record.head_dim != head_dim ||
          record.dtype != dtype) {
        return Status::corruption("the record of layer " + std::to_string(layer) + " head " +
                                  std::to_string(h) + " is another's");
      }
      const std::uint32_t count = kernels::count_at(record, entries[link]);
      PRECIS_ASSIGN(const kernels::Checksum tail, kernels::cut_tail_checksum(record, count));
      cut.counts.push_back(count);
      cut.tail_checksums.push_back(tail);
      pieces.push_back({rest.first(size), kernels::cut_ranges(record, count)});
      rest = rest.subspan(size);
    }
  }
  for (std::uint32_t h = 0; h < num_kv_heads; ++h) {
    for (std::size_t section = 0; section < kServedSections; ++section) {
      std::size_t bytes = 0;
      Bytes inside;
      for (std::size_t link = 0; link < records.size(); ++link) {
        const Piece& piece = pieces[link * num_kv_heads + h];
        const Bytes part = piece.sections[section];
        if (part.empty()) continue;
        cut.ranges.push_back(part);
        bytes += part.size();
        inside = piece.record;
      }
      pad(cut.ranges, align_section(bytes) - bytes, inside, zeros);
      cut.size_bytes += align_section(bytes);
    }
  }
  return cut;
}

}  // namespace precis
