/* Stop texts, penalties, bias, the logits callback and logprobs, each against a plain loop over the
 * logits of blend_fusion_decode. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

typedef struct told {
  char all[256];
  int32_t tokens[64];
  int n, n_untold; /* calls with a token, and without one */
} told;

static int32_t tell(void* user, int32_t token, const char* text, size_t text_bytes) {
  told* t = (told*)user;
  CHECK(text[text_bytes] == '\0' && strlen(t->all) + text_bytes < sizeof t->all);
  strcat(t->all, text);
  if (token < 0) {
    CHECK(token == -1 && text_bytes > 0);
    t->n_untold += 1;
  } else if (t->n < 64) {
    t->tokens[t->n++] = token;
  }
  return 0;
}

static blend_generate_options options(uint32_t max_tokens) {
  blend_generate_options o;
  CHECK(blend_generate_options_init(&o, sizeof o) == BLEND_OK);
  o.max_tokens = max_tokens;
  return o;
}

static blend_text text_of(const char* s) {
  blend_text t;
  t.bytes = s;
  t.n_bytes = strlen(s);
  return t;
}

/* The chain says F0 9F 98 80 'a' C3 A9 EOS, a byte a token. */
void sampling_stop_texts(const fixture* f) {
  static const struct {
    const char* stop[2];
    uint32_t max_tokens;
    const char* text;
    int32_t code;
    int tokens, untold;
  } kCases[] = {
      {{"a", NULL}, 50, "\xF0\x9F\x98\x80", BLEND_STOPPED, 5, 0},
      {{"a\xC3\xA9", NULL}, 50, "\xF0\x9F\x98\x80", BLEND_STOPPED, 7, 0},
      {{"\x98\x80"
        "a",
        NULL},
       50,
       "",
       BLEND_STOPPED,
       5,
       0}, /* the text ends inside a character, which is not told */
      {{"\xA9!", NULL}, 50, "\xF0\x9F\x98\x80\x61\xC3\xA9", BLEND_STOPPED, 7, 1},
      {{"a\xC3\xA9!", "no"}, 50, "\xF0\x9F\x98\x80\x61\xC3\xA9", BLEND_STOPPED, 7, 1},
      {{"zz", "\xC3"}, 50, "\xF0\x9F\x98\x80\x61", BLEND_STOPPED, 6, 0},
      {{"a!", NULL}, 5, "\xF0\x9F\x98\x80\x61", BLEND_OK, 5, 0}, /* let go with the last token */
  };
  static const int32_t kBos = CHAIN_BOS;
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  size_t i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  for (i = 0; i < sizeof kCases / sizeof *kCases; ++i) {
    blend_fusion* fusion = fuse_question(model, &kBos, 1, 50);
    blend_generate_options o = options(kCases[i].max_tokens);
    blend_text stops[2];
    const int32_t* rows = NULL;
    size_t n = 0, n_rows = 0;
    told t;
    int32_t code;
    REQUIRE(fusion != NULL);
    memset(&t, 0, sizeof t);
    stops[0] = text_of(kCases[i].stop[0]);
    o.n_stop_texts = 1;
    if (kCases[i].stop[1] != NULL) {
      stops[1] = text_of(kCases[i].stop[1]);
      o.n_stop_texts = 2;
    }
    o.stop_texts = stops;
    code = kCases[i].code;
    CHECK_CODE(code, blend_fusion_generate(fusion, &o, tell, &t, &n, &err));
    CHECK_OK(blend_fusion_get_tokens(fusion, &rows, &n_rows, &err));
    if (strcmp(t.all, kCases[i].text) != 0 || t.n != kCases[i].tokens || n != (size_t)t.n ||
        t.n_untold != kCases[i].untold) {
      capi_fail(__FILE__, __LINE__, "case %d: '%s', %d tokens, %d without", (int)i, t.all, t.n,
                t.n_untold);
    }
    /* The token at which a stop text was whole is not appended; before EOS all are. */
    CHECK(n_rows == 1 + n - (code == BLEND_STOPPED && t.n_untold == 0 ? 1u : 0u));
    blend_fusion_close(fusion);
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}

#define N_STEPS 24

/* Halves every third logit, and forbids the tokens below 5. */
static void change(float* logits, size_t n_vocab) {
  size_t i;
  for (i = 0; i < n_vocab; ++i) {
    if (i % 3 == 0) logits[i] *= 0.5f;
    if (i < 5) logits[i] = -INFINITY;
  }
}

static int32_t change_logits(void* user, float* logits, size_t n_vocab) {
  *(int*)user += 1;
  change(logits, n_vocab);
  return 0;
}

void sampling_rules(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_model_info info = {.struct_size = sizeof info};
  int32_t prompt[6];
  float* want = NULL;
  int round, changed = 0;
  told plain;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  CHECK_OK(blend_model_get_info(model, &info, &err));
  want = malloc(info.n_vocab * sizeof *want);
  REQUIRE(want != NULL);
  fill_tokens(prompt, 6, 11);
  memset(&plain, 0, sizeof plain);
  for (round = 0; round < 5; ++round) {
    blend_fusion* twin = fuse_question(model, prompt, 6, 64);
    blend_fusion* fusion = fuse_question(model, prompt, 6, 64);
    blend_generate_options o = options(N_STEPS);
    blend_token_bias bias[2];
    told t;
    int step, calls = 0;
    REQUIRE(twin != NULL && fusion != NULL);
    memset(&t, 0, sizeof t);
    o.ignore_eos = 1;
    bias[0].token = 7;
    bias[0].bias = 1.5f;
    bias[1].token = plain.tokens[0];
    bias[1].bias = -INFINITY;
    if (round == 1) o.repetition_penalty = 1.7f;
    if (round == 2) o.frequency_penalty = 0.3f, o.presence_penalty = 0.4f, o.penalty_context = 3;
    if (round == 3) o.logit_bias = bias, o.n_logit_bias = 2;
    if (round == 4) {
      o.repetition_penalty = 1.3f;
      o.logits = change_logits;
      o.logits_user = &calls;
    }
    CHECK_OK(blend_fusion_generate(fusion, &o, tell, &t, NULL, &err));
    CHECK(t.n == N_STEPS && calls == (round == 4 ? N_STEPS : 0));
    if (round == 0) plain = t;
    for (step = 0; step < t.n; ++step) {
      const float* logits = NULL;
      size_t n_vocab = 0, i, best = 0;
      int j;
      CHECK_OK(blend_fusion_get_logits(twin, &logits, &n_vocab, &err));
      for (i = 0; i < n_vocab; ++i) {
        int times = 0;
        want[i] = logits[i];
        for (j = 0; j < step; ++j) times += t.tokens[j] == (int32_t)i;
        for (j = 6 - (int)o.penalty_context; j < 6; ++j) times += prompt[j] == (int32_t)i;
        if (times > 0) {
          if (want[i] > 0)
            want[i] /= o.repetition_penalty;
          else
            want[i] *= o.repetition_penalty;
          want[i] -= o.frequency_penalty * (float)times + o.presence_penalty;
        }
        for (j = 0; j < (int)o.n_logit_bias; ++j) {
          if (bias[j].token == (int32_t)i) want[i] += bias[j].bias;
        }
      }
      if (round == 4) change(want, n_vocab);
      for (i = 0; i < n_vocab; ++i) {
        if (want[i] > want[best]) best = i;
      }
      if (t.tokens[step] != (int32_t)best) {
        capi_fail(__FILE__, __LINE__, "round %d, step %d: token %d, not %d", round, step,
                  (int)t.tokens[step], (int)best);
        break;
      }
      CHECK_OK(blend_fusion_decode(twin, &t.tokens[step], 1, NULL, &err));
    }
    changed += memcmp(t.tokens, plain.tokens, sizeof t.tokens) != 0;
    blend_fusion_close(twin);
    blend_fusion_close(fusion);
  }
  CHECK(changed == 4); /* each rule does something here */
  free(want);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

typedef struct seen_logprobs {
  int n;
  blend_logprob own[16], top[16][3];
  int stop_at;
} seen_logprobs;

static int32_t see_logprobs(void* user, const blend_logprob* p, size_t n) {
  seen_logprobs* s = (seen_logprobs*)user;
  CHECK(n == 4 && s->n < 16);
  s->own[s->n] = p[0];
  memcpy(s->top[s->n], p + 1, sizeof s->top[0]);
  return s->n++ == s->stop_at ? 9 : 0;
}

void sampling_logprobs(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion *fusion, *twin;
  blend_generate_options o = options(10);
  int32_t prompt[6];
  seen_logprobs s;
  told t;
  size_t n = 0;
  int step, own_is_not_first = 0;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  fill_tokens(prompt, 6, 4);
  fusion = fuse_question(model, prompt, 6, 64);
  twin = fuse_question(model, prompt, 6, 64);
  REQUIRE(fusion != NULL && twin != NULL);
  memset(&s, 0, sizeof s);
  memset(&t, 0, sizeof t);
  s.stop_at = -1;
  o.ignore_eos = 1;
  o.temperature = 2; /* does not show in them */
  o.presence_penalty = 1;
  o.top_logprobs = 3;
  o.logprobs = see_logprobs;
  o.logprobs_user = &s;
  CHECK_OK(blend_fusion_generate(fusion, &o, tell, &t, NULL, &err));
  CHECK(s.n == 10 && t.n == 10);
  for (step = 0; step < 10; ++step) {
    const float* logits = NULL;
    size_t n_vocab = 0, i;
    double total = 0;
    int k;
    CHECK_OK(blend_fusion_get_logits(twin, &logits, &n_vocab, &err));
    for (i = 0; i < n_vocab; ++i) total += exp(logits[i]);
    CHECK(s.own[step].token == t.tokens[step]);
    CHECK(fabs(s.own[step].logprob - (logits[t.tokens[step]] - log(total))) < 1e-4);
    for (k = 0; k < 3; ++k) {
      const blend_logprob p = s.top[step][k];
      size_t above = 0;
      for (i = 0; i < n_vocab; ++i) above += logits[i] > logits[p.token];
      CHECK(above == (size_t)k);
      CHECK(fabs(p.logprob - (logits[p.token] - log(total))) < 1e-4);
    }
    own_is_not_first += s.own[step].token != s.top[step][0].token;
    CHECK_OK(blend_fusion_decode(twin, &t.tokens[step], 1, NULL, &err));
  }
  CHECK(own_is_not_first > 0);
  /* It stops as the others do: the token is counted, and was not told. */
  s.n = 0;
  s.stop_at = 1;
  t.n = 0;
  CHECK_CODE(BLEND_E_CALLBACK, blend_fusion_generate(fusion, &o, tell, &t, &n, &err));
  CHECK(n == 2 && t.n == 1);
  blend_fusion_close(fusion);
  blend_fusion_close(twin);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

static int32_t refuse(void* user, float* logits, size_t n_vocab) {
  (void)user;
  (void)logits;
  (void)n_vocab;
  return 7;
}
static int32_t spoil(void* user, float* logits, size_t n_vocab) {
  (void)n_vocab;
  logits[3] = *(const float*)user;
  return 0;
}
static int32_t forbid(void* user, float* logits, size_t n_vocab) {
  size_t i;
  (void)user;
  for (i = 0; i < n_vocab; ++i) logits[i] = -INFINITY;
  return 0;
}

void sampling_refuses(const fixture* f) {
  static float kNan = NAN, kInf = INFINITY;
  int32_t prompt[3] = {5, 6, 7};
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion *fusion, *twin;
  blend_token_bias bias = {1 << 20, 0};
  blend_text empty = {"x", 0}, null = {NULL, 3};
  blend_generate_options o;
  int i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  fusion = fuse_question(model, prompt, 3, 8);
  twin = fuse_question(model, prompt, 3, 8);
  REQUIRE(fusion != NULL && twin != NULL);
  for (i = 0; i < 13; ++i) {
    static const char* const kWords[] = {
        "min_p",      "repetition_penalty", "frequency_penalty", "presence_penalty",
        "1048576",    "logit_bias",         "stop text 0",       "stop text 0",
        "stop_texts", "top_logprobs",       "token 3",           "token 3",
        "every token"};
    o = options(4);
    if (i == 0) o.min_p = 2;
    if (i == 1) o.repetition_penalty = 0;
    if (i == 2) o.frequency_penalty = NAN;
    if (i == 3) o.presence_penalty = INFINITY;
    if (i == 4) o.logit_bias = &bias, o.n_logit_bias = 1;
    if (i == 5) o.n_logit_bias = 1;
    if (i == 6) o.stop_texts = &empty, o.n_stop_texts = 1;
    if (i == 7) o.stop_texts = &null, o.n_stop_texts = 1;
    if (i == 8) o.n_stop_texts = 1;
    if (i == 9) o.top_logprobs = 2;
    if (i == 10) o.logits = spoil, o.logits_user = &kNan;
    if (i == 11) o.logits = spoil, o.logits_user = &kInf;
    if (i == 12) o.logits = forbid;
    CHECK_SAYS(i == 10 || i == 11 ? BLEND_E_NUMERIC : BLEND_E_INVALID_ARGUMENT, kWords[i],
               blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
  }
  o = options(4);
  o.logits = refuse;
  CHECK_CODE(BLEND_E_CALLBACK, blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
  CHECK(same_logits(fusion, twin));
  blend_fusion_close(fusion);
  blend_fusion_close(twin);
  blend_model_close(model);
  blend_ctx_close(ctx);
}
