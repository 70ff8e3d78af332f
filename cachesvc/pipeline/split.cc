#include "cachesvc/pipeline/split.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/read_tries.h"
#include "precis/block_digest.h"
#include "precis/kernels.h"
#include "precis/record_entries.h"

namespace precis {
namespace {

// The seats of one part among the seats of the whole segment.
class SeatSet {
 public:
  explicit SeatSet(std::uint64_t last) : last_(last), words_(last / 64 + 1) {}
  std::uint64_t last() const { return last_; }
  void add(std::uint32_t seat) { words_[seat / 64] |= std::uint64_t{1} << seat % 64; }
  // Call it before rank(), after the last add().
  void count() {
    std::uint32_t sum = 0;
    for (const std::uint64_t word : words_) {
      before_.push_back(sum);
      sum += static_cast<std::uint32_t>(std::popcount(word));
    }
  }
  // The number of the part's seats up to `seat`, which is one of them.
  std::uint32_t rank(std::uint32_t seat) const {
    const std::uint64_t up_to = words_[seat / 64] << (63 - seat % 64);
    return before_[seat / 64] + static_cast<std::uint32_t>(std::popcount(up_to));
  }

 private:
  std::uint64_t last_;
  std::vector<std::uint64_t> words_;
  std::vector<std::uint32_t> before_;
};

struct Half {
  SegmentRow row;
  SeatSet seats;
  std::vector<Catalog::Layer> layers;
  std::vector<MutableBytes> records;  // of all layers and heads

  explicit Half(const SegmentRow& whole) : row(whole), seats(whole.plan.total()) {
    row.plan.counts.clear();
    row.layer_bytes.clear();
    row.stored_bytes = 0;
  }
};

// Sets the fields that follow from the tokens of a part.
void take_tokens(const SegmentRow& whole, std::uint32_t begin, std::uint32_t end,
                 SegmentRow& part) {
  const double share = static_cast<double>(end - begin) / (whole.end - whole.begin);
  part.begin = begin;
  part.end = end;
  part.original_bytes = whole.original_bytes / (whole.end - whole.begin) * (end - begin);
  part.compress_seconds = whole.compress_seconds * share;
  part.prefill_seconds = whole.prefill_seconds * share;
}

}  // namespace

struct SplitPath::Halves {
  std::array<Half, 2> parts;
  const std::uint32_t position;
  MutableBytes room;  // the first part's records grow from its front, the second's from its back

  Halves(const SegmentRow& whole, const ModelSpec& model, std::uint32_t at, MutableBytes memory)
      : parts{Half(whole), Half(whole)}, position(at), room(memory) {
    SegmentRow& head = parts[0].row;
    SegmentRow& tail = parts[1].row;
    take_tokens(whole, whole.begin, at, head);
    take_tokens(whole, at, whole.end, tail);
    if (whole.whole_entries == 0) {
      for (SegmentRow* part : {&head, &tail}) {
        part->whole_entries = whole.plan.total();
        part->whole_begin = whole.begin;
        part->whole_end = whole.end;
      }
    }
    const auto blocks =
        static_cast<std::ptrdiff_t>(at / model.block_tokens - whole.begin / model.block_tokens);
    head.id = part_id(whole.id, at);
    head.blocks.assign(whole.blocks.begin(), whole.blocks.begin() + blocks);
    head.tail.clear();
    head.tip = boundary_tip(head.blocks.back());
    tail.parent = head.id;
    tail.former.clear();  // ids of earlier tokens name the first part
    tail.blocks.assign(whole.blocks.begin() + blocks, whole.blocks.end());
  }

  // Copies the entries of a layer's records.
  Status add_layer(Bytes records) {
    std::vector<kernels::RecordView> views;
    while (!records.empty()) {
      std::size_t size = 0;
      PRECIS_ASSIGN(const kernels::RecordView view, kernels::open_record(records, &size));
      if (!view.seats.empty() && view.seats.back() > parts[0].seats.last()) {
        return Status::corruption("a record has a seat above the entries of its segment");
      }
      views.push_back(view);
      records = records.subspan(size);
    }
    std::array<std::vector<std::uint32_t>, 2> counts;  // by head
    for (const kernels::RecordView& view : views) {
      counts[0].push_back(kernels::entries_before(view, position));
      counts[1].push_back(view.count - counts[0].back());
    }
    for (std::size_t which = 0; which < parts.size(); ++which) {
      Half& part = parts[which];
      std::size_t bytes = 0;
      for (std::size_t h = 0; h < views.size(); ++h) {
        bytes += RecordLayout::of(counts[which][h], views[h].entry_form()).size;
      }
      const MutableBytes layer = which == 0 ? room.first(bytes) : room.last(bytes);
      room = which == 0 ? room.subspan(bytes) : room.first(room.size() - bytes);
      copy(views, counts[which], which == 0, layer, part);
      part.layers.push_back({layer});
      part.row.layer_bytes.push_back(bytes);
      part.row.stored_bytes += bytes;
      part.row.plan.counts.insert(part.row.plan.counts.end(), counts[which].begin(),
                                  counts[which].end());
    }
    return {};
  }

  // Gives the entries of each part seats from 1 on, in the order that they had.
  void seat() {
    for (Half& part : parts) {
      part.seats.count();
      for (const MutableBytes record : part.records) {
        kernels::renumber_seats(record, [&](std::uint32_t seat) { return part.seats.rank(seat); });
        yield_if_asked(record.size());
      }
    }
    // The second part was computed over all entries of the first, and over those of its ancestors
    // as before.
    SegmentRow& tail = parts[1].row;
    if (tail.parent_entries != 0 || parts[0].row.parent.is_null()) {
      tail.parent_entries += parts[0].row.plan.total();
    }
  }

 private:
  void copy(std::span<const kernels::RecordView> views, std::span<const std::uint32_t> counts,
            bool is_first, MutableBytes layer, Half& part) const {
    std::vector<kernels::EntryCopy> entries;
    for (std::size_t h = 0; h < views.size(); ++h) {
      const kernels::RecordView& view = views[h];
      entries.clear();
      for (std::uint32_t e = 0; e < view.count; ++e) {
        if ((view.positions[e] < position) != is_first) continue;
        entries.push_back({0, e, view.seats[e]});
        part.seats.add(view.seats[e]);
      }
      const std::size_t size = RecordLayout::of(counts[h], view.entry_form()).size;
      kernels::write_entries({&view, 1}, entries, part.row.id, layer.first(size));
      part.records.push_back(layer.first(size));
      layer = layer.subspan(size);
      yield_if_asked(size);
    }
  }
};

std::size_t SplitPath::needed_bytes(const SegmentRow& row, const ModelSpec& model) {
  // The parts have the rows of the whole, and twice its headers and paddings.
  const std::size_t headers = kernels::encoded_bytes_max(
      0, 2 * model.num_layers * model.num_kv_heads, EntryForm::of(model));
  return row.stored_bytes + headers + std::ranges::max(row.layer_bytes);
}

Task<Status> SplitPath::run(Owner owner, SegmentId segment, std::uint32_t position, bool waits) {
  for (int tries = 0; tries < kReadTriesMax; ++tries) {
    const auto done = co_await attempt(owner, segment, position, waits);
    parts_.memory.retry();  // the attempt's memory is free now, on errors too
    PRECIS_CO_TRY(done.status());
    if (*done) co_return Status();
    // The segment was trimmed or put again meanwhile: start again.
  }
  co_return changes_too_often("the segment");
}

// Returns false if the row that was read is no longer the stored one.
Task<Result<bool>> SplitPath::attempt(const Owner& owner, const SegmentId& segment,
                                      std::uint32_t position, bool waits) {
  PRECIS_CO_ASSIGN(const Catalog::Row row, parts_.catalog.segment(owner.tenant, segment));
  PRECIS_CO_ASSIGN(const ModelSpec model, parts_.catalog.model(owner.tenant, row->model));
  if (row->begin == position && row->parent == part_id(segment, position)) co_return true;
  if (position <= row->begin || position >= row->end || position % model.block_tokens != 0) {
    co_return Status::rejected("segment " + segment.hex() + " can't be split at token " +
                                   std::to_string(position) + " any more; put again",
                               kReadAgainMs);
  }
  // A first part may be left from a split whose second part was put again as a whole.
  const std::size_t block = position / model.block_tokens - row->begin / model.block_tokens - 1;
  const auto left = parts_.catalog.segment(owner.tenant, part_id(segment, position));
  if (left.ok() && (*left)->root == row->root && (*left)->tip == boundary_tip(row->blocks[block])) {
    co_return true;
  }
  const std::size_t layer_bytes = std::ranges::max(row->layer_bytes);
  std::vector<PayloadMemory::Want> wants{{needed_bytes(*row, model) - layer_bytes},
                                         {layer_bytes, Arena::End::kHigh}};
  auto pieces = parts_.memory.try_acquire(wants);
  if (!pieces.ok() && waits) {
    pieces = co_await parts_.memory.acquire(std::move(wants), owner);
  }
  PRECIS_CO_TRY(pieces.status());
  Halves halves(*row, model, position, pieces->front()->bytes());
  const Status filled = co_await fill(owner, row, pieces->back()->bytes(), halves);
  if (filled.code() == StatusCode::kNotFound &&
      parts_.catalog.segment(owner.tenant, row->id).ok()) {
    co_return false;
  }
  PRECIS_CO_TRY(filled);
  const auto& [head, tail] = halves.parts;
  PRECIS_CO_ASSIGN(
      const bool stored, co_await run_on(parts_.storage, parts_.loop, owner, [&] {
        return parts_.catalog.split(*row, {head.row, head.layers}, {tail.row, tail.layers});
      }));
  if (!stored) co_return false;
  parts_.hot_tier.erase(row->id);
  ++parts_.metrics.splits;
  co_return true;
}

// Reads and checks one layer after another. The copies get new checksums, so a layer in the RAM
// tier, which nothing has checked since it was read, is not used.
Task<Status> SplitPath::fill(const Owner& owner, const Catalog::Row& row, MutableBytes layer_memory,
                             Halves& halves) {
  for (std::uint32_t layer = 0; layer < row->layer_bytes.size(); ++layer) {
    const MutableBytes records = layer_memory.first(row->layer_bytes[layer]);
    PRECIS_CO_TRY(co_await parts_.cold.read_to_change(row, layer, records, owner));
    PRECIS_CO_TRY(co_await run_on(parts_.reads, parts_.loop, owner,
                                  [&] { return halves.add_layer(records); }));
  }
  co_await run_on(parts_.reads, parts_.loop, owner, [&] {
    halves.seat();
    return true;
  });
  co_return Status();
}

}  // namespace precis
