/* Generation: whole UTF-8 sequences, where it stops, how it goes on, and the sampler's promises. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

typedef struct heard {
  int n;
  int32_t tokens[128];
  char texts[128][16];
  char all[1024];
  int stop_at; /* refuse the token of this index; -1: never */
} heard;

/* Well-formed UTF-8 without overlong forms, surrogates or half sequences? */
static int is_utf8(const char* s, size_t n) {
  const unsigned char* p = (const unsigned char*)s;
  size_t i = 0, j;
  while (i < n) {
    const unsigned char c = p[i];
    size_t more = 0;
    uint32_t code = 0;
    if (c < 0x80) {
      i += 1;
      continue;
    }
    if (c >= 0xC2 && c <= 0xDF)
      more = 1, code = c & 0x1Fu;
    else if (c >= 0xE0 && c <= 0xEF)
      more = 2, code = c & 0x0Fu;
    else if (c >= 0xF0 && c <= 0xF4)
      more = 3, code = c & 0x07u;
    else
      return 0;
    if (i + more >= n) return 0;
    for (j = 1; j <= more; ++j) {
      if ((p[i + j] & 0xC0) != 0x80) return 0;
      code = code << 6 | (p[i + j] & 0x3Fu);
    }
    if (more == 2 && (code < 0x800 || (code >= 0xD800 && code <= 0xDFFF))) return 0;
    if (more == 3 && (code < 0x10000 || code > 0x10FFFF)) return 0;
    i += more + 1;
  }
  return 1;
}

static int32_t hear(void* user, int32_t token, const char* text, size_t text_bytes) {
  heard* h = (heard*)user;
  CHECK(text != NULL && text[text_bytes] == '\0');
  CHECK(is_utf8(text, text_bytes));
  if (h->n < 128 && text_bytes < 16 && strlen(h->all) + text_bytes < sizeof h->all) {
    h->tokens[h->n] = token;
    memcpy(h->texts[h->n], text, text_bytes + 1);
    strcat(h->all, text);
  }
  return h->n++ == h->stop_at ? 77 : 0;
}

static void deaf(heard* h) {
  memset(h, 0, sizeof *h);
  h->stop_at = -1;
}

static blend_generate_options options(uint32_t max_tokens) {
  blend_generate_options o;
  CHECK(blend_generate_options_init(&o, sizeof o) == BLEND_OK);
  o.max_tokens = max_tokens;
  return o;
}

void generate_whole_sequences(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS, kB = CHAIN_BYTE('b');
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion* fusion;
  blend_generate_options o = options(100);
  heard h;
  size_t n = 0;
  int i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  fusion = fuse_question(model, &kBos, 1, 50);
  REQUIRE(fusion != NULL);
  deaf(&h);
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 7 && h.n == 7);
  for (i = 0; i < 3; ++i) CHECK(strcmp(h.texts[i], "") == 0);
  CHECK(strcmp(h.texts[3], "\xF0\x9F\x98\x80") == 0);
  CHECK(strcmp(h.texts[4], "a") == 0);
  CHECK(strcmp(h.texts[5], "") == 0);
  CHECK(strcmp(h.texts[6], "\xC3\xA9") == 0);
  blend_fusion_close(fusion);

  /* A lead byte that no continuation follows: whatever stands for it, 'c' comes through whole. */
  fusion = fuse_question(model, &kB, 1, 50);
  REQUIRE(fusion != NULL);
  deaf(&h);
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 2);
  CHECK(strlen(h.texts[1]) >= 1 && h.texts[1][strlen(h.texts[1]) - 1] == 'c');
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void generate_stops(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS;
  static const int32_t kStops[2] = {300, CHAIN_BYTE('a')};
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion* fusion;
  blend_generate_options o = options(5);
  heard h;
  size_t n = 0;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);

  fusion = fuse_question(model, &kBos, 1, 50);
  deaf(&h);
  CHECK_CODE(BLEND_OK, blend_fusion_generate(fusion, &o, hear, &h, &n, &err)); /* max_tokens */
  CHECK(n == 5 && h.n == 5 && h.tokens[4] == CHAIN_BYTE('a'));
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err)); /* EOS */
  CHECK(n == 2 && h.n == 7 && h.tokens[6] == CHAIN_BYTE(0xA9));
  blend_fusion_close(fusion);

  fusion = fuse_question(model, &kBos, 1, 50);
  deaf(&h);
  o = options(50);
  o.stop_tokens = kStops;
  o.n_stop_tokens = 2;
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 4 && h.n == 4 && h.tokens[3] == CHAIN_BYTE(0x80)); /* the stop token is not told */
  blend_fusion_close(fusion);

  fusion = fuse_question(model, &kBos, 1, 50);
  deaf(&h);
  o = options(10);
  o.ignore_eos = 1;
  CHECK_CODE(BLEND_OK, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 10 && h.tokens[7] == CHAIN_EOS);
  blend_fusion_close(fusion);

  fusion = fuse_question(model, &kBos, 1, 50);
  o.stop_tokens = NULL;
  o.n_stop_tokens = 2;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* Where max_tokens falls between two bytes of a character, the next call completes it. */
void generate_in_parts(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS;
  uint32_t first;
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  for (first = 1; first < 7; ++first) {
    blend_generate_options o = options(first);
    blend_fusion* fusion = fuse_question(model, &kBos, 1, 50);
    heard h;
    size_t n = 0;
    REQUIRE(fusion != NULL);
    deaf(&h);
    CHECK_CODE(BLEND_OK, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
    o.max_tokens = 50;
    CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
    if (strcmp(h.all, "\xF0\x9F\x98\x80\x61\xC3\xA9") != 0) {
      capi_fail(__FILE__, __LINE__, "cut after %u tokens the text is '%s'", (unsigned)first, h.all);
    }
    blend_fusion_close(fusion);
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* A callback that stops at a token: counted, not appended; the next call says it again. */
void generate_resumes(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS;
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion* fusion;
  blend_generate_options o = options(50);
  heard h;
  size_t n = 0;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  fusion = fuse_question(model, &kBos, 1, 50);
  deaf(&h);
  h.stop_at = 4;
  {
    blend_error* err = NULL;
    CHECK(blend_fusion_generate(fusion, &o, hear, &h, &n, &err) == BLEND_E_CALLBACK);
    CHECK(blend_error_detail(err) == 77);
    blend_error_free(err);
  }
  CHECK(n == 5 && h.n == 5 && h.tokens[4] == CHAIN_BYTE('a'));
  deaf(&h);
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 3 && h.tokens[0] == CHAIN_BYTE('a') && strcmp(h.all, "a\xC3\xA9") == 0);
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

static int same_tokens(const heard* a, const heard* b) {
  return a->n == b->n && memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof *a->tokens) == 0;
}

static void sample(const blend_model* model, const blend_generate_options* o, heard* h) {
  int32_t tokens[6];
  blend_fusion* fusion;
  size_t n = 0;
  fill_tokens(tokens, 6, 11);
  fusion = fuse_question(model, tokens, 6, 64);
  deaf(h);
  CHECK_OK(blend_fusion_generate(fusion, o, hear, h, &n, &err));
  CHECK(n == 40 && h->n == 40);
  blend_fusion_close(fusion);
}

void generate_samples(const fixture* f) {
  static const float kTemperatures[] = {-1, NAN, INFINITY};
  static const float kTopP[] = {-0.5f, 1.5f, NAN};
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion* fusion;
  blend_generate_options o = options(40);
  heard greedy, a, b;
  int32_t tokens[3] = {5, 6, 7};
  uint64_t seed;
  size_t i;
  int different = 0;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  o.ignore_eos = 1;
  sample(model, &o, &greedy);
  sample(model, &o, &a);
  CHECK(same_tokens(&greedy, &a));

  o.temperature = 1;
  for (seed = 0; seed < 4; ++seed) {
    o.seed = seed;
    sample(model, &o, &a);
    sample(model, &o, &b);
    CHECK(same_tokens(&a, &b)); /* same seed, same tokens */
    different += !same_tokens(&a, &greedy);
  }
  CHECK(different >= 3);
  o.seed = 9;
  sample(model, &o, &b);
  CHECK(!same_tokens(&a, &b)); /* another seed, other tokens */
  o.top_k = 1;
  sample(model, &o, &a);
  CHECK(same_tokens(&a, &greedy));
  o.top_k = 0;
  o.top_p = 1e-6f;
  sample(model, &o, &a);
  CHECK(same_tokens(&a, &greedy));

  fusion = fuse_question(model, tokens, 3, 8);
  for (i = 0; i < 3; ++i) {
    o = options(4);
    o.temperature = kTemperatures[i];
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "temperature",
               blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
    o = options(4);
    o.temperature = 1;
    o.top_p = kTopP[i];
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "top_p",
               blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
  }
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void generate_to_the_end_of_the_cache(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion* fusion;
  blend_generate_options o = options(100);
  int32_t tokens[3] = {5, 6, 7};
  size_t n = 99;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  o.ignore_eos = 1;
  fusion = fuse_question(model, tokens, 3, 6);
  REQUIRE(fusion != NULL);
  CHECK_OK(blend_fusion_generate(fusion, &o, NULL, NULL, &n, &err));
  CHECK(n == 6 || n == 7); /* the last one need not be appended */
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(fusion, tokens, 1, NULL, &err));
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
}
