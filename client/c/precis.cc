// The C interface over the C++ client. Handles hold C++ objects and the message of their last
// failure. No exception leaves it: every function that may throw does so within report().
#include "precis/precis.h"

#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "precis/client.h"

struct precis_client {
  std::shared_ptr<precis::Client> client;  // null until connected or opened
  std::string error;
};
struct precis_model {
  precis::Model model;
};
struct precis_put {
  precis::Put put;
  precis::ModelSpec spec;
  std::string error = {};
};
struct precis_match {
  precis::LookupMatch match;
};
struct precis_prefix {
  precis::Prefix prefix;
  std::string error = {};
};

namespace {

using precis::Budget;
using precis::Result;
using precis::Status;

static_assert(PRECIS_INTERNAL == static_cast<int>(precis::StatusCode::kInternal) &&
              PRECIS_MOVED == precis::kStatusCodeMax);
static_assert(PRECIS_F32 == static_cast<int>(precis::Dtype::kF32) &&
              PRECIS_F8_E4M3 == static_cast<int>(precis::kDtypes.back()));
static_assert(PRECIS_SHARED == static_cast<int>(precis::Durability::kShared));

// Runs `call`, and stores a failure's message in the handle.
template <typename Handle, typename Call>
precis_status report(Handle* handle, const Call& call) noexcept {
  if (handle == nullptr) return PRECIS_INVALID_ARGUMENT;
  // The texts for exceptions are so short that the string itself holds them: they need no memory.
  try {
    const Status status = call();
    if (!status.ok()) handle->error = status.message();
    return static_cast<precis_status>(status.code());
  } catch (const std::bad_alloc&) {
    handle->error = "no memory";
    return PRECIS_OUT_OF_SPACE;
  } catch (...) {
    handle->error = "an exception";
    return PRECIS_INTERNAL;
  }
}

Status is_null(const char* what) { return Status::invalid(std::string(what) + " is null"); }

std::string text(const char* string) { return string == nullptr ? "" : string; }

// No budget if `keep` is 0.
Result<std::optional<Budget>> budget_of(double keep) {
  if (keep == 0) return std::optional<Budget>();
  PRECIS_ASSIGN(const Budget budget, Budget::ratio(keep));
  return std::optional(budget);
}

precis::SegmentId id_of(const precis_segment_id& segment) {
  precis::SegmentId id;
  std::memcpy(id.bytes.data(), segment.bytes, sizeof segment.bytes);
  return id;
}
precis_segment_id id_of(const precis::SegmentId& segment) {
  precis_segment_id id;
  std::memcpy(id.bytes, segment.bytes.data(), sizeof id.bytes);
  return id;
}

// Runs `call` if `client` is connected or has a directory open.
template <typename Call>
precis_status with_client(precis_client* client, const Call& call) {
  return report(client, [&]() -> Status {
    if (client->client) return call(*client->client);
    return Status::invalid("the client is not connected, and has no directory open");
  });
}

Result<std::span<const precis::TokenId>> path_of(const precis_model* model, const uint32_t* tokens,
                                                 size_t num_tokens) {
  if (model == nullptr) return is_null("model");
  if (tokens == nullptr && num_tokens > 0) return is_null("tokens");
  return std::span<const precis::TokenId>(tokens, num_tokens);
}

Result<precis::LayerPush> push_of(const precis_put& put, const precis_layer& layer) {
  const precis::ModelSpec& spec = put.spec;
  const std::uint32_t new_tokens = put.put.begun().end - put.put.begun().begin;
  if (layer.keys == nullptr) return is_null("keys");
  if (layer.values == nullptr) return is_null("values");
  if (layer.queries == nullptr && layer.num_queries > 0) return is_null("queries");
  if (layer.head_begin >= spec.num_kv_heads || layer.token_begin >= new_tokens) {
    return Status::invalid("head_begin is " + std::to_string(layer.head_begin) + " of " +
                           std::to_string(spec.num_kv_heads) + ", token_begin " +
                           std::to_string(layer.token_begin) + " of " + std::to_string(new_tokens));
  }
  const std::uint32_t heads =
      layer.num_heads > 0 ? layer.num_heads : spec.num_kv_heads - layer.head_begin;
  const std::uint32_t tokens =
      layer.num_tokens > 0 ? layer.num_tokens : new_tokens - layer.token_begin;
  const auto rows = [&spec](const void* data, std::uint32_t num_heads, std::uint32_t num_rows) {
    return precis::HeadsView::packed(data, num_heads, num_rows, spec.head_dim, spec.dtype);
  };
  precis::LayerPush push;
  push.keys = rows(layer.keys, heads, tokens);
  push.values = rows(layer.values, heads, tokens);
  if (layer.queries != nullptr) {
    push.queries =
        rows(layer.queries, heads * (spec.num_q_heads / spec.num_kv_heads), layer.num_queries);
  }
  push.head_begin = layer.head_begin;
  push.token_begin = layer.token_begin;
  return push;
}

}  // namespace

const char* precis_status_name(precis_status status) {
  // The names in status.h are string literals, so they end with a zero byte.
  return precis::status_code_name(static_cast<precis::StatusCode>(status)).data();
}

// ---- the client ---------------------------------------------------------------------------------

precis_client* precis_client_new() { return new (std::nothrow) precis_client; }
void precis_client_free(precis_client* client) { delete client; }
const char* precis_client_error(const precis_client* client) {
  return client == nullptr ? "client is null" : client->error.c_str();
}

precis_status precis_client_connect(precis_client* client, const char* address,
                                    const precis_connect_options* options) {
  return report(client, [&]() -> Status {
    if (address == nullptr) return is_null("address");
    precis::ConnectOptions as;
    if (options != nullptr) {
      as.tenant = text(options->tenant);
      as.token = text(options->token);
      as.tls_ca = text(options->tls_ca);
      if (options->timeout_ms > 0) as.timeout_ms = options->timeout_ms;
    }
    PRECIS_ASSIGN(client->client, precis::Client::connect(address, as));
    return {};
  });
}

precis_status precis_client_open(precis_client* client, const char* directory,
                                 uint64_t memory_bytes) {
  return report(client, [&]() -> Status {
    if (directory == nullptr) return is_null("directory");
    precis::OpenOptions options;
    options.memory_bytes = memory_bytes;
    PRECIS_ASSIGN(client->client, precis::Client::open(directory, options));
    return {};
  });
}

// ---- models -------------------------------------------------------------------------------------

precis_status precis_model_register(precis_client* client, const precis_model_spec* spec,
                                    precis_model** model) {
  if (model != nullptr) *model = nullptr;
  return with_client(client, [&](precis::Client& service) -> Status {
    if (spec == nullptr || model == nullptr) return is_null(spec == nullptr ? "spec" : "model");
    precis::ModelSpec own;
    own.name = text(spec->name);
    own.revision = text(spec->revision);
    own.num_layers = spec->num_layers;
    own.num_q_heads = spec->num_q_heads;
    own.num_kv_heads = spec->num_kv_heads;
    own.head_dim = spec->head_dim;
    own.dtype = static_cast<precis::Dtype>(spec->dtype);
    if (spec->rope_theta != 0) own.rope_theta = spec->rope_theta;
    own.rope_scaling = text(spec->rope_scaling);
    PRECIS_TRY(own.validate());  // before a wrong number of windows is read
    if (spec->windows) own.windows.assign(spec->windows, spec->windows + own.num_layers);
    PRECIS_ASSIGN(precis::Model registered, service.register_model(own));
    *model = new precis_model{std::move(registered)};
    return {};
  });
}
void precis_model_free(precis_model* model) { delete model; }

// ---- put ----------------------------------------------------------------------------------------

precis_status precis_put_begin(precis_client* client, const precis_model* model,
                               const uint32_t* tokens, size_t num_tokens, const char* recipe,
                               double keep, precis_put** put) {
  if (put != nullptr) *put = nullptr;
  return with_client(client, [&](precis::Client& service) -> Status {
    if (put == nullptr) return is_null("put");
    PRECIS_ASSIGN(const auto path, path_of(model, tokens, num_tokens));
    precis::PutOptions options;
    options.recipe = text(recipe);
    PRECIS_ASSIGN(options.keep, budget_of(keep));
    PRECIS_ASSIGN(precis::Put begun, service.begin_put(model->model, path, options));
    *put = new precis_put{std::move(begun), model->model.spec};
    return {};
  });
}
void precis_put_free(precis_put* put) { delete put; }
const char* precis_put_error(const precis_put* put) {
  return put == nullptr ? "put is null" : put->error.c_str();
}

precis_status precis_put_range(const precis_put* put, uint32_t* begin, uint32_t* end) {
  if (put == nullptr || begin == nullptr || end == nullptr) return PRECIS_INVALID_ARGUMENT;
  *begin = put->put.begun().begin;
  *end = put->put.begun().end;
  return PRECIS_OK;
}

precis_status precis_put_layer(precis_put* put, uint32_t layer, const precis_layer* push) {
  return report(put, [&]() -> Status {
    if (push == nullptr) return is_null("push");
    PRECIS_ASSIGN(const auto own, push_of(*put, *push));
    return put->put.layer(layer, own);
  });
}

precis_status precis_put_commit(precis_put* put, precis_durability durability,
                                precis_segment_id* segment, uint64_t* stored_bytes) {
  if (segment != nullptr) *segment = {};
  if (stored_bytes != nullptr) *stored_bytes = 0;
  return report(put, [&]() -> Status {
    if (durability < PRECIS_MEMORY || durability > PRECIS_SHARED) {
      return Status::invalid("durability is " + std::to_string(durability) +
                             ", must be PRECIS_MEMORY, PRECIS_WAL, PRECIS_FSYNC or PRECIS_SHARED");
    }
    PRECIS_ASSIGN(const auto stored, put->put.commit(static_cast<precis::Durability>(durability)));
    if (segment != nullptr) *segment = id_of(stored.id);
    if (stored_bytes != nullptr) *stored_bytes = stored.stored_bytes;
    return {};
  });
}

precis_status precis_put_abort(precis_put* put) {
  return report(put, [&] { return put->put.abort(); });
}

// ---- get ----------------------------------------------------------------------------------------

precis_status precis_lookup(precis_client* client, const precis_model* model,
                            const uint32_t* tokens, size_t num_tokens, precis_match** match) {
  if (match != nullptr) *match = nullptr;
  return with_client(client, [&](precis::Client& service) -> Status {
    if (match == nullptr) return is_null("match");
    PRECIS_ASSIGN(const auto path, path_of(model, tokens, num_tokens));
    PRECIS_ASSIGN(precis::LookupMatch found, service.lookup(model->model, path));
    *match = new precis_match{std::move(found)};
    return {};
  });
}
void precis_match_free(precis_match* match) { delete match; }
uint32_t precis_match_tokens(const precis_match* match) {
  return match == nullptr ? 0 : match->match.matched_tokens;
}
uint64_t precis_match_bytes(const precis_match* match) {
  return match == nullptr ? 0 : match->match.bytes;
}

precis_status precis_get(precis_client* client, const precis_match* match, double keep,
                         precis_prefix** prefix) {
  if (prefix != nullptr) *prefix = nullptr;
  return with_client(client, [&](precis::Client& service) -> Status {
    if (match == nullptr || prefix == nullptr)
      return is_null(match == nullptr ? "match" : "prefix");
    PRECIS_ASSIGN(const auto budget, budget_of(keep));
    PRECIS_ASSIGN(precis::Prefix got, service.get(match->match, budget.value_or(Budget::all())));
    PRECIS_TRY(got.wait());
    *prefix = new precis_prefix{std::move(got)};
    return {};
  });
}
void precis_prefix_free(precis_prefix* prefix) { delete prefix; }
const char* precis_prefix_error(const precis_prefix* prefix) {
  return prefix == nullptr ? "prefix is null" : prefix->error.c_str();
}

precis_status precis_prefix_head(precis_prefix* prefix, uint32_t layer, uint32_t head,
                                 precis_head* entries) {
  if (entries != nullptr) *entries = {};
  return report(prefix, [&]() -> Status {
    if (entries == nullptr) return is_null("entries");
    const std::uint32_t layers = prefix->prefix.num_layers(), heads = prefix->prefix.num_heads();
    if (layer >= layers || head >= heads) {
      return Status::invalid("layer " + std::to_string(layer) + " of " + std::to_string(layers) +
                             ", head " + std::to_string(head) + " of " + std::to_string(heads));
    }
    const precis::HeadEntries kept = prefix->prefix.head(layer, head);
    *entries = {static_cast<std::uint32_t>(kept.positions.size()), kept.positions.data(),
                kept.scores.data(), kept.keys.data, kept.values.data};
    return {};
  });
}

// ---- sessions and removal -----------------------------------------------------------------------

precis_status precis_session_open(precis_client* client, const char* name, uint64_t ttl_seconds) {
  return with_client(client, [&](precis::Client& service) -> Status {
    if (name == nullptr) return is_null("name");
    return service.open_session(name, ttl_seconds).status();
  });
}

precis_status precis_session_advance(precis_client* client, const char* name,
                                     const precis_segment_id* segment) {
  return with_client(client, [&](precis::Client& service) -> Status {
    if (name == nullptr || segment == nullptr) return is_null(name == nullptr ? "name" : "segment");
    return service.advance_session(name, id_of(*segment)).status();
  });
}

precis_status precis_session_tip(precis_client* client, const char* name,
                                 precis_segment_id* segment, uint32_t* num_tokens) {
  if (segment != nullptr) *segment = {};
  if (num_tokens != nullptr) *num_tokens = 0;
  return with_client(client, [&](precis::Client& service) -> Status {
    if (name == nullptr || segment == nullptr) return is_null(name == nullptr ? "name" : "segment");
    PRECIS_ASSIGN(const auto row, service.session(name));
    *segment = id_of(row.tip);
    if (num_tokens != nullptr) *num_tokens = row.tip_end;
    return {};
  });
}

precis_status precis_remove(precis_client* client, const precis_segment_id* segment,
                            int recursive) {
  return with_client(client, [&](precis::Client& service) -> Status {
    if (segment == nullptr) return is_null("segment");
    return service.remove_segment(id_of(*segment), recursive != 0).status();
  });
}
