#include "tests/hostile/victim.h"

#include <poll.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>

#include "tests/integration/proc.h"
#include "tests/integration/random_kv.h"

namespace precis::hostile {
namespace {

// Time limit, from the end of the last hostile connection, to release all that it used.
constexpr std::chrono::seconds kTidyPatience{20};
constexpr std::uint64_t kBoundBytes = Victim::kMemoryBytes + testing::kBesideMemoryBytes;

std::vector<std::string> flags_for(const std::string& config) {
  std::ofstream file(config);
  file << "silent_client_ms = 1000\n";
  for (const char* tenant : {"alice", "bob"}) {
    file << "[[tenant]]\nname = \"" << tenant << "\"\ntoken = \"token of " << tenant << "\"\n";
  }
  file << "[[tenant]]\nname = \"open\"\n";
  return {"--config", config, "--memory", "64MiB"};
}

}  // namespace

std::uint64_t threads_of(pid_t pid) {
  std::error_code gone;
  std::uint64_t count = 0;
  const std::string folder = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator task(folder, gone), last; !gone && task != last;
       task.increment(gone)) {
    ++count;
  }
  return count;
}

Victim::Victim() {
  service_ = std::make_unique<testing::ServiceProcess>(dir_, flags_for(dir_.path("precisd.toml")));
  const std::string& address = service_->address();
  target_.port = static_cast<std::uint16_t>(std::stoul(address.substr(address.rfind(':') + 1)));
  target_.unix_path = dir_.path("data") + "/precisd.sock";
  // After the first client, the service has opened all descriptors that it opens once.
  PRECIS_CHECK(serve_honest(2).ok());
  base_threads_ = threads_of(pid());
  base_descriptors_ = descriptors();
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
       std::chrono::steady_clock::now() < until; ::poll(nullptr, 0, 5)) {
    base_descriptors_ = std::min(base_descriptors_, descriptors());
  }
}

Login Victim::login(const std::string& tenant) {
  return {"hostile", tenant, tenant == "open" ? "" : "token of " + tenant};
}

Status Victim::serve_honest(unsigned times) {
  ConnectOptions options;
  options.tenant = "alice";
  options.token = login("alice").token;
  for (unsigned i = 0; i < times; ++i) {
    PRECIS_ASSIGN(auto client, Client::connect(address(), options));
    PRECIS_ASSIGN(const Model model, client->register_model(testing::tiny_model()));
    std::mt19937 random(static_cast<std::uint32_t>(honest_seed_++));
    const auto tokens = testing::random_tokens(random, 256);
    const auto kv = testing::random_kv(random, testing::tiny_model(), 0, 256);
    PutOptions put;
    put.recipe = "global_kvdiff(min_entries=16)";
    PRECIS_ASSIGN(const auto segment, testing::put_all(*client, model, tokens, kv, put));
    PRECIS_ASSIGN(const auto read, testing::read_all(*client, model, tokens));
    if (!testing::rows_are_of(read, {&kv})) {
      return Status::corruption("an honest client read what it has not put");
    }
    PRECIS_TRY(client->remove_segment(segment.id, /*recursive=*/true).status());
  }
  return {};
}

std::uint64_t Victim::descriptors() const { return testing::open_links(pid()); }

void Victim::check(Finding& finding) {
  if (const std::string words = service_->last_words(); !words.empty()) {
    return finding.expect(false, words);
  }
  const Status honest = serve_honest();
  finding.expect(honest.ok(), "an honest client failed: " + honest.to_string());
  const auto deadline = std::chrono::steady_clock::now() + kTidyPatience;
  while (descriptors() > base_descriptors_ && std::chrono::steady_clock::now() < deadline) {
    ::poll(nullptr, 0, 10);
  }
  const std::uint64_t open = descriptors(), threads = threads_of(pid());
  const std::uint64_t peak = testing::peak_resident_bytes(pid());
  finding.count("descriptors_left", static_cast<double>(open));
  finding.count("threads", static_cast<double>(threads));
  finding.count("resident_bytes_at_most", static_cast<double>(peak));
  finding.expect(open <= base_descriptors_, std::to_string(open) +
                                                " descriptors are open, at first " +
                                                std::to_string(base_descriptors_) + " were");
  finding.expect(threads <= base_threads_, std::to_string(threads) + " threads run, at first " +
                                               std::to_string(base_threads_) + " did");
  finding.expect(peak <= kBoundBytes, "it took " + std::to_string(peak) +
                                          " B of memory, the bound is " +
                                          std::to_string(kBoundBytes) + " B");
}

}  // namespace precis::hostile
