// One client or one tenant asks for much; the others still get their share of the service.
#include <catch2/catch.hpp>
#include <fstream>
#include <random>
#include <set>
#include <vector>

#include "tests/integration/options.h"
#include "tests/integration/random_kv.h"
#include "tests/integration/raw_peer.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;

constexpr std::uint32_t kSeed = 20261124;

ServiceProcess service_of(const TempDir& dir, const std::string& settings) {
  const std::string file = dir.path("precisd.toml");
  std::ofstream(file) << settings;
  return ServiceProcess(dir, {"--memory", "64MiB", "--config", file});
}

ConnectOptions as(const std::string& tenant, bool retry) {
  ConnectOptions options = patient();
  options.tenant = tenant;
  options.retry = retry;
  return options;
}

// Begins puts over the connections, in turn, until each was refused one. `open` keeps them.
std::size_t fill(const std::vector<std::shared_ptr<Client>>& clients, const Model& model,
                 std::mt19937& random, std::vector<Put>& open) {
  const std::size_t before = open.size();
  std::vector<std::shared_ptr<Client>> left = clients;
  while (!left.empty()) {
    std::erase_if(left, [&](const std::shared_ptr<Client>& client) {
      auto put = client->begin_put(model, random_tokens(random, 8), keep_most());
      if (!put.ok()) {
        REQUIRE(put.status().code() == StatusCode::kRejected);
        return true;
      }
      open.push_back(std::move(*put));
      return false;
    });
  }
  return open.size() - before;
}

TEST_CASE("a tenant with a hundred connections leaves one with one its share, by weight",
          "[integration]") {
  const TempDir dir;
  const ServiceProcess service = service_of(dir, R"(max_puts = 160
[[tenant]]
name = "many"
[[tenant]]
name = "one"
weight = 2
[[tenant]]
name = "light"
)");
  std::mt19937 random(kSeed);
  std::vector<std::shared_ptr<Client>> many;
  for (int i = 0; i < 100; ++i) many.push_back(service.connect(as("many", /*retry=*/false)));
  const auto one = service.connect(as("one", false)), light = service.connect(as("light", false));
  std::vector<Put> open;
  const Model model = many.front()->register_model(tiny_model()).value();
  REQUIRE(one->register_model(tiny_model()).ok());
  REQUIRE(light->register_model(tiny_model()).ok());
  CHECK(fill(many, model, random, open) == 80);   // half of max_puts
  CHECK(fill({one}, model, random, open) == 40);  // half of the other half
  CHECK(fill({light}, model, random, open) == 20);
  // A further connection of the tenant does not increase its share.
  CHECK(fill({service.connect(as("many", false))}, model, random, open) == 0);
}

TEST_CASE("a long path is looked up in turns beside the loop, a short one takes none",
          "[integration]") {
  constexpr std::uint32_t kLong = 1u << 21;
  constexpr double kPieces = 32;  // of 64K tokens
  const TempDir dir;
  const ServiceProcess service = service_of(dir, "");
  const auto client = service.connect(patient()), other = service.connect(patient());
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const auto stored = random_tokens(random, 40);
  const Kv kv = random_kv(random, model.spec, 0, 40);
  REQUIRE(put_all(*client, model, stored, kv, keep_most()).ok());

  REQUIRE(other->lookup(model, stored)->matched_tokens == 40);
  CHECK(stat(*client, "precis_turns_total") == 0);
  std::vector<TokenId> path = stored;
  const auto more = random_tokens(random, kLong - 40);
  path.insert(path.end(), more.begin(), more.end());
  const auto match = client->lookup(model, path);
  REQUIRE(match.ok());
  CHECK(match->matched_tokens >= 32);
  CHECK(stat(*client, "precis_turns_total") == 1 + kPieces);  // the first decodes the request
  // The same holds for the start of a put.
  {
    const auto put = client->begin_put(model, path, keep_most());
    INFO(put.status().to_string());
    CHECK(stat(*client, "precis_turns_total") == 2 * (1 + kPieces));
  }
  REQUIRE(other->lookup(model, stored)->matched_tokens == 40);
  CHECK(stat(*client, "precis_turns_total") == 2 * (1 + kPieces));
}

TEST_CASE("a sign of life is answered", "[integration]") {
  const TempDir dir;
  const ServiceProcess service = service_of(dir, "");
  RawPeer peer;
  REQUIRE(peer.connect(service.address()).value().status.ok());
  const auto reply = peer.call(msg::Ping{});
  REQUIRE(reply.ok());
  CHECK(reply->status.ok());
  CHECK(reply->body == msg::ReplyBody(msg::Done{}));
}

TEST_CASE("more segments than a page holds are listed, and found by the beginning of an id",
          "[integration]") {
  constexpr std::uint32_t kSegments = 1100;  // pages have 1000
  const TempDir dir;
  const ServiceProcess service = service_of(dir, "");
  const auto client = service.connect(patient());
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random(kSeed);
  const Kv kv = random_kv(random, model.spec, 0, 4);
  std::set<SegmentId> put;
  while (put.size() < kSegments) {
    const auto info =
        put_all(*client, model, random_tokens(random, 4), kv, keep_most(), Durability::kMemory);
    REQUIRE(info.ok());
    put.insert(info->id);
  }
  std::set<SegmentId> listed;
  const auto rows = client->segments({}, 1u << 20).value();
  for (const msg::SegmentInfo& row : rows) {
    CHECK(row.in_memory);
    listed.insert(row.id);
  }
  CHECK(rows.size() == kSegments);
  CHECK(listed == put);
  CHECK(client->segments(model.fingerprint, 1050)->size() == 1050);
  CHECK(client->segments({}, 3)->size() == 3);
  CHECK(client->status()->segments == kSegments);
  const SegmentId id = *put.begin();
  CHECK(client->find_segment(id.hex().substr(0, 16))->id == id);
  CHECK(client->find_segment(id.hex().substr(0, 1)).status().code() ==
        StatusCode::kInvalidArgument);  // about a sixteenth match
}

}  // namespace
