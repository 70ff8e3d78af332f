// Reads and writes fields of messages: texts, digests, arrays and enums. Readers check each field
// and name it in their Status; writers cannot fail.
#pragma once

#include <capnp/blob.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "precis/limits.h"
#include "precis/types.h"

namespace precis {

// ---- writing -----------------------------------------------------------------------------------
inline capnp::Text::Reader as_text(const std::string& s) { return {s.c_str(), s.size()}; }
// For text with arbitrary bytes: cut to `bytes_max`, with '?' for bytes that are not UTF-8.
std::string clean_text(std::string_view text, std::size_t bytes_max);
inline capnp::Data::Reader as_data(const void* data, std::size_t size) {
  return {static_cast<const capnp::byte*>(data), size};
}
inline capnp::Data::Reader as_data(const Digest& d) { return {d.bytes.data(), d.bytes.size()}; }
inline capnp::Data::Reader as_data(const SegmentId& id) {
  return {id.bytes.data(), id.bytes.size()};
}
inline capnp::Data::Reader as_data(std::string_view s) { return as_data(s.data(), s.size()); }
inline capnp::Data::Reader as_data(const std::string& s) { return as_data(s.data(), s.size()); }
template <typename T>
capnp::Data::Reader as_data(const std::vector<T>& values) {
  return as_data(values.data(), values.size() * sizeof(T));
}

// ---- reading -----------------------------------------------------------------------------------
// UTF-8 of at most `bytes_max` bytes.
Status read_text(std::string_view field, capnp::Text::Reader in, std::size_t bytes_max,
                 std::string& out);
// UTF-8 of at most kNameBytesMax bytes without control characters, because names become parts of
// keys, log lines and tables.
Status read_name(std::string_view field, capnp::Text::Reader in, std::string& out);
Status read_digest(std::string_view field, capnp::Data::Reader in, Digest& out);
Status read_segment_id(std::string_view field, capnp::Data::Reader in, SegmentId& out);

Status read_bytes(std::string_view field, capnp::Data::Reader in, std::size_t bytes_max,
                  std::string& out);

Status field_error(std::string_view field, std::string_view why);
// The error for an alternative of a union that this build does not know.
Status unknown_kind(unsigned kind);
Status check_max(std::string_view field, std::uint64_t value, std::uint64_t max);
Status check_range(std::string_view field, std::uint64_t value, std::uint64_t min,
                   std::uint64_t max);
// Checks that `size_bytes` is a whole number of elements, and at most `count_max` of them.
Status check_array(std::string_view field, std::size_t size_bytes, std::size_t element_bytes,
                   std::uint64_t count_max);

// Reads little-endian elements of fixed size. `count_max` bounds the allocation.
template <typename T>
Status read_array(std::string_view field, capnp::Data::Reader in, std::uint64_t count_max,
                  std::vector<T>& out) {
  PRECIS_TRY(check_array(field, in.size(), sizeof(T), count_max));
  out.resize(in.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), in.begin(), in.size());
  return {};
}

// Reads a Cap'n Proto enum with the values of E, of which `last` is the largest.
template <typename E, typename WireEnum>
Status read_enum(std::string_view field, WireEnum in, E last, E& out) {
  PRECIS_TRY(check_max(field, static_cast<std::uint64_t>(in), static_cast<std::uint64_t>(last)));
  out = static_cast<E>(in);
  return {};
}

// Reads a list of structs that have an overload of read() in namespace precis::wire, where the
// generated types are too. The message's size already bounds the list.
template <typename List, typename T>
Status read_list(std::string_view field, List in, std::uint64_t count_max, std::vector<T>& out) {
  PRECIS_TRY(check_max(std::string(field) + " count", in.size(), count_max));
  out.resize(in.size());
  for (std::uint32_t i = 0; i < in.size(); ++i) {
    PRECIS_TRY(read(in[i], out[i]).with_context(field));
  }
  return {};
}

// Writes a list of structs that have an overload of write().
template <typename List, typename T>
void write_list(List out, const std::vector<T>& in) {
  for (std::uint32_t i = 0; i < in.size(); ++i) write(out[i], in[i]);
}

}  // namespace precis
