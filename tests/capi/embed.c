/* Embeddings through the ABI: what is put around texts, sizes, refusals. */
#include <math.h>
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT
#define D_MODEL 64
#define CONTEXT 512

static blend_embed_options embed_options(void) {
  blend_embed_options o;
  CHECK(blend_embed_options_init(&o, sizeof o) == BLEND_OK);
  return o;
}

static double length_of(const float* vector, size_t n) {
  double sum = 0;
  size_t i;
  for (i = 0; i < n; ++i) sum += (double)vector[i] * vector[i];
  return sqrt(sum);
}

void embed_texts_as_tokens(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = open_model(ctx, f->model);
  const blend_text texts[] = {{"the cat sat", 11}, {"a dog", 5}};
  blend_embed_options o = embed_options();
  float a[2 * D_MODEL], b[2 * D_MODEL], few[2 * 5], one[D_MODEL];
  int32_t tokens[64];
  size_t n_tokens[2], n = 0, i;
  uint32_t told[2] = {0, 0};
  REQUIRE(model != NULL);
  CHECK_OK(blend_model_embed(model, texts, 2, NULL, a, 2 * D_MODEL, told, &err));
  for (i = 0; i < 2; ++i) {
    /* BOS stands before it. */
    CHECK_OK(blend_model_tokenize(model, texts[i].bytes, texts[i].n_bytes, BLEND_TOKENIZE_BOS,
                                  tokens + n, 64 - n, &n_tokens[i], &err));
    CHECK(tokens[n] == 1);
    CHECK(told[i] == n_tokens[i]);
    n += n_tokens[i];
    CHECK(fabs(length_of(a + i * D_MODEL, D_MODEL) - 1) < 1e-5);
  }
  CHECK_OK(blend_model_embed_tokens(model, tokens, n_tokens, 2, NULL, b, 2 * D_MODEL, &err));
  CHECK(memcmp(a, b, sizeof a) == 0);
  CHECK_OK(blend_model_embed(model, texts + 1, 1, NULL, one, D_MODEL, NULL, &err));
  CHECK(memcmp(one, a + D_MODEL, sizeof one) == 0);
  o.n_dimensions = 5;
  CHECK_OK(blend_model_embed(model, texts, 2, &o, few, 10, NULL, &err));
  for (i = 0; i < 10; ++i) {
    const float* whole = a + i / 5 * D_MODEL;
    CHECK(fabs(few[i] - whole[i % 5] / length_of(whole, 5)) < 1e-5);
  }
  o.unnormalized = 1;
  CHECK_OK(blend_model_embed(model, texts, 2, &o, few, 10, NULL, &err));
  CHECK(fabs(length_of(few, 5) - 1) > 1e-3);
  CHECK_OK(blend_model_embed(model, NULL, 0, NULL, NULL, 0, NULL, &err));
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void embed_poolings(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = open_model(ctx, f->model);
  const int32_t tokens[] = {1, 270, 280, 290};
  const size_t whole = 4, start = 1;
  blend_embed_options o = embed_options();
  float own[D_MODEL], mean[D_MODEL], last[D_MODEL], first[D_MODEL], alone[D_MODEL];
  REQUIRE(model != NULL);
  CHECK_OK(blend_model_embed_tokens(model, tokens, &whole, 1, &o, own, D_MODEL, &err));
  o.pooling = BLEND_POOLING_MEAN;
  CHECK_OK(blend_model_embed_tokens(model, tokens, &whole, 1, &o, mean, D_MODEL, &err));
  o.pooling = BLEND_POOLING_LAST;
  CHECK_OK(blend_model_embed_tokens(model, tokens, &whole, 1, &o, last, D_MODEL, &err));
  CHECK_OK(blend_model_embed_tokens(model, tokens, &start, 1, &o, alone, D_MODEL, &err));
  o.pooling = BLEND_POOLING_FIRST;
  CHECK_OK(blend_model_embed_tokens(model, tokens, &whole, 1, &o, first, D_MODEL, &err));
  CHECK(memcmp(own, mean, sizeof own) == 0); /* its file says nothing */
  CHECK(memcmp(last, mean, sizeof last) != 0);
  CHECK(memcmp(first, alone, sizeof first) == 0); /* row 0 sees nothing after it */
  o.pooling = 4;
  CHECK_SAYS(INVALID, "pooling 4",
             blend_model_embed_tokens(model, tokens, &whole, 1, &o, own, D_MODEL, &err));
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void embed_refuses(const fixture* f) {
  static int32_t tokens[CONTEXT + 9];
  static float out[2 * D_MODEL], cut[D_MODEL];
  static char long_text[4 * CONTEXT];
  blend_ctx* ctx = open_ctx();
  blend_model* model = open_model(ctx, f->model);
  blend_text text = {"a", 1};
  const blend_text texts[] = {{"a", 1}, {NULL, 3}};
  size_t n = 2, lengths[] = {2, 0}, i;
  uint32_t told = 0;
  blend_embed_options o = embed_options();
  blend_cancel* cancel = NULL;
  REQUIRE(model != NULL);
  for (i = 0; i < CONTEXT + 9; ++i) tokens[i] = 259 + (int32_t)(i % 50);
  CHECK_SAYS(BLEND_E_BUFFER_TOO_SMALL, "63",
             blend_model_embed(model, &text, 1, NULL, out, D_MODEL - 1, NULL, &err));
  CHECK_CODE(INVALID, blend_model_embed(NULL, &text, 1, NULL, out, D_MODEL, NULL, &err));
  CHECK_CODE(INVALID, blend_model_embed(model, NULL, 1, NULL, out, D_MODEL, NULL, &err));
  CHECK_CODE(INVALID, blend_model_embed(model, &text, 1, NULL, NULL, D_MODEL, NULL, &err));
  CHECK_SAYS(INVALID, "text 1 is NULL",
             blend_model_embed(model, texts, 2, NULL, out, 2 * D_MODEL, NULL, &err));
  CHECK_CODE(INVALID, blend_model_embed_tokens(NULL, tokens, &n, 1, NULL, out, D_MODEL, &err));
  CHECK_CODE(INVALID, blend_model_embed_tokens(model, NULL, &n, 1, NULL, out, D_MODEL, &err));
  CHECK_CODE(INVALID, blend_model_embed_tokens(model, tokens, NULL, 1, NULL, out, D_MODEL, &err));
  CHECK_SAYS(INVALID, "text 1 has no tokens",
             blend_model_embed_tokens(model, tokens, lengths, 2, NULL, out, 2 * D_MODEL, &err));
  tokens[1] = 320;
  CHECK_SAYS(INVALID, "text 0: token 1 is 320",
             blend_model_embed_tokens(model, tokens, &n, 1, NULL, out, D_MODEL, &err));
  tokens[1] = 259;
  o.n_dimensions = D_MODEL + 1;
  CHECK_SAYS(INVALID, "n_dimensions 65",
             blend_model_embed(model, &text, 1, &o, out, D_MODEL, NULL, &err));
  o.n_dimensions = 0;

  n = CONTEXT + 1;
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "text 0",
             blend_model_embed_tokens(model, tokens, &n, 1, &o, out, D_MODEL, &err));
  memset(long_text, 'z', sizeof long_text);
  text.bytes = long_text;
  text.n_bytes = sizeof long_text;
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "text 0",
             blend_model_embed(model, &text, 1, &o, out, D_MODEL, NULL, &err));
  o.truncate = 1;
  CHECK_OK(blend_model_embed(model, &text, 1, &o, out, D_MODEL, &told, &err));
  CHECK(told == CONTEXT);
  CHECK_OK(blend_model_embed_tokens(model, tokens, &n, 1, &o, out, D_MODEL, &err));
  n = CONTEXT;
  CHECK_OK(blend_model_embed_tokens(model, tokens, &n, 1, NULL, cut, D_MODEL, &err));
  CHECK(memcmp(out, cut, sizeof cut) == 0);
  o.n_threads = 0xffffffffu;
  CHECK_SAYS(INVALID, "n_threads",
             blend_model_embed(model, &text, 1, &o, out, D_MODEL, NULL, &err));
  o.n_threads = 1;
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  o.cancel = cancel;
  CHECK_CODE(BLEND_E_CANCELLED, blend_model_embed(model, &text, 1, &o, out, D_MODEL, NULL, &err));
  blend_cancel_free(cancel);
  blend_model_close(model);
  blend_ctx_close(ctx);
}
