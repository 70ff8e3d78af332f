#include "cachesvc/pipeline/cut.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cachesvc/base/counted.h"
#include "cachesvc/base/executor.h"
#include "precis/reader_budget.h"
#include "precis/recipe.h"

namespace precis {
namespace {

// Pads a section to the layout's alignment. Extends the last range by the bytes after it if they
// are in the record; otherwise adds a range of zeros.
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

Result<std::uint64_t> asked_entries(const SegmentRow& row, const ModelSpec& model,
                                    const Budget& budget) {
  if (budget.kind == Budget::Kind::kAll) return row.plan.total();
  PRECIS_ASSIGN(const Recipe* const recipe, stored_recipe(row.recipe));
  return precis::asked_entries(row, row.plan.total(), *recipe, model, budget);
}

}  // namespace

Status check_records(Bytes records, const SegmentRow& row, std::uint32_t layer) {
  for (std::uint32_t h = 0; h < row.plan.num_kv_heads; ++h) {
    std::size_t size = 0;
    const auto opened = kernels::open_record(records, &size);
    if (!opened.ok()) return Status::corruption(opened.status().message());  // for every code
    const kernels::RecordView& record = *opened;
    if (record.segment != row.id || record.layer != layer || record.head != h ||
        record.count != row.plan.at(layer, h) || record.encoding != row.encoding) {
      return Status::corruption(
          "the record of head " + std::to_string(h) + " does not belong there: it is of segment " +
          record.segment.hex() + ", layer " + std::to_string(record.layer) + ", head " +
          std::to_string(record.head) + ", " + counted(record.count, "entry", "entries") + ", " +
          std::string(encoding_name(record.encoding)));
    }
    PRECIS_TRY(kernels::verify_record(record));
    records = records.subspan(size);
    yield_if_asked(size);
  }
  return records.empty() ? Status() : Status::corruption("bytes follow the last record");
}

Result<std::uint64_t> cut_entries(const SegmentRow& row, const ModelSpec& model,
                                  const Budget& budget) {
  const std::uint64_t stored = row.plan.total();
  PRECIS_ASSIGN(const std::uint64_t entries, asked_entries(row, model, budget));
  if (entries <= stored) return entries;
  return Status::invalid("a budget of " + budget.to_string() + " is " +
                         counted(entries, "entry", "entries") + " of segment " + row.id.hex() +
                         ", which stores " + std::to_string(stored) + " (" +
                         stored_budget(row).to_string() + "); ask for that or less");
}

Result<std::uint64_t> cut_entries_at_most(const SegmentRow& row, const ModelSpec& model,
                                          const Budget& budget) {
  PRECIS_ASSIGN(const std::uint64_t entries, asked_entries(row, model, budget));
  return std::min(entries, row.plan.total());
}

std::size_t links_out_of_sight(const ModelSpec& model,
                               std::span<const std::shared_ptr<const SegmentRow>> links,
                               std::uint32_t layer, std::uint32_t reader_end) {
  const auto is_hidden = [&](const std::shared_ptr<const SegmentRow>& row) {
    return is_out_of_sight(model.windows, layer, row->end, reader_end);
  };
  return static_cast<std::size_t>(std::ranges::partition_point(links, is_hidden) - links.begin());
}

Result<LayerRecords> open_layer(std::span<const Bytes> links, const LayerShape& shape) {
  LayerRecords layer;
  layer.num_heads = shape.num_heads;
  layer.records.reserve(links.size() * shape.num_heads);
  for (Bytes rest : links) {
    for (std::uint32_t h = 0; h < shape.head_begin + shape.num_heads; ++h) {
      std::size_t size = 0;
      const auto opened = kernels::open_record(rest, &size);
      if (!opened.ok()) return Status::corruption(opened.status().message());  // for every code
      const kernels::RecordView& record = *opened;
      if (record.layer != shape.layer || record.head != h || record.head_dim != shape.head_dim ||
          record.dtype != shape.dtype) {
        return Status::corruption("the record of layer " + std::to_string(shape.layer) + " head " +
                                  std::to_string(h) + " does not belong there");
      }
      if (h >= shape.head_begin) layer.records.push_back({record, rest.first(size)});
      rest = rest.subspan(size);
    }
  }
  return layer;
}

std::vector<std::uint32_t> counts_at(const LayerRecords& layer,
                                     std::span<const std::uint64_t> entries,
                                     std::size_t first_link) {
  std::vector<std::uint32_t> counts(first_link * layer.num_heads);
  counts.reserve(layer.records.size());
  for (std::size_t link = first_link; link < layer.num_links(); ++link) {
    for (std::uint32_t h = 0; h < layer.num_heads; ++h) {
      counts.push_back(kernels::count_at(layer.at(link, h).view, entries[link]));
    }
  }
  return counts;
}

Result<LayerCut> cut_layer(const LayerRecords& layer, std::vector<std::uint32_t> counts,
                           Bytes zeros) {
  LayerCut cut;
  cut.counts = std::move(counts);
  std::vector<std::array<Bytes, kServedSections>> pieces;  // [num_links, num_heads]
  for (std::size_t i = 0; i < layer.records.size(); ++i) {
    const kernels::RecordView& record = layer.records[i].view;
    if (cut.counts[i] > record.count) {
      return Status::corruption("the record of layer " + std::to_string(record.layer) + " head " +
                                std::to_string(record.head) + " has " +
                                counted(record.count, "entry", "entries") + ", not the " +
                                std::to_string(cut.counts[i]) + " that its segment's row says");
    }
    PRECIS_ASSIGN(const kernels::Checksum tail, kernels::cut_tail_checksum(record, cut.counts[i]));
    cut.tail_checksums.push_back(tail);
    pieces.push_back(kernels::cut_ranges(record, cut.counts[i]));
  }
  for (std::uint32_t h = 0; h < layer.num_heads; ++h) {
    for (std::size_t section = 0; section < kServedSections; ++section) {
      std::size_t bytes = 0;
      Bytes inside;
      for (std::size_t link = 0; link < layer.num_links(); ++link) {
        const Bytes part = pieces[link * layer.num_heads + h][section];
        if (part.empty()) continue;
        cut.ranges.push_back(part);
        bytes += part.size();
        inside = layer.at(link, h).bytes;
      }
      pad(cut.ranges, align_section(bytes) - bytes, inside, zeros);
      cut.size_bytes += align_section(bytes);
    }
  }
  return cut;
}

}  // namespace precis
