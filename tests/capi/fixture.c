#include "fixture.h"

#include <stdio.h>
#include <string.h>

int32_t chain_next(int32_t token) {
  static const int32_t kStory[] = {CHAIN_BOS,        CHAIN_BYTE(0xF0), CHAIN_BYTE(0x9F),
                                   CHAIN_BYTE(0x98), CHAIN_BYTE(0x80), CHAIN_BYTE('a'),
                                   CHAIN_BYTE(0xC3), CHAIN_BYTE(0xA9), CHAIN_EOS};
  static const int32_t kBroken[] = {CHAIN_BYTE('b'), CHAIN_BYTE(0xE2), CHAIN_BYTE('c'), CHAIN_EOS};
  size_t i;
  for (i = 0; i + 1 < sizeof kStory / sizeof *kStory; ++i) {
    if (kStory[i] == token) return kStory[i + 1];
  }
  for (i = 0; i + 1 < sizeof kBroken / sizeof *kBroken; ++i) {
    if (kBroken[i] == token) return kBroken[i + 1];
  }
  return (token + 1) % CHAIN_N_VOCAB;
}

void capi_check(const char* file, int line, const char* call, int32_t expected, int32_t got,
                blend_error* err, const char* word) {
  if (got != expected) {
    capi_fail(file, line, "%s gave %s, not %s: %s", call, blend_code_name(got),
              blend_code_name(expected), got < 0 ? blend_error_message(err) : "");
  }
  if (got >= 0) {
    if (err != NULL) capi_fail(file, line, "%s succeeded and left an error object", call);
    return;
  }
  if (err == NULL || err == (blend_error*)(uintptr_t)16) {
    capi_fail(file, line, "%s failed without an error object", call);
    return;
  }
  if (blend_error_code(err) != got) capi_fail(file, line, "%s: the object has another code", call);
  if (strlen(blend_error_message(err)) < 8) capi_fail(file, line, "%s: no sentence", call);
  if (word != NULL && strstr(blend_error_message(err), word) == NULL) {
    capi_fail(file, line, "%s does not name %s: %s", call, word, blend_error_message(err));
  }
  blend_error_free(err);
}

blend_ctx* open_ctx(void) {
  blend_ctx* ctx = NULL;
  blend_ctx_options options = {.struct_size = sizeof options};
  options.n_threads = 2;
  CHECK_OK(blend_ctx_create(&ctx, &options, &err));
  return ctx;
}

blend_model* open_model(const blend_ctx* ctx, const char* path) {
  blend_model* model = NULL;
  CHECK_OK(blend_model_open(&model, ctx, path, NULL, &err));
  return model;
}

blend_store* open_store(const fixture* f, const blend_ctx* ctx, const char* name) {
  blend_store* store = NULL;
  blend_store_options options;
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  options.check_every = UINT32_MAX; /* flags are compared, and that of a check comes and goes */
  options.kv_dtype = BLEND_DTYPE_F32;
  options.quota_bytes = 64u << 20;
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, name), &options, &err));
  return store;
}

void fill_tokens(int32_t* tokens, size_t n, int32_t first) {
  size_t i;
  for (i = 0; i < n; ++i) tokens[i] = (first + (int32_t)i * 7) % 300;
}

blend_segment segment(uint32_t kind, const int32_t* tokens, size_t n) {
  blend_segment s = {.struct_size = sizeof s};
  s.kind = kind;
  s.tokens = tokens;
  s.n_tokens = n;
  return s;
}

blend_fuse_options fuse_options(void) {
  static const int32_t nothing = 0;
  blend_fuse_options o;
  CHECK(blend_fuse_options_init(&o, sizeof o) == BLEND_OK);
  o.reserve_tokens = 32;
  o.ratio = 0.15; /* the default learns, in rows and in records: no two fuses need be the same */
  o.on_miss = BLEND_MISS_PRECOMPUTE;
  o.chunk_prefix = &nothing; /* as chunks are put by most tests: NULL is the head of the prompt */
  return o;
}

blend_fusion* fuse_question(const blend_model* model, const int32_t* tokens, size_t n,
                            uint32_t reserve) {
  blend_fusion* fusion = NULL;
  const blend_segment s = segment(BLEND_SEGMENT_QUESTION, tokens, n);
  blend_fuse_options o = fuse_options();
  o.policy = BLEND_POLICY_FULL;
  o.reserve_tokens = reserve;
  CHECK_OK(blend_fuse(&fusion, model, NULL, &s, 1, &o, &err));
  return fusion;
}

const char* path_in(const fixture* f, const char* name) {
  static char buffers[4][4096];
  static int next = 0;
  char* out = buffers[next++ % 4];
  snprintf(out, sizeof buffers[0], "%s/%s", f->dir, name);
  return out;
}

int same_logits(const blend_fusion* a, const blend_fusion* b) {
  const float *x = NULL, *y = NULL;
  size_t n = 0, m = 0;
  if (blend_fusion_get_logits(a, &x, &n, NULL) != BLEND_OK) return 0;
  if (blend_fusion_get_logits(b, &y, &m, NULL) != BLEND_OK) return 0;
  return n == m && n > 0 && memcmp(x, y, n * sizeof *x) == 0;
}

int open_world(const fixture* f, world* w) {
  w->ctx = open_ctx();
  w->model = w->ctx == NULL ? NULL : open_model(w->ctx, f->model);
  w->store = w->ctx == NULL ? NULL : open_store(f, w->ctx, "store");
  return w->model != NULL && w->store != NULL;
}

void close_world(world* w) {
  blend_store_close(w->store);
  blend_model_close(w->model);
  blend_ctx_close(w->ctx);
}
