# The control protocol in order. Conventions (digests, arrays, names): types.capnp.
#
# 1. Client and server greet each other with frames of their own format (precis/greeting.h). These
#    fix the protocol version and the tenant for the life of the connection. No message of this file
#    is parsed before that.
# 2. Then the client sends Requests, several at a time up to a limit. Each has an id that no
#    unanswered request of the connection has. The server answers every Request with exactly one
#    Reply of the same id, in any order. On failure Reply.code is not ok and Reply.body is done. An
#    overloaded service answers rejected and tells when to retry (retryAfterMs); the rejected
#    Request has had no effect.
# 3. A put: BeginPut sends the token path. Its reply has a put handle and the token range whose KV
#    the server needs. PushLayer names client memory with a piece of a layer, any number of pieces
#    per layer in any order. The server pulls the piece and replies; then the client may reuse that
#    memory. CommitPut makes the whole segment visible at once, when it is as durable as requested.
#    AbortPut, or the end of the connection, discards the put without a trace.
# 4. A get: Lookup finds the longest stored prefix of a token path and its price. If the Lookup has
#    a budget, the match also has the exact counts of entries that a reader gets. Get names the
#    links of that prefix, a budget or those counts, and client memory. The server pushes each layer
#    into that memory and sends one LayerServed when the layer is in place, then the Reply. Cancel
#    ends a Get early; both requests are answered.
# 5. Everything else is one Request and one Reply: models with their projections and profiles,
#    sessions, prefixes, budgets, counters.
#
# Messages never carry bulk bytes. The server drives every transfer between its own memory and
# memory that the client exposed (RemoteRegion). A client never holds a key to server memory.
@0xdb9cae275b53faa5;

using Cxx = import "/capnp/c++.capnp";
using Types = import "types.capnp";
$Cxx.namespace("precis::wire");

# ---- requests ----------------------------------------------------------------------------------

struct Request {
  id @0 :UInt64;
  union {
    registerModel @1 :RegisterModel;
    listModels @2 :ListModels;
    beginPut @3 :BeginPut;
    pushLayer @4 :PushLayer;
    commitPut @5 :CommitPut;
    abortPut @6 :AbortPut;
    lookup @7 :Lookup;
    get @8 :Get;
    cancel @9 :Cancel;
    openSession @10 :OpenSession;
    advanceSession @11 :AdvanceSession;
    pinSession @12 :PinSession;
    forkSession @13 :ForkSession;
    showSession @14 :ShowSession;
    listSessions @15 :ListSessions;
    removeSession @16 :RemoveSession;
    listPrefixes @17 :ListPrefixes;
    showPrefix @18 :ShowPrefix;
    removePrefix @19 :RemovePrefix;
    showBudget @20 :ShowBudget;
    setBudget @21 :SetBudget;
    getStats @22 :GetStats;
    getStatus @23 :GetStatus;
    pushProjection @24 :PushProjection;
    addProfile @25 :AddProfile;
    listProfiles @26 :ListProfiles;
    showProfile @27 :ShowProfile;
    removeProfile @28 :RemoveProfile;
    checkPrefix @29 :CheckPrefix;
    trimPrefix @30 :TrimPrefix;
    ping @31 :Ping;
    findPrefix @32 :FindPrefix;
  }
}

struct RemoteRegion {
  # Client memory. The server may pull from it or push into it while the request is unanswered.
  id @0 :UInt64;
  # Unique within the connection.
  address @1 :UInt64;
  sizeBytes @2 :UInt64;
  key @3 :Data;
  # Address and key for RDMA; otherwise 0 and empty.
  buffer @4 :UInt64;
  # The shared memory file that holds the region, from bufferOffset on; 0: none.
  bufferOffset @5 :UInt64;
  slot @6 :UInt32;
  # Index of its words in the client's window.
  space @7 :UInt8;
  # 0 host memory, 1 device memory.
}

struct RegisterModel {  # -> ModelRow
  model @0 :Types.ModelSpec;
}

struct ListModels {  # -> Models: one page
  after @0 :Data;
  # `next` of the page before; empty for the first page.
}

struct PushProjection {  # -> Done, when the projection is stored and the memory may be reused
  # One layer's output projection, for recipes that weigh values by their contribution to the
  # output. A layer's projection never changes: pushing an equal one again is fine, another is
  # invalidArgument.
  model @0 :Data;
  layer @1 :UInt32;
  width @2 :UInt32;
  # Width of the hidden state.
  dtype @3 :Types.Dtype;
  weights @4 :RemoteRegion;
  # [num_q_heads, head_dim, width], packed.
}

struct AddProfile {  # -> ProfileRow
  json @0 :Text;
  # As `precis profile build` writes it. Replaces a profile with the same model and name.
}

struct ListProfiles {  # -> Profiles
  model @0 :Data;
  # Absent: profiles of every model.
}

struct ShowProfile {  # -> ProfileRow with its JSON
  model @0 :Data;
  name @1 :Text;
}

struct RemoveProfile {  # -> Done
  model @0 :Data;
  name @1 :Text;
}

struct BeginPut {  # -> PutBegun
  model @0 :Data;
  # Fingerprint of a registered model.
  adapter @1 :Text;
  # LoRA or a similar adapter; empty for none.
  tokens @2 :Data;
  # u32: the whole path from the root, ending with the new tokens.
  parentKind @3 :ParentKind;
  parent @4 :Data;
  # Segment id, for parentKind segment.
  recipe @5 :Text;
  # Empty: the recipe of the budget in force.
  budget @6 :Types.Budget;
  # Absent: the budget in force.
  parentRead @7 :Types.Budget;
  # The budget at which the parent was read when this KV was computed; absent: unknown.
  writers @8 :UInt32 = 1;
  # Connections that write this put together. Each begins the put with equal fields.

  enum ParentKind {
    auto @0;     # the end of the longest stored proper prefix that serves a reader at parentRead
    root @1;
    segment @2;
  }
}

struct PushLayer {  # -> Done, when the memory may be reused
  put @0 :UInt64;
  layer @1 :UInt32;
  headBegin @2 :UInt32;
  headCount @3 :UInt32;
  tokenBegin @4 :UInt32;
  # Relative to the segment's first token.
  tokenCount @5 :UInt32;
  dtype @6 :Types.Dtype;
  keys @7 :RemoteRegion;
  # [headCount, tokenCount, head_dim]. Heads start every keysHeadStride bytes; rows are contiguous.
  values @8 :RemoteRegion;
  keysHeadStride @9 :UInt64;
  valuesHeadStride @10 :UInt64;
  numQueries @11 :UInt32;
  queries @12 :RemoteRegion;
  # Absent: none. [headCount * group, numQueries, head_dim], packed.
  lse @13 :RemoteRegion;
  # Absent: none. f32 [headCount * group, numQueries].
  scores @14 :RemoteRegion;
  # Absent: none. f32 [headCount, tokenCount], for external scorers.
  queryMean @15 :RemoteRegion;
  # Absent: none. Mean of future queries, f32 [headCount * group, head_dim].
  queryCovariance @16 :RemoteRegion;
  # Absent: none. Their covariance, f32 [headCount * group, head_dim, head_dim].
}

struct CommitPut {  # -> SegmentInfo with its plan
  put @0 :UInt64;
  durability @1 :Durability;
}

enum Durability {
  memory @0;
  wal @1;
  fsync @2;
}

struct AbortPut {  # -> Done
  put @0 :UInt64;
}

struct Lookup {  # -> Match
  model @0 :Data;
  adapter @1 :Text;
  tokens @2 :Data;
  keep @3 :Types.Budget;
  # Absent, with align 1: the match reports the stored entries, without counts. Otherwise the
  # service reads the records and the match has the exact counts of entries that a reader at this
  # budget gets. Segments computed over less of their parents than this reader gets do not match.
  align @4 :UInt32 = 1;
  # Entries per page: the count of every (layer, head) of the prefix is a multiple of it.
  leaseMs @5 :UInt32;
  # How long a get of the match works even if its segments are removed, trimmed or replaced
  # meanwhile; 0: only while they are stored.
}

struct Get {  # -> LayerServed per layer, then GetDone
  links @0 :List(Link);
  # Links from the root on; each is the parent of the next.
  budget @1 :Types.Budget;
  # Kind all if the links have counts.
  destination @2 :RemoteRegion;
  headBegin @3 :UInt32;
  headCount @4 :UInt32;
  # The KV heads to serve. headCount 0: all from headBegin on.

  struct Link {
    segment @0 :Data;
    matchedEnd @1 :UInt32;
    entries @2 :UInt64;
    # For budget kind all: the number of entries that matched, because the segment may have been
    # trimmed since. 0: all stored entries. Unused with counts.
    counts @3 :Data;
    # u32 [numLayers, heads to serve]: serve this many first entries of each. Empty: the budget
    # decides. Either all links have counts or none.
    createdUnixMs @4 :UInt64;
    storedEntries @5 :UInt64;
    # Both as in the match: they identify the segment that a lease keeps. 0: unknown.
  }
}

struct Cancel {  # -> Done
  request @0 :UInt64;
}

struct OpenSession {  # -> SessionRow; finds or creates the session
  name @0 :Text;
  ttl :union {
    unchanged @1 :Void;
    seconds @2 :UInt64;
    # Sets a new TTL; 0: none.
  }
}

struct AdvanceSession {  # -> SessionRow
  name @0 :Text;
  tip @1 :Data;
}

struct PinSession {  # -> SessionRow
  name @0 :Text;
  pinned @1 :Bool;
}

struct ForkSession {  # -> SessionRow of the new session
  name @0 :Text;
  newName @1 :Text;
}

struct ShowSession {  # -> SessionRow
  name @0 :Text;
}

struct ListSessions {  # -> Sessions: one page, by name
  after @0 :Data;
  # As in ListModels.
}

struct RemoveSession {  # -> Done
  name @0 :Text;
}

struct ListPrefixes {  # -> Segments: one page, newest first
  model @0 :Data;
  # Absent: segments of every model.
  limit @1 :UInt32;
  # The most rows of the page.
  after @2 :Data;
  # As in ListModels.
}

struct FindPrefix {  # -> SegmentInfo without its plan
  idBeginning @0 :Text;
  # Lower-case hexadecimal digits. notFound if no segment's id begins with them; invalidArgument,
  # listing some, if several ids do.
}

struct ShowPrefix {  # -> SegmentInfo with its plan
  segment @0 :Data;
}

struct RemovePrefix {  # -> Removed
  segment @0 :Data;
  recursive @1 :Bool;
}

struct CheckPrefix {  # -> Checked, after all of the segment was read from the store
  segment @0 :Data;
}

struct TrimPrefix {  # -> Trimmed
  segment @0 :Data;
  budget @1 :Types.Budget;
  # At most the stored budget, as in a Get.
  durability @2 :Durability;
  dryRun @3 :Bool;
  # Reports the result without changing anything.
}

struct BudgetScope {
  model @0 :Data;
  # Absent: the tenant's global scope.
}

struct ShowBudget {  # -> Budgets
  scope @0 :BudgetScope;
}

struct SetBudget {  # -> Budgets
  scope @0 :BudgetScope;
  recipe @1 :Text;
  # Absent: no change. Empty: remove the setting.
  keep @2 :Types.Budget;
  # Absent: no change. Kind all: remove the setting.
}

struct GetStats {}  # -> Stats

struct GetStatus {}  # -> ServerStatus

struct Ping {}  # -> Done
# Shows that the client is alive. Costs the service almost nothing, however much it stores.

# ---- replies -----------------------------------------------------------------------------------

enum StatusCode {
  ok @0;
  notFound @1;
  invalidArgument @2;
  permissionDenied @3;
  rejected @4;
  outOfSpace @5;
  timedOut @6;
  unavailable @7;
  corruption @8;
  versionMismatch @9;
  unsupported @10;
  canceled @11;
  internal @12;
}

struct ServerMessage {
  union {
    reply @0 :Reply;
    layerServed @1 :LayerServed;
  }
}

struct Reply {
  id @0 :UInt64;
  code @1 :StatusCode;
  message @2 :Text;
  body :union {
    done @3 :Done;
    modelRow @4 :ModelRow;
    models @5 :Models;
    putBegun @6 :PutBegun;
    segmentInfo @7 :SegmentInfo;
    segments @8 :Segments;
    match @9 :Match;
    getDone @10 :GetDone;
    sessionRow @11 :Types.SessionRow;
    sessions @12 :Sessions;
    removed @13 :Removed;
    budgets @14 :Budgets;
    stats @15 :Stats;
    serverStatus @16 :ServerStatus;
    profileRow @17 :ProfileRow;
    profiles @18 :Profiles;
    checked @19 :Checked;
    trimmed @20 :Trimmed;
  }
  retryAfterMs @21 :UInt32;
  # For code rejected: milliseconds until a retry may succeed; 0: waiting alone does not help.
}

struct LayerServed {
  # One layer of a Get is in place at `offset` of the destination, in the layout of served_layout.h.
  id @0 :UInt64;
  # Id of the Get.
  layer @1 :UInt32;
  offset @2 :UInt64;
  counts @3 :Data;
  # u32 [num_links, served heads].
  tailChecksums @4 :Data;
  # 16 bytes [num_links, served heads]: checksum of the last, partial block of each cut; zero if the
  # cut has none.
}

struct Done {}

struct ModelRow {
  model @0 :Types.ModelSpec;
  fingerprint @1 :Data;
  segments @2 :UInt64;
  projections @3 :UInt32;
  # Layers whose output projection is stored.
}

struct Models {
  rows @0 :List(ModelRow);
  next @1 :Data;
  # Position of the next page, for `after`; opaque. Empty: this is the last page.
}

struct ProfileRow {
  name @0 :Text;
  kind @1 :Text;
  # "curves" or "weights".
  model @2 :Data;
  scorer @3 :Text;
  # Canonical recipe of the scores that it was built over.
  digest @4 :Data;
  numTokens @5 :UInt32;
  # Tokens of the fitting contexts.
  textDigest @6 :Text;
  addedUnixMs @7 :UInt64;
  json @8 :Text;
  # Empty unless requested.
}

struct Profiles {
  rows @0 :List(ProfileRow);
}

struct PutBegun {
  put @0 :UInt64;
  begin @1 :UInt32;
  end @2 :UInt32;
  # The range of tokens whose KV is to be pushed.
  parent @3 :Data;
  # Segment id, null at the root.
  segment @4 :Data;
  alreadyStored @5 :Bool;
  # Push nothing: CommitPut answers with the stored segment.
  recipe @6 :Text;
  # Canonical.
  entries @7 :UInt64;
}

struct SegmentInfo {
  id @0 :Data;
  parent @1 :Data;
  model @2 :Data;
  adapter @3 :Text;
  begin @4 :UInt32;
  end @5 :UInt32;
  recipe @6 :Text;
  # Canonical.
  preset @7 :Text;
  budget @8 :Types.Budget;
  parentRead @9 :Types.Budget;
  # Absent: unknown.
  entries @10 :UInt64;
  originalBytes @11 :UInt64;
  storedBytes @12 :UInt64;
  compressSeconds @13 :Float64;
  createdUnixMs @14 :UInt64;
  hits @15 :UInt64;
  children @16 :UInt32;
  inMemory @17 :Bool;
  plan @18 :Types.Plan;
  # Absent unless requested.
  trimmed @19 :Types.Budget;
  # The budget it was trimmed to; absent: never trimmed.
  outOfService @20 :Bool;
  # The segment or one of its ancestors is damaged: it is not served.
}

struct Segments {
  rows @0 :List(SegmentInfo);
  next @1 :Data;
  # As in Models. A page without rows may still not be the last one.
}

struct Match {
  matchedTokens @0 :UInt32;
  # 0: no match, and no links.
  links @1 :List(Link);
  plan @2 :Types.Plan;
  # Sum over the links: the stored entries, or with counts, the entries that a reader gets.
  bytes @3 :UInt64;
  predictedSeconds @4 :Float64;
  leaseMs @5 :UInt32;
  # Granted duration of the lease; 0: none.

  struct Link {
    segment @0 :SegmentInfo;
    matchedEnd @1 :UInt32;
    counts @2 :Data;
    # u32 [numLayers, numKvHeads]: the number of first entries of each that a get serves. Empty
    # unless the lookup had a budget or an alignment.
  }
}

struct PassedMatch {
  # A match that one client passes to another. Not a message of the protocol.
  version @0 :UInt32;
  # Always 1.
  match @1 :Match;
  model @2 :Types.ModelSpec;
  fingerprint @3 :Data;
  adapter @4 :Text;
  keep @5 :Types.Budget;
  align @6 :UInt32 = 1;
  # keep and align of the lookup.
  tokens @7 :Data;
  # u32: the tokens that matched; empty: not included.
}

struct GetDone {
  bytes @0 :UInt64;
}

struct Sessions {
  rows @0 :List(Types.SessionRow);
  next @1 :Data;
  # As in Models.
}

struct Removed {
  segments @0 :UInt64;
  bytes @1 :UInt64;
}

struct Checked {
  bytes @0 :UInt64;
  # Bytes that were read and are intact.
  damage @1 :Text;
  # The damage found; the segment is then out of service. Empty: no damage.
}

struct Trimmed {
  entries @0 :UInt64;
  storedBytes @1 :UInt64;
  # Of the trimmed segment.
  freedBytes @2 :UInt64;
}

struct Budgets {
  layers @0 :List(Row);
  # From the widest scope to the narrowest.
  effective @1 :Row;

  struct Row {
    scope @0 :Text;
    # "built-in", "config", "global", or "model NAME".
    recipe @1 :Text;
    # Empty: this scope sets no recipe.
    keep @2 :Types.Budget;
    # Absent: this scope sets no budget.
    version @3 :UInt64;
    setUnixMs @4 :UInt64;
  }
}

struct Stats {
  rows @0 :List(Stat);

  struct Stat {
    name @0 :Text;
    value @1 :Float64;
    help @2 :Text;
  }
}

struct ServerStatus {
  server @0 :Text;
  tenant @1 :Text;
  dataDir @2 :Text;
  transport @3 :Text;
  device @4 :Text;
  uptimeSeconds @5 :Float64;
  segments @6 :UInt64;
  sessions @7 :UInt64;
  models @8 :UInt64;
  storedBytes @9 :UInt64;
  memoryBytes @10 :UInt64;
  memoryLimitBytes @11 :UInt64;
  segmentsOutOfService @12 :UInt64;  # damaged, or with a damaged ancestor
  diskFreeBytes @13 :UInt64;
  diskMinFreeBytes @14 :UInt64;  # a put that would leave less free space is refused
  diskFault @15 :Text;           # why changes fail until an operator acts; empty: no fault
  rdma @16 :Text;                # the service's RDMA device in words, or "off"
  exposed @17 :Text;             # why others on the network may access stored data; empty: no
  doubtfulRecovery @18 :Bool;    # acknowledged changes are missing or may be missing
  lostChanges @19 :UInt64;       # 0: unknown
  keptBytes @20 :UInt64;         # payload without a row, kept because of missing changes
  keptLogBytes @21 :UInt64;      # logs from before the recovery, kept as well
  diskLow @22 :Bool;             # puts are refused for lack of space
}
