// Head records read from disk, and served layers with the service's description of them.
#include "precis/record.h"

#include <algorithm>
#include <cstring>

#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/exact_counts.h"
#include "client/src/get_plan.h"
#include "client/src/served_layer.h"
#include "precis/block_digest.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/mended_record.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/client/stored_prefix.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

using kernels::RecordView;
using testing::StoredSegment;

// The prefix that every input of these targets claims to be part of: two segments, of which the
// second matches in part.
struct Prefix {
  ModelSpec model = testing::small_model();
  std::vector<StoredSegment> segments;
  GetPlan plan;
  std::vector<std::uint64_t> entries;  // [num_links]
  SegmentRow row;                      // of the second segment

  Prefix() {
    std::mt19937 random(1);
    segments.push_back(testing::random_segment(random, model, 0, 40, 100));
    segments.push_back(testing::random_segment(random, model, 40, 160, 500, Encoding::kK6V4));
    LookupMatch match = testing::match_of(model, segments);
    match.links.back().matched_end = match.matched_tokens = 120;
    plan = *plan_get(match, Budget::all());
    for (const GetPlan::Link& link : plan.links) entries.push_back(link.entries);
    const StoredSegment& last = segments.back();
    row.id = last.info.id;
    row.encoding = last.info.encoding;
    row.plan = {model.num_layers, model.num_kv_heads, {}};
    for (const auto& layer : last.entries) {
      for (const auto& head : layer) {
        row.plan.counts.push_back(static_cast<std::uint32_t>(head.size()));
      }
    }
  }

  std::vector<std::byte> records(std::uint32_t layer) const {
    std::vector<std::byte> bytes;
    for (const auto& record : segments.back().records[layer]) {
      bytes.insert(bytes.end(), record.begin(), record.end());
    }
    return bytes;
  }
};

const Prefix& prefix() {
  static const Prefix kPrefix;
  return kPrefix;
}

bool refused_as_damaged(const Status& status) {
  PRECIS_CHECK(status.code() == StatusCode::kCorruption ||
               status.code() == StatusCode::kVersionMismatch);
  return refused(status);
}

// ---- one record

// Checks that an accepted record equals the result of sealing its sections, can be cut at any
// count, and is refused with one bit flipped.
bool check_record(Bytes bytes) {
  std::size_t size = 0;
  const auto record = kernels::open_record(bytes, &size);
  if (!record.ok()) return refused_as_damaged(record.status());
  PRECIS_CHECK(size <= bytes.size());
  const Status whole = kernels::verify_record(*record);
  for (const std::uint32_t count : {0u, record->count / 2, record->count}) {
    const auto tail = kernels::cut_tail_checksum(*record, count);
    PRECIS_CHECK(tail.ok() || !whole.ok());
    PRECIS_CHECK(kernels::cut_ranges(*record, count)[1].size() == count * std::size_t{4});
  }
  PRECIS_CHECK(kernels::count_at(*record, record->count / 2) <= record->count);
  if (!whole.ok()) return refused_as_damaged(whole);

  std::vector<std::byte> sealed(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
  kernels::seal_record(sealed, record->layer, record->head, record->count, record->entry_form(),
                       record->segment);
  PRECIS_CHECK(std::ranges::equal(sealed, bytes.first(size)));
  const std::vector<std::byte> other = with_a_flipped_bit(sealed);
  const auto damaged = kernels::open_record(other);
  PRECIS_CHECK(!damaged.ok() || !kernels::verify_record(*damaged).ok());
  return true;
}

bool run_open_record(Bytes input) {
  std::vector<std::byte> mended(input.begin(), input.end());
  mend_record(mended);
  check_record(mended);
  return check_record(input);
}

Inputs record_seeds(std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  Inputs inputs;
  for (const Dtype dtype : kDtypes) {
    for (const Encoding encoding : kEncodings) {
      const auto segment =
          testing::random_segment(random, testing::small_model(dtype), 0, 90, 200, encoding);
      inputs.push_back(segment.records[0][0]);
    }
  }
  const auto one = testing::random_segment(random, testing::small_model(), 0, 40, 1);
  for (const auto& layer : one.records) inputs.insert(inputs.end(), layer.begin(), layer.end());
  return inputs;
}

// ---- the records of a layer, and their cuts

// Checks that no count exceeds its record and that the plan counts the entries that a reader gets.
// The records' content is arbitrary.
void check_counts(const LayerRecords& layer, std::uint64_t entries) {
  const std::uint32_t matched_end = prefix().plan.links.back().matched_end;
  for (const std::uint32_t align : {1u, 16u}) {
    const LayerCounts counted = count_layer(layer, {{&entries, 1}, align, true, matched_end});
    for (std::uint32_t h = 0; h < layer.num_heads; ++h) {
      const kernels::RecordView& record = layer.at(0, h).view;
      PRECIS_CHECK(counted.counts[h] <= record.count);
      const auto within =
          std::ranges::count_if(record.positions.first(counted.counts[h]),
                                [&](std::uint32_t position) { return position < matched_end; });
      PRECIS_CHECK(within == counted.plan[h] && counted.plan[h] % align == 0);
    }
  }
}

bool check_layer(Bytes records, std::uint32_t layer) {
  static const std::vector<std::byte> kZeros(kSectionAlign);
  const Prefix& p = prefix();
  const Status status = check_records(records, p.row, layer);
  if (!status.ok()) return refused_as_damaged(status);
  PRECIS_CHECK(!check_records(with_a_flipped_bit(records), p.row, layer).ok());
  for (const std::uint64_t entries : {std::uint64_t{0}, std::uint64_t{77}, p.entries.back()}) {
    const auto opened = open_layer(
        {&records, 1}, {layer, 0, p.model.num_kv_heads, p.model.head_dim, p.model.dtype});
    if (!opened.ok()) return refused_as_damaged(opened.status());  // valid, but of another shape
    const auto cut = cut_layer(*opened, counts_at(*opened, {&entries, 1}), kZeros);
    if (!cut.ok()) return refused_as_damaged(cut.status());
    std::size_t size = 0;
    for (const Bytes range : cut->ranges) size += range.size();
    PRECIS_CHECK(size == cut->size_bytes);
    check_counts(*opened, entries);
  }
  return true;
}

bool run_check_records(Bytes input) {
  std::vector<std::byte> mended(input.begin(), input.end());
  for (std::size_t at = 0, size = 1; at < mended.size() && size > 0; at += size) {
    size = mend_record(MutableBytes(mended).subspan(at));
  }
  bool accepted = false;
  for (std::uint32_t layer = 0; layer < prefix().model.num_layers; ++layer) {
    check_layer(mended, layer);
    if (check_layer(input, layer)) accepted = true;
  }
  return accepted;
}

Inputs layer_seeds(std::uint64_t) {
  Inputs inputs;
  for (std::uint32_t l = 0; l < prefix().model.num_layers; ++l) {
    inputs.push_back(prefix().records(l));
  }
  return inputs;
}

// ---- a served layer: the length of its message (u32), the message, the reader's memory

std::vector<std::byte> content(const std::vector<HeadEntries>& heads) {
  std::vector<std::byte> all;
  const auto append = [&](Bytes bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
  for (const HeadEntries& head : heads) {
    append(std::as_bytes(head.positions));
    append(std::as_bytes(head.seats));
    append(std::as_bytes(head.scores));
    append({head.keys.data, head.keys.size_bytes()});
    append({head.values.data, head.values.size_bytes()});
  }
  return all;
}

void check_arranged(const std::vector<HeadEntries>& heads) {
  const Prefix& p = prefix();
  PRECIS_CHECK(heads.size() == p.model.num_kv_heads);
  for (const HeadEntries& head : heads) {
    for (const std::uint32_t position : head.positions) {
      PRECIS_CHECK(position < p.plan.links.back().matched_end);
    }
    PRECIS_CHECK(head.keys.num_tokens == head.positions.size());
  }
}

bool run_layer(const msg::LayerServed& served, const ServedLayout& layout, Bytes layer) {
  const GetPlan& plan = prefix().plan;
  const Status status = verify_layer(plan, served, layout, layer);
  if (!status.ok()) return refused_as_damaged(status);
  std::vector<std::byte> mine(layer.begin(), layer.end());
  std::vector<std::byte> decoded(decoded_bytes(plan, layout)), other_decoded(decoded.size());
  PRECIS_CHECK(decoded.size() <= plan.decoded_bytes);
  const std::vector<HeadEntries> heads = arrange_layer(plan, served, layout, mine, decoded);
  check_arranged(heads);
  if (layer.empty()) return true;
  // A flipped bit is detected, or lies outside the layer's data.
  std::vector<std::byte> other = with_a_flipped_bit(layer);
  if (!verify_layer(plan, served, layout, other).ok()) return true;
  PRECIS_CHECK(content(arrange_layer(plan, served, layout, other, other_decoded)) ==
               content(heads));
  return true;
}

bool run_served_layer(Bytes input) {
  std::uint32_t length = 0;
  if (input.size() < sizeof length) return false;
  std::memcpy(&length, input.data(), sizeof length);
  input = input.subspan(sizeof length);
  if (length > input.size()) return false;
  auto message = decode_server_message(input.first(length));
  if (!message.ok() || !std::holds_alternative<msg::LayerServed>(*message)) return false;
  auto& served = std::get<msg::LayerServed>(*message);
  std::vector<std::byte> memory(input.begin() + length, input.end());
  const auto layout = locate_layer(prefix().plan, served, prefix().entries, memory.size());
  if (!layout.ok()) return refused_as_damaged(layout.status());
  const MutableBytes layer = MutableBytes(memory).subspan(served.offset, layout->size_bytes);
  const bool accepted = run_layer(served, *layout, layer);
  mend_served(prefix().plan, served, *layout, layer);
  run_layer(served, *layout, layer);
  return accepted;
}

Inputs served_seeds(std::uint64_t) {
  const Prefix& p = prefix();
  Inputs inputs;
  for (std::uint32_t l = 0; l < p.model.num_layers; ++l) {
    testing::ServedBytes served = testing::serve_layer(p.model, p.segments, p.entries, l);
    served.message.offset = l * kSectionAlign;
    const std::vector<std::byte> message = encode(msg::ServerMessage(served.message));
    const auto length = static_cast<std::uint32_t>(message.size());
    std::vector<std::byte>& input = inputs.emplace_back(sizeof length);
    std::memcpy(input.data(), &length, sizeof length);
    input.insert(input.end(), message.begin(), message.end());
    input.resize(input.size() + served.message.offset);
    input.insert(input.end(), served.bytes.begin(), served.bytes.end());
  }
  return inputs;
}

// ---- the plan that a get computes from a match

bool run_plan_get(Bytes input) {
  const auto message = decode_server_message(input);
  if (!message.ok() || !std::holds_alternative<msg::Reply>(*message)) return false;
  const auto* const found = std::get_if<msg::Match>(&std::get<msg::Reply>(*message).body);
  if (found == nullptr) return false;
  LookupMatch match;
  static_cast<msg::Match&>(match) = *found;
  match.model.spec = prefix().model;
  bool accepted = false;
  for (const Budget& keep : {Budget::all(), Budget::ratio_ppm(1), Budget::bytes(1000),
                             Budget::entries(~std::uint64_t{0})}) {
    const auto plan = plan_get(match, keep);
    if (!plan.ok()) {
      refused(plan.status());
      continue;
    }
    accepted = true;
    std::size_t served = 0, decoded = 0;
    for (std::size_t i = 0; i < plan->links.size(); ++i) {
      const std::uint64_t entries = plan->links[i].served_max;
      served += entries * record_entry_bytes(plan->forms[i]);
      decoded += entries * plan->forms[i].raw().bytes();
    }
    // The plan has room for the requested entries, even if the match is wrong.
    PRECIS_CHECK(plan->capacity_bytes >= served);
    PRECIS_CHECK(plan->decoded_bytes == 0 || plan->decoded_bytes >= decoded);
  }
  return accepted;
}

// One match as stored, and one with counts.
std::vector<LookupMatch> matches() {
  std::vector<LookupMatch> all(2, testing::match_of(prefix().model, prefix().segments));
  for (LookupMatch& match : all) {
    match.model.fingerprint = model_fingerprint(match.model.spec);
    match.plan = {match.model.spec.num_layers, match.model.spec.num_kv_heads, {}};
    match.plan.counts.resize(prefix().row.plan.counts.size());
  }
  testing::count_all(all[1], prefix().segments, 7);
  return all;
}

Inputs match_seeds(std::uint64_t seed) {
  Inputs inputs;
  for (const LookupMatch& match : matches()) {
    msg::Reply reply;
    reply.id = seed;
    reply.body = static_cast<const msg::Match&>(match);
    inputs.push_back(encode(msg::ServerMessage(reply)));
  }
  return inputs;
}

// ---- a match passed on by another client

bool run_match_from_bytes(Bytes input) {
  std::vector<TokenId> tokens;
  const auto match = match_from_bytes(input, &tokens);
  if (!match.ok()) return refused(match.status());
  PRECIS_CHECK(!*match || plan_get(*match, Budget::all()).ok());
  const std::vector<std::byte> bytes = to_bytes(*match, tokens);
  const auto again = match_from_bytes(bytes, &tokens);
  PRECIS_CHECK(again.ok() && to_bytes(*again, tokens) == bytes);
  return true;
}

Inputs passed_match_seeds(std::uint64_t) {
  Inputs inputs;
  for (const LookupMatch& match : matches()) {
    inputs.push_back(to_bytes(match));
    inputs.push_back(to_bytes(match, std::vector<TokenId>(match.matched_tokens, 3)));
  }
  return inputs;
}

constexpr Target kTargets[] = {
    {"open_record", run_open_record, record_seeds},
    {"check_records", run_check_records, layer_seeds},
    {"served_layer", run_served_layer, served_seeds},
    {"plan_get", run_plan_get, match_seeds},
    {"match_from_bytes", run_match_from_bytes, passed_match_seeds},
};

}  // namespace

std::span<const Target> record_targets() { return kTargets; }

}  // namespace precis::fuzz
