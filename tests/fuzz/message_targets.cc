#include "client/cli/json.h"
#include "client/cli/render.h"
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

// ---- how precisctl shows a reply

void show(const std::string& text, const cli::Json& json) {
  for (const char c : text) PRECIS_CHECK(c == '\n' || (static_cast<unsigned char>(c) >= 0x20));
  const std::string dumped = json.dump();
  PRECIS_CHECK(cli::Json::parse(dumped).dump() == dumped);
}

struct Shower {
  void operator()(const msg::ModelRow& row) const {
    show(cli::models_text({&row, 1}), cli::to_json(row));
  }
  void operator()(const msg::SegmentInfo& row) const {
    show(cli::segment_text(row, {}), cli::to_json(row));
    show(cli::segments_text({&row, 1}, {}), {});
  }
  void operator()(const msg::SessionRow& row) const {
    show(cli::session_text(row), cli::to_json(row));
    show(cli::sessions_text({&row, 1}), {});
  }
  void operator()(const msg::ProfileRow& row) const {
    show(cli::profile_text(row, {}), cli::to_json(row));
    show(cli::profiles_text({&row, 1}, {}), {});
  }
  void operator()(const msg::Removed& removed) const { show({}, cli::to_json(removed)); }
  void operator()(const msg::Budgets& budgets) const {
    const cli::ModelBudgets of_model{{}, budgets};
    show(cli::budgets_text(budgets, {&of_model, 1}), cli::to_json(of_model));
  }
  void operator()(const msg::Stats& stats) const {
    show(cli::stats_text(stats), cli::to_json(stats));
  }
  void operator()(const msg::ServerStatus& status) const {
    show(cli::status_text(status), cli::to_json(status));
  }
  template <typename Other>  // lists of the types above, and types that are not shown
  void operator()(const Other& other) const {
    if constexpr (requires { other.rows; }) {
      for (const auto& row : other.rows) (*this)(row);
    }
  }
};

bool run_show(Bytes input) {
  const auto message = decode_server_message(input);
  if (!message.ok()) return refused(message.status());
  if (const auto* reply = std::get_if<msg::Reply>(&*message)) std::visit(Shower(), reply->body);
  return true;
}

// ---- seeds

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
    {"decode_request", run_request, request_seeds},
    {"decode_server_message", run_message<decode_server_message>, server_message_seeds},
    {"show_reply", run_show, server_message_seeds},
};

}  // namespace

std::span<const Target> message_targets() { return kTargets; }

}  // namespace precis::fuzz
