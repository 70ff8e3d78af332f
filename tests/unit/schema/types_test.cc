// The shared types: names, parsing, ranges.
#include "precis/types.h"

#include <catch2/catch.hpp>
#include <limits>

#include "precis/device_choice.h"
#include "precis/keep.h"
#include "precis/limits.h"

namespace precis {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("a status keeps its code, its message and one context per layer", "[unit][schema]") {
  const Status status = Status::corruption("block 3 differs").with_context("layer 7");
  CHECK(status.code() == StatusCode::kCorruption);
  CHECK(status.to_string() == "corruption: layer 7: block 3 differs");
  CHECK(Status().with_context("nothing happened").ok());
  CHECK(Status().to_string() == "ok");
}

TEST_CASE("a device is auto, cpu or a numbered GPU", "[unit][schema]") {
  using Kind = DeviceChoice::Kind;
  CHECK(DeviceChoice::parse("auto")->kind == Kind::kAuto);
  CHECK(DeviceChoice::parse("cpu")->kind == Kind::kCpu);
  CHECK(DeviceChoice::parse("cuda")->kind == Kind::kCuda);
  CHECK(DeviceChoice::parse("cuda:11")->ordinal == 11);
  for (const char* wrong :
       {"", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda: 1", "cuda1", "cuda:99999999999"}) {
    const auto choice = DeviceChoice::parse(wrong);
    CHECK(choice.status().code() == StatusCode::kInvalidArgument);
    CHECK_THAT(choice.status().message(), Contains("'" + std::string(wrong) + "'"));
  }
}

TEST_CASE("every status code has a name of its own", "[unit][schema]") {
  std::vector<std::string_view> names;
  for (int code = 0; code <= kStatusCodeMax; ++code) {
    names.push_back(status_code_name(static_cast<StatusCode>(code)));
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(std::find(names.begin(), names.end(), "unknown") == names.end());
}

TEST_CASE("dtypes and durabilities parse by their names and refuse others with the choices",
          "[unit][schema]") {
  for (const Dtype d : kDtypes) CHECK(parse_dtype(dtype_name(d)).value() == d);
  CHECK_THAT(parse_dtype("fp8").status().message(), Contains("choose bf16, f16, f32 or f8_e4m3"));
  for (Durability d :
       {Durability::kMemory, Durability::kWal, Durability::kFsync, Durability::kShared}) {
    CHECK(parse_durability(durability_name(d)).value() == d);
  }
  CHECK_THAT(parse_durability("disk").status().message(),
             Contains("choose memory, wal, fsync or shared"));
}

TEST_CASE("digests and segment ids parse from the hex they print", "[unit][schema]") {
  Digest digest;
  for (std::size_t i = 0; i < 32; ++i) digest.bytes[i] = static_cast<std::uint8_t>(i * 37);
  CHECK(parse_digest(digest.hex()).value() == digest);
  SegmentId id;
  id.bytes[15] = 0xab;
  CHECK(id.hex() == "000000000000000000000000000000ab");
  CHECK(parse_segment_id("000000000000000000000000000000AB").value() == id);
  CHECK_THAT(parse_segment_id("12").status().message(), Contains("2 characters, must be 32"));
  CHECK_THAT(parse_segment_id(std::string(32, 'g')).status().message(),
             Contains("not hexadecimal"));
}

TEST_CASE("keep must lie in (0, 1] and is rounded to parts per million", "[unit][schema]") {
  CHECK(Budget::ratio(0.3).value() == Budget::ratio_ppm(300000));
  CHECK(Budget::ratio(1.0).value() == Budget::ratio_ppm(1000000));
  CHECK(Budget::ratio(1e-9).value() == Budget::ratio_ppm(1));
  for (double bad : {0.0, -0.1, 1.0000001, std::numeric_limits<double>::quiet_NaN(),
                     std::numeric_limits<double>::infinity()}) {
    CAPTURE(bad);
    CHECK(Budget::ratio(bad).status().code() == StatusCode::kInvalidArgument);
  }
}

TEST_CASE("budgets print as people write them", "[unit][schema]") {
  CHECK(Budget::all().to_string() == "all");
  CHECK(Budget::ratio_ppm(300000).to_string() == "0.3");
  CHECK(Budget::ratio_ppm(1000000).to_string() == "1.0");
  CHECK(Budget::ratio_ppm(1).to_string() == "0.000001");
  CHECK(Budget::entries(128).to_string() == "128 entries");
  CHECK(Budget::bytes(1048576).to_string() == "1048576 B");
}

TEST_CASE("a model spec names the field that is out of range", "[unit][schema]") {
  ModelSpec sound;
  sound.name = "m";
  sound.num_layers = 2;
  sound.num_q_heads = 4;
  sound.num_kv_heads = 2;
  sound.head_dim = 64;
  REQUIRE(sound.validate() == Status());
  CHECK(sound.token_bytes() == 2 * 2 * 2 * 64 * 2);
  const auto refused = [&](auto change) {
    ModelSpec m = sound;
    change(m);
    return m.validate().message();
  };
  CHECK_THAT(refused([](ModelSpec& m) { m.name.clear(); }), Contains("name is empty"));
  CHECK_THAT(refused([](ModelSpec& m) { m.name.assign(257, 'x'); }),
             Contains("length of name is 257"));
  CHECK_THAT(refused([](ModelSpec& m) { m.num_layers = 0; }), Contains("num_layers is 0"));
  CHECK_THAT(refused([](ModelSpec& m) { m.num_kv_heads = 0; }), Contains("num_kv_heads is 0"));
  CHECK_THAT(refused([](ModelSpec& m) { m.num_kv_heads = 3; }), Contains("not a multiple"));
  CHECK_THAT(refused([](ModelSpec& m) { m.head_dim = 2000; }), Contains("head_dim is 2000"));
  CHECK_THAT(refused([](ModelSpec& m) { m.block_tokens = 0; }), Contains("block_tokens is 0"));
  CHECK_THAT(refused([](ModelSpec& m) { m.dtype = static_cast<Dtype>(7); }), Contains("dtype 7"));
  CHECK_THAT(refused([](ModelSpec& m) { m.rope_theta = -1; }), Contains("rope_theta is -1"));
  CHECK_THAT(refused([](ModelSpec& m) { m.windows = {8}; }), Contains("length of windows is 1"));
  CHECK_THAT(refused([](ModelSpec& m) { m.windows = {0, 1}; }), Contains("a window is 1 token"));
  CHECK_THAT(refused([](ModelSpec& m) { m.windows = {0, 0}; }), Contains("all windows are 0"));
}

TEST_CASE("a keep is a ratio, entries per head, bytes or a share of them", "[unit][schema]") {
  CHECK(parse_keep("0.3").value() == Budget::ratio_ppm(300'000));
  CHECK(parse_keep("1").value() == Budget::ratio_ppm(1'000'000));
  CHECK(parse_keep("128 entries").value() == Budget::entries(128));
  CHECK(parse_keep("128entries").value() == Budget::entries(128));
  CHECK(parse_keep("4096 B").value() == Budget::bytes(4096));
  CHECK(parse_keep("1.5KiB").value() == Budget::bytes(1536));
  CHECK(parse_keep("64 MiB").value() == Budget::bytes(std::uint64_t{64} << 20));
  CHECK(parse_keep("2 GiB").value() == Budget::bytes(std::uint64_t{2} << 30));
  CHECK(parse_keep("64 MB").value() == Budget::bytes(64'000'000));
  CHECK(parse_keep("1.5 GB").value() == Budget::bytes(1'500'000'000));
  CHECK(parse_keep("30%").value() == Budget::ratio_ppm(300'000));
  CHECK(parse_keep("0.5 %").value() == Budget::ratio_ppm(5'000));
  CHECK(parse_keep("10% bytes").value() == Budget::byte_share(0.1).value());
  CHECK(parse_keep("12.5 % bytes").value().value == 125'000);
  CHECK(Budget::byte_share(0.1).value().to_string() == "10% bytes");
  CHECK(Budget::byte_share(1e-6).value().to_string() == "0.0001% bytes");
  // parse_keep() reads the texts of Budget::to_string().
  for (const Budget& budget :
       {Budget::ratio_ppm(250'000), Budget::entries(7), Budget::bytes(9),
        Budget::loss(0.05).value(), Budget::loss(100).value(),
        Budget{Budget::Kind::kByteShare, 125}, Budget{Budget::Kind::kByteShare, 1'000'000}}) {
    CHECK(parse_keep(budget.to_string()).value() == budget);
  }
}

TEST_CASE("a keep that means nothing is refused, saying what would", "[unit][schema]") {
  const std::string text =
      GENERATE(as<std::string>{}, "", "0", "-0.5", "1.01", "nan", "inf", "0 B", "0.3 entries",
               "1.5 entries", "many", "3 apples", "1e300 GiB", "64 MiBs", "101%", "0%", "64 mb",
               "0.1 bytes", "101% bytes", "0% bytes", "10% byte", "10%  bytes", "10% bytes of");
  CAPTURE(text);
  const auto keep = parse_keep(text);
  REQUIRE(keep.status().code() == StatusCode::kInvalidArgument);
  CHECK(keep.status().message().find("128 entries") != std::string::npos);
}

TEST_CASE("a loss is a number above 0 and of at most 100, and nothing else", "[unit][schema]") {
  CHECK(parse_keep("loss 0.05").value() == Budget::loss(0.05).value());
  const std::string text =
      GENERATE(as<std::string>{}, "loss", "loss ", "loss 0", "loss -0.1", "loss nan", "loss 101",
               "loss 0.0.5", "loss 5%", "loss 0.05 entries", "loss 1e-9");
  CAPTURE(text);
  CHECK(parse_keep(text).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a share of the score mass is refused, and counts as its cap where it is stored",
          "[unit][schema]") {
  CHECK_THAT(parse_keep("quality 0.9").status().message(), Catch::Contains("such as 'loss 0.05'"));
  const Budget stored{Budget::Kind::kScoreMass, 900'000 | (250'000ull << 32)};
  CHECK(stored.without_score_mass() == Budget::ratio_ppm(250'000));
  CHECK(stored.to_string() == "0.25");
}

}  // namespace
}  // namespace precis
