// What every target holds what it accepts to.
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

// `bytes`, of which there are some, with one bit flipped; which one depends on them alone.
inline std::vector<std::byte> with_a_flipped_bit(Bytes bytes) {
  std::vector<std::byte> flipped(bytes.begin(), bytes.end());
  const std::size_t bit = std::hash<std::string_view>()(as_text(bytes)) % (8 * bytes.size());
  flipped[bit / 8] ^= std::byte{1} << (bit % 8);
  return flipped;
}

// Who refuses says why. False, for a target to return.
inline bool refused(const Status& status) {
  PRECIS_CHECK(!status.ok());
  PRECIS_CHECK(!status.message().empty());
  return false;
}

// Whatever is accepted must mean one thing: written again, it gives bytes that are accepted and
// give the same bytes. Bytes are compared, not values, since a NaN is not equal to itself.
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
