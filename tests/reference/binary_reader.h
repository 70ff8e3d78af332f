// Reads the committed vectors: little-endian words and arrays, one after another.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace precis::reference {

class BinaryReader {
 public:
  // Throws std::runtime_error, as every read does, if the file is not as expected.
  BinaryReader(const std::string& path, std::string_view magic)
      : in_(path, std::ios::binary), path_(path) {
    if (!in_) throw std::runtime_error("cannot open " + path);
    if (text(magic.size()) != magic) {
      throw std::runtime_error(path + " does not begin with " + std::string(magic));
    }
  }
  std::uint32_t word() { return value<std::uint32_t>(); }
  float number() { return value<float>(); }
  std::string text(std::size_t size) {
    std::string out(size, '\0');
    read(out.data(), size);
    return out;
  }
  template <typename T>
  std::vector<T> array(std::size_t count) {
    std::vector<T> out(count);
    read(out.data(), count * sizeof(T));
    return out;
  }
  void must_end() {
    if (in_.peek() != std::char_traits<char>::eof()) {
      throw std::runtime_error(path_ + " has bytes left over");
    }
  }

 private:
  template <typename T>
  T value() {
    T out;
    read(&out, sizeof out);
    return out;
  }
  void read(void* out, std::size_t size) {
    if (!in_.read(static_cast<char*>(out), static_cast<std::streamsize>(size))) {
      throw std::runtime_error(path_ + " ends early");
    }
  }
  std::ifstream in_;
  std::string path_;
};

}  // namespace precis::reference
