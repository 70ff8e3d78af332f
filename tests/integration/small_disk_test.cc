// A real precisd on real disks that fill up: what is refused, what continues, and that space comes
// back. This is a program of its own, because it is skipped if nothing may be mounted.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch_runner.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"
#include "tests/integration/small_disk.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

constexpr std::uint64_t kMiB = 1u << 20;

struct Size {
  DiskKind kind;
  std::uint64_t bytes;
};

// A service on a small disk, and its expected content.
class Filled {
 public:
  explicit Filled(const Size& size) : disk_(SmallDisk::mount(size.kind, size.bytes).value()) {
    start();
    kv_ = random_kv(random_, tiny_model(), 0, kTokens);
  }
  SmallDisk& disk() { return *disk_; }
  Client& client() { return *client_; }
  std::size_t segments() const { return stored_.size(); }

  // Starts again with a folder of backups, and acts as an admin.
  void restart_with_backups(const std::string& backups) {
    kill();
    const std::string file = disk_->path("precisd.toml");
    std::ofstream(file) << "backup_dir = '" << backups
                        << "'\n[[tenant]]\nname = 'default'\ntoken = 'boss'\nrole = 'admin'\n";
    flags_ = {"--memory", "64MiB", "--config", file};
    as_.token = "boss";
    start();
  }
  // Makes a backup; returns how it ended.
  msg::BackupState back_up() {
    REQUIRE(client_->start_backup({}).ok());
    for (;;) {
      const msg::BackupState state = client_->backup().value();
      if (state.state != "running") return state;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void start() {
    auto started = ServiceProcess::start(disk_->path("data"), flags_);
    INFO(started.status().to_string());
    REQUIRE(started.ok());
    service_ = std::move(started).value();
    client_ = service_->connect(as_);
    model_ = client_->register_model(tiny_model()).value();
  }
  void kill() {
    client_.reset();
    REQUIRE(service_->kill() == -SIGKILL);  // it had not ended by itself
  }
  void kill_and_start() {
    kill();
    start();
  }

  Status put(Durability durability = Durability::kWal) {
    const auto path = random_tokens(random_, kTokens);
    auto info = put_all(*client_, *model_, path, kv_, keep_most(), durability);
    if (!info.ok()) return info.status();
    const auto read = read_all(*client_, *model_, path);
    REQUIRE(read.status() == Status());
    stored_.push_back({path, info->id, *read});
    return {};
  }
  // Puts until one is refused; returns that status.
  Status fill() {
    for (unsigned i = 0;; ++i) {
      const Status status = put(i % 2 == 0 ? Durability::kWal : Durability::kFsync);
      if (!status.ok()) return status;
    }
  }
  // Retries a put that is refused while space comes back. If no space comes back, this test's time
  // limit ends it.
  void fill_to(std::size_t segments) {
    while (stored_.size() < segments) {
      const Status status = put();
      if (!status.ok()) REQUIRE(status.code() == StatusCode::kOutOfSpace);
    }
  }
  // Removes every second segment, so that none of their files becomes empty.
  void remove_half() {
    std::vector<Segment> left;
    for (std::size_t i = 0; i < stored_.size(); ++i) {
      if (i % 2 == 0) {
        const auto removed = client_->remove_segment(stored_[i].id, false);
        REQUIRE(removed.status() == Status());
      } else {
        left.push_back(std::move(stored_[i]));
      }
    }
    stored_ = std::move(left);
  }
  void trim_first() {
    const auto trimmed = client_->trim_segment(stored_.front().id, Budget::ratio(0.5).value());
    REQUIRE(trimmed.status() == Status());
    stored_.front().prefix = read_all(*client_, *model_, stored_.front().path).value();
  }
  void check_all() {
    for (const Segment& each : stored_) {
      const auto read = read_all(*client_, *model_, each.path);
      REQUIRE(read.status() == Status());
      REQUIRE(*read == each.prefix);
    }
  }
  // Whether statistics and status soon report that puts are refused, or that they are not.
  bool is_told(bool refused) {
    for (int tries = 0; tries < 1000; ++tries) {
      const bool low = stat(*client_, "precis_disk_low") == 1;
      if (low == refused && client_->status().value().disk_low == refused) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  // If the space never comes, this test's time limit ends it.
  void await_free(std::uint64_t bytes) {
    while (disk_->free_bytes() < bytes) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  static constexpr std::uint32_t kTokens = 1000;  // about 1.9 MB
  struct Segment {
    std::vector<TokenId> path;
    SegmentId id;
    PrefixCopy prefix;
  };
  std::unique_ptr<SmallDisk> disk_;
  std::vector<std::string> flags_{"--memory", "64MiB"};
  ConnectOptions as_ = patient();
  std::unique_ptr<ServiceProcess> service_;
  std::shared_ptr<Client> client_;
  std::optional<Model> model_;
  std::mt19937 random_{20261125};
  Kv kv_;
  std::vector<Segment> stored_;
};

Size sizes() {
  return GENERATE(Size{DiskKind::kTmpfs, 40 * kMiB}, Size{DiskKind::kTmpfs, 96 * kMiB},
                  Size{DiskKind::kExt4, 300 * kMiB});
}

TEST_CASE("below the mark puts are told the numbers, all else works, and puts go on by themselves",
          "[integration][disk]") {
  Filled service(sizes());
  const Status refused = service.fill();
  INFO(refused.to_string());
  REQUIRE(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(), Contains("B free of") && Contains("min_free_bytes") &&
                                    Contains("precisctl prefix rm"));
  CHECK(service.is_told(true));  // even if more is free than the mark
  const std::size_t full = service.segments();
  REQUIRE(full >= 10);
  CHECK(service.disk().free_bytes() > 2 * kMiB);  // RocksDB's own
  service.check_all();
  service.trim_first();
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    const std::uint64_t before = service.disk().free_bytes();
    const std::size_t removed = (service.segments() + 1) / 2;
    service.remove_half();
    service.await_free(before + removed * kMiB);
    CHECK(service.is_told(false));
    service.check_all();
    service.fill_to(full - 2);
    REQUIRE(service.fill().code() == StatusCode::kOutOfSpace);
  }
  service.check_all();
}

TEST_CASE("a service killed on a full disk starts, serves, removes and takes puts again",
          "[integration][disk]") {
  Filled service(sizes());
  REQUIRE(service.fill().code() == StatusCode::kOutOfSpace);
  const std::size_t full = service.segments();
  service.kill_and_start();
  service.check_all();
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    const std::uint64_t before = service.disk().free_bytes();
    const std::size_t removed = (service.segments() + 1) / 2;
    service.remove_half();
    service.kill_and_start();  // possibly before the space came back
    service.check_all();
    service.await_free(before + removed * kMiB);
    service.fill_to(full - 2);
    REQUIRE(service.fill().code() == StatusCode::kOutOfSpace);
    service.kill_and_start();
  }
  service.check_all();
}

TEST_CASE("a disk that somebody else fills to the last byte ends no service, running or starting",
          "[integration][disk]") {
  Filled service(sizes());
  for (int i = 0; i < 8; ++i) REQUIRE(service.put() == Status());
  service.disk().fill_up("foreign");
  for (int i = 0; i < 3; ++i) CHECK(service.put().code() == StatusCode::kOutOfSpace);
  service.check_all();
  service.remove_half();
  service.await_free(6 * kMiB);  // of four removed segments; none is trimmed below
  service.trim_first();
  service.check_all();
  service.kill();
  service.disk().fill_up("foreign");
  service.start();
  service.check_all();
  service.remove_half();
  for (int start = 0; start < 5; ++start) service.kill_and_start();
  service.check_all();
  std::filesystem::remove(service.disk().path("foreign"));
  REQUIRE(service.put() == Status());
  service.check_all();
}

TEST_CASE("a backup that finds the disk full ends with the reason, and leaves its space to puts",
          "[integration][disk]") {
  Filled service(Size{DiskKind::kTmpfs, 96 * kMiB});
  REQUIRE(service.fill().code() == StatusCode::kOutOfSpace);
  const std::size_t full = service.segments();
  service.remove_half();
  service.await_free(30 * kMiB);
  service.fill_to(full * 3 / 4);  // more than fits into the rest once more
  service.restart_with_backups(service.disk().path("backups"));
  const std::uint64_t before = service.disk().free_bytes();
  const msg::BackupState same_disk = service.back_up();
  CHECK(same_disk.state == "failed");
  CHECK(same_disk.is_full);
  CHECK_THAT(same_disk.error,
             Contains("are left for puts") && !Contains(" 0 B are left") && Contains("backup_dir"));
  CHECK(same_disk.copied_bytes > 0);
  service.await_free(before - 2 * kMiB);
  service.fill_to(full - 2);
  service.check_all();

  const auto other = SmallDisk::mount(DiskKind::kTmpfs, 8 * kMiB).value();
  service.restart_with_backups(other->path("backups"));
  const msg::BackupState other_disk = service.back_up();
  CHECK(other_disk.state == "failed");
  CHECK(other_disk.is_full);
  service.check_all();
}

// Starts precisd at an address that no machine has, so that it ends. Returns its errors.
std::string start_in_vain(const SmallDisk& disk) {
  return run(precisd_command(disk.path("data"), {"--listen", "192.0.2.1:1", "--memory", "64MiB"}))
      .err;
}

TEST_CASE(
    "a store of an older build on a full disk opens by what its logs free, or says what it lacks",
    "[integration][disk]") {
  Filled service(sizes());
  for (int i = 0; i < 8; ++i) REQUIRE(service.put() == Status());
  service.kill();
  // An older build made neither of these, and left longer information logs.
  const std::string data = service.disk().path("data");
  std::filesystem::remove(data + "/acknowledged");
  std::filesystem::remove(data + "/reserve");
  std::ofstream(data + "/LOG.old.1") << std::string(4 * kMiB, 'x');
  service.disk().fill_up("foreign");
  CHECK_THAT(start_in_vain(service.disk()), Contains("listen: ") && !Contains("free at least"));
  CHECK_FALSE(std::filesystem::exists(data + "/LOG.old.1"));

  std::filesystem::remove(data + "/acknowledged");
  std::filesystem::remove(data + "/reserve");
  service.disk().fill_up("more");
  const std::string refused = start_in_vain(service.disk());
  INFO(refused);
  CHECK_THAT(refused, Contains("opening the store in " + data + " needs up to ") &&
                          Contains(" B, its disk has ") && Contains("free at least ") &&
                          Contains("and start again"));
  std::filesystem::remove(service.disk().path("foreign"));
  service.start();
  service.check_all();
}

}  // namespace

int main(int argc, char** argv) {
  for (const DiskKind kind : {DiskKind::kTmpfs, DiskKind::kExt4}) {
    const auto disk = SmallDisk::mount(kind, 64 * kMiB);
    if (disk.ok()) continue;
    std::printf("skipped: file systems can't be mounted here: %s\n",
                disk.status().message().c_str());
    return 77;
  }
  return run_test_cases(argc, argv);
}
