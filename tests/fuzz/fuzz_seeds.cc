// fuzz_seeds: prints the names of all targets, one a line. fuzz_seeds DIR: also writes their valid
// inputs to DIR/<target>/, as libFuzzer's first inputs.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/targets.h"

namespace {

bool write_seeds(const precis::fuzz::Target& target, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  int number = 0;
  for (const auto& input : target.seeds(1)) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
    if (!file.flush()) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    std::fprintf(stderr, "usage: fuzz_seeds [DIR]\n");
    return 2;
  }
  for (const precis::fuzz::Target& target : precis::fuzz::targets()) {
    std::printf("%s\n", std::string(target.name).c_str());
    if (argc == 1 || write_seeds(target, std::filesystem::path(argv[1]) / target.name)) continue;
    std::fprintf(stderr, "fuzz_seeds: cannot write to %s\n", argv[1]);
    return 1;
  }
  return 0;
}
