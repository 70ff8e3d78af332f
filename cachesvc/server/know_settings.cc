#include "cachesvc/server/know_settings.h"

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "cachesvc/cluster/membership.h"
#include "precis/block_digest.h"
#include "precis/recipe.h"

namespace precis {
namespace {

struct Needs {
  std::optional<Digest> model = {};
  std::string recipe = {};  // empty: none
  bool all = false;         // all that other nodes have changed
};

struct NeedsOf {
  template <typename Request>
  Needs operator()(const Request& request) const {
    if constexpr (std::is_same_v<Request, msg::ShowApplication>) {
      return {.all = true};  // another node may have just begun it
    } else if constexpr (std::is_same_v<Request, msg::RegisterModel>) {
      return {model_fingerprint(request.model), ""};
    } else if constexpr (std::is_same_v<Request, msg::BeginPut>) {
      return {request.model, request.recipe};  // if it names none, the put looks for the rest
    } else if constexpr (requires { request.scope.model; }) {
      return {request.scope.model, ""};
    } else if constexpr (requires { std::optional<Digest>(request.model); }) {
      return {request.model, ""};
    } else {
      return {};
    }
  }
};

bool knows(const Caller& caller, const Needs& needs) {
  const Catalog& catalog = caller.parts.catalog;
  if (needs.all) return false;
  if (!needs.model) return true;
  const auto model = catalog.model(caller.tenant.name, *needs.model);
  if (!model.ok()) return false;
  if (needs.recipe.empty()) return true;
  const auto recipe = parse_recipe(needs.recipe);
  if (!recipe.ok()) return true;
  // Without shared storage, other nodes' projections are of no use here.
  if (recipe->needs_o_proj() && caller.parts.shards != nullptr) {
    const std::uint32_t last = model->num_layers - 1;  // it is added last
    if (!catalog.projection(caller.tenant.name, *needs.model, last).ok()) return false;
  }
  return !recipe->needs_profile() ||
         catalog.find_profile(caller.tenant.name, *needs.model, *recipe).ok();
}

}  // namespace

Task<Status> know_settings(const Caller& caller, const msg::RequestBody& request) {
  cluster::Membership* const membership = caller.parts.membership;
  const Needs needs = std::visit(NeedsOf{}, request);
  if (knows(caller, needs)) co_return Status();
  // Numbered now, so that one answer of etcd is enough for all requests that wait together.
  const std::uint64_t asked = membership->agreed().ask();
  const Status known =
      co_await caller.changed([=] { return membership->agreed().catch_up(asked); });
  if (needs.all) co_return Status();  // if it failed, the answer is what the node knows
  if (known.ok() || membership->owned().is_member) co_return known;
  co_return Status::moved("this node is no member of its cluster now: " + known.message());
}

}  // namespace precis
