// max_disk_bytes: a real precisd trims segments before it drops them, and never stores more.
#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <thread>

#include "tests/integration/operated_service.h"
#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261126;
constexpr std::uint32_t kTokens = 256;
constexpr std::uint64_t kLimit = 4u << 20;

ConnectOptions as(const std::string& tenant) {
  ConnectOptions options = patient();
  options.tenant = tenant;
  return options;
}

std::string settings(std::uint64_t limit, const std::string& more = "",
                     const std::string& ladder = "[0.5, 0.25]") {
  return "memory_bytes = '64MiB'\nmemory_wait_ms = 20000\nmax_disk_bytes = " +
         std::to_string(limit) + "\ntrim_ladder = " + ladder + "\n" + more;
}

// Waits for something that the service does by itself.
void wait_until(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!holds()) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The bytes that du shows for the payload files.
double payload_on_disk(const TempDir& dir) {
  std::uint64_t blocks = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir.path("data/payload"))) {
    struct ::stat found = {};  // a file may be removed meanwhile
    if (::lstat(file.path().c_str(), &found) == 0) {
      blocks += static_cast<std::uint64_t>(found.st_blocks);
    }
  }
  return static_cast<double>(blocks) * 512;
}

class CapacityFixture {
 protected:
  TempDir dir;
  std::mt19937 random{kSeed};

  struct Stored {
    std::vector<TokenId> path;
    msg::SegmentInfo info;
  };
  Result<Stored> put(Client& client, const Model& model, const PutOptions& how = keep_most()) {
    Stored stored{random_tokens(random, kTokens), {}};
    PRECIS_ASSIGN(stored.info, put_all(client, model, stored.path,
                                       random_kv(random, model.spec, 0, kTokens), how));
    return stored;
  }
  Stored must_put(Client& client, const Model& model, const PutOptions& how = keep_most()) {
    auto stored = put(client, model, how);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    return *stored;
  }
};

TEST_CASE_METHOD(CapacityFixture, "a full store trims, then drops, and keeps what is used",
                 "[integration]") {
  PutOptions how = keep_most();
  how.recipe =
      GENERATE(Catch::Generators::as<std::string>{}, "ada_keydiff", "ada_keydiff(encoding=int4)");
  CAPTURE(how.recipe);
  OperatedService service(dir, settings(kLimit));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  const Stored used = must_put(*client, model, how);
  std::vector<Stored> idle;
  for (std::uint64_t put_bytes = 0; put_bytes < 5 * kLimit;) {
    idle.push_back(must_put(*client, model, how));
    put_bytes += idle.back().info.stored_bytes;
    REQUIRE(stat(*client, "precis_stored_bytes") <= kLimit);
    REQUIRE(read_all(*client, model, used.path).ok());
  }
  CHECK(stat(*client, "precis_capacity_trims_total") > 0);
  CHECK(stat(*client, "precis_capacity_drops_total") > 0);
  CHECK(stat(*client, "precis_capacity_freed_bytes_total") > 3 * kLimit);
  CHECK(client->status().value().max_disk_bytes == kLimit);

  // The segment that was read all the time keeps at least as much as any that was not read.
  const auto kept = client->segment(used.info.id);
  REQUIRE(kept.ok());
  CHECK(kept->hits >= idle.size());
  std::size_t left = 0, trimmed = 0;
  for (const Stored& each : idle) {
    const auto info = client->segment(each.info.id);
    if (!info.ok()) continue;
    const auto checked = client->check_segment(each.info.id);
    if (checked.status().code() == StatusCode::kNotFound) continue;  // dropped just now
    REQUIRE(checked.ok());
    CHECK(checked->damage.empty());
    ++left;
    if (info->trimmed) ++trimmed;
  }
  CHECK(left > kLimit / used.info.stored_bytes);  // more than would fit untrimmed
  CHECK(trimmed > 0);
  CHECK_FALSE(client->segment(idle.front().info.id).ok());
  CHECK(client->segment(idle.back().info.id).ok());
}

TEST_CASE_METHOD(CapacityFixture, "lru drops what was used least recently, and trims nothing",
                 "[integration]") {
  OperatedService service(dir, settings(kLimit, "capacity_policy = 'lru'\n"));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  std::uint64_t put_bytes = 0;
  while (put_bytes < 2 * kLimit) put_bytes += must_put(*client, model).info.stored_bytes;
  CHECK(stat(*client, "precis_stored_bytes") <= kLimit);
  CHECK(stat(*client, "precis_capacity_drops_total") > 0);
  CHECK(stat(*client, "precis_capacity_trims_total") == 0);
}

TEST_CASE_METHOD(CapacityFixture, "segments that their recipe keeps whole are dropped",
                 "[integration]") {
  OperatedService service(dir, settings(kLimit));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  PutOptions whole = keep_most();
  whole.recipe = "ada_keydiff(min_entries=230)";
  for (std::uint64_t put_bytes = 0; put_bytes < 2 * kLimit;) {
    const auto stored = put(*client, model, whole);
    INFO(stored.status().to_string());
    REQUIRE(stored.ok());
    put_bytes += stored->info.stored_bytes;
    REQUIRE(stat(*client, "precis_stored_bytes") <= kLimit);
  }
  CHECK(stat(*client, "precis_capacity_drops_total") > 0);
}

TEST_CASE_METHOD(CapacityFixture, "hints decide which of a tenant's segments stay",
                 "[integration]") {
  OperatedService service(dir, settings(kLimit, "", "[]"));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  PutOptions how = keep_most();
  how.hints = {.priority = 100, .ttl_seconds = 3600, .expect_reuse_in_seconds = 600};
  const Stored kept = put(*client, model, how).value();
  CHECK(kept.info.priority == 100);
  CHECK(kept.info.ttl_seconds == 3600);
  CHECK(kept.info.expected_unix_ms > kept.info.created_unix_ms + 500'000);

  how.hints = {.priority = 0};
  const Stored raised = put(*client, model, how).value();
  LookupOptions raise;
  raise.hints.priority = 100;
  const auto match = client->lookup(model, raised.path, raise).value();
  CHECK(match.links.at(0).segment.priority == 100);
  CHECK(client->segment(raised.info.id).value().priority == 100);
  // A put of a stored segment sets the hints that it names, too.
  how.hints = {.ttl_seconds = 7200};
  auto again = client->begin_put(model, kept.path, how).value();
  CHECK(again.begun().already_stored);
  CHECK(again.commit().value().ttl_seconds == 7200);
  CHECK(client->segment(kept.info.id).value().priority == 100);

  how.hints = {.priority = 0};
  const Stored doomed = put(*client, model, how).value();
  for (std::uint64_t put_bytes = 0; put_bytes < 3 * kLimit;) {
    put_bytes += must_put(*client, model).info.stored_bytes;
  }
  CHECK_FALSE(client->segment(doomed.info.id).ok());
  for (const Stored* each : {&kept, &raised}) {
    const auto info = client->segment(each->info.id);
    REQUIRE(info.ok());
    CHECK(info->entries == each->info.entries);
  }

  how.hints = {.priority = 101};
  const Status refused = put(*client, model, how).status();
  CHECK(refused.code() == StatusCode::kInvalidArgument);
  CHECK_THAT(refused.message(), Catch::Contains("priority"));
}

TEST_CASE_METHOD(CapacityFixture, "of equal segments, the cheaper to compute again goes first",
                 "[integration]") {
  OperatedService service(dir, settings(kLimit, "", "[]"));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  PutOptions how = keep_most();
  how.prefill_seconds = 100;
  const Stored dear = put(*client, model, how).value();
  CHECK(dear.info.prefill_seconds == 100);
  how.prefill_seconds = 1e-6;
  const Stored cheap = put(*client, model, how).value();
  // A commit may name prefill_seconds, too, and the larger value counts.
  const auto path = random_tokens(random, kTokens);
  const Kv kv = random_kv(random, model.spec, 0, kTokens);
  Put later = client->begin_put(model, path, how).value();
  for (std::uint32_t layer = 0; layer < model.spec.num_layers; ++layer) {
    REQUIRE(later.layer(layer, kv.layers[layer].push()).ok());
  }
  CHECK(later.commit(Durability::kMemory, -1).status().code() == StatusCode::kInvalidArgument);
  const auto told = later.commit(Durability::kWal, 100);
  REQUIRE(told.ok());
  CHECK(told->prefill_seconds == 100);

  while (client->segment(cheap.info.id).ok()) must_put(*client, model);
  CHECK(client->segment(dear.info.id).ok());
  for (std::uint64_t put_bytes = 0; put_bytes < 3 * kLimit;) {
    put_bytes += must_put(*client, model).info.stored_bytes;
  }
  CHECK(client->segment(dear.info.id).ok());
  CHECK(client->segment(told->id).ok());
}

TEST_CASE_METHOD(CapacityFixture, "what an operator sets decides what stays", "[integration]") {
  OperatedService service(dir, settings(kLimit, "", "[]"));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  const Stored kept = must_put(*client, model), doomed = must_put(*client, model);
  REQUIRE(client->set_retention({kept.info.id, 100, {}}).ok());
  REQUIRE(client->set_retention({doomed.info.id, 0, {}}).ok());
  while (client->segment(doomed.info.id).ok()) must_put(*client, model);
  for (std::uint64_t put_bytes = 0; put_bytes < 3 * kLimit;) {
    put_bytes += must_put(*client, model).info.stored_bytes;
  }
  CHECK(client->segment(kept.info.id).ok());
}

TEST_CASE_METHOD(CapacityFixture, "pinned sessions hold at most their share of the limit",
                 "[integration]") {
  OperatedService service(dir, settings(kLimit, "max_pinned_share = 0.25\n"));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  Status refused;
  std::string name;
  for (int i = 0; refused.ok(); ++i) {
    name = "session " + std::to_string(i);
    REQUIRE(client->open_session(name, std::nullopt).ok());
    REQUIRE(client->advance_session(name, must_put(*client, model).info.id).ok());
    refused = client->pin_session(name, true).status();
  }
  CHECK(refused.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(refused.message(), Catch::Contains("max_pinned_share"));
  const auto status = client->status().value();
  CHECK(status.max_pinned_bytes == kLimit / 4);
  CHECK(status.pinned_bytes <= status.max_pinned_bytes);
  CHECK(status.pinned_bytes > status.max_pinned_bytes / 2);
  CHECK(stat(*client, "precis_pinned_bytes") == static_cast<double>(status.pinned_bytes));
  CHECK_FALSE(client->session(name).value().pinned);
  const Ran ctl = service.ctl({"session", "pin", name});
  CHECK(ctl.exit_code != 0);
  CHECK_THAT(ctl.err, Catch::Contains("max_pinned_share"));

  service.write_config(settings(kLimit, "max_pinned_share = 1\n"));
  service.reload();
  CHECK(client->pin_session(name, true).ok());
  CHECK_THAT(service.ctl({"status"}).out, Catch::Contains("pinned"));
}

TEST_CASE_METHOD(CapacityFixture, "files shrink with what is stored, and du agrees within 2%",
                 "[integration]") {
  constexpr std::uint64_t kMiB = 1u << 20, kStored = 64 * kMiB;
  OperatedService service(dir,
                          "memory_bytes = '256MiB'\nmemory_wait_ms = 60000\n"
                          "trim_ladder = [0.3, 0.2]\nmax_disk_bytes = " +
                              std::to_string(kStored) + "\n");
  const auto client = Client::connect(service.address(), patient()).value();
  ModelSpec spec = tiny_model();
  spec.num_layers = 2;
  spec.num_kv_heads = 2;
  spec.num_q_heads = 2;
  spec.head_dim = 64;
  const Model model = client->register_model(spec).value();
  constexpr std::uint32_t kLong = 2048;  // 4 MiB of K and V
  const Kv kv = random_kv(random, spec, 0, kLong);
  PutOptions half;
  half.recipe = "keydiff";
  half.keep = Budget::ratio_ppm(500'000);
  const auto agree = [&] {
    const double stored = stat(*client, "precis_stored_bytes"), disk = payload_on_disk(dir);
    return stored > 0 && disk > 0.98 * stored && disk < 1.02 * stored;
  };
  for (std::uint64_t put_bytes = 0; put_bytes < 2 * kStored;) {
    const auto info = put_all(*client, model, random_tokens(random, kLong), kv, half);
    INFO(info.status().to_string());
    REQUIRE(info.ok());
    REQUIRE(stat(*client, "precis_stored_bytes") <= static_cast<double>(kStored));
    put_bytes += info->stored_bytes;
  }
  CHECK(stat(*client, "precis_capacity_trims_total") > 0);
  wait_until(agree);
  CHECK(stat(*client, "precis_stored_bytes") > 0.8 * static_cast<double>(kStored));

  // Every third segment is removed, so that all files keep live values.
  const auto all = client->segments(std::nullopt, 1000).value();
  for (std::size_t i = 0; i < all.size(); i += 3) {
    REQUIRE(client->remove_segment(all[i].id, false).ok());
  }
  wait_until(agree);
  for (std::size_t i = 1; i < all.size(); i += 3) {
    CHECK(client->check_segment(all[i].id).value().damage.empty());
  }
}

TEST_CASE_METHOD(CapacityFixture, "a tenant's limit is its own", "[integration]") {
  OperatedService service(dir, settings(0,
                                        "[[tenant]]\nname = 'small'\nmax_disk_bytes = '1MiB'\n"
                                        "[[tenant]]\nname = 'free'\n"));
  const auto small = Client::connect(service.address(), as("small")).value();
  const auto free = Client::connect(service.address(), as("free")).value();
  const Model model = small->register_model(tiny_model()).value();
  REQUIRE(free->register_model(tiny_model()).ok());
  for (std::uint64_t put_bytes = 0; put_bytes < 3u << 20;) {
    put_bytes += must_put(*small, model).info.stored_bytes;
    must_put(*free, model);
    REQUIRE(stat(*small, "precis_stored_bytes") <= 1u << 20);
  }
  CHECK(stat(*free, "precis_stored_bytes") >= 3u << 20);
  CHECK(small->status().value().max_disk_bytes == 1u << 20);
}

TEST_CASE_METHOD(CapacityFixture,
                 "a put that can't fit is refused and says what to do, and "
                 "pinned sessions are kept",
                 "[integration]") {
  OperatedService service(dir, settings(100'000));
  const auto client = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  const Status large = put(*client, model).status();
  CHECK(large.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(large.message(), Catch::Contains("raise max_disk_bytes"));

  service.write_config(settings(0));
  service.reload();
  std::vector<Stored> pinned;
  for (int i = 0; i < 3; ++i) {
    pinned.push_back(must_put(*client, model));
    const std::string name = "session " + std::to_string(i);
    REQUIRE(client->open_session(name, std::nullopt).ok());
    REQUIRE(client->advance_session(name, pinned.back().info.id).ok());
    REQUIRE(client->pin_session(name, true).ok());
  }
  const double stored = stat(*client, "precis_stored_bytes");
  service.write_config(settings(static_cast<std::uint64_t>(stored) + 1000));
  service.reload();
  const Status full = put(*client, model).status();
  CHECK(full.code() == StatusCode::kOutOfSpace);
  CHECK_THAT(full.message(), Catch::Contains("unpin"));
  for (const Stored& each : pinned) {
    const auto info = client->segment(each.info.id);
    REQUIRE(info.ok());
    CHECK(info->entries == each.info.entries);
  }
}

TEST_CASE_METHOD(CapacityFixture, "a put that waits enters when a client has removed enough",
                 "[integration]") {
  const auto limited = [](std::uint64_t limit) {
    return "memory_bytes = '64MiB'\nmemory_wait_ms = 600000\nsilent_client_ms = 600000\n"
           "max_pinned_share = 1\nmax_disk_bytes = " +
           std::to_string(limit) + "\n";
  };
  OperatedService service(dir, limited(0));
  const auto client = Client::connect(service.address(), patient()).value();
  const auto other = Client::connect(service.address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  const Stored pinned = must_put(*client, model);
  REQUIRE(client->open_session("talk", std::nullopt).ok());
  REQUIRE(client->advance_session("talk", pinned.info.id).ok());
  REQUIRE(client->pin_session("talk", true).ok());
  // There is room for what is pinned and one put, or for two puts.
  service.write_config(limited(pinned.info.stored_bytes * 5 / 2));
  service.reload();
  const auto first = random_tokens(random, kTokens), second = random_tokens(random, kTokens);
  auto under_way = client->begin_put(model, first, keep_most());
  REQUIRE(under_way.ok());
  Status entered = Status::internal("not asked");
  std::thread waits([&] { entered = other->begin_put(model, second, keep_most()).status(); });
  wait_until([&] { return stat(*client, "precis_waiting_requests") == 1; });
  CHECK(client->remove_session("talk").ok());
  CHECK(client->remove_segment(pinned.info.id, false).ok());
  waits.join();
  INFO(entered.to_string());
  CHECK(entered.ok());
}

TEST_CASE_METHOD(CapacityFixture,
                 "a lower limit takes effect without a restart, and the last use "
                 "survives one",
                 "[integration]") {
  std::optional<OperatedService> service(std::in_place, dir, settings(0));
  auto client = Client::connect(service->address(), patient()).value();
  const Model model = client->register_model(tiny_model()).value();
  const Stored first = must_put(*client, model);
  for (int i = 0; i < 20; ++i) must_put(*client, model);
  REQUIRE(read_all(*client, model, first.path).ok());
  const std::uint64_t used_ms = client->segment(first.info.id).value().last_used_unix_ms;
  CHECK(used_ms >= first.info.created_unix_ms);
  const double before = stat(*client, "precis_stored_bytes");

  client.reset();
  service->stop();
  service.reset();
  std::filesystem::remove(dir.path("notify"));
  service.emplace(dir, settings(0));
  client = Client::connect(service->address(), patient()).value();
  CHECK(client->segment(first.info.id).value().last_used_unix_ms == used_ms);

  const auto limit = static_cast<std::uint64_t>(before / 2);
  service->write_config(settings(limit));
  service->reload();
  wait_until([&] { return stat(*client, "precis_stored_bytes") <= static_cast<double>(limit); });
  CHECK(client->segment(first.info.id).ok());
  const std::string log = service->log();
  CHECK_THAT(log, Catch::Contains("a limit is below what is stored") &&
                      Catch::Contains("max_disk_bytes=" + std::to_string(limit)));
}

}  // namespace
