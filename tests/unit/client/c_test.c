/* The C interface, in C99: a program reads back what it stored in an embedded service, and wrong
 * arguments are errors with a message. With two arguments, it uses a running cluster instead. */
#include <precis/precis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kLayers = 2, kHeads = 2, kTokens = 200, kDim = 16, kRows = kTokens * kDim };

static int failures = 0;
#define CHECK(expr)                                                      \
  do {                                                                   \
    if (!(expr)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #expr); \
      ++failures;                                                        \
    }                                                                    \
  } while (0)
/* For calls that must succeed before the test can go on. */
#define REQUIRE_OK(call, message)                                                         \
  do {                                                                                    \
    const precis_status status_ = (call);                                                 \
    if (status_ != PRECIS_OK) {                                                           \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, precis_status_name(status_), \
              (message));                                                                 \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static float keys[kLayers][kHeads][kTokens][kDim], values[kLayers][kHeads][kTokens][kDim];
static uint32_t tokens[kTokens];

static void fill(void) {
  uint32_t random = 1;
  float *all_keys = &keys[0][0][0][0], *all_values = &values[0][0][0][0];
  for (int i = 0; i < kLayers * kHeads * kRows; ++i) {
    random = random * 1664525u + 1013904223u;
    all_keys[i] = (float)(random >> 8) / 16777216.0f - 0.5f;
    random = random * 1664525u + 1013904223u;
    all_values[i] = (float)(random >> 8) / 16777216.0f - 0.5f;
  }
  for (int i = 0; i < kTokens; ++i) tokens[i] = (uint32_t)i;
}

static precis_model_spec spec_of_test(void) {
  precis_model_spec spec;
  memset(&spec, 0, sizeof spec);
  spec.name = "c-test";
  spec.num_layers = kLayers;
  spec.num_q_heads = 4;
  spec.num_kv_heads = kHeads;
  spec.head_dim = kDim;
  spec.dtype = PRECIS_F32;
  return spec;
}

static precis_layer whole_layer(int layer) {
  precis_layer push;
  memset(&push, 0, sizeof push);
  push.keys = keys[layer];
  push.values = values[layer];
  return push;
}

/* Stores all tokens, the second layer head by head. */
static precis_segment_id store(precis_client* client, const precis_model* model, double keep) {
  precis_put* put;
  precis_segment_id segment;
  uint32_t begin = 1, end = 0;
  uint64_t bytes = 0;
  REQUIRE_OK(precis_put_begin(client, model, tokens, kTokens, "knorm", keep, &put),
             precis_client_error(client));
  REQUIRE_OK(precis_put_range(put, &begin, &end), "range");
  CHECK(begin == 0 && end == kTokens);
  precis_layer push = whole_layer(0);
  REQUIRE_OK(precis_put_layer(put, 0, &push), precis_put_error(put));
  for (uint32_t head = 0; head < kHeads; ++head) {
    memset(&push, 0, sizeof push);
    push.keys = keys[1][head];
    push.values = values[1][head];
    push.head_begin = head;
    push.num_heads = 1;
    REQUIRE_OK(precis_put_layer(put, 1, &push), precis_put_error(put));
  }
  REQUIRE_OK(precis_put_commit(put, PRECIS_WAL, &segment, &bytes), precis_put_error(put));
  CHECK(bytes > 0);
  precis_put_free(put);
  return segment;
}

/* Every entry of every head is the row that was pushed at its position. */
static void check_rows(precis_prefix* prefix, uint32_t entries_of_layer) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    uint32_t entries = 0;
    for (uint32_t h = 0; h < kHeads; ++h) {
      precis_head head;
      REQUIRE_OK(precis_prefix_head(prefix, layer, h, &head), precis_prefix_error(prefix));
      for (uint32_t i = 0; i < head.count; ++i) {
        const uint32_t at = head.positions[i];
        CHECK(at < kTokens);
        if (at >= kTokens) continue;
        CHECK(memcmp((const float*)head.keys + i * kDim, keys[layer][h][at], kDim * 4) == 0);
        CHECK(memcmp((const float*)head.values + i * kDim, values[layer][h][at], kDim * 4) == 0);
        CHECK(i == 0 || head.scores[i] == head.scores[i]);
      }
      entries += head.count;
    }
    CHECK(entries == entries_of_layer);
  }
}

static precis_prefix* read_back(precis_client* client, const precis_model* model, double keep) {
  precis_match* match;
  precis_prefix* prefix;
  REQUIRE_OK(precis_lookup(client, model, tokens, kTokens, &match), precis_client_error(client));
  CHECK(precis_match_tokens(match) == kTokens);
  CHECK(precis_match_bytes(match) > 0);
  REQUIRE_OK(precis_get(client, match, keep, &prefix), precis_client_error(client));
  precis_match_free(match);
  return prefix;
}

static void check_wrong_arguments(precis_client* client, const precis_model* model) {
  precis_model* none = (precis_model*)&failures;
  precis_put* put = (precis_put*)&failures;
  precis_match* match;
  precis_head head;
  precis_model_spec bad = spec_of_test();
  const uint32_t no_windows[kLayers] = {0};
  bad.windows = no_windows;
  CHECK(precis_model_register(client, &bad, &none) == PRECIS_INVALID_ARGUMENT);
  CHECK(strstr(precis_client_error(client), "windows") != NULL);
  bad.num_layers = UINT32_MAX;  // refused before so many windows are read
  CHECK(precis_model_register(client, &bad, &none) == PRECIS_INVALID_ARGUMENT);
  CHECK(strstr(precis_client_error(client), "num_layers") != NULL);
  bad = spec_of_test();
  bad.head_dim = 0;
  CHECK(precis_model_register(client, &bad, &none) == PRECIS_INVALID_ARGUMENT);
  CHECK(none == NULL);
  CHECK(strstr(precis_client_error(client), "head_dim") != NULL);
  CHECK(precis_model_register(client, NULL, &none) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_put_begin(client, NULL, tokens, kTokens, NULL, 0, &put) == PRECIS_INVALID_ARGUMENT);
  CHECK(put == NULL && strstr(precis_client_error(client), "model") != NULL);
  CHECK(precis_put_begin(client, model, tokens, kTokens, NULL, 2, &put) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_put_begin(client, model, tokens, kTokens, "nothing", 0, &put) ==
        PRECIS_INVALID_ARGUMENT);
  CHECK(precis_put_begin(client, model, NULL, kTokens, NULL, 0, &put) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_lookup(client, model, tokens, kTokens, NULL) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_lookup(NULL, model, tokens, kTokens, &match) == PRECIS_INVALID_ARGUMENT);
  CHECK(match == NULL);
  CHECK(precis_session_tip(client, "nobody", &(precis_segment_id){{0}}, NULL) == PRECIS_NOT_FOUND);
  CHECK(precis_remove(client, NULL, 0) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_prefix_head(NULL, 0, 0, &head) == PRECIS_INVALID_ARGUMENT);
  CHECK(head.keys == NULL);

  /* A wrong layer ends the put, and nothing of it is stored. */
  REQUIRE_OK(precis_put_begin(client, model, tokens, kTokens, "knorm", 0.25, &put),
             precis_client_error(client));
  precis_layer push = whole_layer(0);
  push.token_begin = kTokens;
  CHECK(precis_put_layer(put, 0, &push) == PRECIS_INVALID_ARGUMENT);
  CHECK(strstr(precis_put_error(put), "token_begin") != NULL);
  push.token_begin = 0;
  push.values = NULL;
  CHECK(precis_put_layer(put, 0, &push) == PRECIS_INVALID_ARGUMENT);
  push = whole_layer(0);
  CHECK(precis_put_layer(put, kLayers, &push) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_put_commit(put, (precis_durability)7, NULL, NULL) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_put_commit(put, PRECIS_WAL, NULL, NULL) != PRECIS_OK);
  precis_put_free(put);
  precis_put_free(NULL);
}

/* Stores prompts through the nodes of a cluster and reads them back. */
static void use_cluster(const char* addresses, const char* tenant) {
  precis_client* client = precis_client_new();
  precis_model* model;
  precis_connect_options options;
  const precis_model_spec spec = spec_of_test();
  memset(&options, 0, sizeof options);
  options.tenant = tenant;
  REQUIRE_OK(precis_client_connect(client, addresses, &options), precis_client_error(client));
  REQUIRE_OK(precis_model_register(client, &spec, &model), precis_client_error(client));
  for (uint32_t prompt = 0; prompt < 20; ++prompt) {
    for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = 1000 * prompt + i;
    const precis_segment_id segment = store(client, model, 0.5);
    precis_prefix* half = read_back(client, model, 0);
    check_rows(half, kHeads * kTokens / 2);
    precis_prefix_free(half);
    if (prompt > 0) continue;
    REQUIRE_OK(precis_remove(client, &segment, 0), precis_client_error(client));
    CHECK(precis_remove(client, &segment, 0) == PRECIS_NOT_FOUND);
  }
  precis_model_free(model);
  precis_client_free(client);
}

/* C_TEST DIRECTORY, or C_TEST ADDRESSES TENANT of a cluster. */
int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) return 2;
  fill();
  if (argc == 3) {
    use_cluster(argv[1], argv[2]);
    return failures > 0;
  }
  CHECK(strcmp(precis_status_name(PRECIS_NOT_FOUND), "not_found") == 0);

  precis_client* client = precis_client_new();
  precis_model* model;
  const precis_model_spec spec = spec_of_test();
  CHECK(precis_model_register(client, &spec, &model) == PRECIS_INVALID_ARGUMENT);
  CHECK(precis_client_connect(client, "nowhere", NULL) != PRECIS_OK);
  CHECK(strlen(precis_client_error(client)) > 0);
  REQUIRE_OK(precis_client_open(client, argv[1], 64u << 20), precis_client_error(client));
  REQUIRE_OK(precis_model_register(client, &spec, &model), precis_client_error(client));
  check_wrong_arguments(client, model);

  precis_match* match;
  REQUIRE_OK(precis_lookup(client, model, tokens, kTokens, &match), precis_client_error(client));
  CHECK(precis_match_tokens(match) == 0);
  precis_match_free(match);

  /* Half of all entries are stored. A reader gets these, or only a quarter of all entries. */
  const precis_segment_id segment = store(client, model, 0.5);
  precis_prefix* half = read_back(client, model, 0);
  precis_prefix* quarter = read_back(client, model, 0.25);
  check_rows(half, kHeads * kTokens / 2);
  check_rows(quarter, kHeads * kTokens / 4);
  precis_head head;
  CHECK(precis_prefix_head(half, kLayers, 0, &head) == PRECIS_INVALID_ARGUMENT);
  CHECK(strstr(precis_prefix_error(half), "layer") != NULL);

  /* The segment is the tip of a session, and it can still be removed. */
  precis_segment_id tip;
  uint32_t length = 0;
  REQUIRE_OK(precis_session_open(client, "chat", 0), precis_client_error(client));
  REQUIRE_OK(precis_session_advance(client, "chat", &segment), precis_client_error(client));
  REQUIRE_OK(precis_session_tip(client, "chat", &tip, &length), precis_client_error(client));
  CHECK(memcmp(&tip, &segment, sizeof tip) == 0 && length == kTokens);
  REQUIRE_OK(precis_remove(client, &segment, 0), precis_client_error(client));
  CHECK(precis_remove(client, &segment, 0) == PRECIS_NOT_FOUND);

  /* A put that is aborted leaves nothing. */
  precis_put* put;
  REQUIRE_OK(precis_put_begin(client, model, tokens, kTokens, "knorm", 1, &put),
             precis_client_error(client));
  REQUIRE_OK(precis_put_abort(put), precis_put_error(put));
  CHECK(precis_put_commit(put, PRECIS_WAL, NULL, NULL) != PRECIS_OK);

  /* Handles are freed in any order. */
  precis_client_free(client);
  precis_prefix_free(half);
  precis_put_free(put);
  precis_prefix_free(quarter);
  precis_model_free(model);
  if (failures > 0) fprintf(stderr, "%d checks failed\n", failures);
  return failures > 0;
}
