#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "cachesvc/net/rdma/rdma.h"
#include "cachesvc/net/rdma/rdma_choice.h"
#include "precis/greeting.h"
#include "precis/limits.h"

namespace precis {
namespace {

namespace fs = std::filesystem;

struct Sysfs {
  Sysfs() {
    std::string name = (fs::temp_directory_path() / "precis-rdma-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Sysfs() { fs::remove_all(path); }
  std::string path;
};

bool has_ucx_in_process() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libuct") != std::string::npos || line.find("libucs") != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_CASE("rdma = auto means a device in sysfs, off none, a list those that it names") {
  const Sysfs sysfs;
  CHECK_FALSE(parse_rdma("auto", sysfs.path + "/missing").is_on);
  CHECK_FALSE(parse_rdma("auto", sysfs.path).is_on);
  fs::create_directory(sysfs.path + "/mlx5_0");
  const RdmaChoice any = parse_rdma("auto", sysfs.path);
  CHECK(any.is_on);
  CHECK(any.names("mlx5_3:1"));
  CHECK_FALSE(parse_rdma("off", sysfs.path).is_on);

  const RdmaChoice named = parse_rdma("mlx5_0, mlx5_1:2", sysfs.path + "/missing");
  CHECK(named.is_on);
  CHECK(named.names("mlx5_0:1"));
  CHECK(named.names("mlx5_1:2"));
  CHECK_FALSE(named.names("mlx5_1:1"));
  CHECK_FALSE(named.names("mlx5_01:1"));
}

TEST_CASE("a process that has no RDMA does not load UCX") {
  const bool before = has_ucx_in_process();
  const auto off = RdmaDevice::open(nullptr, "off");
  REQUIRE(off.ok());
  CHECK(*off == nullptr);
  if (!parse_rdma("auto").is_on) {
    const auto none = RdmaDevice::open(nullptr, "auto");
    REQUIRE(none.ok());
    CHECK(*none == nullptr);
  }
  CHECK(has_ucx_in_process() == before);
}

TEST_CASE("a device that is named and is not there is an error that says what there is") {
  const auto missing = RdmaDevice::open(nullptr, "no_such_device");
  REQUIRE(missing.status().code() == StatusCode::kUnsupported);
  CHECK_THAT(missing.status().message(), Catch::Contains("no_such_device"));
}

TEST_CASE("an RDMA turn is read as it was written, and nothing else is") {
  const RdmaTurn turn{"device", std::string("end\0point", 9), 1u << 20, "key"};
  const std::vector<std::byte> bytes = encode(turn);
  const auto read = decode_rdma_turn(bytes);
  REQUIRE(read.ok());
  CHECK(*read == turn);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK_FALSE(decode_rdma_turn(Bytes(bytes).first(size)).ok());
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_rdma_turn(longer).ok());
  const RdmaTurn large{std::string(limits::kRdmaAddressBytesMax + 1, 'd'), "", 0, ""};
  CHECK_FALSE(decode_rdma_turn(encode(large)).ok());
}

}  // namespace
}  // namespace precis
