// precisctl fsck with a real precisd whose payload is damaged.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/integration/random_kv.h"
#include "tests/integration/service_process.h"

namespace {

using namespace precis;
using namespace precis::testing;
using nlohmann::json;

TEST_CASE("fsck finds what has rotted on disk, and removes it when told to", "[integration]") {
  const TempDir dir;
  const ServiceProcess service(dir);
  const auto client = service.connect();
  const Model model = client->register_model(tiny_model()).value();
  std::mt19937 random{20250617};
  const auto ctl = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {PRECISCTL_PATH, "--address", service.address()});
    return run(words);
  };
  const auto ctl_json = [&](std::vector<std::string> words) {
    words.emplace_back("--json");
    return json::parse(ctl(words).out);
  };
  const auto put = [&](const std::vector<TokenId>& path, std::uint32_t from) {
    const auto size = static_cast<std::uint32_t>(path.size());
    return put_all(*client, model, path, random_kv(random, model.spec, from, size - from),
                   PutOptions())
        .value();
  };
  const auto path = random_tokens(random, 300);
  const auto one = put({path.begin(), path.begin() + 200}, 0), child = put(path, 200),
             other = put(random_tokens(random, 300), 0);
  REQUIRE(child.parent == one.id);
  Ran ran = ctl({"fsck"});
  CHECK(ran.exit_code == 0);
  CHECK(ran.out.find("3 segments") != std::string::npos);
  CHECK(ran.err.empty());

  // The first segment's first values are after the file's first block.
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(dir.path("data") + "/payload")) {
    files.push_back(file.path());
  }
  REQUIRE(files.size() == 1);
  {
    std::fstream file(files.front(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 200);
    file.put('x').put('y');
    REQUIRE(file.good());
  }
  // The second check finds the same as the first: the cause, and that the child's own bytes are
  // whole.
  json report;
  for (int look = 0; look < 2; ++look) {
    CAPTURE(look);
    ran = ctl({"fsck", "--json"});
    CHECK(ran.exit_code == 1);
    report = json::parse(ran.out);
    CHECK(report["whole_segments"] == 1);
    CHECK(report["on_damaged_segments"] == 1);
    REQUIRE(report["damaged"].size() == 1);
    CHECK(report["damaged"][0]["segment"] == one.id.hex());
    CHECK(report["damaged"][0]["damage"].get<std::string>().find("layer ") != std::string::npos);
  }
  CHECK(ctl_json({"stats"})["precis_quarantined_segments"] == 2);
  CHECK(ctl_json({"status"})["segments_out_of_service"] == 2);
  CHECK(ctl({"status"}).out.find("2 of them out of service: see precisctl fsck") !=
        std::string::npos);
  CHECK(ctl({"fsck"}).err.find("--repair") != std::string::npos);
  const json listed = ctl_json({"prefix", "ls"});
  for (const json& row : listed["prefixes"]) {
    CHECK(row["out_of_service"] == (row["id"] != other.id.hex()));
  }
  CHECK(ctl({"prefix", "ls"}).out.find(" damaged ") != std::string::npos);
  CHECK(ctl({"prefix", "show", one.id.hex()}).out.find("damaged, or has a damaged ancestor") !=
        std::string::npos);

  report = ctl_json({"fsck", "--repair"});
  CHECK(report["removed"]["segments"] == 2);
  report = ctl_json({"fsck"});
  CHECK(report["whole_segments"] == 1);
  CHECK(report["damaged"].empty());
  CHECK(client->segment(one.id).status().code() == StatusCode::kNotFound);
  CHECK(client->segment(other.id).ok());
}

}  // namespace
