// Converts numbers to and from little-endian bytes on any machine, for frames and greetings.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <vector>

#include "precis/view.h"

namespace precis {

template <std::unsigned_integral T>
void put_le(std::vector<std::byte>& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xff));
  }
}
inline void put_bytes(std::vector<std::byte>& out, Bytes bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Reads from the front. A read past the end gives zeros and clears ok().
class LeReader {
 public:
  explicit LeReader(Bytes bytes) : rest_(bytes) {}
  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    const Bytes bytes = take(sizeof(T));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value = static_cast<T>(value | (static_cast<T>(bytes[i]) << (8 * i)));
    }
    return value;
  }
  Bytes take(std::size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const Bytes taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  Bytes rest() const { return rest_; }
  bool ok() const { return ok_; }

 private:
  Bytes rest_;
  bool ok_ = true;
};

}  // namespace precis
