#include "tests/unit/store/test_dir.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "precis/status.h"

namespace precis::testing {

TestDir::TestDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "precis-test-XXXXXX").string();
  PRECIS_CHECK(::mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TestDir::~TestDir() {
  std::error_code error;  // What is left behind fails no test.
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

}  // namespace precis::testing
