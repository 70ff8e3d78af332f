// One client of ./dev torture --clients: puts, reads and removes its own path, reads a shared path,
// compares every byte, and prints a line for each operation.
// chaos_client ADDRESS SEED SHARED_SEED
//
//   ready             connected
//   put 123, get 123  done, with so many bytes
//   error TEXT        any failure; the client exits with 1
//
// After SIGTERM it finishes its current round of operations and exits with 0.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/torture/chaos_path.h"

namespace {

using namespace precis;
using namespace precis::torture;

volatile sig_atomic_t stopping = 0;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Status read(Client& client, const Model& model, const ChaosPath& path) {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, path.tokens));
  if (match.matched_tokens != path.tokens.size()) {
    return Status::corruption(std::to_string(match.matched_tokens) + " tokens are stored of " +
                              std::to_string(path.tokens.size()));
  }
  PRECIS_ASSIGN(const Prefix prefix, client.get(match));
  PRECIS_TRY(prefix.wait());
  if (!testing::rows_are_of(testing::copy_of(prefix), {&path.kv})) {
    return Status::corruption("rows that were read are not those that were pushed");
  }
  say("get " + std::to_string(prefix.bytes()));
  return {};
}

Status put(Client& client, const Model& model, const ChaosPath& path, const testing::Kv& kv) {
  PRECIS_ASSIGN(const msg::SegmentInfo info, put_path(client, model, path, kv));
  say("put " + std::to_string(info.original_bytes));
  return {};
}

Status work(const std::string& address, std::uint32_t seed, std::uint32_t shared_seed) {
  const ChaosPath own(seed), shared(shared_seed);
  // The client reconnects if it must. A connection that breaks during a put is still an error.
  PRECIS_ASSIGN(const auto client, Client::connect(address));
  PRECIS_ASSIGN(const Model model, client->register_model(chaos_model()));
  // Every second client pushes from allocated memory, which the service reads in place.
  std::optional<testing::AllocatedKv> allocated;
  if (seed % 2 == 1) allocated.emplace(*client, own.kv);
  say("ready");
  while (stopping == 0) {
    PRECIS_TRY(put(*client, model, own, allocated ? allocated->kv() : own.kv).with_context("put"));
    PRECIS_TRY(read(*client, model, own).with_context("get"));
    PRECIS_TRY(read(*client, model, shared).with_context("get of the shared path"));
    PRECIS_TRY(remove_path(*client, model, own.tokens).with_context("remove"));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  ::signal(SIGTERM, [](int) { stopping = 1; });
  const auto seed = static_cast<std::uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const auto shared = static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10));
  const Status status = work(argv[1], seed, shared);
  if (status.ok()) return 0;
  say("error " + status.to_string());
  return 1;
}
