/* Forks of a fusion: each is what a fuse of its own would be, whoever is written to or closed
 * first. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define N 6
#define MOST 40

typedef struct heard {
  int32_t tokens[MOST];
  size_t n;
  const blend_cancel* cancel; /* requested at the fourth token */
} heard;

static int32_t hear(void* user, int32_t token, const char* text, size_t text_bytes) {
  heard* h = (heard*)user;
  (void)text;
  (void)text_bytes;
  if (h->n < MOST) h->tokens[h->n++] = token;
  if (h->cancel != NULL && h->n == 4) blend_cancel_request(h->cancel);
  return 0;
}

typedef struct job {
  blend_fusion* fusion;
  blend_generate_options options;
  heard heard;
  int32_t code;
} job;

static void set_up(job* j, size_t i) {
  CHECK(blend_generate_options_init(&j->options, sizeof j->options) == BLEND_OK);
  memset(&j->heard, 0, sizeof j->heard);
  j->options.ignore_eos = 1;
  j->options.max_tokens = (uint32_t)(12 + 3 * i);
  j->options.temperature = 1;
  j->options.seed = i;
}

static void* generate(void* user) {
  job* j = (job*)user;
  j->code = blend_fusion_generate(j->fusion, &j->options, hear, &j->heard, NULL, NULL);
  return NULL;
}

void fork_is_a_fuse_of_its_own(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion *first = NULL, *own[N];
  blend_cancel* cancel = NULL;
  job forks[N], alone[N];
  pthread_t threads[N];
  int32_t prompt[40];
  size_t i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  CHECK_OK(blend_cancel_create(&cancel, &err));
  fill_tokens(prompt, 40, 3);
  first = fuse_question(model, prompt, 37, MOST);
  REQUIRE(first != NULL);
  for (i = 0; i < N; ++i) {
    blend_fusion_report a, b;
    own[i] = fuse_question(model, prompt, 37, MOST);
    REQUIRE(own[i] != NULL);
    set_up(&forks[i], i);
    set_up(&alone[i], i);
    alone[i].fusion = own[i];
    /* The last is a fork of a fork, which has written by then. */
    CHECK_OK(blend_fusion_fork(&forks[i].fusion, i + 1 == N ? forks[0].fusion : first, &err));
    REQUIRE(forks[i].fusion != NULL);
    if (i == 0) {
      int32_t token = 262;
      CHECK_OK(blend_fusion_decode(forks[0].fusion, &token, 1, NULL, &err));
      CHECK_OK(blend_fusion_decode(own[0], &token, 1, NULL, &err));
    }
    if (i + 1 == N) {
      int32_t token = 262;
      CHECK_OK(blend_fusion_decode(own[i], &token, 1, NULL, &err));
    }
    CHECK(same_logits(forks[i].fusion, own[i]));
    a.struct_size = b.struct_size = sizeof a;
    CHECK_OK(blend_fusion_get_report(first, &a, &err));
    CHECK_OK(blend_fusion_get_report(forks[i].fusion, &b, &err));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
  }
  blend_fusion_close(first); /* before its forks */
  forks[1].heard.cancel = forks[1].options.cancel = cancel;
  for (i = 0; i < N; ++i) {
    CHECK(pthread_create(&threads[i], NULL, generate, &forks[i]) == 0);
  }
  for (i = 0; i < N; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  for (i = 0; i < N; ++i) {
    generate(&alone[i]);
    CHECK(forks[i].code == (i == 1 ? BLEND_E_CANCELLED : BLEND_OK) && alone[i].code == BLEND_OK);
    CHECK(forks[i].heard.n == (i == 1 ? 4 : alone[i].heard.n));
    CHECK(memcmp(forks[i].heard.tokens, alone[i].heard.tokens,
                 forks[i].heard.n * sizeof(int32_t)) == 0);
    if (i != 1) CHECK(same_logits(forks[i].fusion, own[i]));
  }
  /* Context and model before what was made of them. */
  blend_model_close(model);
  blend_ctx_close(ctx);
  for (i = 0; i < N; ++i) {
    blend_fusion_close(own[i]);
    blend_fusion_close(forks[i].fusion);
  }
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_fork(&first, NULL, &err));
  CHECK(first == NULL);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_fork(NULL, NULL, &err));
  blend_cancel_free(cancel);
}

/* Look-up changes nothing of what is told, in whatever it is asked for together. */
void generate_lookup_is_the_same_text(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  int32_t prompt[40];
  size_t i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  fill_tokens(prompt, 40, 3);
  memcpy(prompt + 20, prompt, 20 * sizeof *prompt);
  for (i = 0; i < 4; ++i) {
    job plain, looks;
    set_up(&plain, i);
    set_up(&looks, i);
    plain.options.max_tokens = looks.options.max_tokens = MOST;
    plain.options.temperature = looks.options.temperature = i % 2 == 0 ? 0.0f : 0.2f;
    looks.options.draft_tokens = 8;
    looks.options.draft_match = (uint32_t)(1 + i);
    plain.fusion = fuse_question(model, prompt, 35, MOST);
    looks.fusion = fuse_question(model, prompt, 35, MOST);
    REQUIRE(plain.fusion != NULL && looks.fusion != NULL);
    generate(&plain);
    generate(&looks);
    CHECK(plain.code == BLEND_OK && looks.code == BLEND_OK);
    CHECK(memcmp(&plain.heard, &looks.heard, sizeof plain.heard) == 0);
    CHECK(same_logits(plain.fusion, looks.fusion));
    looks.options.draft_tokens = 17;
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "draft_tokens 17",
               blend_fusion_generate(looks.fusion, &looks.options, NULL, NULL, NULL, &err));
    looks.options.draft_tokens = 1;
    looks.options.draft_match = 0;
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "draft_match 0",
               blend_fusion_generate(looks.fusion, &looks.options, NULL, NULL, NULL, &err));
    blend_fusion_close(plain.fusion);
    blend_fusion_close(looks.fusion);
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}
