# The control protocol, told in order. Conventions (digests, arrays, names): types.capnp.
#
# 1. The two sides meet by frames of their own (precis/greeting.h), which fix the protocol version
#    and the tenant for the connection's life. Nothing of this file is parsed before that.
# 2. From then on the client sends Requests, as many at a time as it likes (up to a limit), each
#    with an id that it does not use again while the request is unanswered. The server answers every
#    Request with exactly one Reply of the same id, in any order. On failure Reply.code is not ok
#    and Reply.body is done. A service that has too much to do answers rejected, and when to try
#    again (retryAfterMs); it has done nothing of such a Request then.
# 3. A put: BeginPut says which tokens and gets a put handle and the token range whose KV is wanted.
#    PushLayer, any number per layer and in any order, names client memory that holds a piece of a
#    layer; the server pulls it and then replies, after which the client may reuse that memory.
#    CommitPut makes the segment visible, at once and whole, when it is as durable as asked;
#    AbortPut, or the end of the connection, leaves no trace of it.
# 4. A get: Lookup names the longest stored prefix of a token path and its price, and, where it is
#    given a budget, what of it a reader gets. Get names the links of that prefix, a budget or what
#    was counted, and client memory. The server pushes each layer into that memory
#    and sends one LayerServed when the layer is in place, then the Reply. Cancel ends a Get early;
#    both requests are answered.
# 5. Everything else is one Request and one Reply: models with their projections and profiles,
#    sessions, prefixes, budgets, counters.
#
# Bulk bytes are never in messages. The server drives every transfer, between memory that the client
# exposed (RemoteRegion) and its own; no client ever holds a key to server memory.
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
  # Client memory that the server may pull from or push into while the request is unanswered.
  id @0 :UInt64;
  # Unique in the client's connection.
  address @1 :UInt64;
  sizeBytes @2 :UInt64;
  key @3 :Data;
  # Address and key for RDMA; 0 and empty without.
  buffer @4 :UInt64;
  # The shared memory file that holds the region, from bufferOffset on; 0 for none.
  bufferOffset @5 :UInt64;
  slot @6 :UInt32;
  # Its words in the client's window.
  space @7 :UInt8;
  # 0 host memory, 1 device memory.
}

struct RegisterModel {  # -> ModelRow
  model @0 :Types.ModelSpec;
}

struct ListModels {  # -> Models, a page of them
  after @0 :Data;
  # `next` of the page before; empty: the first page.
}

struct PushProjection {  # -> Done, when it is stored and the memory may be reused
  # One layer's output projection, for recipes that weigh values by what they write. A layer has one
  # for good: pushing the same again is fine, another is invalidArgument.
  model @0 :Data;
  layer @1 :UInt32;
  width @2 :UInt32;
  # Of the hidden state.
  dtype @3 :Types.Dtype;
  weights @4 :RemoteRegion;
  # [num_q_heads, head_dim, width], packed.
}

struct AddProfile {  # -> ProfileRow
  json @0 :Text;
  # As `precis profile build` writes it. It takes the place of one with the same model and name.
}

struct ListProfiles {  # -> Profiles
  model @0 :Data;
  # Absent: of every model.
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
  # LoRA or the like; empty for none.
  tokens @2 :Data;
  # u32, the whole path from the root, the new tokens at its end.
  parentKind @3 :ParentKind;
  parent @4 :Data;
  # Segment id, for parentKind segment.
  recipe @5 :Text;
  # Empty: the budget in force says.
  budget @6 :Types.Budget;
  # Absent: the budget in force says.
  parentRead @7 :Types.Budget;
  # The budget at which the parent was read while this KV was computed; absent: not said.
  writers @8 :UInt32 = 1;
  # Connections that begin this put alike and write it together.

  enum ParentKind {
    auto @0;     # the end of the longest stored proper prefix that suits a reader at parentRead
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
  # From the segment's first token.
  tokenCount @5 :UInt32;
  dtype @6 :Types.Dtype;
  keys @7 :RemoteRegion;
  # [headCount, tokenCount, head_dim]; heads stand keysHeadStride bytes apart, rows are contiguous.
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
  # Absent: none. Of queries to come, f32 [headCount * group, head_dim].
  queryCovariance @16 :RemoteRegion;
  # Absent: none. f32 [headCount * group, head_dim, head_dim].
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
  # Absent, with align 1: what is stored, and nothing is counted. Else the service reads the records
  # and answers what of them a reader gets at this budget, exactly. Segments that were computed over
  # less of their parents than that reader gets are left out.
  align @4 :UInt32 = 1;
  # Every (layer, head) of the prefix gets a multiple of so many entries.
  leaseMs @5 :UInt32;
  # How long what matched can be got, whatever is removed, trimmed or replaced meanwhile; 0: as long
  # as it is stored.
}

struct Get {  # -> LayerServed per layer, then GetDone
  links @0 :List(Link);
  # From the root on, each the parent of the next.
  budget @1 :Types.Budget;
  # All where links have counts.
  destination @2 :RemoteRegion;
  headBegin @3 :UInt32;
  headCount @4 :UInt32;
  # The KV heads that are served; count 0: all from headBegin on.

  struct Link {
    segment @0 :Data;
    matchedEnd @1 :UInt32;
    entries @2 :UInt64;
    # Of a budget of all: those that were matched, where the segment may have been trimmed since.
    # 0: those that are stored. Without meaning where there are counts.
    counts @3 :Data;
    # u32 [numLayers, heads that are served]: so many first entries of each. Empty: by the budget;
    # of all links, or of none.
    createdUnixMs @4 :UInt64;
    storedEntries @5 :UInt64;
    # The segment's, as it was matched: they name what a lease keeps. 0: not said.
  }
}

struct Cancel {  # -> Done
  request @0 :UInt64;
}

struct OpenSession {  # -> SessionRow; finds or makes
  name @0 :Text;
  ttl :union {
    unchanged @1 :Void;
    seconds @2 :UInt64;
    # Set anew; 0 for none.
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

struct ForkSession {  # -> SessionRow of the new one
  name @0 :Text;
  newName @1 :Text;
}

struct ShowSession {  # -> SessionRow
  name @0 :Text;
}

struct ListSessions {  # -> Sessions, a page of them, by name
  after @0 :Data;
  # As ListModels'.
}

struct RemoveSession {  # -> Done
  name @0 :Text;
}

struct ListPrefixes {  # -> Segments, a page of them, the newest first
  model @0 :Data;
  # Absent: of every model.
  limit @1 :UInt32;
  # Rows of the page at most.
  after @2 :Data;
  # As ListModels'.
}

struct FindPrefix {  # -> SegmentInfo without its plan
  idBeginning @0 :Text;
  # Lower-case hexadecimal digits. notFound where no segment's id begins so, invalidArgument with
  # some of them where several do.
}

struct ShowPrefix {  # -> SegmentInfo with its plan
  segment @0 :Data;
}

struct RemovePrefix {  # -> Removed
  segment @0 :Data;
  recursive @1 :Bool;
}

struct CheckPrefix {  # -> Checked, when all of it has been read from the store
  segment @0 :Data;
}

struct TrimPrefix {  # -> Trimmed
  segment @0 :Data;
  budget @1 :Types.Budget;
  # At most what is stored, as for a Get.
  durability @2 :Durability;
  dryRun @3 :Bool;
  # Says what would be, and changes nothing.
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
  # Absent: left as it is. Empty: unset.
  keep @2 :Types.Budget;
  # Absent: left as it is. Kind all: unset.
}

struct GetStats {}  # -> Stats

struct GetStatus {}  # -> ServerStatus

struct Ping {}  # -> Done
# A sign of life. It costs the service next to nothing, whatever it stores.

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
  # Of code rejected: when to try again; 0 where waiting alone does not help.
}

struct LayerServed {
  # One layer of a Get is in place at `offset` of its destination, laid out as served_layout.h says.
  id @0 :UInt64;
  # Of the Get.
  layer @1 :UInt32;
  offset @2 :UInt64;
  counts @3 :Data;
  # u32 [num_links, heads that are served].
  tailChecksums @4 :Data;
  # 16 bytes [num_links, heads that are served]: of the last, partial checksum block of each cut,
  # zero where none.
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
  # Where the next page begins, for `after`; opaque. Empty: this is the last page.
}

struct ProfileRow {
  name @0 :Text;
  kind @1 :Text;
  # "curves" or "weights".
  model @2 :Data;
  scorer @3 :Text;
  # Canonical recipe of the scores it was built over.
  digest @4 :Data;
  numTokens @5 :UInt32;
  # Of the fitting contexts.
  textDigest @6 :Text;
  addedUnixMs @7 :UInt64;
  json @8 :Text;
  # Empty where it was not asked for.
}

struct Profiles {
  rows @0 :List(ProfileRow);
}

struct PutBegun {
  put @0 :UInt64;
  begin @1 :UInt32;
  end @2 :UInt32;
  # The tokens whose KV is to be pushed.
  parent @3 :Data;
  # Segment id, null at the root.
  segment @4 :Data;
  alreadyStored @5 :Bool;
  # Push nothing; CommitPut answers with what is there.
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
  # Absent: not said when it was put.
  entries @10 :UInt64;
  originalBytes @11 :UInt64;
  storedBytes @12 :UInt64;
  compressSeconds @13 :Float64;
  createdUnixMs @14 :UInt64;
  hits @15 :UInt64;
  children @16 :UInt32;
  inMemory @17 :Bool;
  plan @18 :Types.Plan;
  # Absent where it was not asked for.
  trimmed @19 :Types.Budget;
  # What it was trimmed to; absent: it is as it was put.
  outOfService @20 :Bool;
  # Damaged, or standing on what is: not served.
}

struct Segments {
  rows @0 :List(SegmentInfo);
  next @1 :Data;
  # As Models'. A page may have no row and still not be the last one.
}

struct Match {
  matchedTokens @0 :UInt32;
  # 0: nothing, and no links.
  links @1 :List(Link);
  plan @2 :Types.Plan;
  # Added up over the links: what is stored, or, where they have counts, what a reader gets.
  bytes @3 :UInt64;
  predictedSeconds @4 :Float64;
  leaseMs @5 :UInt32;
  # That were granted; 0: none.

  struct Link {
    segment @0 :SegmentInfo;
    matchedEnd @1 :UInt32;
    counts @2 :Data;
    # u32 [numLayers, numKvHeads]: first entries to be served of each; empty unless the lookup had a
    # budget or an alignment.
  }
}

struct PassedMatch {
  # A match as one client hands it to another: no message of the protocol.
  version @0 :UInt32;
  # 1.
  match @1 :Match;
  model @2 :Types.ModelSpec;
  fingerprint @3 :Data;
  adapter @4 :Text;
  keep @5 :Types.Budget;
  align @6 :UInt32 = 1;
  # Of the lookup.
  tokens @7 :Data;
  # u32, those that matched; empty: not said.
}

struct GetDone {
  bytes @0 :UInt64;
}

struct Sessions {
  rows @0 :List(Types.SessionRow);
  next @1 :Data;
  # As Models'.
}

struct Removed {
  segments @0 :UInt64;
  bytes @1 :UInt64;
}

struct Checked {
  bytes @0 :UInt64;
  # That were read and are as they were written.
  damage @1 :Text;
  # What is not; the segment is out of service. Empty: nothing.
}

struct Trimmed {
  entries @0 :UInt64;
  storedBytes @1 :UInt64;
  # Of the segment now.
  freedBytes @2 :UInt64;
}

struct Budgets {
  layers @0 :List(Row);
  # Widest first.
  effective @1 :Row;

  struct Row {
    scope @0 :Text;
    # "built-in", "config", "global", or "model NAME".
    recipe @1 :Text;
    # Empty: says nothing.
    keep @2 :Types.Budget;
    # Absent: says nothing.
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
  segmentsOutOfService @12 :UInt64;  # damaged, or standing on what is
  diskFreeBytes @13 :UInt64;
  diskMinFreeBytes @14 :UInt64;  # puts that would leave less are refused
  diskFault @15 :Text;           # why changes fail until an operator acts
  rdma @16 :Text;                # the service's RDMA device in words, or "off"
  exposed @17 :Text;             # why others on the network may read or change what is stored
  doubtfulRecovery @18 :Bool;    # acknowledged changes are missing, or may be
  lostChanges @19 :UInt64;       # 0 where that is not known
  keptBytes @20 :UInt64;         # of payload that no row means, kept for them
  keptLogBytes @21 :UInt64;      # of logs from before the recovery
  diskLow @22 :Bool;             # puts are being refused for want of space
}
