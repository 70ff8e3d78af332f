#include "precis/types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "precis/limits.h"

namespace precis {
namespace {

std::string hex_of(const std::uint8_t* data, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    out.push_back(kDigits[data[i] >> 4]);
    out.push_back(kDigits[data[i] & 15]);
  }
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Status parse_hex(std::string_view what, std::string_view hex, std::uint8_t* out, std::size_t size) {
  if (hex.size() != 2 * size) {
    return Status::invalid(std::string(what) + " has " + std::to_string(hex.size()) +
                           " characters, must be " + std::to_string(2 * size) + " hex digits");
  }
  for (std::size_t i = 0; i < size; ++i) {
    const int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Status::invalid(std::string(what) + " '" + std::string(hex) + "' is not hexadecimal");
    }
    out[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return {};
}

Status in_range(const char* field, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return {};
  return Status::invalid("model: " + std::string(field) + " is " + std::to_string(value) +
                         ", must be in [" + std::to_string(low) + ", " + std::to_string(high) +
                         "]");
}

constexpr const char* kUnknownDtype = " is unknown, choose bf16, f16, f32 or f8_e4m3";

}  // namespace

std::string_view dtype_name(Dtype d) {
  switch (d) {
    case Dtype::kBf16: return "bf16";
    case Dtype::kF16: return "f16";
    case Dtype::kF32: return "f32";
    case Dtype::kF8E4M3: return "f8_e4m3";
  }
  return "unknown";
}

Result<Dtype> parse_dtype(std::string_view name) {
  for (const Dtype d : kDtypes) {
    if (name == dtype_name(d)) return d;
  }
  return Status::invalid("dtype '" + std::string(name) + "'" + kUnknownDtype);
}

Status check_dtype(Dtype d) {
  if (std::ranges::find(kDtypes, d) != kDtypes.end()) return {};
  return Status::invalid("dtype " + std::to_string(static_cast<int>(d)) + kUnknownDtype);
}

std::string Digest::hex() const { return hex_of(bytes.data(), bytes.size()); }
std::string SegmentId::hex() const { return hex_of(bytes.data(), bytes.size()); }

Result<Digest> parse_digest(std::string_view hex) {
  Digest d;
  PRECIS_TRY(parse_hex("digest", hex, d.bytes.data(), d.bytes.size()));
  return d;
}

Result<SegmentId> parse_segment_id(std::string_view hex) {
  SegmentId id;
  PRECIS_TRY(parse_hex("segment id", hex, id.bytes.data(), id.bytes.size()));
  return id;
}

Status ModelSpec::validate() const {
  namespace lim = limits;
  if (name.empty()) return Status::invalid("model: name is empty");
  PRECIS_TRY(in_range("length of name", name.size(), 1, lim::kNameBytesMax));
  PRECIS_TRY(in_range("length of revision", revision.size(), 0, lim::kNameBytesMax));
  PRECIS_TRY(in_range("length of rope_scaling", rope_scaling.size(), 0, lim::kRopeScalingBytesMax));
  PRECIS_TRY(in_range("num_layers", num_layers, 1, lim::kLayersMax));
  PRECIS_TRY(in_range("num_q_heads", num_q_heads, 1, lim::kQHeadsMax));
  PRECIS_TRY(in_range("num_kv_heads", num_kv_heads, 1, lim::kKvHeadsMax));
  PRECIS_TRY(in_range("head_dim", head_dim, 1, lim::kHeadDimMax));
  PRECIS_TRY(in_range("block_tokens", block_tokens, lim::kBlockTokensMin, lim::kBlockTokensMax));
  if (num_q_heads % num_kv_heads != 0) {
    return Status::invalid("model: num_q_heads " + std::to_string(num_q_heads) +
                           " is not a multiple of num_kv_heads " + std::to_string(num_kv_heads));
  }
  if (Status s = check_dtype(dtype); !s.ok()) return s.with_context("model");
  if (!std::isfinite(rope_theta) || rope_theta < 0) {
    return Status::invalid("model: rope_theta is " + std::to_string(rope_theta) +
                           ", must be finite and not negative");
  }
  if (windows.empty()) return {};
  PRECIS_TRY(in_range("length of windows", windows.size(), num_layers, num_layers));
  if (std::ranges::find(windows, 1u) != windows.end()) {
    return Status::invalid("model: a window is 1 token; it must be 0 (all tokens) or at least 2");
  }
  if (std::ranges::all_of(windows, [](std::uint32_t window) { return window == 0; })) {
    return Status::invalid("model: all windows are 0; leave them empty if every layer sees all");
  }
  return {};
}

std::uint64_t ModelSpec::entries_max(std::uint32_t num_tokens) const {
  if (windows.empty()) return std::uint64_t{num_layers} * num_kv_heads * num_tokens;
  std::uint64_t tokens = 0;
  for (std::uint32_t l = 0; l < num_layers; ++l) tokens += visible_tokens(windows, l, num_tokens);
  return tokens * num_kv_heads;
}

bool ModelSpec::hides_tokens(std::uint32_t num_tokens) const {
  return std::ranges::any_of(
      windows, [&](std::uint32_t window) { return window > 0 && window < num_tokens; });
}

std::uint64_t Plan::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

namespace {

// The number as people write it: "30", "0.015".
std::string number_text(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", number);
  return text.data();
}

Result<std::uint64_t> share_ppm(std::string_view name, double share) {
  if (!(share > 0.0 && share <= 1.0)) {
    std::string text = std::string(name) + " is " + number_text(share) + ", must be in (0, 1]";
    if (share > 1.0 && share <= 100.0) {
      text += ": " + number_text(share / 100) + " is " + number_text(share) + "%";
    }
    return Status::invalid(text);
  }
  const auto ppm = static_cast<std::uint64_t>(std::llround(share * 1e6));
  return ppm == 0 ? 1 : ppm;
}

// The shortest decimal with at least one digit after the point: 300000 is "0.3".
std::string share_text(std::uint64_t ppm) {
  std::string digits = std::to_string(1'000'000 + ppm % 1'000'000).substr(1);
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();
  return std::to_string(ppm / 1'000'000) + "." + digits;
}

// 300000 is "30%", 125 is "0.0125%".
std::string percent_text(std::uint64_t ppm) {
  std::string text = share_text(ppm * 100);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + "%";
}

}  // namespace

Result<Budget> Budget::ratio(double keep) {
  PRECIS_ASSIGN(const std::uint64_t ppm, share_ppm("keep", keep));
  return Budget{Kind::kRatio, ppm};
}

Result<Budget> Budget::loss(double most) {
  constexpr double kMillion = 1e6, kLossMax = 100;
  if (most >= 1 / kMillion && most <= kLossMax) {
    return Budget{Kind::kLoss, static_cast<std::uint64_t>(std::llround(most * kMillion))};
  }
  return Status::invalid("a loss must be in (0, 100], and at least 0.000001");
}

Result<Budget> Budget::byte_share(double share) {
  PRECIS_ASSIGN(const std::uint64_t ppm, share_ppm("the share of bytes", share));
  return Budget{Kind::kByteShare, ppm};
}

std::string Budget::to_string() const {
  switch (kind) {
    case Kind::kAll: return "all";
    case Kind::kRatio: return share_text(value);
    case Kind::kEntries: return std::to_string(value) + " entries";
    case Kind::kBytes: return std::to_string(value) + " B";
    case Kind::kScoreMass: return without_score_mass().to_string();
    case Kind::kByteShare: return percent_text(value) + " bytes";
    case Kind::kLoss: return "loss " + share_text(value);
  }
  return "unknown";
}

std::string_view durability_name(Durability d) {
  switch (d) {
    case Durability::kMemory: return "memory";
    case Durability::kWal: return "wal";
    case Durability::kFsync: return "fsync";
    case Durability::kShared: return "shared";
  }
  return "unknown";
}

Result<Durability> parse_durability(std::string_view name) {
  for (Durability d :
       {Durability::kMemory, Durability::kWal, Durability::kFsync, Durability::kShared}) {
    if (name == durability_name(d)) return d;
  }
  return Status::invalid("durability '" + std::string(name) +
                         "' is unknown, choose memory, wal, fsync or shared");
}

}  // namespace precis
