#include "client/src/remote_client.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "cachesvc/net/address.h"
#include "client/src/attach.h"
#include "client/src/get_plan.h"
#include "client/src/prefix.h"
#include "client/src/put.h"
#include "precis/keep.h"
#include "precis/limits.h"

namespace precis {
namespace {

Status check_tokens(std::span<const TokenId> tokens) {
  if (!tokens.empty() && tokens.size() <= limits::kPathTokensMax) return {};
  return Status::invalid("a path of " + std::to_string(tokens.size()) + " tokens, must be 1 to " +
                         std::to_string(limits::kPathTokensMax));
}

// The service's own checks, done here to save a request.
Status check_lookup(const LookupOptions& options) {
  if (options.align < 1 || options.align > limits::kAlignMax) {
    return Status::invalid("align is " + std::to_string(options.align) + ", must be in [1, " +
                           std::to_string(limits::kAlignMax) + "]");
  }
  if (options.keep) PRECIS_TRY(check_reader_keep(*options.keep));
  if (options.lease.count() < 0) {
    return Status::invalid("lease is " + std::to_string(options.lease.count()) +
                           " ms, must be 0 or more");
  }
  return {};
}

Status check_projections(const ModelSpec& spec, std::span<const HeadsView> o_proj) {
  if (o_proj.empty()) return {};
  if (o_proj.size() != spec.num_layers) {
    return Status::invalid("o_proj has " + std::to_string(o_proj.size()) +
                           " layers, the model has " + std::to_string(spec.num_layers));
  }
  for (std::size_t l = 0; l < o_proj.size(); ++l) {
    const HeadsView& w = o_proj[l];
    if (w.num_heads == spec.num_q_heads && w.num_tokens == spec.head_dim && w.head_dim > 0 &&
        w.contiguous()) {
      continue;
    }
    return Status::invalid("o_proj of layer " + std::to_string(l) + " is [" +
                           std::to_string(w.num_heads) + ", " + std::to_string(w.num_tokens) +
                           ", " + std::to_string(w.head_dim) + "], must be [" +
                           std::to_string(spec.num_q_heads) + ", " + std::to_string(spec.head_dim) +
                           ", hidden size], contiguous");
  }
  return {};
}

// "precis://a:1,b:2/" and "a:1,b:2" name two nodes of a cluster.
Result<std::vector<std::string>> split_addresses(const std::string& given) {
  constexpr std::string_view kScheme = "precis://";
  std::string_view left = given;
  if (left.starts_with(kScheme)) {
    left.remove_prefix(kScheme.size());
    if (left.ends_with('/')) left.remove_suffix(1);
  }
  std::vector<std::string> addresses;
  for (;;) {
    const auto comma = left.find(',');
    addresses.emplace_back(left.substr(0, comma));
    if (addresses.back().empty()) {
      return Status::invalid("address '" + given +
                             "' must be one host:port, or several with commas between them");
    }
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (addresses.size() == 1) return addresses;  // it is checked when it is connected to
  for (const std::string& address : addresses) {
    if (!address.starts_with(kUnixPrefix)) PRECIS_TRY(split_address(address).status());
  }
  return addresses;
}

}  // namespace

Result<std::shared_ptr<Client>> attach(std::shared_ptr<void> keep_alive, Runtime& runtime,
                                       EventLoop& loop, ClientTransport& transport,
                                       const std::string& address, const ConnectOptions& options) {
  PRECIS_ASSIGN(auto addresses, split_addresses(address));
  // Shared by all channels.
  const auto memory = std::make_shared<HostMemory>(keep_alive, transport);
  const auto dial = [keep_alive = std::move(keep_alive), &runtime, &loop, &transport, memory,
                     options](const std::string& node, std::uint32_t timeout_ms) {
    return Channel::open(keep_alive, runtime, loop, transport, memory, node, options, timeout_ms);
  };
  PRECIS_ASSIGN(auto nodes,
                Nodes::open(dial, std::move(addresses), call_options(options, runtime)));
  return std::shared_ptr<Client>(std::make_shared<RemoteClient>(
      std::move(nodes), memory, std::make_shared<StagingPool>(memory),
      std::make_shared<PageMovers>(options.page_mover), call_options(options, runtime)));
}

std::shared_ptr<Client> RemoteClient::with_deadline(std::uint32_t deadline_ms) {
  CallOptions options = options_;
  options.deadline_ms = deadline_ms;
  return std::make_shared<RemoteClient>(nodes_, memory_, staging_, movers_, options);
}

Result<Model> RemoteClient::register_model(const ModelSpec& spec,
                                           std::span<const HeadsView> o_proj) {
  PRECIS_TRY(spec.validate());
  PRECIS_TRY(check_projections(spec, o_proj));
  Retry retry = begin("register_model");
  // All nodes of a cluster have all models. But without shared storage, each has only the
  // projections that it is sent.
  std::vector<Target> targets{AnyNode{}};
  if (!o_proj.empty()) {
    PRECIS_ASSIGN(targets, nodes_->all_storages(retry));
  }
  Result<Model> model = Status::unavailable("no node of the cluster answers");
  for (const Target& node : targets) {
    auto at_node = register_at(node, retry, spec, o_proj);
    const bool has_left = at_node.status().code() == StatusCode::kNotFound;
    if (has_left && std::holds_alternative<NodeAt>(node)) continue;
    PRECIS_TRY(at_node.status());
    model = std::move(at_node);
  }
  return model;
}

Result<Model> RemoteClient::register_at(const Target& node, Retry& retry, const ModelSpec& spec,
                                        std::span<const HeadsView> o_proj) {
  retry.went_well();
  PRECIS_ASSIGN(msg::ModelRow row,
                nodes_->call<msg::ModelRow>(retry, node, msg::RegisterModel{spec}));
  Model model{std::move(row.model), row.fingerprint, {}};
  for (std::uint32_t layer = 0; layer < o_proj.size(); ++layer) {
    if (options_.runtime->clock().now() >= retry.deadline()) {
      return retry.too_late("o_proj of layer " + std::to_string(layer) + " to be sent");
    }
    retry.went_well();
    PRECIS_TRY(push_projection(node, retry, model, layer, o_proj[layer]));
  }
  return model;
}

// Pushing the same weights again is allowed, so this retries until they are stored.
Status RemoteClient::push_projection(const Target& node, Retry& retry, const Model& model,
                                     std::uint32_t layer, const HeadsView& weights) {
  for (;;) {
    const auto once = [&]() -> Status {
      PRECIS_ASSIGN(const auto way, nodes_->find(retry, node));
      std::vector<ExposedMemory> exposed(1);
      PRECIS_ASSIGN(exposed[0], way.channel->expose({weights.data, weights.size_bytes()}));
      msg::Request request{0, msg::PushProjection{model.fingerprint, layer, weights.head_dim,
                                                  weights.dtype, exposed[0].exposure->region()}};
      return way.channel
          ->call<msg::Done>(request, Patience::kWhileAlive, std::move(exposed), retry.deadline())
          .status();
    };
    const Status status = once();
    if (status.ok()) return {};
    PRECIS_TRY(retry.again(status));
  }
}

Result<std::vector<msg::ModelRow>> RemoteClient::models() {
  return all_rows<msg::Models>(msg::ListModels{});
}

Status RemoteClient::remove_model(const Digest& fingerprint) {
  msg::RemoveModel request{fingerprint, /*here_only=*/true};
  Retry retry = begin(request);
  PRECIS_TRY(ask_all_first(retry, [&](const Target& node) {
    return nodes_->call<msg::Done>(retry, node, request).status();
  }));
  return call_once<msg::Done>(msg::RemoveModel{fingerprint}).status();
}

Result<msg::ProfileRow> RemoteClient::add_profile(const std::string& json) {
  if (json.size() > limits::kProfileBytesMax) {
    return Status::invalid("profile has " + std::to_string(json.size()) + " bytes, the limit is " +
                           std::to_string(limits::kProfileBytesMax));
  }
  return call<msg::ProfileRow>(msg::AddProfile{json});
}

Result<std::vector<msg::ProfileRow>> RemoteClient::profiles(std::optional<Digest> model) {
  PRECIS_ASSIGN(msg::Profiles profiles, call<msg::Profiles>(msg::ListProfiles{model}));
  return std::move(profiles.rows);
}

Result<msg::ProfileRow> RemoteClient::profile(const Digest& model, const std::string& name) {
  return call<msg::ProfileRow>(msg::ShowProfile{model, name});
}

Status RemoteClient::remove_profile(const Digest& model, const std::string& name) {
  return call_once<msg::Done>(msg::RemoveProfile{model, name}).status();
}

Result<Put> RemoteClient::begin_put(const Model& model, std::span<const TokenId> tokens,
                                    const PutOptions& options) {
  PRECIS_TRY(check_tokens(tokens));
  PRECIS_TRY(model.spec.validate());
  if (options.writers < 1 || options.writers > limits::kWritersMax) {
    return Status::invalid("writers is " + std::to_string(options.writers) + ", must be in [1, " +
                           std::to_string(limits::kWritersMax) + "]");
  }
  msg::BeginPut body;
  body.model = model.fingerprint;
  body.adapter = model.adapter;
  body.tokens.assign(tokens.begin(), tokens.end());
  if (options.parent) {
    using Kind = msg::BeginPut::ParentKind;
    body.parent_kind = options.parent->is_null() ? Kind::kRoot : Kind::kSegment;
    body.parent = *options.parent;
  }
  body.recipe = options.recipe;
  body.budget = options.keep;
  body.parent_read = options.parent_read;
  body.parent_end = options.parent_end;
  body.writers = options.writers;
  body.hints = options.hints;
  body.session = options.session;
  body.prefill_seconds = options.prefill_seconds;
  body.traceparent = sent_traceparent(options.traceparent);
  PRECIS_ASSIGN(auto impl,
                Put::Impl::start(nodes_, staging_, movers_, options_, model.spec, std::move(body)));
  return Put(std::move(impl));
}

Result<LookupMatch> RemoteClient::lookup(const Model& model, std::span<const TokenId> tokens,
                                         const LookupOptions& options) {
  PRECIS_TRY(check_tokens(tokens));
  PRECIS_TRY(check_lookup(options));
  if (model.spec.block_tokens == 0) return Status::invalid("the model's block_tokens is 0");
  msg::Lookup body{model.fingerprint,
                   model.adapter,
                   {tokens.begin(), tokens.end()},
                   options.keep,
                   options.align,
                   static_cast<std::uint32_t>(
                       std::min<std::int64_t>(options.lease.count(), limits::kLeaseMsMax)),
                   options.hints,
                   sent_traceparent(options.traceparent),
                   options.session};
  const bool counts = asks_for_counts(body);  // counting may need disk reads
  const Target owner =
      options.session.empty()
          ? Target(OwnerOfPath{model.fingerprint, model.adapter, tokens, model.spec.block_tokens})
          : OwnerOfSession{options.session};
  Retry retry = begin("lookup");
  LookupMatch match;
  PRECIS_ASSIGN(msg::Match found,
                nodes_->call<msg::Match>(retry, owner, body,
                                         counts ? Patience::kWhileAlive : Patience::kOneTimeout,
                                         Nodes::Repeat::kSafe, &match.shard));
  if (found.matched_tokens > tokens.size()) {
    return Status::corruption("the service answers that " + std::to_string(found.matched_tokens) +
                              " tokens of a path of " + std::to_string(tokens.size()) +
                              " are stored");
  }
  static_cast<msg::Match&>(match) = std::move(found);
  match.model = model;
  match.options = options;
  if (!counts || !match) return match;
  if (!match.counted()) {
    return Status::unsupported(
        "the service cannot look up with keep or align: it is older than "
        "this client");
  }
  const Status fits = check_plan(match);
  if (!fits.ok()) return Status::corruption("the service's " + fits.message());
  return match;
}

Result<Prefix> RemoteClient::get(const LookupMatch& match, const Budget& keep,
                                 const GetOptions& options) {
  PRECIS_ASSIGN(auto impl, Prefix::Impl::begin(nodes_, options_, match, keep, options, *movers_));
  return Prefix(std::move(impl));
}

Result<msg::SessionRow> RemoteClient::call_session(const std::string& name, msg::RequestBody body) {
  return call<msg::SessionRow>(std::move(body), Patience::kOneTimeout, OwnerOfSession{name});
}
Result<msg::SessionRow> RemoteClient::open_session(const std::string& name,
                                                   std::optional<std::uint64_t> ttl_seconds,
                                                   std::optional<Budget> total) {
  return call_session(name, msg::OpenSession{name, ttl_seconds, total});
}
Result<msg::SessionRow> RemoteClient::advance_session(const std::string& name,
                                                      const SegmentId& tip) {
  return call_session(name, msg::AdvanceSession{name, tip});
}
Result<msg::SessionRow> RemoteClient::pin_session(const std::string& name, bool pinned) {
  return call_session(name, msg::PinSession{name, pinned});
}
Result<msg::SessionRow> RemoteClient::fork_session(const std::string& name,
                                                   const std::string& new_name) {
  return call_once<msg::SessionRow>(msg::ForkSession{name, new_name}, OwnerOfSession{name});
}
Result<msg::SessionRow> RemoteClient::session(const std::string& name) {
  return call_session(name, msg::ShowSession{name});
}
Result<std::vector<msg::SessionRow>> RemoteClient::sessions() {
  Retry retry = begin("sessions");
  PRECIS_ASSIGN(const auto targets, nodes_->all(retry));
  std::map<std::string, msg::SessionRow> latest;  // former owners may have it too
  for (const Target& node : targets) {
    auto rows = all_rows<msg::Sessions>(retry, node, msg::ListSessions{});
    if (rows.status().code() == StatusCode::kNotFound) continue;  // the node has left
    PRECIS_TRY(rows.status());
    if (targets.size() == 1) return rows;
    for (msg::SessionRow& row : *rows) {
      msg::SessionRow& known = latest[row.name];
      if (row.updated_unix_ms >= known.updated_unix_ms) known = std::move(row);
    }
  }
  std::vector<msg::SessionRow> rows;
  for (auto& [name, row] : latest) rows.push_back(std::move(row));
  return rows;
}
Status RemoteClient::remove_session(const std::string& name) {
  return call_holders<msg::Done>(msg::RemoveSession{name}, Patience::kOneTimeout,
                                 Nodes::Repeat::kUnsafe)
      .status();
}

}  // namespace precis
