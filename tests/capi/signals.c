/* Signals: the library's threads take none, and calls that handlers interrupt give what they give
 * without. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "started.h"
#include "storm.h"

#define N 192 /* tokens of the prompts */

/* ---- The masks. */

/* A call that starts at least this many threads, each with the right mask. A new thread says what
 * it found after it was counted: the calls below return when their threads have begun or ended. */
static void check_started(const char* what, int at_least, int* n, int* wrong) {
  int w = 0;
  *n = started_take(&w);
  *wrong = w;
  if (*n >= 0 && *n < at_least) {
    capi_fail(__FILE__, __LINE__, "%s started %d threads, not %d or more", what, *n, at_least);
  }
}

void signals_blocked_in_our_threads(const fixture* f) {
  static int32_t tokens[N];
  blend_ctx_options ctx_options = {.struct_size = sizeof ctx_options};
  blend_store_options store_options;
  blend_precompute_options put = {.struct_size = sizeof put};
  blend_fuse_options o = fuse_options();
  blend_segment s[3];
  blend_ctx* ctx = NULL;
  blend_model* model;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  blend_layerwise* layerwise = NULL;
  blend_chunk_id id;
  int n, wrong, n_wrong = 0;

  started_take(&wrong);
  ctx_options.n_threads = 3;
  CHECK_OK(blend_ctx_create(&ctx, &ctx_options, &err));
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  check_started("blend_ctx_create", 2, &n, &wrong);
  n_wrong += wrong;

  CHECK(blend_store_options_init(&store_options, sizeof store_options) == BLEND_OK);
  store_options.read_mode = BLEND_READ_THREADS;
  store_options.ram_bytes = 16u << 20;
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, "store"), &store_options, &err));
  REQUIRE(model != NULL && store != NULL);
  fill_tokens(tokens, N, 3);
  CHECK_OK(blend_precompute(model, store, tokens, 64, &put, &id, &err));
  put.flags = BLEND_PUT_BACKGROUND;
  CHECK_OK(blend_precompute(model, store, tokens + 1, 64, &put, &id, &err));
  CHECK_OK(blend_store_flush(store, &err));
  check_started("a store that reads by threads, and a put in the background", 5, &n, &wrong);
  n_wrong += wrong;

  CHECK_OK(blend_store_prefetch(store, &id, 1, &err));
  check_started("blend_store_prefetch", 1, &n, &wrong);
  n_wrong += wrong;

  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 64);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 90, 64); /* not stored */
  s[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 160, 20);
  o.on_miss = BLEND_MISS_COMPUTE_STORE;
  CHECK_OK(blend_fuse(&fusion, model, store, s, 3, &o, &err));
  CHECK_OK(blend_store_flush(store, &err));
  check_started("a fuse that leaves a miss behind", 2, &n, &wrong);
  n_wrong += wrong;

  o.on_miss = BLEND_MISS_COMPUTE;
  CHECK_OK(blend_layerwise_create(&layerwise, model, store, s, 3, &o, &err));
  blend_layerwise_close(layerwise);
  check_started("blend_layerwise_create", 2, &n, &wrong);
  n_wrong += wrong;

  CHECK_OK(blend_store_copy(store, path_in(f, "copy"), &err));
  check_started("blend_store_copy", 2, &n, &wrong);
  n_wrong += wrong;

  blend_fusion_close(fusion);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx); /* joins: whoever had begun has told its mask by now */
  started_take(&wrong);
  n_wrong += wrong;
  if (n_wrong != 0) capi_fail(__FILE__, __LINE__, "%d threads started with wrong masks", n_wrong);
}

/* ---- The storms. */

/* What a round computed, byte after byte. */
typedef struct record {
  unsigned char* bytes;
  size_t n;
} record;

static void add(record* r, const void* bytes, size_t n) {
  unsigned char* grown = realloc(r->bytes, r->n + n);
  REQUIRE(grown != NULL);
  memcpy(grown + r->n, bytes, n);
  r->bytes = grown;
  r->n += n;
}

static void add_logits(record* r, const blend_fusion* fusion) {
  const float* logits = NULL;
  size_t n = 0;
  REQUIRE(fusion != NULL);
  CHECK_OK(blend_fusion_get_logits(fusion, &logits, &n, &err));
  add(r, logits, n * sizeof *logits);
}

static int32_t add_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  (void)text;
  (void)text_bytes;
  add((record*)user, &token, sizeof token);
  return 0;
}

typedef struct setup {
  const char* model;
  uint32_t weights; /* BLEND_WEIGHTS_* */
  uint32_t read_mode;
} setup;

/* Opens everything again: opening and closing happen under the storm, too. */
static void compute_round(const fixture* f, const setup* how, int number, record* out) {
  static const double kRatios[] = {0, 0.15, 0.5, 1};
  static int32_t tokens[N];
  char name[32];
  blend_model_options model_options = {.struct_size = sizeof model_options};
  blend_store_options store_options;
  blend_precompute_options put = {.struct_size = sizeof put};
  blend_generate_options g;
  blend_segment s[4];
  blend_fuse_options o = fuse_options();
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  blend_chunk_id id;
  size_t i, n = 0;

  REQUIRE(ctx != NULL);
  model_options.weights = how->weights;
  CHECK_OK(blend_model_open(&model, ctx, how->model, &model_options, &err));
  snprintf(name, sizeof name, "store-%d", number);
  CHECK(blend_store_options_init(&store_options, sizeof store_options) == BLEND_OK);
  store_options.read_mode = how->read_mode;
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, name), &store_options, &err));
  REQUIRE(model != NULL && store != NULL);

  fill_tokens(tokens, N, 3);
  CHECK_OK(blend_precompute(model, store, tokens, 60, &put, &id, &err));
  put.flags = BLEND_PUT_BACKGROUND;
  CHECK_OK(blend_precompute(model, store, tokens + 60, 60, &put, &id, &err));
  CHECK_OK(blend_store_flush(store, &err));

  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens + 60, 60);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens, 60);
  s[2] = segment(BLEND_SEGMENT_CHUNK, tokens + 120, 40); /* the first fuse stores it */
  s[3] = segment(BLEND_SEGMENT_QUESTION, tokens + 160, N - 160);
  for (i = 0; i < sizeof kRatios / sizeof *kRatios; ++i) {
    o.ratio = kRatios[i];
    CHECK_OK(blend_fuse(&fusion, model, store, s, 4, &o, &err));
    add_logits(out, fusion);
    blend_fusion_close(fusion);
    CHECK_OK(blend_store_flush(store, &err));
  }
  o.policy = BLEND_POLICY_FULL;
  CHECK_OK(blend_fuse(&fusion, model, store, s, 4, &o, &err));
  add_logits(out, fusion);
  CHECK(blend_generate_options_init(&g, sizeof g) == BLEND_OK);
  g.max_tokens = 12;
  g.ignore_eos = 1;
  CHECK_OK(blend_fusion_generate(fusion, &g, add_token, out, &n, &err));
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_remove(store, &id, NULL, &err));
  blend_store_close(store);
  CHECK_OK(blend_store_compact(path_in(f, name), NULL, NULL, &err));
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* Rounds until the storm has been heavy enough, with handlers after which system calls go on by
 * themselves and with handlers after which they do not. */
static void storm_over(const fixture* f, const setup* how) {
  static const int kFlags[] = {SA_RESTART, 0};
  record calm = {NULL, 0};
  size_t i;
  int number = 0;
  compute_round(f, how, number++, &calm);
  REQUIRE(calm.n > 0);
  for (i = 0; i < sizeof kFlags / sizeof *kFlags; ++i) {
    REQUIRE(storm_begin(kFlags[i]));
    do {
      record r = {NULL, 0};
      compute_round(f, how, number++, &r);
      CHECK(r.n == calm.n && r.bytes != NULL && memcmp(r.bytes, calm.bytes, calm.n) == 0);
      free(r.bytes);
    } while (storm_handled() < 3000);
    storm_end();
    CHECK(storm_trampled() == 0);
  }
  free(calm.bytes);
}

void signals_storm_packed(const fixture* f) {
  setup how = {NULL, BLEND_WEIGHTS_PACKED, BLEND_READ_THREADS};
  how.model = f->wide_model;
  storm_over(f, &how);
}

void signals_storm_quantized(const fixture* f) {
  setup how = {NULL, BLEND_WEIGHTS_MAPPED, BLEND_READ_AUTO};
  how.model = f->quantized_model;
  storm_over(f, &how);
}

void signals_storm_int8(const fixture* f) {
  setup how = {NULL, BLEND_WEIGHTS_INT8, BLEND_READ_MAPPED};
  how.model = f->wide_model;
  storm_over(f, &how);
}
