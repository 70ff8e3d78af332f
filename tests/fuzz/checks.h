// Checks that the targets share.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis::fuzz {

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A copy of `bytes`, which must not be empty, with one bit flipped. The choice of the bit depends
// only on `bytes`.
inline std::vector<std::byte> with_a_flipped_bit(Bytes bytes) {
  std::vector<std::byte> flipped(bytes.begin(), bytes.end());
  const std::size_t bit = std::hash<std::string_view>()(as_text(bytes)) % (8 * bytes.size());
  flipped[bit / 8] ^= std::byte{1} << (bit % 8);
  return flipped;
}

// Checks that a refusal has a message. Returns false, for a target to return.
inline bool refused(const Status& status) {
  PRECIS_CHECK(!status.ok());
  PRECIS_CHECK(!status.message().empty());
  return false;
}

// Checks that accepted input has one meaning: encoding it gives bytes that are accepted and encode
// to the same bytes. Returns whether `first` was accepted. Compares bytes and not values, because a
// NaN is not equal to itself.
template <typename T, typename Decode>
bool check_stable(const Result<T>& first, Decode decode) {
  if (!first.ok()) return refused(first.status());
  const std::vector<std::byte> bytes = encode(*first);
  const Result<T> second = decode(bytes);
  PRECIS_CHECK(second.ok());
  PRECIS_CHECK(encode(*second) == bytes);
  return true;
}

}  // namespace precis::fuzz
