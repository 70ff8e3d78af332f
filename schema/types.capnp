# Types that messages and stored rows share (schema/include/precis/types.h defines their meaning).
#
# Conventions of all schemas of this project:
#   - A digest is Data of exactly 32 bytes, a segment id Data of exactly 16 (all zero: no segment).
#   - Arrays of numbers (token ids, counts, byte counts) are Data of little-endian integers, so that
#     a million of them are one copy.
#   - If a field's comment says "absent: ...", the field's pointer may be null. In other fields null
#     reads as empty.
#   - An enum value that is not listed here is refused. Values equal those of the C++ enums.
#   - Texts are UTF-8. Names have at most 256 bytes and no control characters. The other maxima are
#     in schema/include/precis/limits.h.
@0xcdf864e64d67a438;

using Cxx = import "/capnp/c++.capnp";
using Is = import "rules.capnp";
$Cxx.namespace("precis::wire");
$Is.cxxNamespace("precis::msg");

enum Dtype $Is.byHand("types.h") {
  unset @0;
  bf16 @1;
  f16 @2;
  f32 @3;
  f8E4m3 @4;
}

enum Encoding $Is.byHand("entry_form.h") {
  raw @0;
  int8 @1;
  int4 @2;
  k8v4 @3;
  k6v4 @4;
}

struct ModelSpec $Is.byHand("types.h") $Is.checked {
  name @0 :Text;
  revision @1 :Text;
  numLayers @2 :UInt32;
  numQHeads @3 :UInt32;
  numKvHeads @4 :UInt32;
  headDim @5 :UInt32;
  dtype @6 :Dtype;
  ropeTheta @7 :Float64;
  ropeScaling @8 :Text $Is.atMost("kRopeScalingBytesMax");
  # Canonical JSON, empty for none.
  blockTokens @9 :UInt32;
  windows @10 :Data $Is.array("std::uint32_t") $Is.atMost("kLayersMax");
  # The sliding window of each layer in tokens, 0 for none. Empty: no layer has one.
}

struct Budget $Is.byHand("types.h") {
  enum Kind {
    all @0;
    ratio @1;
    entries @2;
    bytes @3;
    scoreMass @4;
    byteShare @5;
    loss @6;
  }
  kind @0 :Kind;
  value @1 :UInt64;
  # ratio: parts per million; entries: entries per head on average; bytes: bytes of the segment;
  # scoreMass: of earlier builds, a share of the score mass + 2^32 x cap, in parts per million;
  # byteShare: parts per million of the bytes of the full K and V; loss: in millionths.
}

struct Plan $Is.byHand("types.h") $Is.checked {
  numLayers @0 :UInt32 $Is.atMost("kLayersMax");
  numKvHeads @1 :UInt32 $Is.atMost("kKvHeadsMax");
  counts @2 :Data $Is.array("std::uint32_t") $Is.atMost("kSegmentHeadsMax");
  # u32 [numLayers, numKvHeads], row major.
}

struct SessionRow {
  name @0 :Text;
  tip @1 :Data $Is.segmentId;
  # Null before the first turn.
  tipEnd @2 :UInt32 $Is.atMost("kPathTokensMax");
  turns @3 :UInt32;
  ttlSeconds @4 :UInt64;
  # 0: it never expires.
  expiresUnixMs @5 :UInt64;
  # 0: never.
  pinned @6 :Bool;
  updatedUnixMs @7 :UInt64;
  total @8 :Budget $Is.optional;
  # The most that its segments may take together: bytes, or a ratio of their full KV. Absent: no
  # limit.
  shard @9 :UInt32 = 0xffffffff $Is.atMost("kShards - 1") $Is.optional;
  # In a cluster, the shard of its name.
}

struct Hints {
  # A user's knowledge of the future of a segment. Absent: the segment keeps the value that it has.
  priority @0 :UInt32 = 0xffffffff $Is.atMost("kPriorityMax") $Is.optional;
  # Among the segments of its tenant: the larger, the longer it is kept.
  ttlSeconds @1 :UInt64 = 0xffffffffffffffff $Is.atMost("kHintSecondsMax") $Is.optional;
  # After this time without use, the segment loses half of its worth in each further such time. 0:
  # it does not.
  expectReuseInSeconds @2 :UInt64 = 0xffffffffffffffff $Is.atMost("kHintSecondsMax") $Is.optional;
  # For this long from now on, the segment counts as about to be used. 0: it does not.
}

struct BudgetScope {
  # Defaults for puts that name no recipe or no budget, and the limit of all puts. The narrowest
  # scope that sets one applies: for defaults the request, then the session, then the model, then
  # the tenant's global scope.
  model @0 :Data $Is.digest $Is.optional;
  # Absent, and no session: the tenant's global scope.
  session @1 :Text;
  # Empty: no session. A change of a session's scope names no model. ShowBudget may name both, for
  # the puts of that model that name that session.
}

struct BudgetValues {
  recipe @0 :Text $Is.atMost("kRecipeBytesMax");
  # Empty: the scope sets none.
  keep @1 :Budget $Is.optional;
  limit @2 :Budget $Is.optional;
  # Absent: the scope sets none.
}

struct BudgetChange {
  scope @0 :BudgetScope;
  before @1 :BudgetValues;
  after @2 :BudgetValues;
}

struct BudgetRevision {
  number @0 :UInt64;
  # From 1 for each tenant.
  setUnixMs @1 :UInt64;
  user @2 :Text;
  # As the client named itself; nothing checks it.
  comment @3 :Text $Is.atMost("kCommentBytesMax");
  rollbackTo @4 :UInt64 = 0xffffffffffffffff $Is.optional;
  # The revision that it restored. Absent: it is not a rollback.
  changes @5 :List(BudgetChange) $Is.atMost("kListPageRowsMax");
  application @6 :UInt64;
  # Only in an answer: the number of the application (BudgetApplication) that the rollback began.
}
