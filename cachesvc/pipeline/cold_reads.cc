#include "cachesvc/pipeline/cold_reads.h"

#include "cachesvc/pipeline/cut.h"
#include "cachesvc/pipeline/read_tries.h"

namespace precis {

Task<Status> ColdReads::read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                                  Owner owner) {
  const auto present = stored(row, Scope::kServed);
  if (!present.ok() || *present != row) {
    if (auto leased = co_await read_leased(row, layer, into, owner)) co_return std::move(*leased);
  }
  const Status status = co_await read_into(row, layer, into, owner, Scope::kServed);
  if (status.code() != StatusCode::kNotFound) co_return status;
  // The segment was replaced during the read.
  if (auto leased = co_await read_leased(row, layer, into, owner)) co_return std::move(*leased);
  co_return status;
}

Task<std::optional<Status>> ColdReads::read_leased(const Catalog::Row& row, std::uint32_t layer,
                                                   MutableBytes into, Owner owner) {
  const auto held = parts_.catalog.leases().find(*row);
  if (!held) co_return std::nullopt;
  Status status = co_await run_on(parts_.reads, parts_.loop, std::move(owner), [&]() -> Status {
    PRECIS_TRY(held->layers->at(layer)->read_into(into));
    return check_records(into, *row, layer);
  });
  ++parts_.metrics.layers_cold;
  if (status.code() == StatusCode::kCorruption) {  // a miss for the reader
    report("leased bytes failed their check", *row, layer, status);
    status = Status::not_found("segment " + row->id.hex() + " was removed or replaced");
  }
  co_return std::move(status);
}

Task<Result<std::unique_ptr<Arena::Buffer>>> ColdReads::read_any(const Catalog::Row& row,
                                                                 std::uint32_t layer, Owner owner) {
  std::vector<PayloadMemory::Want> wants(1, PayloadMemory::Want{row->layer_bytes[layer]});
  PRECIS_CO_ASSIGN(auto pieces, co_await parts_.memory.acquire(std::move(wants), owner));
  PRECIS_CO_TRY(co_await read_into(row, layer, pieces.front()->bytes(), owner, Scope::kAll));
  co_return std::move(pieces.front());
}

Task<Status> ColdReads::read_to_change(const Catalog::Row& row, std::uint32_t layer,
                                       MutableBytes into, Owner owner) {
  return read_into(row, layer, into, std::move(owner), Scope::kChanged);
}

Result<Catalog::Row> ColdReads::stored(const Catalog::Row& row, Scope scope) const {
  if (scope != Scope::kAll) return parts_.catalog.served_now(row);
  PRECIS_ASSIGN(Catalog::AnySegment any, parts_.catalog.stored_segment(row->tenant, row->id));
  return std::move(any.row);
}

Task<Status> ColdReads::read_into(const Catalog::Row& row, std::uint32_t layer, MutableBytes into,
                                  Owner owner, Scope scope) {
  Status status = co_await run_on(parts_.reads, parts_.loop, owner, [&]() -> Status {
    // Concurrent reads share the disk's rate, and that of the storage that nodes share. Their
    // number is taken once, when this read begins.
    const auto sharing = static_cast<double>(++under_way_);
    const std::uint64_t began_ns = parts_.clock.monotonic_ns();
    bool was_here = true;
    const Status read = parts_.catalog.peek_layer(*row, layer, into, &was_here);
    const auto seconds = static_cast<double>(parts_.clock.monotonic_ns() - began_ns) * 1e-9;
    --under_way_;
    PRECIS_TRY(read);
    if (was_here) {
      parts_.rate.read_cold(into.size(), seconds / sharing);
    } else {
      parts_.rate.read_shared(into.size(), seconds / sharing);
    }
    PRECIS_TRY(check_records(into, *row, layer));
    if (was_here) return {};
    ++parts_.metrics.layers_shared;
    // Reads for checks and changes are not kept: they would displace what readers need.
    if (scope == Scope::kServed) parts_.catalog.keep_layer(*row, layer, into);
    return {};
  });
  if (status.code() == StatusCode::kNotFound) {  // a removal may be in progress: wait for it
    status = co_await run_on(parts_.storage, parts_.loop, owner, [&]() -> Status {
      PRECIS_TRY(parts_.catalog.read_layer(*row, layer, into));
      return check_records(into, *row, layer);
    });
  }
  if (scope == Scope::kServed) ++parts_.metrics.layers_cold;
  // If the segment was removed, trimmed or put again, these bytes say nothing about the stored
  // ones.
  const auto present = stored(row, scope);
  PRECIS_CO_TRY(present.status());
  bool same = *present == row;
  // A guest's owner finds the damage too, and takes the segment out of service.
  if (same && status.code() == StatusCode::kCorruption && !parts_.catalog.is_guest(*row)) {
    // The segment is out of service before the reader gets an answer.
    same = co_await run_on(parts_.storage, parts_.loop, owner,
                           [&] { return parts_.catalog.quarantine(*row); });
  }
  if (!same) {
    co_return Status::not_found("segment " + row->id.hex() + " was replaced while it was read");
  }
  if (status.code() == StatusCode::kCorruption) {
    report("stored bytes failed their check", *row, layer, status);
    parts_.hot_tier.erase(row->id);
  }
  co_return status.with_context("segment " + row->id.hex() + " layer " + std::to_string(layer));
}

void ColdReads::invalidate(const std::vector<Catalog::Row>& links, std::uint32_t layer,
                           const Status& why) {
  report("bytes in memory failed their check", *links.back(), layer, why);
  for (const Catalog::Row& row : links) parts_.hot_tier.erase(row->id);
}

void ColdReads::report(std::string_view event, const SegmentRow& row, std::uint32_t layer,
                       const Status& why) {
  ++parts_.metrics.corrupt_layers;
  parts_.log.error(event, {{"segment", row.id.hex()}, {"layer", layer}, {"status", why.message()}});
}

Task<Result<msg::Checked>> ColdReads::check(Owner owner, SegmentId segment) {
  msg::Checked checked;
  Status status;
  for (int tries = 0; tries < kReadTriesMax; ++tries) {
    const auto found = parts_.catalog.stored_segment(owner.tenant, segment);
    status = found.status();
    checked.bytes = 0;
    const std::size_t layers = found.ok() ? found->row->layer_bytes.size() : 0;
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const auto records = co_await read_any(found->row, layer, owner);
      status = records.status();
      if (!status.ok()) break;
      checked.bytes += found->row->layer_bytes[layer];
    }
    parts_.memory.retry();
    if (status.ok() && found->quarantined) {
      status = Status::corruption("segment " + segment.hex() +
                                  " is out of service: its stored bytes failed a check before, and "
                                  "pass it now; put it again or remove it");
    }
    if (!found.ok() || status.code() != StatusCode::kNotFound) break;
    // The segment was removed, trimmed or put again meanwhile: start again.
    status = changes_too_often("segment " + segment.hex());
  }
  if (status.code() == StatusCode::kCorruption) {
    checked.damage = status.message();
    co_return checked;
  }
  PRECIS_CO_TRY(status);
  co_return checked;
}

}  // namespace precis
