# The catalog's stored rows. Conventions (digests, arrays, names): types.capnp.
#
# Every row has a frame, whose form never changes, so any build can tell a damaged row from a newer
# one:
#
#   offset  size
#        0     4  magic "PRCR"
#        4     2  format version of the payload, little endian
#        6     2  kind, little endian: 1 segment, 2 session, 3 model, 4 budget, 5 projection,
#                 6 profile
#        8    16  XXH3-128 (canonical form) of the eight bytes before it and of the payload
#       24     -  payload: one Cap'n Proto message in the stream framing, unpacked
#
# A reader checks the checksum before it reads the version: a wrong checksum means a damaged row. A
# version above the reader's own then means that a newer build wrote the row. A field may be added
# without a new version if older builds may ignore it; every other change raises the version.
@0xeb0a3bb43b43fc76;

using Cxx = import "/capnp/c++.capnp";
using Types = import "types.capnp";
$Cxx.namespace("precis::wire");

struct SegmentRow {
  id @0 :Data;
  parent @1 :Data;
  # Segment ids; the parent is null at the root.
  tenant @2 :Text;
  model @3 :Data;
  # Fingerprint.
  adapter @4 :Text;
  begin @5 :UInt32;
  end @6 :UInt32;
  # Token positions on the path.
  root @7 :Data;
  # Digest of the path's root.
  tip @8 :Data;
  # Digest of the path up to `end` (path_tip).
  blocks @9 :Data;
  # 32 bytes each: digests of the blocks that end in (begin, end].
  tail @10 :Data;
  # u32 token ids from the last whole block to `end`.
  recipe @11 :Text;
  # Canonical.
  preset @12 :Text;
  budget @13 :Types.Budget;
  parentRead @14 :Types.Budget;
  # Absent: unknown.
  plan @15 :Types.Plan;
  layerBytes @16 :Data;
  # u64 per layer: bytes of its records.
  originalBytes @17 :UInt64;
  storedBytes @18 :UInt64;
  compressSeconds @19 :Float64;
  createdUnixMs @20 :UInt64;
  hits @21 :UInt64;
  trimmed @22 :Types.Budget;
  # The budget it was trimmed to; absent: never trimmed.
  parentEntries @23 :UInt64;
  # Entries of its parents over which its KV was computed; 0: unknown.
}

struct StoredSession {
  tenant @0 :Text;
  row @1 :Types.SessionRow;
}

struct StoredModel {
  tenant @0 :Text;
  model @1 :Types.ModelSpec;
}

struct StoredBudget {
  tenant @0 :Text;
  model @1 :Data;
  # Absent: the tenant's global scope.
  recipe @2 :Text;
  # Empty: this scope sets no recipe.
  keep @3 :Types.Budget;
  # Absent: this scope sets no budget.
  version @4 :UInt64;
  setUnixMs @5 :UInt64;
}

struct StoredProjection {
  # One layer's output projection. The weights and their Gram matrices are stored as payload.
  tenant @0 :Text;
  model @1 :Data;
  layer @2 :UInt32;
  width @3 :UInt32;
  dtype @4 :Types.Dtype;
  weightsBytes @5 :UInt64;
  gramsBytes @6 :UInt64;
  weights @7 :Data;
  grams @8 :Data;
  # SHA-256 of the payload.
}

struct StoredProfile {
  tenant @0 :Text;
  json @1 :Text;
  addedUnixMs @2 :UInt64;
}
