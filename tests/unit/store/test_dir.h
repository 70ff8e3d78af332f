// A new directory that is removed after the test.
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

// `size` incompressible bytes that depend on `seed`.
std::vector<std::byte> noise(std::uint64_t seed, std::size_t size);

// Flips one bit of the file's byte `at`.
void flip_bit(const std::filesystem::path& path, std::uint64_t at, unsigned bit);

}  // namespace precis::testing
