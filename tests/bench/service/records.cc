#include "tests/bench/service/records.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "tests/bench/service/payload.h"
#include "tests/bench/service/stage.h"

namespace precis::bench {
namespace {

constexpr std::uint32_t kLinkTokens = 4096;  // of each segment of the long path
constexpr std::size_t kLinks = kLongPathTokens / kLinkTokens;
constexpr std::uint32_t kSmallTokens = 64;  // of every other segment: one block
constexpr std::uint64_t kEntriesPerHead = 4;
constexpr std::size_t kClients = 4;

PutOptions few_entries() {
  PutOptions options;
  options.recipe = "streaming_llm";
  options.keep = Budget::entries(kEntriesPerHead);
  return options;
}

Status put_long_path(Stage& stage) {
  const ModelSpec spec = records_model();
  const Payload link(spec, kLinkTokens * spec.token_bytes());
  const auto path = long_path();
  for (std::uint32_t end = kLinkTokens; end <= kLongPathTokens; end += kLinkTokens) {
    PRECIS_ASSIGN(Put put, stage.client().begin_put(stage.model(), std::span(path).first(end),
                                                    few_entries()));
    for (std::uint32_t l = 0; l < spec.num_layers; ++l) PRECIS_TRY(put.layer(l, link.layer(l)));
    PRECIS_TRY(put.commit(Durability::kWal).status());
  }
  return {};
}

Status fill(const Plan& plan, const std::string& transport, const std::string& folder) {
  const ModelSpec spec = records_model();
  StageOptions options{folder, transport};
  options.clients = kClients;
  PRECIS_ASSIGN(const auto stage, Stage::open(options, spec));
  PRECIS_TRY(put_long_path(*stage));
  const std::size_t others = record_segments(plan) - kLinks;
  const Payload payload(spec, kSmallTokens * spec.token_bytes());
  PRECIS_TRY(stage
                 ->together([&](std::size_t client) -> Status {
                   for (std::size_t i = client; i < others; i += kClients) {
                     PRECIS_TRY(put(stage->client(client), stage->model(), payload,
                                    kLongPathTokens + static_cast<std::uint32_t>(i), few_entries(),
                                    Durability::kWal)
                                    .status());
                   }
                   return {};
                 })
                 .status());
  stage->kill();
  return {};
}

}  // namespace

ModelSpec records_model() {
  ModelSpec model = bench_model(32);
  model.name = "bench records";
  model.head_dim = 8;
  return model;
}

std::vector<TokenId> long_path() {
  std::vector<TokenId> path(kLongPathTokens);
  std::iota(path.begin(), path.end(), TokenId{0});
  return path;
}

std::size_t record_segments(const Plan& plan) {
  const ModelSpec spec = records_model();
  const std::size_t in_segment = std::size_t{spec.num_layers} * spec.num_kv_heads;
  return std::max((plan.head_records + in_segment - 1) / in_segment, kLinks);
}

Status copy_records(const Plan& plan, const std::string& transport, const std::string& to) {
  const std::string made = plan.dir + "/records", filling = made + ".filling";
  if (!std::filesystem::exists(made)) {
    plan.began("filling a store with " + std::to_string(plan.head_records) + " head records");
    std::filesystem::remove_all(filling);  // a folder that was not filled completely
    PRECIS_TRY(fill(plan, transport, filling));
    std::filesystem::rename(filling, made);
  }
  // Copies everything except the socket of the killed service.
  std::filesystem::create_directories(to);
  for (const auto& file : std::filesystem::directory_iterator(made)) {
    if (file.is_socket()) continue;
    std::filesystem::copy(file, std::filesystem::path(to) / file.path().filename(),
                          std::filesystem::copy_options::recursive);
  }
  return {};
}

}  // namespace precis::bench
