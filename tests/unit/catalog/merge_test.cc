// Consolidation in the catalog: which segments may become one, and what becomes of their names.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "tests/unit/catalog/catalog_fixture.h"

using namespace precis;
using namespace precis::testing;

namespace {

constexpr std::uint32_t kTurn = 6;  // tokens; the model's blocks have 4

struct Chain : CatalogFixture {
  // Turns whose budget is a ratio. Only the first is a child of the root.
  explicit Chain(std::uint32_t turns = 5, std::uint32_t window = 0) : CatalogFixture(4, window) {
    for (std::uint32_t turn = 0; turn < turns; ++turn) add();
  }
  NewSegment made(const Tokens& path, const NewSegment* parent, std::uint32_t ppm = 500'000) const {
    NewSegment segment = CatalogFixture::segment(path, parent);
    segment.row.budget = Budget::ratio_ppm(ppm);
    return segment;
  }
  void add(std::uint32_t ppm = 500'000, Durability durability = Durability::kWal) {
    const auto end = static_cast<std::uint32_t>(links.size() + 1) * kTurn;
    links.push_back(made(tokens(end), links.empty() ? nullptr : &links.back(), ppm));
    const Status status = commit(links.back(), durability);
    INFO(status.to_string());
    REQUIRE(status.ok());
  }
  std::size_t run_length() { return catalog->mergeable(tenant, links.back().row.id).size(); }
  // The segment that `run` becomes, with other bytes.
  NewSegment merged(const std::vector<Catalog::Row>& run) const {
    NewSegment into = links[0];
    into.row = *run.back();
    into.row.begin = run.front()->begin;
    into.row.parent = run.front()->parent;
    into.row.blocks.clear();
    into.row.former.clear();
    into.row.stored_bytes = 0;
    for (const Catalog::Row& row : run) {
      into.row.blocks.insert(into.row.blocks.end(), row->blocks.begin(), row->blocks.end());
      into.row.former.insert(into.row.former.end(), row->former.begin(), row->former.end());
      if (row != run.back()) into.row.former.push_back(row->id);
      if (row == run.front()) continue;
      for (std::size_t i = 0; i < into.row.plan.counts.size(); ++i) {
        into.row.plan.counts[i] += run.front()->plan.counts[i];
      }
    }
    for (std::size_t l = 0; l < into.layers.size(); ++l) {
      into.layers[l].resize(into.row.layer_bytes[l] = 200 + l);
      into.row.stored_bytes += into.layers[l].size();
    }
    return into;
  }
  Result<bool> merge() {
    const auto run = catalog->mergeable(tenant, links.back().row.id);
    const NewSegment into = merged(run);
    const auto payload = into.payload();
    return catalog->merge(run, {into.row, payload});
  }
  const SegmentId& id(std::size_t turn) const { return links[turn].row.id; }

  std::vector<NewSegment> links;
};

}  // namespace

TEST_CASE("a run ends where others need a segment, or where it differs", "[unit][catalog]") {
  Chain chain;  // the last turn is never in a run
  CHECK(chain.run_length() == 4);
  SECTION("a session") {
    REQUIRE(chain.catalog->open_session(chain.tenant, {"talk"}).ok());
    REQUIRE(chain.catalog->advance_session(chain.tenant, {"talk", chain.id(1)}).ok());
    CHECK(chain.run_length() == 2);
    REQUIRE(chain.catalog->advance_session(chain.tenant, {"talk", chain.id(3)}).ok());
    CHECK(chain.run_length() == 4);  // a session's tip may be the last one
  }
  SECTION("another child") {
    Tokens path = tokens(3 * kTurn);
    for (const TokenId token : tokens(4, 900)) path.push_back(token);
    REQUIRE(chain.commit(chain.made(path, &chain.links[2])).ok());
    CHECK(chain.run_length() == 0);  // only the turn after the third is left
  }
  SECTION("another budget") {
    chain.add(250'000);
    CHECK(chain.run_length() == 5);
    chain.add(500'000);
    CHECK(chain.run_length() == 0);
  }
  SECTION("a trim") {
    NewSegment less = trimmed(chain.links[1]);
    REQUIRE(chain.catalog->trim(chain.links[1].row, less.row, less.payload(), Durability::kWal)
                .value());
    CHECK(chain.run_length() == 2);
  }
  SECTION("trims to different shares") {
    for (std::uint32_t turn = 0; turn < 4; ++turn) {
      NewSegment less = trimmed(chain.links[turn]);
      less.row.trimmed = Budget::ratio_ppm(100'000 * (1 + turn % 2));
      REQUIRE(chain.catalog->trim(chain.links[turn].row, less.row, less.payload(), Durability::kWal)
                  .value());
      // A trimmed segment does not join one that is not.
      CHECK(chain.run_length() == std::array{3u, 2u, 0u, 4u}[turn]);
    }
  }
  SECTION("trims to different shares, before a turn that was computed over a part of them") {
    NewSegment next =
        chain.segment(tokens(6 * kTurn), &chain.links.back(), 1, 1, Budget::entries(1));
    next.row.budget = Budget::ratio_ppm(500'000);
    next.row.parent_entries = 5;
    REQUIRE(chain.commit(next).ok());
    chain.links.push_back(next);
    CHECK(chain.run_length() == 5);
    for (std::uint32_t turn = 0; turn < 5; ++turn) {
      NewSegment less = trimmed(chain.links[turn]);
      less.row.trimmed = Budget::ratio_ppm(100'000 * (1 + turn % 2));
      REQUIRE(chain.catalog->trim(chain.links[turn].row, less.row, less.payload(), Durability::kWal)
                  .value());
    }
    CHECK(chain.run_length() == 0);
  }
  SECTION("a segment that is not on the disk") {
    chain.add(500'000, Durability::kMemory);
    chain.add(500'000, Durability::kMemory);
    CHECK(chain.run_length() == 0);
  }
  SECTION("quarantine") {
    REQUIRE(chain.catalog->quarantine(chain.links[1].row));
    CHECK(chain.run_length() == 0);
  }
}

TEST_CASE("a run is no longer than the shortest window of the model", "[unit][catalog]") {
  CHECK(Chain(5, 4 * kTurn).run_length() == 4);
  CHECK(Chain(5, 4 * kTurn - 1).run_length() == 3);
  CHECK(Chain(5, kTurn).run_length() == 0);
}

TEST_CASE("a merged run is found by all of its names, also after a restart", "[unit][catalog]") {
  Chain chain;
  REQUIRE(chain.merge().value());
  for (int opening = 0; opening < 2; ++opening) {
    const auto links = chain.match(chain.links.back().path);
    REQUIRE(links.size() == 2);
    CHECK(links[0].row->id == chain.id(3));
    CHECK(links[0].row->begin == 0);
    CHECK(links[1].row->parent == chain.id(3));
    for (std::size_t turn = 0; turn < 4; ++turn) {
      CAPTURE(turn);
      CHECK(chain.catalog->info(chain.tenant, chain.id(turn), false).value().id == chain.id(3));
      CHECK(chain.catalog->find_segment(chain.tenant, chain.id(turn).hex()).value().id ==
            chain.id(3));
      CHECK(chain.catalog->harden(chain.tenant, chain.id(turn), Durability::kWal).ok());
      if (turn == 3) continue;
      const Status gone = chain.catalog->segment(chain.tenant, chain.id(turn)).status();
      CHECK(gone.code() == StatusCode::kNotFound);
      CHECK(gone.message().find("consolidated into segment " + chain.id(3).hex()) !=
            std::string::npos);
      CHECK_FALSE(chain.has_payload(chain.links[turn]));
    }
    CHECK(chain.catalog->totals().segments == 2);
    CHECK(chain.catalog->info("other", chain.id(0), false).status().code() ==
          StatusCode::kNotFound);
    chain.reopen();
  }
  // The consolidated segment grows further, and the ids of the first segments still name it.
  for (int more = 0; more < 3; ++more) chain.add();
  REQUIRE(chain.run_length() == 4);
  REQUIRE(chain.merge().value());
  CHECK(chain.catalog->info(chain.tenant, chain.id(0), false).value().id == chain.id(6));
  CHECK(chain.catalog->info(chain.tenant, chain.id(3), false).value().id == chain.id(6));
  REQUIRE(chain.catalog->remove(chain.tenant, chain.id(1), /*recursive=*/true, nullptr).ok());
  CHECK(chain.catalog->totals().segments == 0);
  CHECK(chain.catalog->totals().stored_bytes == 0);
  CHECK(chain.catalog->info(chain.tenant, chain.id(0), false).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("a merge of a run that changed meanwhile changes nothing", "[unit][catalog]") {
  Chain chain;
  const auto run = chain.catalog->mergeable(chain.tenant, chain.id(4));
  const NewSegment into = chain.merged(run);
  const auto payload = into.payload();
  SECTION("trimmed") {
    NewSegment less = trimmed(chain.links[2]);
    REQUIRE(chain.catalog->trim(chain.links[2].row, less.row, less.payload(), Durability::kWal)
                .value());
  }
  SECTION("a session") {
    REQUIRE(chain.catalog->open_session(chain.tenant, {"talk"}).ok());
    REQUIRE(chain.catalog->advance_session(chain.tenant, {"talk", chain.id(0)}).ok());
  }
  SECTION("removed") {
    REQUIRE(chain.catalog->remove(chain.tenant, chain.id(3), /*recursive=*/true, nullptr).ok());
  }
  CHECK_FALSE(chain.catalog->merge(run, {into.row, payload}).value());
  CHECK(chain.has_payload(chain.links[0]));
}

TEST_CASE("a merge takes no block from a router, and says why links are gone", "[unit][catalog]") {
  Chain chain;
  std::set<Digest> blocks;
  std::vector<msg::KvEvent> events;
  chain.catalog->tell_events([&](std::vector<Catalog::TenantEvent> told) {
    for (auto& each : told) events.push_back(std::move(each.event));
  });
  REQUIRE(chain.merge().value());
  REQUIRE(events.size() == 4);
  CHECK(events[0].kind == msg::KvEvent::Kind::kStored);
  CHECK(events[0].segment == chain.id(3));
  CHECK(events[0].blocks.size() == 4 * kTurn / 4);
  for (std::size_t i = 1; i < events.size(); ++i) {
    CHECK(events[i].kind == msg::KvEvent::Kind::kRemoved);
    CHECK(events[i].cause == msg::KvEvent::Cause::kConsolidated);
    CHECK(events[i].blocks.empty());
  }
}

TEST_CASE("a pinned session pins what its segments become", "[unit][catalog]") {
  Chain chain;
  REQUIRE(chain.catalog->open_session(chain.tenant, {"talk"}).ok());
  REQUIRE(chain.catalog->advance_session(chain.tenant, {"talk", chain.id(4)}).ok());
  REQUIRE(chain.catalog->pin_session(chain.tenant, {"talk", true}).ok());
  REQUIRE(chain.merge().value());
  CHECK(chain.catalog->totals().pinned_bytes == chain.catalog->totals().stored_bytes);
  CHECK(chain.catalog->remove(chain.tenant, chain.id(0), true, nullptr).status().code() ==
        StatusCode::kConflict);
  REQUIRE(chain.catalog->pin_session(chain.tenant, {"talk", false}).ok());
  CHECK(chain.catalog->totals().pinned_bytes == 0);
}

TEST_CASE("a lease keeps the links of a merged run readable", "[unit][catalog]") {
  Chain chain;
  const auto links = chain.match(chain.links.back().path);
  REQUIRE(chain.catalog->lease(chain.tenant, links, 1000) == 1000);
  REQUIRE(chain.merge().value());
  for (std::size_t turn = 0; turn < 4; ++turn) {
    const auto held = chain.catalog->leases().find(*links[turn].row);
    REQUIRE(held);
    std::vector<std::byte> bytes(chain.links[turn].layers[0].size());
    REQUIRE(held->layers->at(0)->read_into(bytes).ok());
    CHECK(bytes == chain.links[turn].layers[0]);
  }
}
