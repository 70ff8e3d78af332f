// A prefill worker that crash_test.cc kills: put_victim ADDRESS SEED. Prints a line before each
// step of a put that it never commits.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/integration/random_kv.h"

namespace {

using namespace precis;
using namespace precis::testing;

void say(const char* step) {
  std::printf("%s\n", step);
  std::fflush(stdout);
}

Status put(const std::string& address, std::uint32_t seed) {
  PRECIS_ASSIGN(const auto client, Client::connect(address));
  PRECIS_ASSIGN(const Model model, client->register_model(tiny_model()));
  std::mt19937 random(seed);
  const auto tokens = random_tokens(random, 4096);
  const Kv kv = random_kv(random, model.spec, 0, 4096);
  say("begin");
  PutOptions options;
  options.recipe = "ada_keydiff";
  options.keep = Budget::ratio_ppm(900'000);
  PRECIS_ASSIGN(Put put, client->begin_put(model, tokens, options));
  for (std::uint32_t l = 0; l < model.spec.num_layers; ++l) {
    for (const std::uint32_t token : {0u, 2048u}) {
      LayerPush push = kv.layers[l].push();
      for (HeadsView* view : {&push.keys, &push.values}) {
        view->data = view->row(0, token);
        view->num_tokens = 2048;
      }
      push.token_begin = token;
      say("push");
      PRECIS_TRY(put.layer(l, push));
    }
  }
  say("wait");
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Status status = put(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])));
  std::fprintf(stderr, "put_victim: %s\n", status.to_string().c_str());
  return 1;
}
