#include "cachesvc/catalog/sessions.h"

#include <algorithm>
#include <limits>

#include "precis/keep.h"
#include "precis/limits.h"

namespace precis {
namespace {

constexpr std::uint64_t kMsPerSecond = 1000;

Status check_name(const std::string& name) {
  if (!name.empty() && name.size() <= limits::kNameBytesMax) return {};
  return Status::invalid("session name has " + std::to_string(name.size()) + " B, must be 1 to " +
                         std::to_string(limits::kNameBytesMax));
}

Status check_total(const std::string& name, const Budget& total) {
  const bool is_known = total.kind == Budget::Kind::kAll || total.kind == Budget::Kind::kBytes ||
                        total.kind == Budget::Kind::kRatio ||
                        total.kind == Budget::Kind::kByteShare;
  const bool fits = is_known && check_keep(total).ok();
  return fits ? Status()
              : Status::invalid("session '" + name + "': total is " + total.to_string() +
                                ", must be a share of the bytes in (0, 1], or bytes such as "
                                "'64 MiB'");
}

void renew(msg::SessionRow& row, std::uint64_t now_ms) {
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  if (row.ttl_seconds == 0) {
    row.expires_unix_ms = 0;
  } else {
    const std::uint64_t rest_s = (kNever - now_ms) / kMsPerSecond;
    row.expires_unix_ms = now_ms + std::min(row.ttl_seconds, rest_s) * kMsPerSecond;
  }
  row.updated_unix_ms = now_ms;
}

}  // namespace

Result<msg::SessionRow> opened_session(const msg::SessionRow* present,
                                       const msg::OpenSession& request, std::uint64_t now_ms) {
  PRECIS_TRY(check_name(request.name));
  const std::uint64_t ttl_max = (std::numeric_limits<std::uint64_t>::max() - now_ms) / kMsPerSecond;
  if (request.ttl_seconds.value_or(0) > ttl_max) {
    return Status::invalid("session '" + request.name + "': ttl of " +
                           std::to_string(*request.ttl_seconds) + " s exceeds " +
                           std::to_string(ttl_max) + " s");
  }
  msg::SessionRow row;
  if (present) row = *present;
  row.name = request.name;
  if (request.ttl_seconds) row.ttl_seconds = *request.ttl_seconds;
  if (request.total) {
    PRECIS_TRY(check_total(request.name, *request.total));
    row.total = request.total->kind == Budget::Kind::kAll ? std::nullopt : request.total;
    // In a total, both kinds of share are shares of the bytes.
    if (row.total && row.total->kind == Budget::Kind::kByteShare) {
      row.total->kind = Budget::Kind::kRatio;
    }
  }
  renew(row, now_ms);
  return row;
}

msg::SessionRow advanced_session(const msg::SessionRow& present, const SegmentId& tip,
                                 std::uint32_t tip_end, std::uint64_t now_ms) {
  msg::SessionRow row = present;
  if (row.tip != tip) ++row.turns;
  row.tip = tip;
  row.tip_end = tip_end;
  renew(row, now_ms);
  return row;
}

msg::SessionRow renewed_session(const msg::SessionRow& present, std::uint64_t now_ms) {
  msg::SessionRow row = present;
  renew(row, now_ms);
  return row;
}

bool renewal_is_due(const msg::SessionRow& present, std::uint64_t now_ms) {
  if (present.ttl_seconds == 0) return false;
  const std::uint64_t left_ms = present.expires_unix_ms - std::min(now_ms, present.expires_unix_ms);
  const std::uint64_t ttl_ms = present.ttl_seconds * kMsPerSecond;  // fits: opened_session()
  return left_ms <= ttl_ms - ttl_ms / 10;
}

Result<msg::SessionRow> forked_session(const msg::SessionRow& present, const std::string& new_name,
                                       std::uint64_t now_ms) {
  PRECIS_TRY(check_name(new_name));
  msg::SessionRow row = present;
  row.name = new_name;
  row.pinned = false;
  renew(row, now_ms);
  return row;
}

void Sessions::put(std::string_view tenant, msg::SessionRow row) {
  Key key{std::string(tenant), row.name};
  if (row.pinned) pin_(row.tip, 1);  // before the old tip is unpinned: they share ancestors
  erase(key);
  if (row.expires_unix_ms != 0) expiries_.emplace(row.expires_unix_ms, key);
  {
    std::lock_guard lock(noticed_mutex_);
    Counts& counts = counts_[key.tenant];
    ++counts.rows;
    if (is_noticed(row)) count_expired(counts, 1);
  }
  by_tip_.insert(at_tip(*rows_.emplace(std::move(key), std::move(row)).first));
}

Sessions::AtTip Sessions::at_tip(const Rows::value_type& row) {
  const std::uint64_t expires_ms = row.second.expires_unix_ms;
  const std::uint64_t sooner =
      expires_ms == 0 ? 0 : std::numeric_limits<std::uint64_t>::max() - expires_ms;
  return {row.first.tenant, row.second.tip, !row.second.pinned, sooner, &row.second};
}

void Sessions::erase(const Key& key) {
  const auto row = rows_.find(key);
  if (row == rows_.end()) return;
  by_tip_.erase(at_tip(*row));
  if (row->second.pinned) pin_(row->second.tip, -1);
  expiries_.erase({row->second.expires_unix_ms, key});
  {
    std::lock_guard lock(noticed_mutex_);
    const auto counts = counts_.find(key.tenant);
    if (is_noticed(row->second)) count_expired(counts->second, -1);
    if (--counts->second.rows == 0) counts_.erase(counts);
  }
  rows_.erase(row);
}

std::vector<Sessions::Key> Sessions::in_shards(const std::vector<bool>& shards) const {
  std::vector<Key> keys;
  for (const auto& [key, row] : rows_) {
    if (row.shard && shards.at(*row.shard)) keys.push_back(key);
  }
  return keys;
}

const msg::SessionRow* Sessions::find(std::string_view tenant, std::string_view name,
                                      std::uint64_t now_ms) const {
  const auto row = rows_.find({std::string(tenant), std::string(name)});
  return row == rows_.end() || has_expired(row->second, now_ms) ? nullptr : &row->second;
}

const msg::SessionRow* Sessions::pinned_at(std::string_view tenant, const SegmentId& tip,
                                           std::uint64_t now_ms) const {
  const auto at = by_tip_.lower_bound(first_at(tenant, tip));
  if (at == by_tip_.end() || !is_at(*at, tenant, tip)) return nullptr;
  const msg::SessionRow& row = *std::get<const msg::SessionRow*>(*at);
  return row.pinned && !has_expired(row, now_ms) ? &row : nullptr;
}

std::vector<msg::SessionRow> Sessions::page(std::string_view tenant, std::string_view after,
                                            std::size_t limit, std::uint64_t now_ms) const {
  std::vector<msg::SessionRow> rows;
  for (auto row = rows_.upper_bound({std::string(tenant), std::string(after)});
       row != rows_.end() && row->first.tenant == tenant && rows.size() < limit; ++row) {
    if (!has_expired(row->second, now_ms)) rows.push_back(row->second);
  }
  return rows;
}

std::uint64_t Sessions::count(std::string_view tenant, std::uint64_t now_ms) const {
  std::lock_guard lock(noticed_mutex_);
  notice(now_ms);
  const auto counts = counts_.find(tenant);
  return counts == counts_.end() ? 0 : counts->second.rows - counts->second.expired;
}

std::uint64_t Sessions::count(std::uint64_t now_ms) const {
  std::lock_guard lock(noticed_mutex_);
  notice(now_ms);
  return rows_.size() - expired_;
}

// If the clock steps back, sessions that were counted as expired are live again.
void Sessions::notice(std::uint64_t now_ms) const {
  const auto after = [this](std::uint64_t ms) { return expiries_.lower_bound({ms + 1, Key()}); };
  const int by = now_ms >= noticed_ms_ ? 1 : -1;
  const auto last = after(std::max(now_ms, noticed_ms_));
  for (auto each = after(std::min(now_ms, noticed_ms_)); each != last; ++each) {
    count_expired(counts_.find(each->second.tenant)->second, by);
  }
  noticed_ms_ = now_ms;
}

void Sessions::count_expired(Counts& counts, int by) const {
  counts.expired += static_cast<std::uint64_t>(by);
  expired_ += static_cast<std::uint64_t>(by);
}

std::vector<Sessions::Key> Sessions::expired(std::uint64_t now_ms, std::size_t limit) const {
  std::vector<Key> keys;
  for (const auto& [expires_ms, key] : expiries_) {
    if (expires_ms > now_ms || keys.size() == limit) break;
    keys.push_back(key);
  }
  return keys;
}

}  // namespace precis
