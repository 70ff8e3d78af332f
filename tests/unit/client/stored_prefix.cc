#include "tests/unit/client/stored_prefix.h"

#include <algorithm>
#include <cstring>

#include "precis/recipe.h"
#include "precis/record.h"
#include "precis/row_code.h"
#include "precis/served_layout.h"

namespace precis::testing {
namespace {

std::vector<std::byte> random_row(std::mt19937& random, std::size_t size) {
  std::vector<std::byte> row(size);
  for (std::byte& b : row) b = static_cast<std::byte>(random() & 0xff);
  return row;
}

std::vector<std::byte> seal(const EntryForm& form, const std::vector<Entry>& entries,
                            std::uint32_t layer, std::uint32_t head, const SegmentId& segment) {
  const auto count = static_cast<std::uint32_t>(entries.size());
  const RecordLayout at = RecordLayout::of(count, form);
  std::vector<std::byte> record(at.size);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Entry& e = entries[i];
    std::memcpy(record.data() + at.positions + 4 * i, &e.position, 4);
    std::memcpy(record.data() + at.seats + 4 * i, &e.seat, 4);
    std::memcpy(record.data() + at.scores + 4 * i, &e.score, 4);
    kernels::encode_rows(form.keys(), 1, e.key.data(), record.data() + at.keys + i * at.key_bytes);
    kernels::encode_rows(form.values(), 1, e.value.data(),
                         record.data() + at.values + i * at.value_bytes);
  }
  kernels::seal_record(record, layer, head, count, form, segment);
  return record;
}

}  // namespace

ModelSpec small_model(Dtype dtype) {
  ModelSpec model;
  model.name = "test/small";
  model.num_layers = 3;
  model.num_q_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 8;
  model.dtype = dtype;
  return model;
}

StoredSegment random_segment(std::mt19937& random, const ModelSpec& model, std::uint32_t begin,
                             std::uint32_t end, std::uint64_t entries, Encoding encoding) {
  struct Place {
    std::uint32_t layer, head, position;
  };
  std::vector<Place> places;
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      for (std::uint32_t p = begin; p < end; ++p) places.push_back({l, h, p});
    }
  }
  std::shuffle(places.begin(), places.end(), random);

  StoredSegment segment;
  for (std::uint8_t& b : segment.info.id.bytes) b = static_cast<std::uint8_t>(random());
  segment.info.begin = begin;
  segment.info.end = end;
  segment.info.entries = entries;
  segment.info.budget = Budget::entries(entries / model.num_layers / model.num_kv_heads);
  Recipe recipe = parse_recipe("keydiff").value();
  recipe.encoding = encoding;
  segment.info.recipe = canonical_recipe(recipe);
  segment.info.encoding = encoding;
  segment.form = EntryForm::of(model, encoding);
  segment.entries.assign(model.num_layers, std::vector<std::vector<Entry>>(model.num_kv_heads));
  const std::size_t row_bytes = EntryForm::of(model).keys().bytes();
  for (std::uint32_t seat = 1; seat <= entries; ++seat) {
    const Place& at = places[seat - 1];
    segment.entries[at.layer][at.head].push_back(
        {at.position, seat, static_cast<float>(random() % 1000), random_row(random, row_bytes),
         random_row(random, row_bytes)});
  }
  reseal(model, segment);
  return segment;
}

void reseal(const ModelSpec& model, StoredSegment& segment) {
  segment.records.clear();
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    auto& layer = segment.records.emplace_back();
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      layer.push_back(seal(segment.form, segment.entries[l][h], l, h, segment.info.id));
    }
  }
}

std::vector<std::byte> row_as_read(const RowForm& form, const std::vector<std::byte>& row) {
  std::vector<std::byte> stored(form.bytes()), read(row.size());
  kernels::encode_rows(form, 1, row.data(), stored.data());
  kernels::decode_rows(form, 1, stored.data(), read.data());
  return read;
}

LookupMatch match_of(const ModelSpec& model, const std::vector<StoredSegment>& segments) {
  LookupMatch match;
  match.model.spec = model;
  for (const StoredSegment& segment : segments) {
    match.links.push_back({segment.info, segment.info.end});
    match.matched_tokens = segment.info.end;
  }
  return match;
}

void count_all(LookupMatch& match, const std::vector<StoredSegment>& segments,
               std::uint64_t entries) {
  const ModelSpec& model = match.model.spec;
  match.options.keep = Budget::all();
  match.plan = {model.num_layers, model.num_kv_heads, {}};
  match.plan.counts.resize(std::size_t{model.num_layers} * model.num_kv_heads);
  for (std::size_t link = 0; link < segments.size(); ++link) {
    auto& counts = match.links[link].counts;
    counts.clear();
    for (const auto& layer : segments[link].entries) {
      for (const auto& head : layer) {
        const auto within =
            std::ranges::count_if(head, [&](const Entry& entry) { return entry.seat <= entries; });
        match.plan.counts[counts.size()] += static_cast<std::uint32_t>(within);
        counts.push_back(static_cast<std::uint32_t>(within));
      }
    }
  }
}

ServedBytes serve_layer(const ModelSpec& model, const std::vector<StoredSegment>& segments,
                        const std::vector<std::uint64_t>& entries, std::uint32_t layer) {
  std::vector<std::vector<std::uint32_t>> counts(segments.size());
  for (std::size_t link = 0; link < segments.size(); ++link) {
    counts[link].resize(std::size_t{layer} * model.num_kv_heads);  // of earlier layers: not served
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      const auto record = kernels::open_record(segments[link].records[layer][h]).value();
      counts[link].push_back(kernels::count_at(record, entries[link]));
    }
  }
  return serve_counts(model, segments, counts, layer, 0, model.num_kv_heads);
}

ServedBytes serve_counts(const ModelSpec& model, const std::vector<StoredSegment>& segments,
                         const std::vector<std::vector<std::uint32_t>>& counts, std::uint32_t layer,
                         std::uint32_t head_begin, std::uint32_t head_end) {
  ServedBytes served;
  served.message.layer = layer;
  const std::uint32_t num_heads = head_end - head_begin;
  PRECIS_CHECK(head_end <= model.num_kv_heads);
  std::vector<std::vector<std::array<Bytes, 6>>> cuts(segments.size());  // [link][head]
  for (std::size_t link = 0; link < segments.size(); ++link) {
    for (std::uint32_t h = 0; h < num_heads; ++h) {
      const auto& bytes = segments[link].records[layer][head_begin + h];
      const auto record = kernels::open_record(bytes).value();
      const std::uint32_t count = counts[link][std::size_t{layer} * num_heads + h];
      served.message.counts.push_back(count);
      served.message.tail_checksums.push_back(kernels::cut_tail_checksum(record, count).value());
      cuts[link].push_back(kernels::cut_ranges(record, count));
    }
  }
  for (std::uint32_t h = 0; h < num_heads; ++h) {
    for (std::size_t s = 0; s < kServedSections; ++s) {
      for (std::size_t link = 0; link < segments.size(); ++link) {
        const Bytes range = cuts[link][h][s];
        served.bytes.insert(served.bytes.end(), range.begin(), range.end());
      }
      served.bytes.resize(align_section(served.bytes.size()));
    }
  }
  return served;
}

}  // namespace precis::testing
