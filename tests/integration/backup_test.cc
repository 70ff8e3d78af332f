// Backups of a running precisd, and what precisctl restore makes of them.
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::uint32_t kTokens = 300;

void flip(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  REQUIRE(file.good());
}

ConnectOptions as_ops() {
  ConnectOptions options = patient();
  options.tenant = "ops";
  options.token = "boss";
  return options;
}

struct Segment {
  std::vector<TokenId> path;
  SegmentId id;
  std::uint64_t bytes = 0;
};

class BackupFixture {
 protected:
  BackupFixture() {
    std::ofstream(dir.path("precisd.toml"))
        << "backup_dir = '" << backups << "'\ntidy_after_ms = 1\n"
        << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n"
        << "[[tenant]]\nname = 'red'\ntoken = 'first'\n";
    start();
  }
  void start() {
    service.emplace(dir, std::vector<std::string>{"--config", dir.path("precisd.toml")});
    client = service->connect(as_ops());
    model = client->register_model(tiny_model()).value();
  }
  Ran ctl(std::vector<std::string> words, const std::string& tenant = "ops",
          const std::string& token = "boss") const {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", service->address(), "--tenant",
                                 tenant, "--token", token});
    return run(words);
  }
  json back_up(std::vector<std::string> options = {}) const {
    options.insert(options.begin(), {"backup", "--json"});
    const Ran ran = ctl(std::move(options));
    INFO(ran.err);
    REQUIRE(ran.exit_code == 0);
    return json::parse(ran.out);
  }
  static Ran restore(std::vector<std::string> words) {
    words.insert(words.begin(), {PRECISCTL_PATH, "restore"});
    return run(words);
  }
  Segment put(Client& with, std::mt19937& numbers) const {
    const auto path = random_tokens(numbers, kTokens);
    const Kv kv = random_kv(numbers, model->spec, 0, kTokens);
    // Other threads than the test's also call this. They must not use Catch's assertions.
    const auto stored = put_all(with, *model, path, kv, keep_most()).value();
    return {path, stored.id, stored.stored_bytes};
  }
  std::vector<Segment> put_many(unsigned count) {
    std::vector<Segment> segments;
    for (unsigned i = 0; i < count; ++i) segments.push_back(put(*client, random));
    return segments;
  }
  // The paths of values in the folder.
  std::vector<std::string> values() const {
    std::vector<std::string> paths;
    for (const auto& each : fs::recursive_directory_iterator(backups + "/values")) {
      if (each.is_regular_file()) paths.push_back(each.path().string());
    }
    return paths;
  }

  TempDir dir;
  const std::string backups = dir.path("backups");
  std::optional<ServiceProcess> service;
  std::shared_ptr<Client> client;
  std::optional<Model> model;
  std::mt19937 random{20261127};
};

// A service over a restored directory.
class RestoredService {
 public:
  RestoredService(const TempDir& dir, const std::string& data)
      : service_(ServiceProcess::start(data, {"--config", dir.path("precisd.toml")}).value()),
        client_(service_->connect(as_ops())) {}
  Ran fsck() const {
    return run({PRECISCTL_PATH, "--address", service_->address(), "--tenant", "ops", "--token",
                "boss", "fsck"});
  }
  std::set<SegmentId> segments() const {
    std::set<SegmentId> ids;
    const auto rows = client_->segments({}, 100'000).value();
    for (const msg::SegmentInfo& row : rows) ids.insert(row.id);
    return ids;
  }
  Result<PrefixCopy> read(const Model& model, const Segment& segment) const {
    return read_all(*client_, model, segment.path);
  }
  Client& client() const { return *client_; }

 private:
  std::unique_ptr<ServiceProcess> service_;
  std::shared_ptr<Client> client_;
};

// Puts, trims and removes segments until it is stopped.
class Load {
 public:
  template <typename Put>
  Load(std::shared_ptr<Client> client, Put put) : client_(std::move(client)) {
    thread_ = std::thread([this, put] {
      std::mt19937 numbers(7);
      for (unsigned round = 0; !stopping_; ++round) {
        const Segment added = put(*client_, numbers);
        std::unique_lock lock(mutex_);
        stored_[added.id] = added;
        const auto victim = std::next(stored_.begin(), numbers() % stored_.size());
        if (round % 3 == 1 && stored_.size() > 10) {
          const SegmentId id = victim->first;
          stored_.erase(victim);
          removed_.insert(id);
          lock.unlock();
          if (!client_->remove_segment(id, false).ok()) ++failed_;
        } else if (round % 3 == 2) {
          const SegmentId id = victim->first;
          lock.unlock();
          const auto trimmed = client_->trim_segment(id, Budget::ratio(0.4).value());
          const StatusCode code = trimmed.status().code();
          if (code != StatusCode::kOk && code != StatusCode::kConflict) ++failed_;
        }
      }
    });
  }
  ~Load() { stop(); }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Segments whose put was acknowledged and whose removal has not begun.
  std::map<SegmentId, Segment> stored() const {
    const std::lock_guard lock(mutex_);
    return stored_;
  }
  // Segments whose removal has begun.
  std::set<SegmentId> removed() const {
    const std::lock_guard lock(mutex_);
    return removed_;
  }
  int failed() const { return failed_; }

 private:
  std::shared_ptr<Client> client_;
  mutable std::mutex mutex_;
  std::map<SegmentId, Segment> stored_;
  std::set<SegmentId> removed_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> failed_{0};
  std::thread thread_;
};

TEST_CASE_METHOD(BackupFixture,
                 "a backup under load has what was acknowledged before it, whole, and no more",
                 "[integration][backup]") {
  const auto still = put_many(10);
  std::vector<PrefixCopy> expected;
  for (const Segment& each : still) {
    expected.push_back(read_all(*client, *model, each.path).value());
  }
  Load load(service->connect(as_ops()),
            [this](Client& with, std::mt19937& numbers) { return put(with, numbers); });
  for (int round = 0; round < 3; ++round) {
    while (load.stored().size() < 15) std::this_thread::yield();
    const auto before = load.stored();
    const std::string name = "b" + std::to_string(round);
    CHECK(back_up({"--name", name})["state"] == "done");
    const std::set<SegmentId> removed = load.removed();

    const std::string data = dir.path("restored-" + name);
    const Ran restored = restore({backups, "--into", data, "--name", name});
    INFO(restored.out << restored.err);
    REQUIRE(restored.exit_code == 0);
    const RestoredService service_again(dir, data);
    CHECK(service_again.fsck().exit_code == 0);
    for (std::size_t i = 0; i < still.size(); ++i) {
      REQUIRE(service_again.read(*model, still[i]).value() == expected[i]);
    }
    const std::set<SegmentId> ids = service_again.segments();
    for (const auto& [id, segment] : before) {
      if (!removed.contains(id)) REQUIRE(ids.contains(id));
    }
  }
  load.stop();
  CHECK(load.failed() == 0);
  CHECK(ctl({"fsck"}).exit_code == 0);
  const auto listed = json::parse(ctl({"backup", "ls", "--json"}).out)["backups"];
  REQUIRE(listed.size() == 3);
  CHECK(listed[0]["name"] == "b2");  // the newest first
}

TEST_CASE_METHOD(BackupFixture, "a second backup copies only what is new, also after moves",
                 "[integration][backup]") {
  auto stored = put_many(10);
  const json first = back_up();
  CHECK(first["copied_bytes"] == first["bytes"]);
  CHECK(back_up({"--name", "same"})["copied_bytes"] == 0);

  service->stop();
  start();  // later values go to another payload file, so the compactor may empty this one
  const std::string file = dir.path("data/payload/0000000001.extents");
  REQUIRE(fs::exists(file));
  for (unsigned i = 0; i < 7; ++i) REQUIRE(client->remove_segment(stored[i].id, false).ok());
  while (fs::exists(file)) std::this_thread::yield();  // this test's time limit ends it
  const json moved = back_up({"--name", "moved"});
  CHECK(moved["copied_bytes"] == 0);
  CHECK(moved["values"] == 3 * model->spec.num_layers);

  const Segment added = put(*client, random);
  CHECK(back_up({"--name", "more"})["copied_bytes"] == added.bytes);
  CHECK(back_up({"--name", "last", "--keep", "1"})["copied_bytes"] == 0);
  CHECK(values().size() == 4 * model->spec.num_layers);
  CHECK(restore({backups, "--list"}).out.starts_with("last  "));

  const std::string data = dir.path("restored");
  REQUIRE(restore({backups, "--into", data}).exit_code == 0);
  const RestoredService again(dir, data);
  CHECK(again.fsck().exit_code == 0);
  stored.erase(stored.begin(), stored.begin() + 7);
  for (const Segment& each : stored) {
    CHECK(again.read(*model, each).value() == read_all(*client, *model, each.path).value());
  }
}

TEST_CASE_METHOD(BackupFixture, "restore names what is damaged or missing, and restores the rest",
                 "[integration][backup]") {
  const auto stored = put_many(6);
  back_up({"--name", "a"});
  CHECK(restore({backups, "--dry-run"}).exit_code == 0);
  const auto paths = values();
  flip(paths[0], fs::file_size(paths[0]) / 2);
  fs::remove(paths[1]);
  const Ran checked = restore({backups, "--dry-run", "--json"});
  CHECK_THAT(checked.err, Contains("\"code\"") && Contains("\"corruption\""));
  CHECK(checked.exit_code == 1);
  const json report = json::parse(checked.out);
  CHECK(report["faults"] == 2);
  for (const std::string& path : {paths[0], paths[1]}) CHECK_THAT(checked.out, Contains(path));

  const std::string data = dir.path("restored");
  CHECK(restore({backups, "--into", data}).exit_code == 1);
  {
    const RestoredService again(dir, data);
    CHECK(again.segments().size() == 6);
    std::size_t whole = 0;
    for (const Segment& each : stored) {
      const auto read = again.read(*model, each);
      if (!read.ok()) continue;
      ++whole;
      CHECK(*read == read_all(*client, *model, each.path).value());
    }
    CHECK(whole >= 4);
    CHECK(whole < 6);
    CHECK(again.fsck().exit_code == 1);
  }
  const Ran refused = restore({backups, "--into", data});
  CHECK(refused.exit_code != 0);
  CHECK_THAT(refused.err, Contains("not an empty directory"));

  // The next backup writes anew what has rotted, also for the earlier one.
  back_up({"--name", "b"});
  CHECK(restore({backups, "--dry-run", "--name", "a"}).exit_code == 0);

  // Rows are used only if all are whole, so that no service starts with half of a store.
  flip(backups + "/a.rows", 300);
  const Ran ended = restore({backups, "--into", dir.path("half"), "--name", "a"});
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err, Contains("a.rows"));
  const Ran start_in_vain = run(precisd_command(dir.path("half"), {}));
  CHECK(start_in_vain.exit_code != 0);
  CHECK_THAT(start_in_vain.err, Contains("was not restored to its end"));
}

TEST_CASE_METHOD(BackupFixture, "a value that has rotted in the store is named and left out",
                 "[integration][backup]") {
  const auto stored = put_many(3);
  back_up({"--name", "before"});
  service->stop();
  // The header of the file takes the first block; the first value follows.
  flip(dir.path("data/payload/0000000001.extents"), 4096 + 700);
  start();
  const Ran ran = ctl({"backup", "--name", "rotted", "--keep", "1"});
  CHECK(ran.exit_code == 1);
  CHECK_THAT(ran.err, Contains("segment " + stored[0].id.hex()) && Contains("not removed"));
  const std::string older = dir.path("older");  // only the older backup has what has rotted
  REQUIRE(restore({backups, "--into", older, "--name", "before"}).exit_code == 0);
  CHECK(RestoredService(dir, older).read(*model, stored[0]).ok());
  const std::string data = dir.path("restored");
  REQUIRE(restore({backups, "--into", data}).exit_code == 0);
  const RestoredService again(dir, data);
  CHECK_FALSE(again.read(*model, stored[0]).ok());
  CHECK(again.read(*model, stored[1]).ok());
  CHECK(again.read(*model, stored[2]).ok());
}

TEST_CASE_METHOD(BackupFixture, "SIGKILL during a backup loses nothing, of the store or of backups",
                 "[integration][backup]") {
  auto stored = put_many(10);
  back_up({"--name", "first"});
  for (int round = 0; round < 8; ++round) {
    for (const Segment& each : put_many(10)) stored.push_back(each);
    REQUIRE(client->start_backup({"killed", 0}).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    client.reset();
    REQUIRE(service->kill() == -SIGKILL);
    CHECK(restore({backups, "--dry-run", "--name", "first"}).exit_code == 0);
    if (fs::exists(backups + "/killed.rows")) {
      CHECK(restore({backups, "--dry-run", "--name", "killed"}).exit_code == 0);
      fs::remove(backups + "/killed.rows");
    }
    start();
  }
  CHECK(ctl({"fsck"}).exit_code == 0);
  back_up({"--name", "last"});
  for (const auto& each : fs::recursive_directory_iterator(backups)) {
    CHECK_FALSE(each.path().string().ends_with(".new"));
  }
  const std::string data = dir.path("restored");
  REQUIRE(restore({backups, "--into", data}).exit_code == 0);
  const RestoredService again(dir, data);
  CHECK(again.fsck().exit_code == 0);
  for (const Segment& each : stored) REQUIRE(again.read(*model, each).ok());
}

TEST_CASE_METHOD(BackupFixture, "a canceled backup ends, and the next one uses what it has copied",
                 "[integration][backup]") {
  put_many(20);
  REQUIRE(client->start_backup({"first", 0}).ok());
  REQUIRE(client->cancel_backup().ok());
  msg::BackupState state = client->backup().value();
  while (state.state == "running") state = client->backup().value();
  // The backup may have ended before the cancellation.
  const bool canceled = state.state == "canceled";
  CHECK((canceled || state.state == "done"));
  CHECK(fs::exists(backups + "/first.rows") != canceled);
  const json second = back_up({"--name", "second"});
  CHECK(second["copied_values"] == second["values"].get<std::uint64_t>() - state.copied_values);
}

TEST_CASE_METHOD(BackupFixture, "each backup has a name of its own", "[integration][backup]") {
  put_many(1);
  back_up({"--name", "first"});
  const auto again = ctl({"backup", "--name", "first"});
  CHECK(again.exit_code == 6);
  CHECK_THAT(again.err, Catch::Contains("there is a backup 'first' already"));
  back_up();  // several in a second
  back_up();
  back_up();
  CHECK(client->backups()->rows.size() == 4);
}

TEST_CASE_METHOD(BackupFixture, "a backup has the rows of all tenants, and budgets and sessions",
                 "[integration][backup]") {
  const auto stored = put_many(1);
  REQUIRE(client->open_session("agent", {}).ok());
  REQUIRE(ctl({"budget", "set", "--keep", "0.2"}).exit_code == 0);
  REQUIRE(ctl({"tenant", "add", "blue"}).exit_code == 0);
  back_up();
  const std::string data = dir.path("restored");
  REQUIRE(restore({backups, "--into", data}).exit_code == 0);
  const RestoredService again(dir, data);
  CHECK(again.client().session("agent").ok());
  CHECK(again.client().tenant("blue").ok());
  const auto budgets = again.client().budget_revisions({}).value();
  CHECK(budgets.newest == 1);
}

TEST_CASE_METHOD(BackupFixture,
                 "only admins ask for backups, by name, where a folder is configured",
                 "[integration][backup]") {
  put_many(1);
  CHECK(ctl({"backup"}, "red", "first").exit_code == 5);
  CHECK(ctl({"backup", "ls"}, "red", "first").exit_code == 5);
  CHECK_FALSE(fs::exists(backups));
  for (const char* name : {"../up", "a/b", ".hidden"}) {
    const Ran ran = ctl({"backup", "--name", name});
    CHECK(ran.exit_code == 2);
    CHECK_THAT(ran.err, Contains("begin with a letter or digit"));
  }
  const json once = back_up({"--name", "once"});
  std::ostringstream guide;
  guide << std::ifstream(PRECIS_SOURCE_DIR "/docs/guides/operations.md").rdbuf();
  for (const json& of :
       {once, json::parse(restore({backups, "--list", "--json"}).out)["backups"][0],
        json::parse(restore({backups, "--dry-run", "--json"}).out)}) {
    for (const auto& [key, value] : of.items()) CHECK_THAT(guide.str(), Contains("`" + key + "`"));
  }
  const Ran again = ctl({"backup", "--name", "once"});
  CHECK(again.exit_code != 0);
  CHECK_THAT(again.err, Contains("already"));
  CHECK_THAT(ctl({"backup", "cancel"}).out, Contains("no backup is running"));
  CHECK(restore({backups}).exit_code == 2);
  CHECK(restore({dir.path("none"), "--dry-run"}).exit_code != 0);

  std::ofstream(dir.path("precisd.toml"))
      << "[[tenant]]\nname = 'ops'\ntoken = 'boss'\nrole = 'admin'\n";
  client.reset();
  service->stop();
  start();
  CHECK_THAT(ctl({"backup"}).err, Contains("set backup_dir"));
}

}  // namespace
