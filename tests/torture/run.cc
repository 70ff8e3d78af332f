#include "tests/torture/run.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

namespace precis::torture {
namespace {

using testing::read_all;
using testing::stat;

constexpr std::size_t kChangers = 3, kSlotsEach = 3, kReaders = 2;
constexpr std::uint32_t kLoadMicrosMax = 200'000, kStartMicrosMax = 60'000;
constexpr std::uint32_t kStartKillsOneIn = 6;
constexpr std::chrono::seconds kTidyPatience{60};
// Allowance for the headers of payload files, of which few are open or being emptied.
constexpr std::uint64_t kHeaderBytes = 64u << 10;

std::uint64_t folder_bytes(const std::string& folder) {
  std::uint64_t sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), last; !error && file != last;
       file.increment(error)) {
    std::error_code gone;  // a file may be removed while the folder is read
    const auto size = file->file_size(gone);
    if (!gone) sum += size;
  }
  return sum;
}

Status lost(const std::string& what) { return Status::corruption(what); }

std::string by_itself(int ended) {
  return "precisd ended by itself, with " + std::to_string(ended);
}

}  // namespace

Run::Run(RunOptions options) : options_(std::move(options)) {
  std::mt19937 random(options_.seed);
  for (std::size_t i = 0; i < kChangers * kSlotsEach; ++i) {
    slots_.emplace_back(static_cast<std::uint32_t>(random()), testing::tiny_model());
  }
}

Status Run::all() {
  PRECIS_TRY(set_up().with_context("before the first kill"));
  std::mt19937 random(options_.seed);
  while (kills_ < options_.kills) {
    PRECIS_TRY(
        round(static_cast<std::uint32_t>(random())).with_context("kill " + std::to_string(kills_)));
    options_.progress(kills_);
  }
  return end().with_context("after the last kill");
}

// Compaction starts at once, so that kills interrupt it and no check waits for it.
std::vector<std::string> Run::flags() const {
  const std::string file = options_.data_dir + ".toml";
  std::ofstream(file) << "tidy_after_ms = 0\n";
  return {"--config", file};
}

Status Run::start() {
  PRECIS_ASSIGN(service_, testing::ServiceProcess::start(options_.data_dir, flags()));
  client_ = service_->connect();
  PRECIS_ASSIGN(model_, client_->register_model(testing::tiny_model()));
  return {};
}

// Puts every path whole once, and records the rows that a read returns.
Status Run::set_up() {
  PRECIS_TRY(start());
  PutOptions options;
  options.recipe = kTortureRecipe;
  options.keep = Budget::ratio_ppm(kKeepPpm);
  for (Slot& slot : slots_) {
    for (const bool child : {false, true}) {
      PRECIS_TRY(
          put_all(*client_, *model_, slot.path(child), slot.kv(child), options, Durability::kFsync)
              .status());
      slot.answered(
          {Change::Kind::kPut, child, *options.keep, slot.full(child), Durability::kFsync});
    }
    PRECIS_ASSIGN(testing::PrefixCopy whole, read_all(*client_, *model_, slot.path(true)));
    if (!slot.learn(std::move(whole))) return lost("a row is not as it was pushed");
  }
  return check();
}

Status Run::round(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto load = std::chrono::microseconds(random() % kLoadMicrosMax);
  Failure failure;
  {
    std::latch connected(kChangers + kReaders);
    const Work work{service_->address(), slots_, counts_, failure, connected};
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < kChangers; ++i) {
      const auto mine = std::span(slots_).subspan(i * kSlotsEach, kSlotsEach);
      workers.emplace_back(
          [&work, mine, s = random()] { change_slots(work, mine, static_cast<std::uint32_t>(s)); });
    }
    for (std::size_t i = 0; i < kReaders; ++i) {
      workers.emplace_back(
          [&work, s = random()] { read_slots(work, static_cast<std::uint32_t>(s)); });
    }
    // The kill comes under load and not while workers connect.
    connected.wait();
    std::this_thread::sleep_for(load);
    if (const int ended = service_->kill(); ended != -SIGKILL) failure.report(by_itself(ended));
    ++kills_;
  }
  client_.reset();
  if (failure) return lost(failure.what());
  while (kills_ < options_.kills && random() % kStartKillsOneIn == 0) {
    PRECIS_TRY(kill_while_starting(random() % kStartMicrosMax));
  }
  PRECIS_TRY(start());
  return check();
}

Status Run::kill_while_starting(std::uint32_t delay_us) {
  testing::Process starting(testing::precisd_command(options_.data_dir, flags()));
  std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  starting.signal(SIGKILL);
  const int ended = starting.wait();
  ++kills_;
  return ended == -SIGKILL ? Status() : lost(by_itself(ended));
}

Status Run::check() {
  std::uint64_t segments = 0, payload_bytes = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    PRECIS_ASSIGN(const Stored stored, look(*client_, *model_, slot));
    const std::string possible = slot.possible_text();
    if (!slot.found(stored)) {
      return lost("path " + std::to_string(i) + ": " + stored.to_string() +
                  " entries of its two segments are stored, it may be " + possible);
    }
    PRECIS_TRY(
        check_slot(*client_, *model_, slot, stored).with_context("path " + std::to_string(i)));
    const std::uint64_t bytes = slot.payload_bytes(stored);
    const std::uint64_t count = (stored.parent > 0) + (stored.child > 0);
    segments += count;
    payload_bytes += bytes;
    segments_checked_ += count;
    bytes_checked_ += bytes;
  }
  return check_space(segments, payload_bytes);
}

// Checks that only the segments that were found exist, and that removed segments release their
// space.
Status Run::check_space(std::uint64_t segments, std::uint64_t payload_bytes) {
  PRECIS_ASSIGN(const auto rows, client_->segments());
  if (rows.size() != segments) {
    return lost(std::to_string(rows.size()) + " segments are listed, " + std::to_string(segments) +
                " were found");
  }
  for (const char* name :
       {"precis_quarantined_segments", "precis_quarantined_rows", "precis_corrupt_layers_total",
        "precis_staged_bytes", "precis_doubtful_recovery"}) {
    if (const double value = stat(*client_, name); value != 0) {
      return lost(std::string(name) + " is " + std::to_string(value));
    }
  }
  return wait_for_tidiness(payload_bytes);
}

// Files with less than half live bytes are emptied in the background. While a value moves it exists
// twice and counts twice.
Status Run::wait_for_tidiness(std::uint64_t payload_bytes) {
  const auto give_up = std::chrono::steady_clock::now() + kTidyPatience;
  for (;;) {
    const auto live = static_cast<std::uint64_t>(stat(*client_, "precis_payload_bytes"));
    const std::uint64_t disk = folder_bytes(options_.data_dir + "/payload");
    if (live == payload_bytes && disk <= 2 * live + kHeaderBytes) return {};
    if (std::chrono::steady_clock::now() > give_up) {
      return lost("payload files have " + std::to_string(disk) + " B, of which the store counts " +
                  std::to_string(live) + " B; " + std::to_string(payload_bytes) +
                  " B are of segments");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Checks that nothing is left once everything is removed.
Status Run::end() {
  for (Slot& slot : slots_) {
    PRECIS_ASSIGN(const LookupMatch match, client_->lookup(*model_, slot.path(false)));
    if (!match) continue;
    PRECIS_TRY(client_->remove_segment(match.links[0].segment.id, /*recursive=*/true).status());
    slot.answered({Change::Kind::kRemove, false, {}, 0, Durability::kWal});
  }
  PRECIS_TRY(check());
  client_.reset();
  if (const int code = service_->stop(); code != 0) {
    return Status::internal("precisd ended with " + std::to_string(code));
  }
  PRECIS_TRY(start());
  PRECIS_TRY(check());
  client_.reset();
  service_->stop();
  return {};
}

}  // namespace precis::torture
