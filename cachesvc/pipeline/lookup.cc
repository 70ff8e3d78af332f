#include "cachesvc/pipeline/lookup.h"

#include <utility>

#include "precis/block_digest.h"
#include "precis/served_layout.h"

namespace precis {
namespace {

// The layer's entry counts of all links side by side, as ServedLayout takes them.
std::vector<std::uint32_t> layer_counts(const std::vector<Catalog::Link>& links,
                                        std::uint32_t layer) {
  std::vector<std::uint32_t> counts;
  for (const Catalog::Link& link : links) {
    for (std::uint32_t h = 0; h < link.row->plan.num_kv_heads; ++h) {
      counts.push_back(link.row->plan.at(layer, h));
    }
  }
  return counts;
}

}  // namespace

Task<Result<msg::Match>> Lookup::run(const Tenant& tenant, msg::Lookup request,
                                     const void* from) const {
  PRECIS_CO_ASSIGN(const ModelSpec model, catalog_.model(tenant.name, request.model));
  PRECIS_CO_TRY(PathHasher::check(request.tokens.size(), model.block_tokens));
  const Digest root = path_root(tenant.name, tenant.salt, request.model, request.adapter);
  co_return co_await paths_.with(tenant.owner(from), root, std::move(request.tokens),
                                 model.block_tokens, [&](const TokenPath& path) {
                                   auto found = match(tenant.name, model, path);
                                   while (!found) found = match(tenant.name, model, path);
                                   return Result<msg::Match>(std::move(*found));
                                 });
}

std::optional<msg::Match> Lookup::match(std::string_view tenant, const ModelSpec& model,
                                        const TokenPath& path) const {
  const auto links = catalog_.match(tenant, path);
  msg::Match match;
  match.plan = {model.num_layers, model.num_kv_heads, {}};
  match.plan.counts.resize(std::size_t{model.num_layers} * model.num_kv_heads);
  if (links.empty()) return match;

  match.matched_tokens = links.back().matched_end;
  std::uint64_t cold_bytes = 0;
  for (const Catalog::Link& link : links) {
    auto found = catalog_.info(tenant, link.row->id, /*with_plan=*/false);
    // Removed, trimmed or put anew since it was matched: what is there now is another match.
    if (!found.ok() || found->entries != link.row->plan.total()) return std::nullopt;
    msg::SegmentInfo info = std::move(found).value();
    for (std::size_t i = 0; i < match.plan.counts.size(); ++i) {
      match.plan.counts[i] += link.row->plan.counts[i];
    }
    info.in_memory = true;
    const std::vector<bool> hot = hot_tier_.present(info.id, model.num_layers, link.row);
    for (std::uint32_t l = 0; l < model.num_layers; ++l) {
      if (hot[l]) continue;
      info.in_memory = false;
      cold_bytes += link.row->layer_bytes[l];
    }
    match.links.push_back({std::move(info), link.matched_end});
  }
  for (std::uint32_t l = 0; l < model.num_layers; ++l) {
    match.bytes +=
        ServedLayout::of(layer_counts(links, l), model.num_kv_heads, model.head_dim, model.dtype)
            .size_bytes;
  }
  match.predicted_seconds = rate_.predict_seconds(match.bytes, cold_bytes);
  return match;
}

}  // namespace precis
