#include "cachesvc/server/caller.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "precis/printable.h"

namespace precis {

void Caller::note(NotedChange change) const {
  if (change.was && change.was == change.is) return;  // nothing changed
  if (!change.event.empty()) {
    parts.log.info(change.event, {{"from", connection.peer()},
                                  {"tenant", tenant.name},
                                  {"of", change.of},
                                  {"change", change.text},
                                  {"was", change.was.value_or("")}});
  }
  parts.audit.write(
      {tenant.name, client, connection.peer()},
      {change.request, std::move(change.of), std::move(change.was), std::move(change.is)});
}

RequestLabels Caller::labels(const std::string& model, std::string tier) const {
  // Two names with one printable form share a row: Prometheus refuses a row that comes twice.
  return {printable(tenant.name), printable(model), std::move(tier), connection.transport()};
}

void Caller::observe(Labeled<Histogram>& histograms, const RequestLabels& labels,
                     Clock::Time began) const {
  histograms.at(labels).observe(std::chrono::duration<double>(parts.clock.now() - began).count());
}

msg::SegmentInfo Caller::with_tier(msg::SegmentInfo info) const {
  const auto row = parts.catalog.segment(tenant.name, info.id);
  info.in_memory = false;
  if (!row.ok()) return info;
  const auto layers = static_cast<std::uint32_t>((*row)->layer_bytes.size());
  const std::vector<bool> hot = parts.hot_tier.present(info.id, layers, *row);
  info.in_memory = std::ranges::all_of(hot, std::identity());
  return info;
}

Status Caller::check(Durability durability) const {
  if (durability != Durability::kShared || parts.uploads != nullptr) return {};
  return Status::unsupported(
      "durability 'shared' needs nodes that share a storage: set cluster_ceph_conf or cluster_s3 "
      "on them, or use fsync");
}

std::optional<HeldShard> Caller::shard_of(const SegmentId& segment) const {
  const auto stored = parts.catalog.stored_segment(tenant.name, segment);
  return stored.ok() ? held(stored->row->shard) : std::nullopt;
}

Status Caller::check_uploads() const {
  if (parts.uploads == nullptr || !parts.uploads->is_full()) return {};
  return Status::rejected(
      "too much waits to be copied to the storage that the nodes share; try again later",
      limits::kRetryAfterRequestsMs);
}

std::optional<HeldShard> Caller::held(std::optional<std::uint32_t> shard) const {
  if (!shard || parts.uploads == nullptr) return std::nullopt;
  return HeldShard{*shard, parts.uploads->held(*shard)};
}

Task<Status> Caller::shared(std::optional<HeldShard> shard) const {
  return copied(parts.loop, parts.uploads, shard);
}

}  // namespace precis
