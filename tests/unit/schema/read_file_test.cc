#include "precis/read_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace precis {

TEST_CASE("a file is read whole up to its limit, and no further", "[unit][schema]") {
  const auto path =
      (std::filesystem::temp_directory_path() / ("precis-read-file-" + std::to_string(::getpid())))
          .string();
  std::ofstream(path) << std::string(100'000, 'x');
  CHECK(read_file(path, 100'000).value().size() == 100'000);
  const Status larger = read_file(path, 99'999).status();
  CHECK(larger.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(larger.message(), Catch::Contains(path) && Catch::Contains("more than 99999 bytes"));
  std::filesystem::remove(path);
  CHECK(read_file(path, 10).status().code() == StatusCode::kNotFound);
}

TEST_CASE("what never ends, and what is no file, is refused", "[unit][schema]") {
  CHECK_THAT(read_file("/dev/zero", 1 << 20).status().message(),
             Catch::Contains("/dev/zero has more than 1048576 bytes"));
  CHECK_THAT(read_file("/", 10).status().message(),
             Catch::Contains("cannot read /: Is a directory"));
}

}  // namespace precis
