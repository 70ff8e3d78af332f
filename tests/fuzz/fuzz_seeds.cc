// fuzz_seeds DIR: writes every target's valid inputs to DIR/<target>/, the corpus to start
// libFuzzer on.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/decode_targets.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIR\n");
    return 2;
  }
  for (const precis::fuzz::Target& target : precis::fuzz::targets()) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    int number = 0;
    for (const auto& input : target.seeds(1)) {
      std::ofstream file(folder / std::to_string(number++), std::ios::binary);
      file.write(reinterpret_cast<const char*>(input.data()),
                 static_cast<std::streamsize>(input.size()));
      if (!file.flush()) {
        std::fprintf(stderr, "fuzz_seeds: cannot write to %s\n", folder.c_str());
        return 1;
      }
    }
    std::printf("%s: %d inputs\n", folder.c_str(), number);
  }
  return 0;
}
