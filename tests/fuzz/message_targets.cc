#include "precis/messages.h"
#include "tests/fuzz/checks.h"
#include "tests/fuzz/targets.h"
#include "tests/unit/schema/random_messages.h"

namespace precis::fuzz {
namespace {

using testing::RandomMessages;

template <auto Decode>
bool run_message(Bytes input) {
  return check_stable(Decode(input), Decode);
}

bool run_request(Bytes input) {
  const auto request = decode_request(input);
  const auto id = request_id(input);
  if (request.ok()) PRECIS_CHECK(id == request->id);
  return check_stable(request, decode_request);
}

Inputs request_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  Inputs inputs;
  for (std::size_t kind = 0; kind < testing::kRequestKinds; ++kind) {
    inputs.push_back(encode(random.request(kind)));
  }
  return inputs;
}

Inputs server_message_seeds(std::uint64_t seed) {
  RandomMessages random(seed);
  Inputs inputs{encode(random.layer_served())};
  for (std::size_t kind = 0; kind < testing::kReplyKinds; ++kind) {
    inputs.push_back(encode(random.reply(kind)));
  }
  return inputs;
}

constexpr Target kTargets[] = {
    {"decode_hello", run_message<decode_hello>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).hello())}; }},
    {"decode_hello_reply", run_message<decode_hello_reply>,
     [](std::uint64_t seed) { return Inputs{encode(RandomMessages(seed).hello_reply())}; }},
    {"decode_request", run_request, request_seeds},
    {"decode_server_message", run_message<decode_server_message>, server_message_seeds},
};

}  // namespace

std::span<const Target> message_targets() { return kTargets; }

}  // namespace precis::fuzz
