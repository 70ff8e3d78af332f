// Stores the KV cache of a prompt, and reads it back at a smaller budget.
//   quickstart cache-dir         the whole service inside this process
//   quickstart 127.0.0.1:7470    a running precisd
#include <precis/client.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

// Random data instead of a model: one layer's K or V, [num_kv_heads, num_tokens, head_dim].
std::vector<float> imagine(const precis::ModelSpec& spec, std::size_t num_tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> rows(spec.num_kv_heads * num_tokens * spec.head_dim);
  for (float& x : rows) x = normal(random);
  return rows;
}

bool is_address(const std::string& where) { return where.find(':') != std::string::npos; }

precis::Status run(const std::string& where, const precis::ConnectOptions& who) {
  PRECIS_ASSIGN(auto client, is_address(where) ? precis::Client::connect(where, who)
                                               : precis::Client::open(where));
  std::printf(is_address(where) ? "connected to %s\n" : "opened %s in this process\n",
              where.c_str());

  precis::ModelSpec spec;
  spec.name = "example/two-layers";
  spec.num_layers = 2;
  spec.num_q_heads = 8;
  spec.num_kv_heads = 2;
  spec.head_dim = 64;
  spec.dtype = precis::Dtype::kF32;
  PRECIS_ASSIGN(const precis::Model model, client->register_model(spec));

  std::vector<precis::TokenId> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);

  // Put: layers in any order; nothing is visible before commit.
  precis::PutOptions options;
  options.recipe = "global_kvdiff";
  PRECIS_ASSIGN(options.keep, precis::Budget::ratio(0.3));
  PRECIS_ASSIGN(precis::Put put, client->begin_put(model, tokens, options));
  const std::uint32_t num_new = put.begun().end - put.begun().begin;
  for (std::uint32_t l = 0; l < spec.num_layers; ++l) {
    const auto keys = imagine(spec, num_new, 2 * l), values = imagine(spec, num_new, 2 * l + 1);
    precis::LayerPush push;
    push.keys = precis::HeadsView::packed(keys.data(), spec.num_kv_heads, num_new, spec.head_dim,
                                          spec.dtype);
    push.values = precis::HeadsView::packed(values.data(), spec.num_kv_heads, num_new,
                                            spec.head_dim, spec.dtype);
    PRECIS_TRY(put.layer(l, push));
  }
  PRECIS_ASSIGN(const precis::msg::SegmentInfo segment, put.commit(precis::Durability::kWal));
  // The same put twice is one segment: the second put pushes nothing.
  std::printf("%s %llu of %llu bytes\n",
              put.begun().already_stored ? "was stored before:" : "stored",
              static_cast<unsigned long long>(segment.stored_bytes),
              static_cast<unsigned long long>(segment.original_bytes));

  // Get: the longest stored prefix of these tokens, at two thirds of what is stored.
  PRECIS_ASSIGN(const precis::LookupMatch match, client->lookup(model, tokens));
  PRECIS_ASSIGN(const precis::Budget keep, precis::Budget::ratio(0.2));
  PRECIS_ASSIGN(const precis::Prefix prefix, client->get(match, keep));
  for (std::uint32_t l = 0; l < prefix.num_layers(); ++l) {
    PRECIS_TRY(prefix.wait_layer(l));  // later layers are still arriving
    for (std::uint32_t h = 0; h < spec.num_kv_heads; ++h) {
      const precis::HeadEntries head = prefix.head(l, h);
      std::printf("layer %u head %u: %zu of %u tokens, first position %u\n", l, h,
                  head.positions.size(), prefix.matched_tokens(), head.positions[0]);
    }
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || *argv[1] == '-') {
    std::fprintf(stderr, "usage: %s DIRECTORY | HOST:PORT\n", argv[0]);
    return 2;
  }
  // Credentials, for a service with tenants.
  precis::ConnectOptions who;
  if (const char* const tenant = std::getenv("PRECIS_TENANT")) who.tenant = tenant;
  if (const char* const token = std::getenv("PRECIS_TOKEN")) who.token = token;
  const precis::Status status = run(argv[1], who);
  if (status.ok()) return 0;
  std::fprintf(stderr, "quickstart: %s\n", status.to_string().c_str());
  if (status.code() == precis::StatusCode::kUnavailable && is_address(argv[1])) {
    std::fprintf(stderr, "to start one: precisd --data cache-dir --listen %s\n", argv[1]);
  }
  if (status.code() == precis::StatusCode::kPermissionDenied && is_address(argv[1])) {
    std::fprintf(stderr, "set PRECIS_TENANT and PRECIS_TOKEN to a tenant of that service\n");
  }
  return 1;
}
