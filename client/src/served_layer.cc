#include "client/src/served_layer.h"

#include <array>
#include <cstring>
#include <string>

#include "cachesvc/base/counted.h"
#include "cachesvc/base/executor.h"
#include "precis/record.h"
#include "precis/row_code.h"

namespace precis {
namespace {

// Sections of a served head, in their order.
enum Section : std::size_t { kChecksums, kPositions, kSeats, kScores, kKeys, kValues };

Status broken(const msg::LayerServed& served, const std::string& what) {
  return Status::corruption("the service says of layer " + std::to_string(served.layer) + ": " +
                            what);
}

template <typename T>
std::span<const T> array_at(Bytes layer, std::size_t offset, std::size_t count) {
  return {reinterpret_cast<const T*>(layer.data() + offset), count};
}

// The entries of one link in one head. `at`: where the link's part of each section begins.
kernels::RecordView record_at(const EntryForm& form, std::uint32_t layer_index, std::uint32_t head,
                              std::uint32_t count, const std::array<std::size_t, 6>& at,
                              Bytes layer) {
  kernels::RecordView record;
  record.layer = layer_index;
  record.head = head;
  record.count = count;
  record.head_dim = form.head_dim;
  record.dtype = form.dtype;
  record.encoding = form.encoding;
  record.checksums =
      array_at<kernels::Checksum>(layer, at[kChecksums], count / kChecksumBlockEntries);
  record.positions = array_at<std::uint32_t>(layer, at[kPositions], count);
  record.seats = array_at<std::uint32_t>(layer, at[kSeats], count);
  record.scores = array_at<float>(layer, at[kScores], count);
  record.keys = layer.subspan(at[kKeys], count * form.keys().bytes());
  record.values = layer.subspan(at[kValues], count * form.values().bytes());
  return record;
}

// Decodes the rows of K (EntryForm::keys) or of V (EntryForm::values) of a head, of all links one
// after the other. Returns `to`.
std::byte* decode(const GetPlan& plan, const msg::LayerServed& served, std::uint32_t head,
                  RowForm (EntryForm::*form_of)() const, const std::byte* from,
                  std::byte* const to) {
  std::byte* out = to;
  for (std::size_t link = 0; link < plan.links.size(); ++link) {
    const std::uint32_t count = served.counts[link * plan.num_heads + head];
    const RowForm form = (plan.forms[link].*form_of)();
    kernels::decode_rows(form, count, from, out);
    from += count * form.bytes();
    const std::size_t decoded = count * RowForm{form.head_dim, form.dtype}.bytes();
    out += decoded;
    yield_if_asked(decoded);
  }
  return to;
}

// Checksums show that the bytes are the stored bytes. This check shows that they are a cut at T
// entries.
Status check_entries(const GetPlan::Link& link, const kernels::RecordView& record) {
  const auto wrong = [&](std::uint32_t entry, const std::string& what) {
    return Status::corruption("layer " + std::to_string(record.layer) + ", head " +
                              std::to_string(record.head) + ", entry " + std::to_string(entry) +
                              " has " + what);
  };
  std::uint32_t previous = 0;
  for (std::uint32_t i = 0; i < record.count; ++i) {
    const std::uint32_t seat = record.seats[i], position = record.positions[i];
    if (seat <= previous || seat > link.entries) {
      return wrong(i, "seat " + std::to_string(seat) + ", must be in (" + std::to_string(previous) +
                          ", " + std::to_string(link.entries) + "]");
    }
    if (position < link.begin || position >= link.end) {
      return wrong(i, "position " + std::to_string(position) + ", must be in [" +
                          std::to_string(link.begin) + ", " + std::to_string(link.end) + ")");
    }
    previous = seat;
  }
  return {};
}

}  // namespace

Result<ServedLayout> locate_layer(const GetPlan& plan, const msg::LayerServed& served,
                                  std::span<const std::uint64_t> entries_left,
                                  std::size_t buffer_bytes) {
  const std::uint32_t num_heads = plan.num_heads;
  const std::size_t cuts = plan.links.size() * num_heads;
  if (served.counts.size() != cuts || served.tail_checksums.size() != cuts) {
    return broken(served, std::to_string(served.counts.size()) + " counts and " +
                              std::to_string(served.tail_checksums.size()) +
                              " tail checksums, must be " + std::to_string(cuts) + " each");
  }
  for (std::size_t link = 0; link < plan.links.size(); ++link) {
    std::uint64_t sum = 0;  // of at most kKvHeadsMax counts of 32 bits
    for (std::uint32_t h = 0; h < num_heads; ++h) {
      const std::uint32_t count = served.counts[link * num_heads + h];
      const std::uint32_t tokens = plan.links[link].end - plan.links[link].begin;
      if (count > tokens) {
        return broken(served, counted(count, "entry", "entries") + " of a head of segment " +
                                  plan.links[link].segment.hex() + ", which has only " +
                                  counted(tokens, "token"));
      }
      sum += count;
      if (!plan.counted()) continue;
      const std::uint32_t asked = plan.links[link].counts[served.layer * num_heads + h];
      if (count != asked) {
        return broken(served, counted(count, "entry", "entries") + " of segment " +
                                  plan.links[link].segment.hex() + ", head " +
                                  std::to_string(plan.head_begin + h) + ", " +
                                  std::to_string(asked) + " were asked for");
      }
    }
    if (sum > entries_left[link]) {
      return broken(served, std::to_string(sum) + " entries of segment " +
                                plan.links[link].segment.hex() + ", of its " +
                                std::to_string(plan.links[link].served_max) + " only " +
                                std::to_string(entries_left[link]) + " are left");
    }
  }
  ServedLayout layout = ServedLayout::of(served.counts, num_heads, plan.forms);
  if (served.offset % kSectionAlign != 0 || layout.size_bytes > buffer_bytes ||
      served.offset > buffer_bytes - layout.size_bytes) {
    return broken(served, std::to_string(layout.size_bytes) + " B at offset " +
                              std::to_string(served.offset) + ", must be a multiple of " +
                              std::to_string(kSectionAlign) + " and inside the buffer of " +
                              std::to_string(buffer_bytes) + " B");
  }
  return layout;
}

Status verify_layer(const GetPlan& plan, const msg::LayerServed& served, const ServedLayout& layout,
                    Bytes layer) {
  const std::uint32_t num_heads = plan.num_heads;
  for (std::uint32_t h = 0; h < num_heads; ++h) {
    auto at = layout.heads[h].section;
    for (std::size_t link = 0; link < plan.links.size(); ++link) {
      const std::size_t cut = link * num_heads + h;
      const std::uint32_t count = served.counts[cut];
      const EntryForm& form = plan.forms[link];
      const auto record = record_at(form, served.layer, plan.head_begin + h, count, at, layer);
      const bool whole_blocks = count % kChecksumBlockEntries == 0;
      Status status =
          kernels::verify_record(record, whole_blocks ? nullptr : &served.tail_checksums[cut]);
      if (status.ok()) status = check_entries(plan.links[link], record);
      if (!status.ok()) {
        return status.with_context("segment " + plan.links[link].segment.hex());
      }
      const auto part = served_part_bytes(count, form);
      for (std::size_t s = 0; s < kServedSections; ++s) at[s] += part[s];
      yield_if_asked(count * form.bytes());
    }
  }
  return {};
}

std::size_t decoded_bytes(const GetPlan& plan, const ServedLayout& layout) {
  if (plan.decoded_bytes == 0) return 0;
  const std::size_t row_bytes = EntryForm::of(plan.model).keys().bytes();
  std::size_t bytes = 0;
  for (const ServedLayout::Head& head : layout.heads) {
    bytes += 2 * align_section(head.count * row_bytes);
  }
  return bytes;
}

std::vector<HeadEntries> arrange_layer(const GetPlan& plan, const msg::LayerServed& served,
                                       const ServedLayout& layout, MutableBytes layer,
                                       MutableBytes decoded) {
  const ModelSpec& model = plan.model;
  const GetPlan::Link& last = plan.links.back();
  const std::size_t row_bytes = EntryForm::of(model).keys().bytes();
  std::vector<HeadEntries> heads;
  for (std::uint32_t h = 0; h < plan.num_heads; ++h) {
    const auto& at = layout.heads[h].section;
    auto* positions = reinterpret_cast<std::uint32_t*>(layer.data() + at[kPositions]);
    auto* seats = reinterpret_cast<std::uint32_t*>(layer.data() + at[kSeats]);
    auto* scores = reinterpret_cast<float*>(layer.data() + at[kScores]);
    const std::uint32_t served_count = layout.heads[h].count;
    std::byte* keys = layer.data() + at[kKeys];
    std::byte* values = layer.data() + at[kValues];
    if (!decoded.empty()) {
      const std::size_t size = align_section(served_count * row_bytes);
      keys = decode(plan, served, h, &EntryForm::keys, keys, decoded.data());
      values = decode(plan, served, h, &EntryForm::values, values, decoded.data() + size);
      decoded = decoded.subspan(2 * size);
    }

    std::uint32_t count = served_count;
    if (last.matched_end < last.end) {
      count -= served.counts[(plan.links.size() - 1) * plan.num_heads + h];
      for (std::uint32_t i = count; i < served_count; ++i) {
        if (positions[i] >= last.matched_end) continue;
        if (i != count) {
          positions[count] = positions[i];
          seats[count] = seats[i];
          scores[count] = scores[i];
          std::memcpy(keys + count * row_bytes, keys + i * row_bytes, row_bytes);
          std::memcpy(values + count * row_bytes, values + i * row_bytes, row_bytes);
        }
        ++count;
      }
    }
    heads.push_back({{positions, count},
                     {seats, count},
                     {scores, count},
                     HeadsView::packed(keys, 1, count, model.head_dim, model.dtype),
                     HeadsView::packed(values, 1, count, model.head_dim, model.dtype)});
  }
  return heads;
}

}  // namespace precis
