// The catalog's rows as stored bytes. The structs are generated from schema/catalog.capnp, which
// explains the frame and each field.
#pragma once

#include <cstdint>
#include <vector>

#include "precis/messages.h"
#include "precis/recipe.h"
#include "precis/schema/catalog.h"

namespace precis {

// The first version of rows of models that may have sliding windows.
inline constexpr std::uint32_t kWindowsVersion = 5;
// The latest version of the rows' format. Rows of a higher version are refused.
inline constexpr std::uint32_t kRowVersion = kWindowsVersion;
// The row of a segment has the version of its encoding, and that of a model the version of its
// element type or of its windows, so that builds that do not know them refuse the store when they
// open it. All other rows have version 1.

// True if both rows are of one put, trimmed or not: entries that both store are equal bit for bit.
bool same_put(const SegmentRow& row, const SegmentRow& other);

std::vector<std::byte> encode(const SegmentRow&);
std::vector<std::byte> encode(const SegmentRow&, std::uint32_t version);  // for tests
std::vector<std::byte> encode(const StoredSession&);
std::vector<std::byte> encode(const StoredModel&);
std::vector<std::byte> encode(const StoredBudget&);
std::vector<std::byte> encode(const StoredProjection&);
std::vector<std::byte> encode(const StoredProfile&);
std::vector<std::byte> encode(const StoredRevision&);
std::vector<std::byte> encode(const StoredTenant&);
// Stored bytes may be damaged or from a newer build: kCorruption or kVersionMismatch, naming the
// field. The bytes contain their own XXH3-128, so damage is detected before the content is read.
Result<SegmentRow> decode_segment_row(Bytes);
Result<StoredSession> decode_stored_session(Bytes);
Result<StoredModel> decode_stored_model(Bytes);
Result<StoredBudget> decode_stored_budget(Bytes);
Result<StoredProjection> decode_stored_projection(Bytes);
Result<StoredProfile> decode_stored_profile(Bytes);
Result<StoredRevision> decode_stored_revision(Bytes);
Result<StoredTenant> decode_stored_tenant(Bytes);

}  // namespace precis
