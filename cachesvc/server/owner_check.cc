#include "cachesvc/server/owner_check.h"

#include <algorithm>
#include <span>
#include <string>
#include <type_traits>
#include <variant>

#include "cachesvc/cluster/membership.h"
#include "precis/block_digest.h"
#include "precis/shards.h"

namespace precis {
namespace {

// A fork is within so many tokens: both sides hash a path up to its fork for every call, here on
// the loop's thread.
constexpr std::size_t kForkTokensMax = 32 * 1024;

class OwnerCheck {
 public:
  explicit OwnerCheck(const Caller& caller)
      : caller_(caller), membership_(*caller.parts.membership) {}

  Status operator()(const msg::BeginPut& put) const { return of_path(put); }
  Status operator()(const msg::Lookup& lookup) const { return of_path(lookup); }
  Status operator()(const msg::ForkSession& fork) const {
    if (shard_of_session(space(), fork.name) != shard_of_session(space(), fork.new_name)) {
      return Status::invalid(
          "in a cluster, a fork must have a name of its session's shard, such as '{" + fork.name +
          "}" + fork.new_name + "': the part in braces decides the shard");
    }
    return of_session(fork.name);
  }
  Status operator()(const msg::OpenSession& request) const { return of_session(request.name); }
  Status operator()(const msg::AdvanceSession& request) const { return of_session(request.name); }
  Status operator()(const msg::PinSession& request) const { return of_session(request.name); }
  Status operator()(const msg::ShowSession& request) const { return of_session(request.name); }
  template <typename Other>
  Status operator()(const Other&) const {
    return {};
  }

 private:
  Digest space() const { return shard_space(caller_.tenant.name, caller_.tenant.salt); }
  Status of_session(const std::string& name) const {
    return membership_.check_owner(shard_of_session(space(), name));
  }
  template <typename Request>
  Status of_path(const Request& request) const {
    if (!request.session.empty()) return of_session(request.session);
    const auto model = caller_.parts.catalog.model(caller_.tenant.name, request.model);
    if (!model.ok()) return {};  // the request fails by itself
    const std::uint32_t size = model->block_tokens;
    const Digest root = shard_root(space(), request.model, request.adapter);
    const Digest decides = deciding_block(root, request.tokens, size, *membership_.forks());
    PRECIS_TRY(membership_.check_owner(shard_of(decides)));
    if constexpr (std::is_same_v<Request, msg::BeginPut>) {
      const auto blocks = [&](std::size_t count) {
        const std::size_t most = std::min(count * size, kForkTokensMax) / size * size;
        return block_digests(
            root, std::span(request.tokens).first(std::min(request.tokens.size(), most)), size);
      };
      membership_.note_put(caller_.tenant.name,
                           {request.tokens.size(), request.writers, decides, blocks});
    }
    return {};
  }

  const Caller& caller_;
  cluster::Membership& membership_;
};

}  // namespace

Status check_owner(const Caller& caller, const msg::RequestBody& request) {
  if (caller.parts.membership == nullptr) return {};
  return std::visit(OwnerCheck(caller), request);
}

}  // namespace precis
