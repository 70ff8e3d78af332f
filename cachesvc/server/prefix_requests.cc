#include "cachesvc/server/prefix_requests.h"

#include <vector>

#include "cachesvc/base/counted.h"
#include "cachesvc/server/change_text.h"
#include "cachesvc/server/shard_keeper.h"

namespace precis {

Task<Answer> PrefixRequests::on(msg::ListPrefixes request) {
  co_return answer(co_await caller_.listed([&]() -> Result<msg::Segments> {
    PRECIS_ASSIGN(msg::Segments page, catalog_.segments_page(tenant_, request));
    for (msg::SegmentInfo& row : page.rows) row = caller_.with_tier(std::move(row));
    return page;
  }));
}

Task<Answer> PrefixRequests::on(msg::FindPrefix request) {
  PRECIS_CO_ASSIGN(auto info, catalog_.find_segment(tenant_, request.id_beginning));
  co_return msg::ReplyBody(caller_.with_tier(std::move(info)));
}

Task<Answer> PrefixRequests::on(msg::ShowPrefix request) {
  PRECIS_CO_ASSIGN(auto info, catalog_.info(tenant_, request.segment, /*with_plan=*/true));
  co_return msg::ReplyBody(caller_.with_tier(std::move(info)));
}

Task<Answer> PrefixRequests::on(msg::RemovePrefix request) {
  std::vector<SegmentId> gone;
  const auto shard = caller_.shard_of(request.segment);
  auto removed = co_await caller_.stored(
      [&] { return catalog_.remove(tenant_, request.segment, request.recursive, &gone); });
  for (const SegmentId& id : gone) caller_.parts.hot_tier.erase(id);
  caller_.parts.memory.retry();
  PRECIS_CO_TRY(co_await caller_.shared(shard));
  const ShardKeeper* const shards = caller_.parts.shards;
  if (removed.status().code() == StatusCode::kNotFound && shards != nullptr &&
      shards->state().loading > 0) {
    co_return Status::moved("the segment is not at this node, which is loading shards now");
  }
  if (removed.ok()) {
    const std::string gone_text =
        counted(removed->segments, "segment") + ", " + std::to_string(removed->bytes) + " B";
    caller_.note(
        {"RemovePrefix", "prefix removed", request.segment.hex(), gone_text + " less", gone_text});
  }
  co_return answer(std::move(removed));
}

Task<Answer> PrefixRequests::on(msg::CheckPrefix request) {
  co_return answer(co_await caller_.parts.cold_reads.check(caller_.owner(), request.segment));
}

Task<Answer> PrefixRequests::on(msg::TrimPrefix request) {
  PRECIS_CO_TRY(caller_.check(request.durability));
  PRECIS_CO_TRY(caller_.check_uploads());
  const auto shard = caller_.shard_of(request.segment);
  const auto before = catalog_.info(tenant_, request.segment, /*with_plan=*/false);
  auto trimmed = co_await caller_.parts.trim_path.run(caller_.owner(), request);
  if (trimmed.ok() && trimmed->freed_bytes > 0 && !request.dry_run) {
    const auto size_text = [](std::uint64_t entries, std::uint64_t bytes) {
      return std::to_string(entries) + " entries, " + std::to_string(bytes) + " B";
    };
    caller_.note({"TrimPrefix", "prefix trimmed", request.segment.hex(),
                  "keep " + request.budget.to_string() + ", " +
                      std::to_string(trimmed->freed_bytes) + " B less",
                  before.ok() ? size_text(before->entries, before->stored_bytes) : "",
                  size_text(trimmed->entries, trimmed->stored_bytes)});
  }
  if (trimmed.ok() && request.durability == Durability::kShared) {
    PRECIS_CO_TRY(co_await caller_.shared(shard));
  }
  co_return answer(std::move(trimmed));
}

Task<Answer> PrefixRequests::on(msg::SetRetention request) {
  PRECIS_CO_TRY(caller_.check_uploads());
  const auto before = catalog_.info(tenant_, request.segment, /*with_plan=*/false);
  PRECIS_CO_ASSIGN(
      auto info, co_await caller_.stored([&] { return catalog_.set_retention(tenant_, request); }));
  const std::string now = retention_text(info);
  caller_.note({"SetRetention", "prefix retention set", info.id.hex(), now,
                before.ok() ? retention_text(*before) : "", now});
  co_return msg::ReplyBody(caller_.with_tier(std::move(info)));
}

}  // namespace precis
