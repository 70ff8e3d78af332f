// The C interface (C99): libprecis.so stores the KV cache of a prompt and reads it back, in a
// service that runs elsewhere (precis_client_connect) or inside this process (precis_client_open).
//
// Status: every function that can fail returns a precis_status. The handle in the first argument
// keeps a message for people about its last failure (precis_client_error, ...), until its next
// failing call or until it is freed. A null handle, or a null pointer that may not be null, gives
// PRECIS_INVALID_ARGUMENT. If a function fails, its results are set to null or to zero. If memory
// runs out in a call, it fails with PRECIS_OUT_OF_SPACE.
//
// Ownership: the caller frees each handle that a function returns with the handle's own free
// function, in any order; freeing null does nothing. Strings and arrays that the caller passes are
// not used after the call. Strings and arrays that a function returns belong to the handle that was
// asked, and are valid until that handle is freed.
//
// Threads: only one thread at a time may use a handle. Different handles may be used at the same
// time, also those that came from one client. Calls wait for the service; see timeout_ms.
//
// Shapes: an array [a, b, c] is contiguous, and its last index runs fastest. Elements are of the
// model's dtype, in the byte order of this machine. Keys have their RoPE.
#ifndef PRECIS_PRECIS_H
#define PRECIS_PRECIS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The values are those of precis::StatusCode. Later versions may add values.
typedef enum precis_status {
  PRECIS_OK = 0,
  PRECIS_NOT_FOUND = 1,          // no object has that name
  PRECIS_INVALID_ARGUMENT = 2,   // the caller must change the request
  PRECIS_PERMISSION_DENIED = 3,  // the credentials give no access to this object
  PRECIS_REJECTED = 4,           // overload: wait and call again
  PRECIS_OUT_OF_SPACE = 5,       // a configured capacity, or this machine's memory, is used up
  PRECIS_TIMED_OUT = 6,          // the outcome may be unknown
  PRECIS_UNAVAILABLE = 7,        // the service is gone, or another process has the directory
  PRECIS_CORRUPTION = 8,         // stored or received bytes failed their check
  PRECIS_VERSION_MISMATCH = 9,
  PRECIS_UNSUPPORTED = 10,  // valid, but not supported by this build or machine
  PRECIS_CANCELED = 11,
  PRECIS_INTERNAL = 12,  // a bug in Precis
  PRECIS_CONFLICT = 13,  // stored objects prevent it: change those first
  PRECIS_MOVED = 14      // in a cluster: its shard kept moving until the deadline
} precis_status;
// "not_found" for PRECIS_NOT_FOUND, and so on. Never null; valid for ever.
const char* precis_status_name(precis_status status);

typedef enum precis_dtype {
  PRECIS_BF16 = 1,
  PRECIS_F16 = 2,
  PRECIS_F32 = 3,
  PRECIS_F8_E4M3 = 4  // 8 bits: 4 of exponent, 3 of mantissa; 0x7f is NaN, no infinity, no scale
} precis_dtype;

typedef enum precis_durability {
  PRECIS_MEMORY = 0,  // in the service's memory
  PRECIS_WAL = 1,     // survives the end of the service
  PRECIS_FSYNC = 2,   // survives the end of the machine
  PRECIS_SHARED = 3   // survives the loss of the machine: in a cluster with shared storage
} precis_durability;

typedef struct precis_client precis_client;
typedef struct precis_model precis_model;
typedef struct precis_put precis_put;
typedef struct precis_match precis_match;
typedef struct precis_prefix precis_prefix;

// Names a stored segment. All zero: none.
typedef struct precis_segment_id {
  uint8_t bytes[16];
} precis_segment_id;

// ---- the client ---------------------------------------------------------------------------

// A client without a service: connect or open it. Null if there is no memory.
precis_client* precis_client_new(void);
// Disconnects once the client's puts and prefixes are freed, too; then an opened service ends.
void precis_client_free(precis_client* client);
const char* precis_client_error(const precis_client* client);

typedef struct precis_connect_options {
  const char* tenant;   // null: the service's default tenant
  const char* token;    // null: none. It is never sent.
  const char* tls_ca;   // a PEM file or "system"; null: no TLS
  uint32_t timeout_ms;  // of connecting and of each request, in milliseconds; 0: 10 000
} precis_connect_options;
// `address`: "host:port" of a running precisd, or of several nodes of a cluster, with a comma after
// each but the last. `options` may be null.
precis_status precis_client_connect(precis_client* client, const char* address,
                                    const precis_connect_options* options);
// Runs the whole service inside this process, over `directory`. `memory_bytes`: how much
// memory it may use; 0: a default.
precis_status precis_client_open(precis_client* client, const char* directory,
                                 uint64_t memory_bytes);

// ---- models -------------------------------------------------------------------------------

// Set the whole struct to zero first. A model with other values is another model.
typedef struct precis_model_spec {
  const char* name;
  const char* revision;  // null: ""
  uint32_t num_layers, num_q_heads, num_kv_heads, head_dim;
  precis_dtype dtype;        // of keys, values and queries
  double rope_theta;         // 0: 10 000
  const char* rope_scaling;  // JSON as in the model's configuration; null: none
  // [num_layers], the tokens that a query sees, itself included: at least 2, or 0 (all), but not 0
  // in every layer; null: every layer sees all
  const uint32_t* windows;
} precis_model_spec;
// Registering the same model again is fine.
precis_status precis_model_register(precis_client* client, const precis_model_spec* spec,
                                    precis_model** model);
void precis_model_free(precis_model* model);

// ---- put ----------------------------------------------------------------------------------

// Begins to store the KV of a prompt. `tokens` [num_tokens]: the whole prompt; the put covers the
// tokens after its longest stored prefix (precis_put_range). `recipe`: how to compress, for example
// "global_kvdiff"; null: the service's default. `keep`: the share of entries to keep, in (0, 1]; 0:
// the service's default.
precis_status precis_put_begin(precis_client* client, const precis_model* model,
                               const uint32_t* tokens, size_t num_tokens, const char* recipe,
                               double keep, precis_put** put);
// Aborts the put unless it was committed.
void precis_put_free(precis_put* put);
const char* precis_put_error(const precis_put* put);
// The tokens [begin, end) whose KV is to be pushed.
precis_status precis_put_range(const precis_put* put, uint32_t* begin, uint32_t* end);

// One layer, or a piece of it. Set the whole struct to zero first.
typedef struct precis_layer {
  const void *keys, *values;  // [num_heads, num_tokens, head_dim]
  // The KV heads and the tokens of this piece; tokens count from `begin` of the put. num_heads 0:
  // all heads from head_begin on. num_tokens 0: all tokens from token_begin on.
  uint32_t head_begin, num_heads, token_begin, num_tokens;
  // For recipes that need queries: [query heads of these KV heads, num_queries, head_dim], of the
  // last num_queries tokens of the put; else null. Recipes that need more than queries cannot be
  // used from C.
  const void* queries;
  uint32_t num_queries;
} precis_layer;
// Returns once the service has the bytes. Layers and pieces come in any order. After an error
// the put may have ended: abort it and begin again.
precis_status precis_put_layer(precis_put* put, uint32_t layer, const precis_layer* push);

// Once it returns PRECIS_OK, the whole put is stored and visible. `segment` gets its id,
// `stored_bytes` its size in bytes; both may be null. After PRECIS_UNAVAILABLE begin the put again:
// the same put twice is stored once.
precis_status precis_put_commit(precis_put* put, precis_durability durability,
                                precis_segment_id* segment, uint64_t* stored_bytes);
// Ends the put; nothing of it is stored.
precis_status precis_put_abort(precis_put* put);

// ---- get ----------------------------------------------------------------------------------

// Finds the longest stored prefix of `tokens` [num_tokens]. If there is none, the call returns
// PRECIS_OK and the match has 0 tokens.
precis_status precis_lookup(precis_client* client, const precis_model* model,
                            const uint32_t* tokens, size_t num_tokens, precis_match** match);
void precis_match_free(precis_match* match);
uint32_t precis_match_tokens(const precis_match* match);  // 0 for null
uint64_t precis_match_bytes(const precis_match* match);   // that a get with keep 0 transfers

// Reads all layers of the match and checks them. `keep`: the share of entries to read, in (0, 1];
// 0: all stored entries. PRECIS_NOT_FOUND if a segment of the match was removed since the lookup;
// PRECIS_INVALID_ARGUMENT if a segment stores less than `keep`.
precis_status precis_get(precis_client* client, const precis_match* match, double keep,
                         precis_prefix** prefix);
void precis_prefix_free(precis_prefix* prefix);
const char* precis_prefix_error(const precis_prefix* prefix);

// The kept entries of one KV head of one layer. If the prefix has several segments, the entries
// stand segment by segment, and within a segment in the order in which growing budgets add them.
typedef struct precis_head {
  uint32_t count;
  const uint32_t* positions;  // [count] in the prompt
  const float* scores;        // [count]
  const void *keys, *values;  // [count, head_dim]
} precis_head;
precis_status precis_prefix_head(precis_prefix* prefix, uint32_t layer, uint32_t head,
                                 precis_head* entries);

// ---- sessions and removal -----------------------------------------------------------------

// A session is a named pointer to the last segment of a conversation, its tip. Opening an existing
// session renews it. `ttl_seconds`: how long it lives after its last use; 0: for ever.
precis_status precis_session_open(precis_client* client, const char* name, uint64_t ttl_seconds);
// Makes `segment` the session's tip. It must be or continue the present tip.
precis_status precis_session_advance(precis_client* client, const char* name,
                                     const precis_segment_id* segment);
// `num_tokens`, which may be null: the length of the path up to the tip.
precis_status precis_session_tip(precis_client* client, const char* name,
                                 precis_segment_id* segment, uint32_t* num_tokens);

// Removes a segment. `recursive` not 0: also all segments that continue it. `recursive` 0:
// PRECIS_CONFLICT if there are such segments.
precis_status precis_remove(precis_client* client, const precis_segment_id* segment, int recursive);

#ifdef __cplusplus
}
#endif

#endif
