#include "tests/unit/store/test_dir.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "precis/status.h"

namespace precis::testing {

TestDir::TestDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "precis-test-XXXXXX").string();
  PRECIS_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TestDir::~TestDir() {
  std::error_code error;  // a remaining directory fails no test
  std::filesystem::remove_all(path_, error);
}

std::vector<std::byte> noise(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, size - i));
  }
  return bytes;
}

void flip_bit(const std::filesystem::path& path, std::uint64_t at, unsigned bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  PRECIS_CHECK(file.good());
}

}  // namespace precis::testing
