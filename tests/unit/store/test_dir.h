// A fresh directory that goes with the test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace precis::testing {

class TestDir {
 public:
  TestDir();
  ~TestDir();
  TestDir(const TestDir&) = delete;
  TestDir& operator=(const TestDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// `size` bytes that differ from one seed to another, none of them compressible.
std::vector<std::byte> noise(std::uint64_t seed, std::size_t size);

// Of the file's byte `at`.
void flip_bit(const std::filesystem::path& path, std::uint64_t at, unsigned bit);

}  // namespace precis::testing
