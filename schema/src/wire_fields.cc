#include "wire_fields.h"

#include <algorithm>
#include <bit>

namespace precis {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays travel as they lie in memory");

// The length of the well-formed UTF-8 character at the front of `s` (Unicode 15, table 3-7: no
// overlong forms, no surrogates), 0 if there is none. `s` is not empty.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(s[k]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || s.size() < length) return 0;
  unsigned low = 0x80, high = 0xbf;  // Of the second byte.
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t k = 2; k < length; ++k) {
    if (byte(k) < 0x80 || byte(k) > 0xbf) return 0;
  }
  return length;
}

bool is_utf8(std::string_view s) {
  while (!s.empty()) {
    const std::size_t length = utf8_length(s);
    if (length == 0) return false;
    s.remove_prefix(length);
  }
  return true;
}

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
