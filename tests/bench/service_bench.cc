#include "tests/bench/service_bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "precis/client.h"
#include "tests/integration/service_process.h"

namespace precis::bench {
namespace {

// A layer of Llama-3.1-8B; as many layers, and then tokens, as the bytes ask for.
ModelSpec bench_model() {
  ModelSpec model;
  model.name = "bench";
  model.num_layers = 8;
  model.num_q_heads = 32;
  model.num_kv_heads = 8;
  model.head_dim = 128;
  model.dtype = Dtype::kBf16;
  return model;
}

double gb_per_second(std::size_t bytes, std::chrono::steady_clock::time_point began) {
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return static_cast<double>(bytes) / took.count() * 1e-9;
}

// K and V of one put. Finite bf16 whatever the bits: the exponent's top bit is clear.
struct Payload {
  std::uint32_t tokens;
  std::vector<std::uint16_t> keys,
      values;  // one layer's; every layer pushes another part of the pool

  Payload(const ModelSpec& model, std::size_t bytes) {
    tokens = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(bytes / model.token_bytes()));
    const std::size_t count =
        std::size_t{model.num_layers} * model.num_kv_heads * tokens * model.head_dim;
    std::mt19937_64 random(1);
    for (auto* tensor : {&keys, &values}) {
      tensor->resize(count);
      for (auto& element : *tensor) element = static_cast<std::uint16_t>(random() & 0xbfff);
    }
  }
  std::size_t bytes() const { return (keys.size() + values.size()) * sizeof(std::uint16_t); }
  LayerPush layer(const ModelSpec& model, std::uint32_t l) const {
    const std::size_t skip = std::size_t{l} * model.num_kv_heads * tokens * model.head_dim;
    LayerPush push;
    push.keys = HeadsView::packed(keys.data() + skip, model.num_kv_heads, tokens, model.head_dim,
                                  model.dtype);
    push.values = HeadsView::packed(values.data() + skip, model.num_kv_heads, tokens,
                                    model.head_dim, model.dtype);
    return push;
  }
};

struct PutRate {
  double ingest = 0, whole = 0;
};

std::vector<TokenId> path(std::uint32_t tokens, std::uint32_t first) {
  std::vector<TokenId> out(tokens, 7);
  out[0] = first;  // another path every time
  return out;
}

Result<PutRate> put_once(Client& client, const Model& model, const Payload& payload,
                         std::uint32_t first) {
  const auto tokens = path(payload.tokens, first);
  const auto began = std::chrono::steady_clock::now();
  PutOptions options;
  options.recipe = "streaming_llm";
  options.keep = Budget::ratio_ppm(1'000'000);
  PRECIS_ASSIGN(Put put, client.begin_put(model, tokens, options));
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    PRECIS_TRY(put.layer(l, payload.layer(model.spec, l)));
  }
  PutRate rate;
  rate.ingest = gb_per_second(payload.bytes(), began);
  PRECIS_ASSIGN(const msg::SegmentInfo stored, put.commit(Durability::kMemory));
  rate.whole = gb_per_second(payload.bytes(), began);
  if (stored.entries !=
      std::uint64_t{model.spec.num_layers} * model.spec.num_kv_heads * payload.tokens) {
    return Status::internal("the put kept " + std::to_string(stored.entries) + " entries");
  }
  return rate;
}

// Every row back at its place, whatever the retention order.
Status compare(const Prefix& prefix, const Payload& payload) {
  const ModelSpec& model = prefix.model();
  const std::size_t row = model.head_dim * sizeof(std::uint16_t);
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    const LayerPush pushed = payload.layer(model, l);
    for (std::uint32_t h = 0; h < model.num_kv_heads; ++h) {
      const HeadEntries entries = prefix.head(l, h);
      for (std::size_t i = 0; i < entries.positions.size(); ++i) {
        const std::uint32_t token = entries.positions[i];
        const auto at = static_cast<std::uint32_t>(i);
        if (std::memcmp(entries.keys.row(0, at), pushed.keys.row(h, token), row) != 0 ||
            std::memcmp(entries.values.row(0, at), pushed.values.row(h, token), row) != 0) {
          return Status::internal("a get gave other bytes than were put");
        }
      }
    }
  }
  return {};
}

Result<std::vector<double>> get_often(Client& client, const Model& model, const Payload& payload,
                                      const ServiceBenchOptions& options) {
  const auto tokens = path(payload.tokens, 0);
  std::vector<double> rates;
  for (std::size_t run = 0; run <= options.runs; ++run) {
    options.progress(options.transport + ": get " + std::to_string(run));
    PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, tokens));
    if (!match) return Status::internal("the put is not found");
    const auto began = std::chrono::steady_clock::now();
    PRECIS_ASSIGN(const Prefix prefix, client.get(match));
    PRECIS_TRY(prefix.wait());
    if (run > 0) rates.push_back(gb_per_second(prefix.bytes(), began));
    PRECIS_TRY(compare(prefix, payload));
  }
  return rates;
}

}  // namespace

Result<std::vector<Row>> bench_service(const ServiceBenchOptions& options) {
  const ModelSpec spec = bench_model();
  const Payload payload(spec, options.bytes);
  const testing::TempDir dir;
  std::vector<std::string> flags;
  if (options.transport == "tcp") flags = {"--transports", "tcp"};
  testing::ServiceProcess service(dir, flags);
  const auto client = service.connect();
  PRECIS_ASSIGN(const Model model, client->register_model(spec));

  const bool shm = options.transport == "shm";
  PRECIS_ASSIGN(const msg::ServerStatus info, client->status());
  if (shm && info.transport.find("host copy") == std::string::npos) {
    return Status::unsupported("this machine forbids copies between processes, so bytes go over '" +
                               info.transport + "': measure --transport tcp alone");
  }
  const std::string ceiling_name = shm ? "streaming copy, 1 thread" : "raw socket, blocking";
  Rate ceiling;
  options.progress(options.transport + ": ceiling");
  if (shm) {
    ceiling = measure_copy(payload.bytes(), options.runs);
  } else {
    PRECIS_ASSIGN(ceiling, measure_socket(payload.bytes(), options.runs));
  }

  std::vector<double> ingest, whole;
  for (std::size_t run = 0; run <= options.runs; ++run) {
    options.progress(options.transport + ": put " + std::to_string(run));
    PRECIS_ASSIGN(const PutRate rate,
                  put_once(*client, model, payload, static_cast<std::uint32_t>(run)));
    if (run == 0) continue;
    ingest.push_back(rate.ingest);
    whole.push_back(rate.whole);
  }
  PRECIS_ASSIGN(const std::vector<double> gets, get_often(*client, model, payload, options));

  auto row = [&](const char* bench, const std::vector<double>& rates) {
    return Row{bench,   options.transport, payload.bytes(), summarize(rates),
               ceiling, ceiling_name,      std::nullopt};
  };
  return std::vector<Row>{row("put_ingest", ingest), row("put", whole), row("get_hot", gets)};
}

}  // namespace precis::bench
