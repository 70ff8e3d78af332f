#include "wire_fields.h"

#include <algorithm>
#include <bit>

#include "precis/frames.h"
#include "utf8.h"

namespace precis {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays travel as they lie in memory");

Status read_fixed(std::string_view field, capnp::Data::Reader in, void* out, std::size_t size) {
  if (in.size() != size) {
    return field_error(
        field, "has " + std::to_string(in.size()) + " bytes, must have " + std::to_string(size));
  }
  std::memcpy(out, in.begin(), size);
  return {};
}

}  // namespace

Status field_error(std::string_view field, std::string_view why) {
  return Status::invalid(std::string(field) + " " + std::string(why));
}

Status check_max(std::string_view field, std::uint64_t value, std::uint64_t max) {
  if (value <= max) return {};
  return field_error(field, "is " + std::to_string(value) + ", maximum " + std::to_string(max));
}

Status check_range(std::string_view field, std::uint64_t value, std::uint64_t min,
                   std::uint64_t max) {
  if (min <= value && value <= max) return {};
  return field_error(field, "is " + std::to_string(value) + ", must be in [" + std::to_string(min) +
                                ", " + std::to_string(max) + "]");
}

Status unknown_kind(unsigned kind) {
  return field_error("kind", "is " + std::to_string(kind) + ", unknown to protocol version " +
                                 std::to_string(kProtocolVersion));
}

Status check_array(std::string_view field, std::size_t size_bytes, std::size_t element_bytes,
                   std::uint64_t count_max) {
  if (size_bytes % element_bytes != 0) {
    return field_error(field, "has " + std::to_string(size_bytes) + " bytes, not a multiple of " +
                                  std::to_string(element_bytes));
  }
  return check_max(std::string(field) + " count", size_bytes / element_bytes, count_max);
}

std::string clean_text(std::string_view text, std::size_t bytes_max) {
  std::string clean;
  for (text = text.substr(0, bytes_max); !text.empty();) {
    const std::size_t length = utf8_length(text);
    clean.append(length == 0 ? "?" : text.substr(0, length));
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

Status read_text(std::string_view field, capnp::Text::Reader in, std::size_t bytes_max,
                 std::string& out) {
  PRECIS_TRY(check_max(std::string(field) + " length", in.size(), bytes_max));
  out.assign(in.begin(), in.size());
  if (!is_utf8(out)) return field_error(field, "is not UTF-8");
  return {};
}

Status read_bytes(std::string_view field, capnp::Data::Reader in, std::size_t bytes_max,
                  std::string& out) {
  PRECIS_TRY(check_max(std::string(field) + " length", in.size(), bytes_max));
  out.assign(reinterpret_cast<const char*>(in.begin()), in.size());
  return {};
}

Status read_name(std::string_view field, capnp::Text::Reader in, std::string& out) {
  PRECIS_TRY(read_text(field, in, limits::kNameBytesMax, out));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(out, is_control)) return field_error(field, "has control characters");
  return {};
}

Status read_digest(std::string_view field, capnp::Data::Reader in, Digest& out) {
  return read_fixed(field, in, out.bytes.data(), out.bytes.size());
}

Status read_segment_id(std::string_view field, capnp::Data::Reader in, SegmentId& out) {
  return read_fixed(field, in, out.bytes.data(), out.bytes.size());
}

}  // namespace precis
