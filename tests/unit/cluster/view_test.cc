#include "cachesvc/cluster/view.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "cachesvc/cluster/base64.h"
#include "precis/limits.h"
#include "precis/placement.h"

namespace precis::cluster {
namespace {

using Catch::Matchers::Contains;

Etcd::Row node_row(const std::string& name, std::uint32_t weight = 100) {
  return {node_key("c", name), to_json(NodeRow{name + ":7470", "0.1", weight, "1"}), 1};
}

// The rows of etcd after a row was written.
Etcd::Rows with(Etcd::Rows rows, Etcd::Row row) {
  std::erase_if(rows.rows, [&](const Etcd::Row& other) { return other.key == row.key; });
  row.revision = ++rows.revision;
  rows.rows.push_back(std::move(row));
  return rows;
}
Etcd::Rows without(Etcd::Rows rows, const std::string& key) {
  std::erase_if(rows.rows, [&](const Etcd::Row& row) { return row.key == key; });
  return rows;
}
Etcd::Rows settled(const Etcd::Rows& rows) {
  const auto better = better_owners("c", read_view("c", rows));
  return better ? with(rows, *better) : rows;
}

}  // namespace

TEST_CASE("the first node owns all shards, and the table is then left alone", "[cluster]") {
  const Etcd::Rows rows{7, {node_row("a")}};
  const View alone = read_view("c", rows);
  CHECK(alone.owners.empty());
  CHECK(alone.owners_revision == 0);
  REQUIRE(alone.nodes.size() == 1);
  CHECK(alone.nodes[0].address == "a:7470");
  CHECK(alone.nodes[0].live);
  const View owning = read_view("c", settled(rows));
  CHECK(owning.nodes[0].shards == limits::kShards);
  CHECK(owning.owners == std::vector<std::uint32_t>(limits::kShards, 0));
  CHECK_FALSE(better_owners("c", owning));
}

TEST_CASE("a node is told whose storage is another one", "[cluster]") {
  const auto sharing = [](const std::string& name, const std::string& storage) {
    return Etcd::Row{node_key("c", name),
                     to_json(NodeRow{name + ":7470", "0.1", 100, "1", storage}), 1};
  };
  const View view =
      read_view("c", {7, {sharing("a", ""), sharing("b", "a pool"), sharing("d", "odd\x7f")}});
  CHECK(view.problem.ok());
  CHECK(check_storage(view, "e", "a pool").ok());
  CHECK(check_storage(view, "b", "no storage").ok());
  CHECK(check_storage(view, "e", "").ok());
  const Status other = check_storage(view, "e", "no storage");
  CHECK(other.code() == StatusCode::kConflict);
  CHECK_THAT(other.message(),
             Contains("the node 'b' shares a pool, and this one shares no storage"));
}

TEST_CASE("the epoch of the table grows with every table, and can be raised", "[cluster]") {
  Etcd::Rows rows = settled({7, {node_row("a")}});
  std::uint64_t epoch = read_view("c", rows).owners_epoch;
  CHECK(epoch > 0);
  for (const char* name : {"b", "c"}) {
    rows = settled(with(rows, node_row(name)));
    CHECK(read_view("c", rows).owners_epoch >
          std::exchange(epoch, read_view("c", rows).owners_epoch));
  }
  const View view = read_view("c", rows);
  CHECK_FALSE(better_owners("c", view, epoch));
  const auto raised = better_owners("c", view, epoch + 1000);
  REQUIRE(raised);
  const View after = read_view("c", with(rows, *raised));
  CHECK(after.owners_epoch == epoch + 1000);
  CHECK(after.owners == view.owners);
  // A table without an epoch is as old as its row.
  Etcd::Row old = *raised;
  const std::string field = "\"epoch\":" + std::to_string(epoch + 1000) + ",";
  old.value.erase(old.value.find(field), field.size());
  const View without_epoch = read_view("c", with(rows, old));
  CHECK(without_epoch.owners_epoch == without_epoch.owners_revision);
  old.value.insert(1, R"("epoch":"x",)");
  CHECK_FALSE(read_view("c", with(rows, old)).owners_known);
}

TEST_CASE("without live nodes there is no better table", "[cluster]") {
  CHECK_FALSE(better_owners("c", read_view("c", {1, {}})));
  const Etcd::Rows rows = settled({1, {node_row("a")}});
  const View gone = read_view("c", without(rows, node_key("c", "a")));
  REQUIRE(gone.nodes.size() == 1);
  CHECK_FALSE(gone.nodes[0].live);
  CHECK(gone.nodes[0].shards == limits::kShards);
  CHECK_FALSE(better_owners("c", gone));
}

TEST_CASE("the table follows nodes that come, drain and go", "[cluster]") {
  Etcd::Rows rows = settled({1, {node_row("b")}});
  rows = settled(with(rows, node_row("a", 300)));
  View view = read_view("c", rows);
  REQUIRE(view.nodes.size() == 2);
  CHECK(view.nodes[0].name == "a");  // by name
  CHECK(view.nodes[0].shards == limits::kShards / 4 * 3);

  rows = settled(with(rows, {drain_key("c", "a"), "", 0}));
  view = read_view("c", rows);
  CHECK(view.nodes[0].draining);
  CHECK(view.nodes[0].shards == 0);
  CHECK(view.nodes[1].shards == limits::kShards);

  rows = settled(without(rows, drain_key("c", "a")));
  CHECK(read_view("c", rows).nodes[0].shards == limits::kShards / 4 * 3);

  rows = settled(without(rows, node_key("c", "b")));
  view = read_view("c", rows);
  REQUIRE(view.nodes.size() == 1);  // who is gone and owns nothing is forgotten
  CHECK(view.nodes[0].shards == limits::kShards);

  view = read_view("c", with(rows, {drain_key("c", "b"), "", 0}));
  REQUIRE(view.nodes.size() == 2);  // unless it is drained
  CHECK((view.nodes[1].draining && !view.nodes[1].live));
  CHECK_FALSE(better_owners("c", view));
}

TEST_CASE("a table is written over the revision that it was made from", "[cluster]") {
  const Etcd::Rows rows = settled({5, {node_row("a")}});
  const View view = read_view("c", with(rows, node_row("b")));
  const auto better = better_owners("c", view);
  REQUIRE(better);
  CHECK(better->revision == 6);
  CHECK(better->revision == view.owners_revision);
  CHECK(better->key == "precis/c/owners");
}

TEST_CASE("rows that are not ours are left out and named", "[cluster]") {
  const auto refused = [](const std::string& key, const std::string& value) {
    return read_view("c", {1, {{key, value, 1}}}).problem;
  };
  const std::string node = node_key("c", "a"), owners = "precis/c/owners";
  for (const char* value :
       {"", "x", "[]", "{}", R"({"address": 1, "version": "", "instance": "", "weight": 1})",
        R"({"address": "a:1", "version": "", "instance": "", "weight": -1})",
        R"({"address": "a:1", "version": "", "instance": "", "weight": 0})",
        R"({"address": "a:1", "version": "", "instance": "", "weight": 1000001})",
        R"({"address": "a:1", "version": "", "instance": "", "weight": 4294967296})",
        R"({"address": "a", "version": "", "instance": "", "weight": 1})",
        R"({"address": "a\n:1", "version": "", "instance": "", "weight": 1})",
        R"({"address": "a:1", "version": "\u001b", "instance": "", "weight": 1})"}) {
    CAPTURE(value);
    CHECK(refused(node, value).code() == StatusCode::kCorruption);
    CHECK_THAT(refused(node, value).message(), Contains(node));
  }
  const std::string zeros = to_base64(std::string(2 * limits::kShards, '\0'));
  CHECK(refused(owners, R"({"format": 1, "nodes": ["a"], "owners": ")" + zeros + "\"}").ok());
  for (const std::string& value :
       {std::string("{}"), std::string(R"({"format": 1})"),
        R"({"format": 1, "nodes": [], "owners": ")" + zeros + "\"}",
        R"({"format": 1, "nodes": [7], "owners": ")" + zeros + "\"}",
        R"({"format": 1, "nodes": ["a"], "owners": ")" + zeros.substr(4) + "\"}",
        std::string(R"({"format": 1, "nodes": ["a"], "owners": "!"})")}) {
    CHECK(refused(owners, value).code() == StatusCode::kCorruption);
  }
  CHECK(refused(owners, R"({"format": 2, "more": 1})").code() == StatusCode::kUnsupported);
  CHECK(refused("precis/c/later", "anything").ok());
}

TEST_CASE("a row that is left out does not hide the others", "[cluster]") {
  const std::string good = to_json(NodeRow{"a:1", "0.1", 100, "1"});
  const Etcd::Rows rows{
      1, {node_row("a"), {node_key("c", "b"), "x", 1}, {node_key("c", "\xff\n"), good, 1}}};
  const View view = read_view("c", rows);
  CHECK(view.problem.code() == StatusCode::kCorruption);
  REQUIRE(view.nodes.size() == 1);
  CHECK(view.nodes[0].name == "a");
  CHECK(read_view("c", settled(rows)).nodes[0].shards == limits::kShards);
}

TEST_CASE("a table that can't be read is left alone, and so are names that are none", "[cluster]") {
  for (const char* table : {"x", R"({"format": 2})"}) {
    const View view = read_view("c", {1, {node_row("a"), {"precis/c/owners", table, 7}}});
    CHECK_FALSE(view.owners_known);
    CHECK(view.nodes.size() == 1);
    CHECK_FALSE(better_owners("c", view));
  }
  const std::string zeros = to_base64(std::string(2 * limits::kShards, '\0'));
  for (const char* name : {"", "a/b", "\xff", "a\\n"}) {
    const std::string table =
        std::string(R"({"format": 1, "nodes": [")") + name + R"("], "owners": ")" + zeros + "\"}";
    CHECK_FALSE(read_view("c", {1, {{"precis/c/owners", table, 1}}}).owners_known);
  }
}

TEST_CASE("live nodes past their limit own no shards, and the others go on", "[cluster]") {
  Etcd::Rows rows{1, {}};
  for (std::size_t n = 0; n <= kLiveNodesMax; ++n) {
    rows.rows.push_back(node_row("n" + std::to_string(10'000 + n)));
  }
  const View view = read_view("c", rows);
  CHECK(view.problem.code() == StatusCode::kUnsupported);
  CHECK(view.nodes.size() == kLiveNodesMax);
  CHECK(view.find("n10000") != nullptr);
  CHECK(view.find("n10000x") == nullptr);
}

TEST_CASE("answers of etcd are read, and others are named", "[cluster]") {
  const auto rows = Etcd::parse_rows(
      R"({"header":{"revision":"9"},"kvs":[{"key":"Zm9v","mod_revision":"3","value":"YmFy"}]})");
  REQUIRE(rows.ok());
  CHECK(rows->revision == 9);
  REQUIRE(rows->rows.size() == 1);
  CHECK(rows->rows[0].key == "foo");
  CHECK(rows->rows[0].value == "bar");
  CHECK(rows->rows[0].revision == 3);
  for (const std::string& body :
       {std::string(), std::string("[]"), std::string("{}"), std::string(1 << 20, '['),
        std::string(R"({"header":{"revision":9}})"),
        std::string(R"({"header":{"revision":"9"},"kvs":{}})"),
        std::string(R"({"header":{"revision":"9"},"kvs":[{"key":"!"}]})")}) {
    const Status wrong = Etcd::parse_rows(body).status();
    CHECK(wrong.code() == StatusCode::kUnavailable);
    CHECK_THAT(wrong.message(), Contains("cluster_etcd"));
  }
}

TEST_CASE("base64 is reversible, and other text is refused", "[cluster]") {
  for (const std::string& bytes : {std::string(), std::string("a"), std::string("ab"),
                                   std::string("abc"), std::string("\0\xff\n", 3)}) {
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  CHECK(to_base64("light w") == "bGlnaHQgdw==");
  for (const char* text : {"a", "ab=", "!!!!", "YWJj\n", " YWJj", "YWJ j"}) {
    CHECK_FALSE(from_base64(text));
  }
}

TEST_CASE("etcd's URLs are separated by commas", "[cluster]") {
  const auto members = parse_etcd_urls("http://a:2379,http://[::1]:1/").value();
  REQUIRE(members.size() == 2);
  CHECK(members[0].authority == "a:2379");
  CHECK(members[1].host == "::1");
  CHECK(members[1].target.empty());
  CHECK_FALSE(members[0].encrypted);
  CHECK(parse_etcd_urls("https://a:2379").value()[0].encrypted);
  for (const char* urls : {"", ",", "a:2379", "http://a", "http://a:1,", "http://a:1/v3",
                           "ftp://a:1", "http://a:1,,http://b:1"}) {
    CAPTURE(urls);
    CHECK_THAT(parse_etcd_urls(urls).status().message(), Contains("must be http://HOST:PORT"));
  }
}

TEST_CASE("forks are read as they were written, and a list that cannot be read is left alone",
          "[cluster]") {
  Digest a, b;
  a.bytes.fill(1);
  b.bytes.fill(2);
  const Forks forks = {{a, 5}, {b, 9}};
  const Etcd::Row row = forks_row("c", forks, 7);
  const View view = read_view("c", {9, {row}});
  CHECK(*view.forks == forks);
  CHECK(view.forks_revision == 7);
  CHECK(view.problem.ok());
  CHECK(read_view("c", {9, {}}).forks->empty());
  const auto [text, told] = GENERATE(table<std::string, std::string>(
      {{R"({"format": 2})", "run one version on all nodes"},
       {R"({"format": 1})", "is not one of Precis"},
       {R"({"format": 1, "forks": [["AAAA", 1]]})", "is not one of Precis"},
       {R"({"format": 1, "forks": [["AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", 1025]]})",
        "is not one of Precis"},
       {R"({"format": 1, "forks": [7]})", "is not one of Precis"},
       {"tomatoes", "is not one of Precis"}}));
  const View unread = read_view("c", {9, {{row.key, text, 7}}});
  CHECK_FALSE(unread.forks_known);
  CHECK(unread.forks->empty());
  CHECK_THAT(unread.problem.message(), Contains(told));
}

}  // namespace precis::cluster
