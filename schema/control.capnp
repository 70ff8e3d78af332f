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
# 4. A get: Lookup finds the longest stored prefix of a token path, and the bytes and seconds that a
#    get of it takes. If the Lookup has a budget, the match also has the exact counts of entries
#    that a reader gets. Get names the links of that prefix, a budget or those counts, and client
#    memory. The server pushes each layer into that memory and sends one LayerServed when the layer
#    is in place, then the Reply. Cancel ends a Get early; both requests are answered.
# 5. Everything else is one Request and one Reply: models with their projections and profiles,
#    sessions, prefixes, budgets, counters, tenants.
# 6. A tenant has a role. A request whose role is higher is answered with permissionDenied.
#
# Messages never carry bulk bytes. The server drives every transfer between its own memory and
# memory that the client exposed (RemoteRegion). A client never holds a key to server memory.
@0xdb9cae275b53faa5;

using Cxx = import "/capnp/c++.capnp";
using Is = import "rules.capnp";
using Types = import "types.capnp";
$Cxx.namespace("precis::wire");
$Is.cxxNamespace("precis::msg");

# ---- requests ----------------------------------------------------------------------------------

struct Request {
  id @0 :UInt64;
  union {
    registerModel @1 :RegisterModel $Is.role("reader") $Is.call("register_model");
    listModels @2 :ListModels $Is.role("reader") $Is.call("models");
    beginPut @3 :BeginPut $Is.call("begin_put");
    pushLayer @4 :PushLayer $Is.call("layer");
    commitPut @5 :CommitPut $Is.call("commit");
    abortPut @6 :AbortPut $Is.call("abort");
    lookup @7 :Lookup $Is.role("reader") $Is.call("lookup");
    get @8 :Get $Is.role("reader") $Is.call("get");
    cancel @9 :Cancel $Is.role("reader") $Is.call("cancel");
    openSession @10 :OpenSession $Is.call("open_session");
    advanceSession @11 :AdvanceSession $Is.call("advance_session");
    pinSession @12 :PinSession $Is.call("pin_session") $Is.administrative;
    forkSession @13 :ForkSession $Is.call("fork_session");
    showSession @14 :ShowSession $Is.role("reader") $Is.call("session");
    listSessions @15 :ListSessions $Is.role("reader") $Is.call("sessions");
    removeSession @16 :RemoveSession $Is.call("remove_session") $Is.administrative;
    listPrefixes @17 :ListPrefixes $Is.role("reader") $Is.call("segments");
    showPrefix @18 :ShowPrefix $Is.role("reader") $Is.call("segment");
    removePrefix @19 :RemovePrefix $Is.call("remove_segment") $Is.administrative;
    showBudget @20 :ShowBudget $Is.role("reader") $Is.call("budgets");
    setBudget @21 :SetBudget $Is.call("set_budget") $Is.administrative;
    getStats @22 :GetStats $Is.role("reader") $Is.call("stats");
    getStatus @23 :GetStatus $Is.role("reader") $Is.call("status");
    pushProjection @24 :PushProjection $Is.call("o_proj");
    addProfile @25 :AddProfile $Is.call("add_profile") $Is.administrative;
    listProfiles @26 :ListProfiles $Is.role("reader") $Is.call("profiles");
    showProfile @27 :ShowProfile $Is.role("reader") $Is.call("profile");
    removeProfile @28 :RemoveProfile $Is.call("remove_profile") $Is.administrative;
    checkPrefix @29 :CheckPrefix $Is.role("reader") $Is.call("check_segment");
    trimPrefix @30 :TrimPrefix $Is.call("trim_segment") $Is.administrative;
    ping @31 :Ping $Is.role("reader") $Is.call("ping");
    findPrefix @32 :FindPrefix $Is.role("reader") $Is.call("find_segment");
    removeModel @33 :RemoveModel $Is.call("remove_model") $Is.administrative;
    listBudgetRevisions @34 :ListBudgetRevisions $Is.role("reader") $Is.call("budget_revisions");
    rollBackBudget @35 :RollBackBudget $Is.call("roll_back_budget") $Is.administrative;
    listEvents @36 :ListEvents $Is.role("reader") $Is.call("events");
    addTenant @37 :AddTenant $Is.role("admin") $Is.call("add_tenant") $Is.administrative;
    listTenants @38 :ListTenants $Is.role("admin") $Is.call("tenants");
    showTenant @39 :ShowTenant $Is.role("admin") $Is.call("tenant");
    changeTenant @40 :ChangeTenant $Is.role("admin") $Is.call("change_tenant") $Is.administrative;
    rotateToken @41 :RotateToken $Is.role("admin") $Is.call("rotate_token") $Is.administrative;
    removeTenant @42 :RemoveTenant $Is.role("admin") $Is.call("remove_tenant") $Is.administrative;
    startBackup @43 :StartBackup $Is.role("admin") $Is.call("start_backup") $Is.administrative;
    listBackups @44 :ListBackups $Is.role("admin") $Is.call("backups");
    showBackup @45 :ShowBackup $Is.role("admin") $Is.call("backup");
    cancelBackup @46 :CancelBackup $Is.role("admin") $Is.call("cancel_backup") $Is.administrative;
    setRetention @47 :SetRetention $Is.call("set_retention") $Is.administrative;
    showApplication @48 :ShowApplication $Is.role("reader") $Is.call("application");
    cancelApplication @49 :CancelApplication $Is.call("cancel_application") $Is.administrative;
    compareBudgets @50 :CompareBudgets $Is.role("reader") $Is.call("compare_budgets");
    showCluster @51 :ShowCluster $Is.role("reader") $Is.call("cluster");
    drainNode @52 :DrainNode $Is.role("admin") $Is.call("drain_node") $Is.administrative;
  }
}

struct RemoteRegion $Is.byHand("remote_region.h") $Is.checked {
  # Client memory that the server may read or write while the request is unanswered.
  id @0 :UInt64;
  # Unique within the connection.
  address @1 :UInt64;
  sizeBytes @2 :UInt64;
  key @3 :Data $Is.atMost("kRegionKeyBytesMax");
  # `address` and `key` are for RDMA; 0 and empty without RDMA.
  buffer @4 :UInt64;
  # The shared memory file that holds the region from bufferOffset on; 0 if none does.
  bufferOffset @5 :UInt64;
  slot @6 :UInt32;
  # The region's words in the client's window (shared_window.h).
  space @7 :MemorySpace;
}

enum MemorySpace $Is.byHand("remote_region.h") {
  host @0;
  device @1;
}

struct RegisterModel {  # -> ModelRow
  # A reader may send it for a model that is registered.
  model @0 :Types.ModelSpec;
}

struct ListModels {  # -> Models: one page
  after @0 :Data $Is.atMost("kCursorBytesMax");
  # `next` of the previous page, which is opaque; empty asks for the first page.
}

struct PushProjection $Is.checked {  # -> Done, when it is stored and the memory may be reused
  # One layer's output projection, for recipes that weigh values by their output. A layer's
  # projection never changes: the same one may be pushed again, another one is invalidArgument.
  model @0 :Data $Is.digest;
  layer @1 :UInt32 $Is.atMost("kLayersMax - 1");
  width @2 :UInt32 $Is.atLeast(1) $Is.atMost("kHiddenMax");
  # Width of the hidden state.
  dtype @3 :Types.Dtype = f32;
  weights @4 :RemoteRegion;
  # [num_q_heads, head_dim, width], packed.
}

struct AddProfile {  # -> ProfileRow
  json @0 :Text $Is.atMost("kProfileBytesMax");
  # As `precis profile build` writes it. It replaces a profile of the same model and name.
}

struct ListProfiles {  # -> Profiles
  model @0 :Data $Is.digest $Is.optional;
  # Absent: list all models'.
}

struct ShowProfile {  # -> ProfileRow with its JSON
  model @0 :Data $Is.digest;
  name @1 :Text;
}

struct RemoveProfile {  # -> Done
  model @0 :Data $Is.digest;
  name @1 :Text;
}

struct BeginPut $Is.checked {  # -> PutBegun
  model @0 :Data $Is.digest;
  # Fingerprint of a registered model.
  adapter @1 :Text;
  # For example a LoRA adapter; empty for none.
  tokens @2 :Data $Is.array("TokenId") $Is.atMost("kPathTokensMax");
  # The whole path from the root; the new tokens are at its end.
  parentKind @3 :ParentKind;
  parent @4 :Data $Is.segmentId;
  # Only for parentKind segment.
  recipe @5 :Text $Is.atMost("kRecipeBytesMax");
  # Empty: the budget in force names the recipe.
  budget @6 :Types.Budget $Is.optional;
  # Absent: the budget in force applies.
  parentRead @7 :Types.Budget $Is.optional;
  # The budget at which the parent was read while this KV was computed; absent: unknown.
  writers @8 :UInt32 = 1 $Is.atLeast(1) $Is.atMost("kWritersMax");
  # The number of connections that send this same request and write the put together.
  parentEnd @9 :UInt32 $Is.atMost("kPathTokensMax");
  # Only for parentKind segment. The new segment begins there, at a block boundary inside the parent
  # or an ancestor, which is split there. 0: at the parent's end.
  hints @10 :Types.Hints;
  # Also for a segment that is already stored.
  session @11 :Text;
  # The session that the put continues; its budget and limit apply. Empty: none.
  prefillSeconds @12 :Float64;
  # How long the prefill of the new tokens took at the client. 0: unknown. Ignored if the segment is
  # already stored, and from every writer except the first.
  traceparent @13 :Data $Is.atMost("kTraceparentBytesMax");
  # W3C Trace Context's header of that name; empty: none. A value of another form is ignored.

  enum ParentKind {
    # The start of the new segment. Auto: at the end of the longest stored proper prefix that suits
    # a reader at parentRead. If that ends inside a segment and is a large part of it, the segment
    # is split.
    auto @0;
    root @1;
    segment @2;
  }
}

struct PushLayer $Is.checked {  # -> Done, when the memory may be reused
  # One piece of one layer: some heads and some tokens.
  put @0 :UInt64;
  layer @1 :UInt32 $Is.atMost("kLayersMax - 1");
  headBegin @2 :UInt32 $Is.atMost("kKvHeadsMax");
  headCount @3 :UInt32;
  tokenBegin @4 :UInt32 $Is.atMost("kPathTokensMax");
  # Counted from the segment's first token.
  tokenCount @5 :UInt32;
  dtype @6 :Types.Dtype = bf16;
  keys @7 :RemoteRegion;
  # [headCount, tokenCount, headDim]. Rows are contiguous, heads are keysHeadStride bytes apart.
  values @8 :RemoteRegion;
  keysHeadStride @9 :UInt64;
  valuesHeadStride @10 :UInt64;
  numQueries @11 :UInt32 $Is.atMost("kObservationQueriesMax");
  queries @12 :RemoteRegion $Is.optional;
  # Observation queries of these heads: [headCount * group, numQueries, headDim], packed. The
  # queries of a head come with any one of its pieces.
  lse @13 :RemoteRegion $Is.optional;
  # Log-sum-exp of the queries: f32 [headCount * group, numQueries].
  scores @14 :RemoteRegion $Is.optional;
  # Scores for the recipe `external`: f32 [headCount, tokenCount].
  queryMean @15 :RemoteRegion $Is.optional;
  # Mean of the expected queries: f32 [headCount * group, headDim]. It comes with queryCovariance.
  queryCovariance @16 :RemoteRegion $Is.optional;
  # Covariance of the expected queries: f32 [headCount * group, headDim, headDim].
}

struct CommitPut $Is.checked {  # -> SegmentInfo with its plan
  put @0 :UInt64;
  durability @1 :Durability = wal;
  prefillSeconds @2 :Float64;
  # As in BeginPut, for a client that computes while it pushes. The largest value counts.
}

enum Durability $Is.byHand("types.h") {
  memory @0;
  wal @1;
  fsync @2;
  shared @3;
}

struct AbortPut {  # -> Done
  put @0 :UInt64;
}

struct Lookup {  # -> Match
  model @0 :Data $Is.digest;
  adapter @1 :Text;
  tokens @2 :Data $Is.array("TokenId") $Is.atMost("kPathTokensMax");
  keep @3 :Types.Budget $Is.optional;
  # If it is absent and align is 1, the answer is about the stored entries. Otherwise the service
  # reads the records and counts exactly how many entries of each head a reader gets. It then leaves
  # out segments whose KV was computed over fewer of their parents' entries.
  align @4 :UInt32 = 1 $Is.atLeast(1) $Is.atMost("kAlignMax");
  # Each (layer, head) of the prefix gets a multiple of this many entries.
  leaseMs @5 :UInt32;
  # For this long the match can be read even if its segments are removed, trimmed or replaced. At
  # most kLeaseMsMax is granted. 0: no lease.
  hints @6 :Types.Hints;
  # For all segments of the match.
  traceparent @7 :Data $Is.atMost("kTraceparentBytesMax");
  # As in BeginPut.
  session @8 :Text;
  # The session that the path continues: the lookup renews it. Empty: none.
}

struct GetLink $Is.checked {
  segment @0 :Data $Is.segmentId;
  matchedEnd @1 :UInt32 $Is.atMost("kPathTokensMax");
  # The reader leaves out entries at or past this position.
  entries @2 :UInt64;
  # For a budget of all: the entries that the lookup found, in case the segment was trimmed since.
  # 0: all stored entries. Ignored if there are counts.
  counts @3 :Data $Is.array("std::uint32_t") $Is.atMost("kMatchCountsMax");
  # [numLayers, served heads]: how many first entries of each are served. Empty: the budget decides.
  # All links have counts, or none has.
  createdUnixMs @4 :UInt64;
  storedEntries @5 :UInt64;
  # The segment's values when the lookup found it. They identify the version that a lease keeps. 0:
  # unknown.
}

struct Get $Is.checked {  # -> LayerServed per layer, then GetDone
  links @0 :List(GetLink) $Is.atMost("kChainSegmentsMax");
  # From the root on: each is the parent of the next.
  budget @1 :Types.Budget;
  # Must be all if the links have counts.
  destination @2 :RemoteRegion;
  # It has the size that served_layout.h gives for these entries or counts.
  headBegin @3 :UInt32 $Is.atMost("kKvHeadsMax");
  headCount @4 :UInt32;
  # Number of KV heads to serve; 0: all from headBegin on.
  traceparent @5 :Data $Is.atMost("kTraceparentBytesMax");
  # As in BeginPut.
  shard @6 :UInt32 = 0xffffffff $Is.atMost("kShards - 1") $Is.optional;
  # In a cluster, the match's shard, if another node than its owner shall serve the get (alsoAt).
}

struct Cancel {  # -> Done
  request @0 :UInt64;
  # The id of a Get under way on this connection.
}

struct OpenSession {  # -> SessionRow, of the found or new session
  name @0 :Text;
  ttlSeconds @1 :UInt64 = 0xffffffffffffffff $Is.optional;
  # Absent: unchanged. 0: the session never expires.
  total @2 :Types.Budget $Is.optional;
  # Absent: unchanged. Kind all: no limit.
}

struct AdvanceSession {  # -> SessionRow
  name @0 :Text;
  tip @1 :Data $Is.segmentId;
  # The session's present tip or a descendant of it.
}

struct PinSession {  # -> SessionRow
  name @0 :Text;
  pinned @1 :Bool = true;
}

struct ForkSession {  # -> SessionRow of the new session
  name @0 :Text;
  newName @1 :Text;
}

struct ShowSession {  # -> SessionRow
  name @0 :Text;
}

struct ListSessions {  # -> Sessions: one page, by name
  after @0 :Data $Is.atMost("kCursorBytesMax");
  # As in ListModels.
}

struct RemoveSession {  # -> Done
  name @0 :Text;
}

struct ListPrefixes {  # -> Segments: one page, newest first
  model @0 :Data $Is.digest $Is.optional;
  # Absent: list all models'.
  limit @1 :UInt32 = 1000 $Is.atMost("kListPageRowsMax");
  # The most rows that the page may have.
  after @2 :Data $Is.atMost("kCursorBytesMax");
  # As in ListModels.
}

struct FindPrefix {  # -> SegmentInfo without its plan
  idBeginning @0 :Text;
  # Lower-case hexadecimal digits. The answer is notFound if no segment's id begins with them, and
  # invalidArgument, naming some, if several do.
}

struct ShowPrefix {  # -> SegmentInfo with its plan
  segment @0 :Data $Is.segmentId;
}

struct RemovePrefix {  # -> Removed
  segment @0 :Data $Is.segmentId;
  recursive @1 :Bool;
  # Also remove all descendants; without it a segment with children is refused.
}

struct CheckPrefix {  # -> Checked, when the whole segment has been read from the store
  segment @0 :Data $Is.segmentId;
}

struct TrimPrefix {  # -> Trimmed
  segment @0 :Data $Is.segmentId;
  budget @1 :Types.Budget;
  # At most the stored budget.
  durability @2 :Durability = wal;
  dryRun @3 :Bool;
  # Only answer what the trim would do.
}

struct SetRetention $Is.checked {  # -> SegmentInfo without its plan
  # At least one of the values; an absent one stays as it is.
  segment @0 :Data $Is.segmentId;
  priority @1 :UInt32 = 0xffffffff $Is.atMost("kPriorityMax") $Is.optional;
  ttlSeconds @2 :UInt64 = 0xffffffffffffffff $Is.atMost("kHintSecondsMax") $Is.optional;
  # 0: none. Both as in Hints.
}

struct ShowBudget {  # -> Budgets
  scope @0 :Types.BudgetScope;
}

struct SetBudget {  # -> Budgets
  scope @0 :Types.BudgetScope;
  recipe @1 :Text $Is.atMost("kRecipeBytesMax") $Is.optional;
  # Absent: unchanged. Empty: unset.
  keep @2 :Types.Budget $Is.optional;
  # Absent: unchanged. Kind all: unset.
  limit @3 :Types.Budget $Is.optional;
  # The largest budget that a put gets, whatever it names. Absent: unchanged. Kind all: unset.
  user @4 :Text;
  comment @5 :Text $Is.atMost("kCommentBytesMax");
  # Kept with the revision.
  ifRevision @6 :UInt64 = 0xffffffffffffffff $Is.optional;
  # Only if this is the tenant's newest revision. Absent: always.
  dryRun @7 :Bool;
  # Only check the change.
  applyToStored @8 :Bool;
  # Also begin to trim what is stored to what a put would get after the change; with dryRun, begin
  # to count what that would do. It ends a count that runs, and is refused while trims run.
  table @9 :Text $Is.atMost("kBudgetTableBytesMax");
  # Shares or entries of the layers and KV heads of one model (head_table.h). The service adds a
  # profile with them, and sets a recipe with this profile and the scores of `recipe` or, if that is
  # absent, of the recipe in force. Absent `keep`: the mean of the table. Empty: no table.
}

struct ShowApplication {}  # -> BudgetApplication: of the tenant, the one that runs or ran last

struct CancelApplication {  # -> BudgetApplication
  # The application that runs ends before its next segment. Trimmed segments stay trimmed.
  number @0 :UInt64;
  # Refused as a conflict if another one runs; 0: whichever runs.
}

struct ListBudgetRevisions {  # -> BudgetRevisions
  before @0 :UInt64;
  # Only revisions below this number; 0: from the newest on.
  limit @1 :UInt32 = 100;
}

struct CompareBudgets {  # -> BudgetChanges
  # Compares what the scopes set after two revisions.
  from @0 :UInt64 = 0xffffffffffffffff $Is.optional;
  # 0: before the first. Absent: compares with scopes that set nothing.
  to @1 :UInt64 = 0xffffffffffffffff $Is.optional;
  # Absent: the newest.
}

struct RollBackBudget {  # -> BudgetRevision, the new one
  # Sets every scope to what it was after `revision`.
  revision @0 :UInt64;
  # 0: as before the first.
  user @1 :Text;
  comment @2 :Text $Is.atMost("kCommentBytesMax");
  ifRevision @3 :UInt64 = 0xffffffffffffffff $Is.optional;
  dryRun @4 :Bool;
  # Only answer what would change.
  applyToStored @5 :Bool;
  # As in SetBudget, for segments of which a put gets less than before. Without a change: nothing
  # begins.
}

struct ListEvents {  # -> Events
  position @0 :Text;
  # The events after this position of an event or of a page. Empty: first a `stored` event for each
  # segment that is stored, then all that happens. "oldest": all events that are kept. "newest":
  # only those that happen later.
  limit @1 :UInt32 = 1000 $Is.atMost("kListPageRowsMax");
  # The most rows that the page may have.
}

struct GetStats {}  # -> Stats

struct GetStatus {}  # -> ServerStatus

struct Ping {}  # -> Done
# Asks whether the service is alive. Its cost does not depend on how much is stored.

struct RemoveModel {  # -> Done
  # With its projections, its profiles and its defaults for puts. While segments of the model are
  # stored, the answer is conflict and says how many.
  model @0 :Data $Is.digest;
  hereOnly @1 :Bool;
  # Only tell whether the node that is asked has segments of it.
}

struct AddTenant {  # -> IssuedToken
  # A tenant that is stored with the data. Quotas of 0 are none.
  name @0 :Text;
  role @1 :Text;
  # "reader", "writer" (also if it is empty) or "admin".
  weight @2 :UInt32 = 1;
  salt @3 :Text;
  maxDiskBytes @4 :UInt64;
  maxMemoryBytes @5 :UInt64;
  maxPuts @6 :UInt32;
  maxRequestsPerS @7 :UInt32;
}

struct ListTenants {  # -> Tenants: one page, by name
  after @0 :Data $Is.atMost("kCursorBytesMax");
  # As in ListModels.
}

struct ShowTenant {  # -> TenantRow
  name @0 :Text;
}

struct ChangeTenant {  # -> TenantRow
  # Only what is given changes. A stored tenant; those of the configuration are changed there.
  name @0 :Text;
  role @1 :Text;
  # Empty: unchanged. With another role, its connections are closed.
  weight @2 :UInt32 = 0xffffffff $Is.optional;
  maxDiskBytes @3 :UInt64 = 0xffffffffffffffff $Is.optional;
  maxMemoryBytes @4 :UInt64 = 0xffffffffffffffff $Is.optional;
  maxPuts @5 :UInt32 = 0xffffffff $Is.optional;
  maxRequestsPerS @6 :UInt32 = 0xffffffff $Is.optional;
  belowUse @7 :Bool;
  # Also accept a maxDiskBytes below what the tenant stores: the service then trims and removes
  # segments of the tenant. Without it, the answer is conflict and nothing changes.
}

struct RotateToken {  # -> IssuedToken
  # Makes a token. The newest one before it stays valid, an older one ends.
  name @0 :Text;
  dropOld @1 :Bool;
  # Makes no token: all but the newest end, and so do the connections that were admitted with them.
}

struct RemoveTenant {  # -> Removed
  name @0 :Text;
  purge @1 :Bool;
  # Also remove its sessions, segments, models and budgets. Without it, a tenant that has segments
  # is refused.
  hereOnly @2 :Bool;
  # Only for what the node that is asked stores of the tenant: the tenant stays.
}

struct StartBackup {  # -> BackupState
  # The service writes it below its backup_dir, and answers once it has begun.
  name @0 :Text;
  # A plain file name; empty: the backup is named after the time.
  keep @1 :UInt32;
  # Once it is complete, only this many of the newest backups are kept; 0: all.
}

struct ListBackups {}  # -> Backups: the newest complete ones

struct ShowBackup {}  # -> BackupState: of the backup that runs, or ran last

struct CancelBackup {}  # -> BackupState
# The backup that runs ends soon. The next one reuses the values that it has copied.

struct ShowCluster {}  # -> ClusterState

struct DrainNode {  # -> ClusterState
  # Whether a node shall own no shards. Its shards move to other nodes soon.
  node @0 :Text;
  on @1 :Bool = true;
}

# ---- replies -----------------------------------------------------------------------------------

enum StatusCode $Is.byHand("status.h") {
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
  conflict @13;
}

struct ServerMessage $Is.byHand("messages.h") {
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
    budgetRevisions @22 :BudgetRevisions;
    budgetRevision @23 :Types.BudgetRevision;
    events @24 :Events;
    tenantRow @25 :TenantRow;
    tenants @26 :Tenants;
    issuedToken @27 :IssuedToken;
    backupState @28 :BackupState;
    backups @29 :Backups;
    budgetApplication @30 :BudgetApplication;
    budgetChanges @31 :BudgetChanges;
    clusterState @32 :ClusterState;
  }
  retryAfterMs @21 :UInt32;
  # For the codes rejected and permissionDenied: when to try again; 0 if waiting alone does not
  # help.
}

struct LayerServed $Is.checked {
  # One layer of a Get is in place at `offset` of its destination, in the layout of
  # served_layout.h for these counts.
  id @0 :UInt64;
  # The id of the Get.
  layer @1 :UInt32 $Is.atMost("kLayersMax - 1");
  offset @2 :UInt64;
  counts @3 :Data $Is.array("std::uint32_t") $Is.atMost("kServedCountsMax");
  # [links, served heads].
  tailChecksums @4 :Data $Is.array("std::array<std::uint8_t, 16>") $Is.atMost("kServedCountsMax");
  # [links, served heads]: the checksum of each cut's last, partial block; zero if there is none.
}

struct Done {}

struct ModelRow {
  model @0 :Types.ModelSpec;
  fingerprint @1 :Data $Is.digest;
  segments @2 :UInt64;
  projections @3 :UInt32 $Is.atMost("kLayersMax");
  # How many layers have their output projection stored.
  storedBytes @4 :UInt64;
  originalBytes @5 :UInt64;
  # Sizes of the model's segments: of their records, and of the uncompressed K and V.
  hits @6 :UInt64;
  hitTokens @7 :UInt64;
  # Lookups since the service started that matched at least one token, and the tokens they matched.
}

struct Models {
  rows @0 :List(ModelRow) $Is.atMost("kListPageRowsMax");
  next @1 :Data $Is.atMost("kCursorBytesMax");
  # The start of the next page, for `after`. Empty: this is the last page.
}

struct ProfileRow {
  name @0 :Text;
  kind @1 :Text;
  # "curves", "weights" or "probe".
  model @2 :Data $Is.digest;
  scorer @3 :Text $Is.atMost("kRecipeBytesMax");
  # Canonical recipe of the scores that the profile was built over.
  digest @4 :Data $Is.digest;
  # SHA-256 of its content without the name.
  numTokens @5 :UInt32;
  # Tokens of the contexts that it was fitted on.
  textDigest @6 :Text $Is.atMost("kNameBytesMax");
  addedUnixMs @7 :UInt64;
  json @8 :Text $Is.atMost("kProfileBytesMax");
  # Empty if the request did not ask for it.
}

struct Profiles {
  rows @0 :List(ProfileRow) $Is.atMost("kListPageRowsMax");
}

struct PutBegun $Is.checked {
  put @0 :UInt64;
  begin @1 :UInt32;
  end @2 :UInt32;
  # The client pushes the KV of tokens [begin, end).
  parent @3 :Data $Is.segmentId;
  # Null at the root.
  segment @4 :Data $Is.segmentId;
  alreadyStored @5 :Bool;
  # If true, the client pushes nothing, and CommitPut answers with the stored segment.
  recipe @6 :Text $Is.atMost("kRecipeBytesMax");
  # Canonical.
  entries @7 :UInt64;
  # How many entries the segment will keep.
  budget @8 :Types.Budget;
  # The budget of the put.
  limited @9 :Bool;
  # The limit in force is less than what the put named, and is its budget.
}

struct SegmentInfo $Is.checked {
  id @0 :Data $Is.segmentId;
  parent @1 :Data $Is.segmentId;
  model @2 :Data $Is.digest;
  adapter @3 :Text;
  begin @4 :UInt32;
  end @5 :UInt32;
  recipe @6 :Text $Is.atMost("kRecipeBytesMax");
  # Canonical.
  preset @7 :Text;
  budget @8 :Types.Budget;
  parentRead @9 :Types.Budget $Is.optional;
  # The budget at which the parent was read. Absent: unknown.
  entries @10 :UInt64;
  # Kept entries of all layers and heads.
  originalBytes @11 :UInt64;
  # Size of the uncompressed K and V.
  storedBytes @12 :UInt64;
  # Size of all records.
  compressSeconds @13 :Float64;
  # Compute time of all layers added up; layers overlap.
  createdUnixMs @14 :UInt64;
  hits @15 :UInt64;
  children @16 :UInt32;
  inMemory @17 :Bool;
  # Every layer is in the RAM tier.
  outOfService @20 :Bool;
  # The segment or an ancestor is damaged, so it is not served.
  plan @18 :Types.Plan $Is.optional;
  # Absent if the request did not ask for it.
  trimmed @19 :Types.Budget $Is.optional;
  # The budget that it was trimmed to; absent if it was never trimmed.
  lastUsedUnixMs @21 :UInt64;
  # When a lookup or get last found it; 0: never.
  wholeEntries @22 :UInt64;
  wholeBegin @23 :UInt32;
  wholeEnd @24 :UInt32;
  # Only for a part of a split segment, else 0 (catalog.capnp).
  priority @25 :UInt32 = 50 $Is.atMost("kPriorityMax");
  ttlSeconds @26 :UInt64 $Is.atMost("kHintSecondsMax");
  # 0: none.
  expectedUnixMs @27 :UInt64;
  # 0: it is not expected to be used at a certain time. These three follow from hints.
  prefillSeconds @28 :Float64;
  # As its put said. 0: unknown.
  encoding @29 :Types.Encoding;
  # The form of the rows of its records, as its recipe says.
}

struct Segments {
  rows @0 :List(SegmentInfo) $Is.atMost("kListPageRowsMax");
  next @1 :Data $Is.atMost("kCursorBytesMax");
  # As in Models. A page may have no rows and still not be the last one.
}

struct MatchLink $Is.checked {
  segment @0 :SegmentInfo;
  matchedEnd @1 :UInt32;
  # At most the segment's end.
  counts @2 :Data $Is.array("std::uint32_t") $Is.atMost("kMatchCountsMax");
  # [numLayers, numKvHeads]: how many first entries of each a reader gets. Empty unless the lookup
  # had a budget or an alignment.
}

struct OtherNode {
  address @0 :Text;
  # HOST:PORT
}

struct Match $Is.checked {
  matchedTokens @0 :UInt32 $Is.atMost("kPathTokensMax");
  # 0: nothing matched, and there are no links.
  links @1 :List(MatchLink) $Is.atMost("kChainSegmentsMax");
  plan @2 :Types.Plan;
  # Entries per (layer, head), added up over the links: those stored, or those that a reader gets if
  # the links have counts.
  bytes @3 :UInt64;
  # Bytes that a get moves: of all stored entries, or of the counts if there are any.
  predictedSeconds @4 :Float64;
  leaseMs @5 :UInt32;
  # The granted lease; 0: none.
  alsoAt @6 :List(OtherNode) $Is.atMost("kCopiesMax");
  # In a cluster, further nodes that serve the match, because it is read often. A get at
  # one of them names the shard. If it fails there, the owner serves it.
}

struct PassedMatch $Is.checked {
  # A match that one client passes to another. It is not a message of the protocol.
  version @0 :UInt32 = 1;
  match @1 :Match;
  model @2 :Types.ModelSpec;
  fingerprint @3 :Data $Is.digest;
  adapter @4 :Text;
  keep @5 :Types.Budget $Is.optional;
  align @6 :UInt32 = 1 $Is.atLeast(1) $Is.atMost("kAlignMax");
  # `keep` and `align` as the lookup had them.
  tokens @7 :Data $Is.array("TokenId") $Is.atMost("kPathTokensMax");
  # The tokens that matched; empty: unknown.
  shard @8 :UInt32 = 0xffffffff $Is.optional;
  # The shard that it is in; absent: the service is in no cluster.
}

struct GetDone {
  bytes @0 :UInt64;
}

struct Sessions {
  rows @0 :List(Types.SessionRow) $Is.atMost("kListPageRowsMax");
  next @1 :Data $Is.atMost("kCursorBytesMax");
  # As in Models.
}

struct Removed {
  segments @0 :UInt64;
  bytes @1 :UInt64;
}

struct Checked {
  bytes @0 :UInt64;
  # Bytes that passed their checks.
  damage @1 :Text $Is.atMost("kTextBytesMax");
  # The part that failed its check; the segment is out of service. Empty: nothing failed.
}

struct Trimmed {
  entries @0 :UInt64;
  storedBytes @1 :UInt64;
  # `entries` and storedBytes are those of the segment after the trim.
  freedBytes @2 :UInt64;
  keptMass @3 :Data $Is.array("float") $Is.atMost("kLayersMax");
  # [layers]: the share of the stored score mass that is left (trim.h).
}

struct BudgetRow {
  scope @0 :Text $Is.atMost("kTextBytesMax");
  # "built-in", "config", "profile", "global", "model NAME" or "session NAME".
  recipe @1 :Text $Is.atMost("kRecipeBytesMax");
  # Empty: this scope sets none.
  keep @2 :Types.Budget $Is.optional;
  # Absent: this scope sets none.
  version @3 :UInt64;
  # The revision that set it last; 0: none.
  setUnixMs @4 :UInt64;
  limit @5 :Types.Budget $Is.optional;
  # Absent: this scope sets none.
  session @6 :Text;
  # The name, if the scope is a session's.
}

struct BudgetRevisions {
  rows @0 :List(Types.BudgetRevision) $Is.atMost("kListPageRowsMax");
  # The newest first.
  newest @1 :UInt64;
  # The number of the newest revision; 0: none was made.
  oldest @2 :UInt64;
  # The oldest that is kept.
}

struct KvEvent {
  # A change of a stored segment, for routers. docs/guides/events.md says how to use it.
  enum Kind {
    # Stored: also if the segment was stored before, with other tokens or fewer entries. Lost: the
    # events before this one are not kept; forget everything and go on at `position`.
    stored @0;
    trimmed @1;
    removed @2;
    lost @3;
  }
  enum Tier {
    # Memory: the segment was committed at memory, and is lost if the process ends soon.
    disk @0;
    memory @1;
  }
  enum Cause {
    # Dropped: it was committed at memory, and did not reach the disk. Consolidated: its tokens are
    # in another segment now. Moved: another node of the cluster has it now.
    asked @0;
    capacity @1;
    damaged @2;
    dropped @3;
    consolidated @4;
    moved @5;
  }
  position @0 :Text;
  # The position of this event: the events after it are those after this position.
  kind @1 :Kind;
  unixMs @2 :UInt64;
  # When it happened. For what is stored when a reader begins: when it was stored.
  segment @3 :Data $Is.segmentId;
  parent @4 :Data $Is.segmentId;
  model @5 :Data $Is.digest;
  adapter @6 :Text;
  begin @7 :UInt32 $Is.atMost("kPathTokensMax");
  end @8 :UInt32 $Is.atMost("kPathTokensMax");
  # Its tokens.
  blockTokens @9 :UInt32 $Is.atMost("kBlockTokensMax");
  # The model's.
  root @10 :Data $Is.digest;
  # The digest from which that of the path's first block is chained.
  parentBlock @11 :Data $Is.digest $Is.optional;
  # The last whole block of the parents. Absent: there is none.
  blocks @12 :Data $Is.array("Digest") $Is.atMost("kPathBlocksMax");
  # Stored: the blocks that end in (begin, end]. Removed: those that no other segment has.
  storedBytes @13 :UInt64;
  # The bytes of its records, after the event.
  bytesBefore @14 :UInt64;
  # The bytes of its records, before it was trimmed or removed.
  keep @15 :Types.Budget;
  # The budget at which it is stored.
  tier @16 :Tier;
  cause @17 :Cause;
  # The cause of a removal.
  lost @18 :UInt64;
  # How many events are not kept. 0: unknown, because the service was started again.
}

struct Events {
  rows @0 :List(KvEvent) $Is.atMost("kListPageRowsMax");
  # An empty page: there are no further events yet.
  next @1 :Text;
  # The position after the page.
}

struct Budgets {
  layers @0 :List(BudgetRow) $Is.atMost("kListPageRowsMax");
  # From the widest scope to the narrowest.
  effective @1 :BudgetRow;
  sessions @2 :List(BudgetRow) $Is.atMost("kListPageRowsMax");
  # Only for the tenant's global scope: what sessions set, by name. The first 100.
  application @3 :UInt64;
  # The number of the application (BudgetApplication) that a SetBudget began; 0: none.
  nextPut @4 :NextPut $Is.optional;
  # Only after a SetBudget with dryRun.
}

struct NextPut {
  # Tells what the next put would keep after a change of the budgets if it was like a stored
  # segment: the tip of the session that the change is for, or else the newest of its model or
  # tenant.
  segment @0 :Data $Is.segmentId;
  # Null: no segment can tell, and only `note` says more.
  tokens @1 :UInt32;
  storedBytes @2 :UInt64;
  # The size of all records.
  keptMass @3 :Data $Is.array("float") $Is.atMost("kLayersMax");
  # As in Trimmed.
  note @4 :Text $Is.atMost("kTextBytesMax");
  # Says in words what the stored scores do not tell. Empty: they tell all.
  keep @5 :Types.Budget $Is.optional;
  # The budget of the put, which a limit may have lowered. Absent if no segment can tell.
}

struct BudgetChanges {
  from @0 :UInt64 = 0xffffffffffffffff $Is.optional;
  to @1 :UInt64;
  changes @2 :List(Types.BudgetChange) $Is.atMost("kListPageRowsMax");
  # Scopes that set the same after both are left out.
}

struct Stat {
  name @0 :Text;
  value @1 :Float64;
  help @2 :Text $Is.atMost("kTextBytesMax");
}

struct Stats {
  rows @0 :List(Stat) $Is.atMost("kListPageRowsMax");
}

struct ServerStatus {
  server @0 :Text;
  tenant @1 :Text;
  dataDir @2 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  transport @3 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  device @4 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  uptimeSeconds @5 :Float64;
  segments @6 :UInt64;
  sessions @7 :UInt64;
  models @8 :UInt64;
  storedBytes @9 :UInt64;
  memoryBytes @10 :UInt64;
  memoryLimitBytes @11 :UInt64;
  segmentsOutOfService @12 :UInt64;
  # Segments that are damaged or have a damaged ancestor.
  diskFreeBytes @13 :UInt64;
  diskMinFreeBytes @14 :UInt64;
  # Puts that would leave less space free are refused.
  diskFault @15 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # The reason why changes fail until an operator acts; empty if changes succeed.
  rdma @16 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # The service's RDMA device in words, or "off".
  exposed @17 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # The reason why others on the network can read or change stored data; empty if nobody can.
  doubtfulRecovery @18 :Bool;
  # Acknowledged changes are missing or may be, and nobody has accepted that yet.
  lostChanges @19 :UInt64;
  # How many changes are missing; 0: unknown.
  keptBytes @20 :UInt64;
  # Bytes of payload without a row, kept for the missing changes.
  keptLogBytes @21 :UInt64;
  # Bytes of kept logs from before the recovery.
  diskLow @22 :Bool;
  # Puts are refused because the disk is short of space.
  maxDiskBytes @23 :UInt64;
  # The limit of this tenant's stored records, or else of all tenants' together; 0: none.
  pinnedBytes @24 :UInt64;
  # Stored records of this tenant that pinned sessions need.
  maxPinnedBytes @25 :UInt64;
  # The limit of pinnedBytes; 0: none.
}

struct TenantRow {
  name @0 :Text;
  role @1 :Text;
  weight @2 :UInt32;
  configured @3 :Bool;
  # It is in the configuration, and is changed there.
  maxDiskBytes @4 :UInt64;
  maxMemoryBytes @5 :UInt64;
  maxPuts @6 :UInt32;
  maxRequestsPerS @7 :UInt32;
  # 0: no limit of its own.
  tokens @8 :UInt32;
  # How many are valid; 0: it needs none.
  tokenUnixMs @9 :UInt64;
  # When the newest was made; 0: it is the configuration's.
  addedUnixMs @10 :UInt64;
  models @11 :UInt64;
  segments @12 :UInt64;
  sessions @13 :UInt64;
  storedBytes @14 :UInt64;
  originalBytes @15 :UInt64;
  connections @16 :UInt64;
  puts @17 :UInt64;
  memoryBytes @18 :UInt64;
  # Puts in progress; the memory that they may use and that its layers take.
  hits @19 :UInt64;
  hitTokens @20 :UInt64;
  # As in ModelRow, of all models.
}

struct Tenants {
  rows @0 :List(TenantRow) $Is.atMost("kListPageRowsMax");
  next @1 :Data $Is.atMost("kCursorBytesMax");
  # As in Models.
}

struct IssuedToken {
  tenant @0 :TenantRow;
  token @1 :Text $Is.atMost("kCredentialBytesMax");
  # Only this answer has it. Empty: none was made.
}

struct BackupState {
  name @0 :Text;
  state @1 :Text;
  # "running", "done", "failed" or "canceled"; empty: none was made since the service started.
  startedUnixMs @2 :UInt64;
  endedUnixMs @3 :UInt64;
  values @4 :UInt64;
  bytes @5 :UInt64;
  # Payload of the store at its instant; 0: not known yet.
  doneValues @6 :UInt64;
  doneBytes @7 :UInt64;
  # The part of them that was read and checked.
  copiedValues @8 :UInt64;
  copiedBytes @9 :UInt64;
  # The part of those that the folder lacked.
  damaged @10 :UInt64;
  # Values that failed their checks, and are not in the backup.
  damage @11 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # The first of them, one a line.
  error @12 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why it failed.
  isFull @13 :Bool;
  # It failed because a disk is full.
  code @14 :Text;
  # The name of the error's status; empty without one.
}

struct BackupRow {
  name @0 :Text;
  createdUnixMs @1 :UInt64;
  values @2 :UInt64;
  bytes @3 :UInt64;
  copiedValues @4 :UInt64;
  copiedBytes @5 :UInt64;
  # The part of them that no earlier backup had.
  damaged @6 :UInt64;
  # Values of the store that failed their checks, and are not in it.
  fault @7 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why it cannot be restored; empty if its file looks whole.
}

struct Backups {
  rows @0 :List(BackupRow) $Is.atMost("kListPageRowsMax");
}

struct BudgetApplication {
  number @0 :UInt64;
  # From 1 since the service started; 0: there was none.
  state @1 :Text;
  # "running", "done", "failed" or "canceled"; empty: there was none.
  dryRun @2 :Bool;
  startedUnixMs @3 :UInt64;
  endedUnixMs @4 :UInt64;
  segments @5 :UInt64;
  bytes @6 :UInt64;
  # The segments that store more than a put would get, and their stored bytes; 0: not known yet.
  doneSegments @7 :UInt64;
  doneBytes @8 :UInt64;
  # The part of them that was tried.
  trimmedSegments @9 :UInt64;
  storedBytes @10 :UInt64;
  freedBytes @11 :UInt64;
  # The part of the trimmed segments that is left, and the part that is not.
  keptMass @12 :Data $Is.array("double") $Is.atMost("kLayersMax");
  # [layers]: the mean over the trimmed segments that have the layer, as Trimmed.keptMass.
  refusedSegments @13 :UInt64;
  refused @14 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why the first of them was refused.
  loss @15 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # The names of models, and sessions, that are left because their new budget is a loss; one a
  # line.
  apart @16 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Those that are left because a narrower scope sets another keep or limit; one a line.
  error @17 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why it failed, or was canceled by the service.
  code @18 :Text;
  # The name of the error's status; empty without one.
  revision @19 :UInt64;
  # The newest revision of the tenant's budgets when it began. A later one cancels it.
}

struct ClusterNode {
  name @0 :Text;
  address @1 :Text;
  # HOST:PORT for clients.
  version @2 :Text;
  weight @3 :UInt32;
  draining @4 :Bool;
  live @5 :Bool;
  # It holds a lease in etcd. False: it is gone, and its shards are about to move.
  shards @6 :UInt32 $Is.atMost("kShards");
}

struct Fork {
  # Paths with this block are divided by a later block.
  block @0 :Data $Is.digest;
  # Its digest, as in precis/shards.h.
  blocks @1 :UInt32 $Is.atMost("kPathTokensMax");
  # n: paths of at least n blocks are divided by their n-th block.
}

struct ClusterState $Is.checked {
  # The cluster, as the answering node knows it.
  name @0 :Text;
  # Empty: the service is in no cluster, and all other fields are empty too.
  node @1 :Text;
  # The node that answers.
  state @2 :Text;
  # Its own state: "joining", "member", or "cut_off" when its lease has run out.
  error @3 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why it is not a member, or cannot reach etcd now.
  leaseMs @4 :UInt32;
  leaseLeftMs @5 :UInt32;
  # It is a member for so long if it does not reach etcd again.
  revision @6 :UInt64;
  # The revision of the owners. It grows with every change; 0: there is no table of owners yet.
  nodes @7 :List(ClusterNode) $Is.atMost("kClusterNodesMax");
  # By name.
  owners @8 :Data $Is.array("std::uint32_t") $Is.atMost("kShards");
  # For each shard an index into `nodes`, or 0xffffffff if nobody owns it. Empty: revision is 0.
  space @9 :Data $Is.digest $Is.optional;
  # The caller's tenant in the digests that decide shards (precis/shards.h).
  forks @10 :List(Fork) $Is.atMost("kForksMax");
  shared @11 :Bool;
  # The nodes share a storage, and the next three fields are about it.
  loading @12 :UInt32;
  # The shards that the answering node owns and has not loaded from there yet.
  unsharedBytes @13 :UInt64;
  # Stored at the answering node, and not there yet.
  sharedError @14 :Text $Is.atMost("kTextBytesMax") $Is.forPeople;
  # Why the answering node cannot use it now.
}
