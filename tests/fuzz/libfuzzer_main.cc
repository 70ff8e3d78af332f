// precis_fuzz --target=NAME [libFuzzer's arguments]: runs one target under libFuzzer, which ignores
// arguments that begin with two dashes. Given the path of a file, it runs only that input.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

namespace {

const precis::fuzz::Target* g_target = nullptr;  // global because libFuzzer passes no context

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kOption)) {
      g_target = precis::fuzz::find_target(argument.substr(kOption.size()));
    }
  }
  if (g_target != nullptr) return 0;
  std::fprintf(stderr, "precis_fuzz: --target=NAME must name one of those that fuzz_seeds lists\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  g_target->run(std::as_bytes(std::span(data, size)));
  return 0;
}
