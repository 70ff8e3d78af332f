// Kills a process with SIGKILL while it writes, then opens and reads the store that it leaves.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <random>
#include <set>
#include <string>

#include "cachesvc/store/extent_store.h"
#include "tests/unit/store/scan_payload.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using precis::testing::TestDir;

namespace {

// Runs the helper, kills it after `acknowledged` numbers and returns how many it printed in total.
unsigned run_and_kill(const std::string& dir, const std::string& mode, unsigned acknowledged) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::execl(PRECIS_CRASH_HELPER, PRECIS_CRASH_HELPER, dir.c_str(), mode.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  std::FILE* const said = ::fdopen(ends[0], "r");
  unsigned count = 0;
  for (unsigned number; std::fscanf(said, "%u", &number) == 1;) {
    CHECK(number == count);
    if (++count == acknowledged) ::kill(child, SIGKILL);
  }
  std::fclose(said);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
  return count;
}

// The numbers whose row is present. Each row must have its complete payload, and each payload its
// row.
std::set<unsigned> survivors(const std::string& dir) {
  auto store = open_disk_store(dir);
  INFO(store.status().to_string());
  REQUIRE(store.ok());
  std::set<unsigned> rows, payloads;
  const auto reader = [](std::set<unsigned>& into, std::size_t size) {
    return [&into, size](std::string_view key, Bytes value) -> Status {
      const auto number = static_cast<unsigned>(std::stoul(std::string(key)));
      if (value.size() != size) return Status::corruption("row " + std::to_string(number));
      for (const std::byte b : value) {
        if (b != static_cast<std::byte>(number))
          return Status::corruption("row " + std::to_string(number));
      }
      into.insert(number);
      return {};
    };
  };
  REQUIRE((*store)->scan(Table::kSegments, reader(rows, 20)) == Status());
  REQUIRE(precis::testing::scan_payload(**store, reader(payloads, 200'000)) == Status());
  CHECK(rows == payloads);
  return rows;
}

unsigned random_point() {
  const unsigned seed = GENERATE(range(1u, 6u));
  UNSCOPED_INFO("seed " << seed);
  return 1 + std::mt19937(seed)() % 600;  // up to 120 MB: some kills hit a flush
}

}  // namespace

TEST_CASE("after SIGKILL every batch acknowledged at wal or better is whole, and none is torn",
          "[unit][store][crash]") {
  const std::string mode = GENERATE(as<std::string>{}, "wal", "fsync", "hardened");
  const unsigned point = mode == "wal" ? random_point() : 40;
  CAPTURE(mode, point);
  const TestDir dir;
  const unsigned acknowledged = run_and_kill(dir.path(), mode, point);
  const std::set<unsigned> left = survivors(dir.path());
  for (unsigned i = 0; i < acknowledged; ++i) REQUIRE(left.contains(i));
  CHECK(left.size() <= acknowledged + 1);  // at most one more, which was being acknowledged
}

TEST_CASE(
    "after SIGKILL batches acknowledged at memory are each whole or gone, the last ones first",
    "[unit][store][crash]") {
  const TestDir dir;
  const unsigned acknowledged = run_and_kill(dir.path(), "memory", random_point());
  const std::set<unsigned> left = survivors(dir.path());
  CHECK(left.size() <= acknowledged + 1);
  if (!left.empty()) CHECK(*left.rbegin() + 1 == left.size());
}
