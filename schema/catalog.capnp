# The catalog's stored rows. Conventions (digests, arrays, names): types.capnp.
#
# Every row has a frame, whose form never changes, so any build can tell a damaged row from a newer
# one:
#
#   offset  size
#        0     4  magic "PRCR"
#        4     2  format version of the payload, little endian
#        6     2  kind, little endian: 1 segment, 2 session, 3 model, 4 budget, 5 projection,
#                 6 profile, 7 revision of the budgets, 8 tenant
#        8    16  XXH3-128 (canonical form) of the eight bytes before it and of the payload
#       24     -  payload: one Cap'n Proto message in the stream framing, unpacked
#
# A reader checks the checksum before it reads the version: a wrong checksum means a damaged row. A
# version above the reader's own then means that a newer build wrote the row. A field may be added
# without a new version if older builds may ignore it; every other change raises the version.
@0xeb0a3bb43b43fc76;

using Cxx = import "/capnp/c++.capnp";
using Is = import "rules.capnp";
using Types = import "types.capnp";
$Cxx.namespace("precis::wire");
$Is.cxxNamespace("precis");

struct SegmentRow $Is.checked {
  id @0 :Data $Is.segmentId;
  parent @1 :Data $Is.segmentId;
  # Null at the root.
  tenant @2 :Text;
  model @3 :Data $Is.digest;
  # Fingerprint.
  adapter @4 :Text;
  begin @5 :UInt32;
  end @6 :UInt32;
  # Token positions on the path.
  root @7 :Data $Is.digest;
  # Digest of the path's root.
  tip @8 :Data $Is.digest;
  # Digest of the path up to `end` (path_tip).
  blocks @9 :Data $Is.array("Digest") $Is.atMost("kPathTokensMax");
  # 32 bytes each: digests of the blocks that end in (begin, end].
  tail @10 :Data $Is.array("TokenId") $Is.atMost("kBlockTokensMax");
  # u32 token ids from the last whole block to `end`.
  recipe @11 :Text $Is.atMost("kRecipeBytesMax");
  # Canonical.
  preset @12 :Text;
  budget @13 :Types.Budget;
  parentRead @14 :Types.Budget $Is.optional;
  # The budget at which the parent was read. Absent: unknown.
  plan @15 :Types.Plan;
  layerBytes @16 :Data $Is.array("std::uint64_t") $Is.atMost("kLayersMax");
  # u64 per layer: bytes of its records.
  originalBytes @17 :UInt64;
  storedBytes @18 :UInt64;
  compressSeconds @19 :Float64;
  createdUnixMs @20 :UInt64;
  hits @21 :UInt64;
  trimmed @22 :Types.Budget $Is.optional;
  # The budget that it was trimmed to; absent if it was never trimmed.
  parentEntries @23 :UInt64;
  # How many of its parents' entries its KV was computed over; 0: unknown.
  lastUsedUnixMs @24 :UInt64;
  # When a lookup or get last found it; 0: never. Written with later changes, as `hits` is.
  wholeEntries @25 :UInt64;
  wholeBegin @26 :UInt32;
  wholeEnd @27 :UInt32;
  # Only for a part of a split segment, else 0: the entries that the whole segment would store at
  # this part's budget, and the whole segment's tokens. A reader's budget is for the whole
  # segment, and is read from the part in proportion. A consolidated segment is its own whole: its
  # entries are those of its former links, and differ in number from wholeEntries by rounding.
  priority @28 :UInt32 = 50 $Is.atMost("kPriorityMax");
  ttlSeconds @29 :UInt64 $Is.atMost("kHintSecondsMax");
  expectedUnixMs @30 :UInt64;
  # Its users set these three by hints (types.capnp). expectedUnixMs: until then it counts as about
  # to be used; 0: it does not.
  former @31 :Data $Is.array("SegmentId") $Is.atMost("kFormerIdsMax");
  # 16 bytes each: ids of the segments that were consolidated into it, the newest last. They
  # still name it.
  prefillSeconds @32 :Float64;
  # How long the prefill of its tokens took, as its put said. 0: unknown.
  encoding @33 :Types.Encoding;
  # The form of the rows of its records, as its recipe says.
  shard @34 :UInt32 = 0xffffffff $Is.atMost("kShards - 1") $Is.optional;
  # In a cluster, the shard that it was put to. Its chain is in the same shard.
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
  model @1 :Data $Is.digest $Is.optional;
  # Absent: the tenant's global scope.
  recipe @2 :Text $Is.atMost("kRecipeBytesMax");
  # Empty: this scope sets none.
  keep @3 :Types.Budget $Is.optional;
  # Absent: this scope sets none.
  version @4 :UInt64;
  setUnixMs @5 :UInt64;
  limit @6 :Types.Budget $Is.optional;
  session @7 :Text;
  # This session's scope; then the row has no model. Empty: it is no session's.
}

struct StoredProjection {
  # One layer's output projection [num_q_heads, head_dim, width], and the Gram matrix W W^T of each
  # query head, f32. Both are payload, under projection_id() of block_digest.h.
  tenant @0 :Text;
  model @1 :Data $Is.digest;
  layer @2 :UInt32 $Is.atMost("kLayersMax - 1");
  width @3 :UInt32 $Is.atMost("kHiddenMax");
  dtype @4 :Types.Dtype;
  weightsBytes @5 :UInt64;
  gramsBytes @6 :UInt64;
  weights @7 :Data $Is.digest;
  grams @8 :Data $Is.digest;
  # SHA-256 of the payload.
}

struct StoredProfile {
  tenant @0 :Text;
  json @1 :Text $Is.atMost("kProfileBytesMax");
  addedUnixMs @2 :UInt64;
}

struct StoredRevision {
  tenant @0 :Text;
  revision @1 :Types.BudgetRevision;
}

struct StoredToken {
  text @0 :Text $Is.atMost("kCredentialBytesMax");
  madeUnixMs @1 :UInt64;
}

struct StoredTenant $Is.checked {
  # A tenant that an admin added. Both sides of a login prove that they know the token itself, so it
  # is stored as it is.
  name @0 :Text;
  role @1 :Text;
  weight @2 :UInt32;
  salt @3 :Text;
  tokens @4 :List(StoredToken) $Is.atMost("kTokensPerTenantMax");
  # The newest first. At least one, and none is empty: a tenant without a token admits everybody.
  maxDiskBytes @5 :UInt64;
  maxMemoryBytes @6 :UInt64;
  maxPuts @7 :UInt32;
  maxRequestsPerS @8 :UInt32;
  # 0: no limit.
  addedUnixMs @9 :UInt64;
}
