#include "cachesvc/server/owner_check.h"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>

#include "cachesvc/cluster/membership.h"
#include "cachesvc/server/shard_keeper.h"
#include "precis/block_digest.h"
#include "precis/shards.h"

namespace precis {
namespace {

// A fork is within so many tokens: both sides hash a path up to its fork for every call, here on
// the loop's thread.
constexpr std::size_t kForkTokensMax = 32 * 1024;

using Shard = std::optional<HeldShard>;

Digest space_of(const Caller& caller) {
  return shard_space(caller.tenant.name, caller.tenant.salt);
}

Result<Shard> owned(const Caller& caller, std::uint32_t shard) {
  if (ShardKeeper* const shards = caller.parts.shards) {
    PRECIS_TRY(shards->check(shard));
    return Shard({shard, caller.parts.uploads->held(shard)});
  }
  PRECIS_TRY(caller.parts.membership->check_owner(shard));
  return Shard({shard, {}});
}

template <typename Request>
Result<Shard> owned_path(const Caller& caller, const Request& request) {
  cluster::Membership* const membership = caller.parts.membership;
  if (membership == nullptr) return Shard();
  const Digest space = space_of(caller);
  if (!request.session.empty()) return owned(caller, shard_of_session(space, request.session));
  const auto model = caller.parts.catalog.model(caller.tenant.name, request.model);
  if (!model.ok()) return Shard();  // the request fails by itself
  const std::uint32_t size = model->block_tokens;
  const Digest root = shard_root(space, request.model, request.adapter);
  const Digest decides = deciding_block(root, request.tokens, size, *membership->forks());
  PRECIS_ASSIGN(const Shard shard, owned(caller, shard_of(decides)));
  if constexpr (std::is_same_v<Request, msg::BeginPut>) {
    const auto blocks = [&](std::size_t count) {
      const std::size_t most = std::min(count * size, kForkTokensMax) / size * size;
      return block_digests(
          root, std::span(request.tokens).first(std::min(request.tokens.size(), most)), size);
    };
    membership->note_put(caller.tenant.name,
                         {request.tokens.size(), request.writers, decides, blocks});
  }
  return shard;
}

}  // namespace

Result<Shard> owned_shard(const Caller& caller, const msg::BeginPut& put) {
  return owned_path(caller, put);
}

Result<Shard> owned_shard(const Caller& caller, const msg::Lookup& lookup) {
  return owned_path(caller, lookup);
}

Result<Shard> owned_session(const Caller& caller, const std::string& name) {
  if (caller.parts.membership == nullptr) return Shard();
  return owned(caller, shard_of_session(space_of(caller), name));
}

Result<Shard> loaded_session(const Caller& caller, const std::string& name) {
  if (caller.parts.shards == nullptr) return Shard();
  const std::uint32_t shard = shard_of_session(space_of(caller), name);
  if (!caller.parts.membership->check_owner(shard).ok()) return Shard();
  return owned(caller, shard);
}

Status still_owned(const Caller& caller, const Shard& shard) {
  if (!shard) return {};
  PRECIS_ASSIGN(const Shard now, owned(caller, shard->number));
  if (now->held.hold == shard->held.hold) return {};
  return Status::moved("the shard " + std::to_string(shard->number) + " moved meanwhile");
}

Status check_fork(const Caller& caller, const msg::ForkSession& fork) {
  if (caller.parts.membership == nullptr) return {};
  const Digest space = space_of(caller);
  if (shard_of_session(space, fork.name) == shard_of_session(space, fork.new_name)) return {};
  return Status::invalid(
      "in a cluster, a fork must have a name of its session's shard, such as '{" + fork.name + "}" +
      fork.new_name + "': the part in braces decides the shard");
}

}  // namespace precis
