// The smallest memory limit of the machine and of the control groups that contain a process.
#include "cachesvc/base/machine_memory.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/unit/store/test_dir.h"

namespace precis {
namespace {

class Groups {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = dir_.path() + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::uint64_t bytes() const {
    return machine_memory_bytes(dir_.path() + "/cgroup", dir_.path() + "/groups");
  }

 private:
  testing::TestDir dir_;
};

}  // namespace

TEST_CASE("the smallest limit of a group or of one around it holds", "[unit][base]") {
  const Groups groups;
  const std::uint64_t machine = groups.bytes();  // without a group: all memory
  REQUIRE(machine > (64u << 20));
  groups.write("cgroup", "0::/system.slice/precisd.service");
  CHECK(groups.bytes() == machine);
  groups.write("groups/system.slice/precisd.service/memory.max", "max");
  CHECK(groups.bytes() == machine);
  groups.write("groups/system.slice/precisd.service/memory.max", "33554432");
  CHECK(groups.bytes() == 33554432);
  groups.write("groups/system.slice/memory.max", "16777216");
  CHECK(groups.bytes() == 16777216);
  groups.write("groups/system.slice/memory.max", "18446744073709551615");
  CHECK(groups.bytes() == 33554432);
}

TEST_CASE("a container's own group is the root that it sees", "[unit][base]") {
  const Groups groups;
  groups.write("cgroup", "0::/");
  groups.write("groups/memory.max", "16777216");
  CHECK(groups.bytes() == 16777216);
}

}  // namespace precis
