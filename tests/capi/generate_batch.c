/* Several generations on one thread: each is what it is by itself, whatever becomes of the others.
 */
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

#define N 7
#define MOST 40

typedef struct heard {
  int32_t tokens[MOST];
  size_t n;
  size_t stop_at; /* refuse this one; MOST: none */
  const blend_cancel* cancel;
} heard;

static int32_t hear(void* user, int32_t token, const char* text, size_t text_bytes) {
  heard* h = (heard*)user;
  (void)text;
  (void)text_bytes;
  if (h->n < MOST) h->tokens[h->n] = token;
  if (h->cancel != NULL && h->n == 4) blend_cancel_request(h->cancel);
  return h->n++ == h->stop_at ? 31 : 0;
}

static void set_up(blend_generate_options* o, heard* h, size_t i) {
  CHECK(blend_generate_options_init(o, sizeof *o) == BLEND_OK);
  memset(h, 0, sizeof *h);
  h->stop_at = MOST;
  o->ignore_eos = 1;
  o->max_tokens = (uint32_t)(6 + 4 * i);
  o->n_threads = (uint32_t)(i % 3);
  if (i % 2 == 1) o->temperature = 1, o->seed = i;
}

void generate_batch_is_each_alone(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_fusion *alone[N], *together[N];
  blend_generate_options o[N];
  blend_generate_request requests[N];
  heard want[N], got[N];
  int32_t codes[N];
  size_t n_generated[N], i;
  blend_error* errors[N];
  blend_cancel* cancel = NULL;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  CHECK_OK(blend_cancel_create(&cancel, &err));
  memset(requests, 0, sizeof requests);
  for (i = 0; i < N; ++i) {
    int32_t prompt[20];
    fill_tokens(prompt, 20, (int32_t)i);
    alone[i] = fuse_question(model, prompt, 3 + 2 * i, 64);
    together[i] = fuse_question(model, prompt, 3 + 2 * i, 64);
    REQUIRE(alone[i] != NULL && together[i] != NULL);
    set_up(&o[i], &want[i], i);
    CHECK_OK(blend_fusion_generate(alone[i], &o[i], hear, &want[i], NULL, &err));
    set_up(&o[i], &got[i], i);
    requests[i].struct_size = sizeof *requests;
    requests[i].fusion = together[i];
    requests[i].options = &o[i];
    requests[i].fn = hear;
    requests[i].user = &got[i];
  }
  got[1].stop_at = 2;
  got[3].cancel = o[3].cancel = cancel;
  o[5].top_p = 7;
  CHECK_CODE(BLEND_PARTIAL, blend_generate_batch(codes, n_generated, errors, requests, N, &err));
  for (i = 0; i < N; ++i) {
    const int32_t code = i == 1   ? BLEND_E_CALLBACK
                         : i == 3 ? BLEND_E_CANCELLED
                         : i == 5 ? BLEND_E_INVALID_ARGUMENT
                                  : BLEND_OK;
    const size_t n = i == 1 ? 3 : i == 3 ? 5 : i == 5 ? 0 : want[i].n;
    CHECK(codes[i] == code && (errors[i] != NULL) == (code < 0));
    CHECK(blend_error_code(errors[i]) == code);
    if (i == 1) CHECK(blend_error_detail(errors[i]) == 31);
    if (n_generated[i] != n || got[i].n != n ||
        memcmp(got[i].tokens, want[i].tokens, n * sizeof *got[i].tokens) != 0) {
      capi_fail(__FILE__, __LINE__, "request %d: %d tokens, others than alone", (int)i,
                (int)n_generated[i]);
    }
    if (code == BLEND_OK) CHECK(same_logits(alone[i], together[i]));
    blend_error_free(errors[i]);
  }
  /* Those that ended early go on where they were. */
  blend_cancel_reset(cancel);
  o[5].top_p = 1;
  o[3].max_tokens -= 4;
  o[1].max_tokens -= 2;
  o[1].temperature = o[3].temperature = 0;
  for (i = 1; i < N; i += 2) {
    got[i].n = 0;
    got[i].stop_at = MOST;
    got[i].cancel = NULL;
    requests[i / 2] = requests[i];
  }
  CHECK_OK(blend_generate_batch(NULL, NULL, NULL, requests, 3, &err));
  CHECK(got[1].n == o[1].max_tokens && got[3].n == o[3].max_tokens && got[5].n == want[5].n);
  CHECK(memcmp(got[5].tokens, want[5].tokens, want[5].n * sizeof *got[5].tokens) == 0);

  /* If the call itself fails, nothing is generated. */
  requests[1] = requests[0];
  got[1].n = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "requests 0 and 1",
             blend_generate_batch(codes, NULL, NULL, requests, 2, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_generate_batch(NULL, NULL, NULL, NULL, 1, &err));
  requests[0].struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_generate_batch(NULL, NULL, NULL, requests, 1, &err));
  CHECK_OK(blend_generate_batch(NULL, NULL, NULL, NULL, 0, &err));
  requests[0].struct_size = sizeof *requests;
  requests[0].fusion = NULL;
  CHECK_CODE(BLEND_PARTIAL, blend_generate_batch(codes, NULL, NULL, requests, 1, &err));
  CHECK(codes[0] == BLEND_E_INVALID_ARGUMENT && got[1].n == 0);
  for (i = 0; i < N; ++i) {
    blend_fusion_close(alone[i]);
    blend_fusion_close(together[i]);
  }
  blend_cancel_free(cancel);
  blend_model_close(model);
  blend_ctx_close(ctx);
}
