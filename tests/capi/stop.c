/* Stopping long work: cancel from before, from another thread, and by a callback's return value. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <string.h>

#include "fixture.h"

#define N 100

/* Set up once for every stoppable call. */
typedef struct work {
  world w;
  int32_t tokens[N];
  blend_segment s[3];
  blend_fusion* fusion; /* for decode and generate */
  const blend_cancel* cancel;
  blend_progress_fn progress;
  blend_token_fn token;
  void* user;
} work;

static int begin(const fixture* f, work* k) {
  memset(k, 0, sizeof *k);
  if (!open_world(f, &k->w)) return 0;
  fill_tokens(k->tokens, N, 3);
  k->s[0] = segment(BLEND_SEGMENT_CHUNK, k->tokens, 40);
  k->s[1] = segment(BLEND_SEGMENT_CHUNK, k->tokens + 30, 40);
  k->s[2] = segment(BLEND_SEGMENT_QUESTION, k->tokens + 70, 30);
  k->fusion = fuse_question(k->w.model, k->tokens, 5, 64);
  return k->fusion != NULL;
}

static void end(work* k) {
  blend_fusion_close(k->fusion);
  close_world(&k->w);
}

static int32_t call_open(const fixture* f, work* k, blend_error** err) {
  blend_model* model = NULL;
  blend_model_options o = {.struct_size = sizeof o};
  int32_t code;
  o.progress = k->progress;
  o.progress_user = k->user;
  o.cancel = k->cancel;
  code = blend_model_open(&model, k->w.ctx, f->model, &o, err);
  CHECK((code == BLEND_OK) == (model != NULL));
  blend_model_close(model);
  return code;
}

static int32_t call_precompute(const fixture* f, work* k, blend_error** err) {
  blend_precompute_options o = {.struct_size = sizeof o};
  (void)f;
  o.progress = k->progress;
  o.progress_user = k->user;
  o.cancel = k->cancel;
  return blend_precompute(k->w.model, k->w.store, k->tokens, N, &o, NULL, err);
}

static int32_t call_fuse(const fixture* f, work* k, blend_error** err) {
  blend_fusion* fusion = NULL;
  blend_fuse_options o = fuse_options();
  int32_t code;
  (void)f;
  o.progress = k->progress;
  o.progress_user = k->user;
  o.cancel = k->cancel;
  code = blend_fuse(&fusion, k->w.model, k->w.store, k->s, 3, &o, err);
  CHECK((code == BLEND_OK) == (fusion != NULL));
  blend_fusion_close(fusion);
  return code;
}

static int32_t call_generate(const fixture* f, work* k, blend_error** err) {
  blend_generate_options o;
  size_t n = 0;
  (void)f;
  blend_generate_options_init(&o, sizeof o);
  o.max_tokens = 20;
  o.ignore_eos = 1;
  o.cancel = k->cancel;
  return blend_fusion_generate(k->fusion, &o, k->token, k->user, &n, err);
}

/* Texts of several passes. */
static int32_t call_embed(const fixture* f, work* k, blend_error** err) {
  static int32_t tokens[20 * N];
  static float vectors[20 * 64];
  size_t n_tokens[20], i;
  blend_embed_options o = {.struct_size = sizeof o};
  (void)f;
  for (i = 0; i < 20; ++i) {
    memcpy(tokens + i * N, k->tokens, sizeof k->tokens);
    n_tokens[i] = N;
  }
  o.progress = k->progress;
  o.progress_user = k->user;
  o.cancel = k->cancel;
  return blend_model_embed_tokens(k->w.model, tokens, n_tokens, 20, &o, vectors, 20 * 64, err);
}

typedef int32_t (*call_fn)(const fixture*, work*, blend_error**);
static const call_fn kCalls[] = {call_open, call_precompute, call_fuse, call_generate, call_embed};
static const char* const kNames[] = {"open", "precompute", "fuse", "generate", "embed"};
#define N_CALLS (sizeof kCalls / sizeof *kCalls)

void stop_cancel_before(const fixture* f) {
  work k;
  blend_cancel* cancel = NULL;
  blend_store_report stat = {.struct_size = sizeof stat};
  size_t i;
  REQUIRE(begin(f, &k));
  CHECK_OK(blend_cancel_create(&cancel, &err));
  REQUIRE(cancel != NULL);
  k.cancel = cancel;
  blend_cancel_request(cancel);
  for (i = 0; i < N_CALLS; ++i) {
    CHECK_CODE(BLEND_E_CANCELLED, kCalls[i](f, &k, &err));
  }
  CHECK_CODE(BLEND_E_CANCELLED, blend_fusion_decode(k.fusion, k.tokens, 3, cancel, &err));
  /* A cancelled call leaves nothing behind. */
  CHECK_OK(blend_store_flush(k.w.store, &err));
  CHECK_OK(blend_store_get_report(k.w.store, &stat, &err));
  CHECK(stat.n_chunks == 0);
  /* Lowered, the token serves again. */
  blend_cancel_reset(cancel);
  for (i = 0; i < N_CALLS; ++i) CHECK_OK(kCalls[i](f, &k, &err));
  end(&k);
  blend_cancel_free(cancel);
}

/* The call is surely under way when the other thread cancels it: its first callback waits for that
 * thread. */
typedef struct canceller {
  const blend_cancel* cancel;
  int calls;
} canceller;

static void* request(void* p) {
  blend_cancel_request((const blend_cancel*)p);
  return NULL;
}

static void cancel_from_another_thread(canceller* c) {
  pthread_t thread;
  if (c->calls++ != 0) return;
  if (pthread_create(&thread, NULL, request, (void*)(uintptr_t)c->cancel) != 0) return;
  pthread_join(thread, NULL);
}

static int32_t on_progress(void* user, uint64_t done, uint64_t total) {
  CHECK(done <= total && total > 0);
  cancel_from_another_thread((canceller*)user);
  return 0;
}

static int32_t on_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  CHECK(token >= 0 && text[text_bytes] == '\0');
  cancel_from_another_thread((canceller*)user);
  return 0;
}

void stop_cancel_from_a_thread(const fixture* f) {
  work k;
  blend_cancel* cancel = NULL;
  blend_store_report stat = {.struct_size = sizeof stat};
  size_t i;
  REQUIRE(begin(f, &k));
  CHECK_OK(blend_cancel_create(&cancel, &err));
  REQUIRE(cancel != NULL);
  for (i = 1; i < N_CALLS; ++i) { /* opening a small file may report once, when it is done */
    canceller c;
    c.cancel = cancel;
    c.calls = 0;
    k.cancel = cancel;
    k.progress = on_progress;
    k.token = on_token;
    k.user = &c;
    CHECK_CODE(BLEND_E_CANCELLED, kCalls[i](f, &k, &err));
    CHECK(c.calls >= 1);
    if (c.calls > 2) capi_fail(__FILE__, __LINE__, "%s went on after the cancel", kNames[i]);
    blend_cancel_reset(cancel);
  }
  CHECK_OK(blend_store_flush(k.w.store, &err));
  CHECK_OK(blend_store_get_report(k.w.store, &stat, &err));
  CHECK(stat.n_chunks <= 2); /* of the fuse: chunks that were whole by then */
  end(&k);
  blend_cancel_free(cancel);
}

typedef struct refusal {
  int left; /* callbacks to accept first */
  int32_t value;
  int after; /* callbacks after the refusal: must stay 0 */
  uint64_t done, total;
} refusal;

static int32_t refuse(refusal* r) {
  if (r->left < 0) r->after += 1;
  return r->left-- > 0 ? 0 : r->value;
}

static int32_t refuse_progress(void* user, uint64_t done, uint64_t total) {
  refusal* r = (refusal*)user;
  CHECK(done >= r->done || r->total != total); /* it only grows */
  r->done = done;
  r->total = total;
  return refuse(r);
}

static int32_t refuse_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  (void)token;
  (void)text;
  (void)text_bytes;
  return refuse((refusal*)user);
}

void stop_callbacks(const fixture* f) {
  static const int32_t kValues[] = {4242, -7, INT32_MIN, 1};
  work k;
  size_t i, v;
  REQUIRE(begin(f, &k));
  k.progress = refuse_progress;
  k.token = refuse_token;
  for (i = 0; i < N_CALLS; ++i) {
    for (v = 0; v < sizeof kValues / sizeof *kValues; ++v) {
      refusal r = {0, 0, 0, 0, 0};
      blend_error* err = NULL;
      int32_t code;
      r.left = i == 0 ? 0 : (int)v % 2;
      r.value = kValues[v];
      k.user = &r;
      code = kCalls[i](f, &k, &err);
      if (code != BLEND_E_CALLBACK || blend_error_detail(err) != kValues[v] || r.after != 0) {
        capi_fail(__FILE__, __LINE__, "%s: code %s, detail %lld, %d calls after the refusal",
                  kNames[i], blend_code_name(code), (long long)blend_error_detail(err), r.after);
      }
      blend_error_free(err);
    }
  }
  /* And it all works when nobody refuses, reporting to the end. */
  for (i = 0; i < N_CALLS; ++i) {
    refusal r = {1000000, 5, 0, 0, 0};
    k.user = &r;
    CHECK_OK(kCalls[i](f, &k, &err));
    CHECK(r.left < 1000000);
    if (r.done != r.total) capi_fail(__FILE__, __LINE__, "%s never reported its end", kNames[i]);
  }
  end(&k);
}

/* Refused at every report, the one of the end too. */
void stop_extend_changes_nothing(const fixture* f) {
  work k;
  blend_fusion* twin;
  blend_fuse_options o;
  refusal r = {0, 5, 0, 0, 0};
  int reports = 0;
  int32_t code = BLEND_E_CALLBACK;
  REQUIRE(begin(f, &k));
  twin = fuse_question(k.w.model, k.tokens, 5, 64);
  REQUIRE(twin != NULL);
  blend_fuse_options_init(&o, sizeof o);
  o.progress = refuse_progress;
  o.progress_user = &r;
  for (; code == BLEND_E_CALLBACK; ++reports) {
    refusal next = {0, 5, 0, 0, 0};
    next.left = reports;
    r = next;
    REQUIRE(reports < 100);
    code = blend_fusion_extend(twin, k.w.store, k.s, 2, &o, NULL);
    if (code != BLEND_E_CALLBACK) break;
    CHECK(same_logits(twin, k.fusion));
  }
  CHECK(code == BLEND_OK && reports >= 2 && r.done == r.total);
  CHECK(!same_logits(twin, k.fusion));
  o.progress = NULL;
  CHECK_OK(blend_fusion_extend(k.fusion, k.w.store, k.s, 2, &o, &err));
  CHECK(same_logits(twin, k.fusion));
  blend_fusion_close(twin);
  end(&k);
}

void stop_decode_changes_nothing(const fixture* f) {
  work k;
  blend_cancel* cancel = NULL;
  blend_fusion* twin;
  int32_t outside[3] = {5, 6, 100000};
  REQUIRE(begin(f, &k));
  twin = fuse_question(k.w.model, k.tokens, 5, 64);
  REQUIRE(twin != NULL);
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  CHECK_CODE(BLEND_E_CANCELLED, blend_fusion_decode(twin, k.tokens + 20, 6, cancel, &err));
  CHECK(same_logits(twin, k.fusion));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_decode(twin, outside, 3, NULL, &err));
  CHECK(same_logits(twin, k.fusion));
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(twin, k.tokens, 65, NULL, &err));
  CHECK(same_logits(twin, k.fusion));
  CHECK_OK(blend_fusion_decode(twin, k.tokens + 9, 4, NULL, &err));
  CHECK_OK(blend_fusion_decode(k.fusion, k.tokens + 9, 4, NULL, &err));
  CHECK(same_logits(twin, k.fusion));
  blend_fusion_close(twin);
  blend_cancel_free(cancel);
  end(&k);
}

void stop_replace_changes_nothing(const fixture* f) {
  work k;
  blend_cancel* cancel = NULL;
  blend_fusion* twin;
  blend_fusion_report info = {.struct_size = sizeof info};
  const int32_t* tokens = NULL;
  size_t n = 0;
  int32_t outside[3] = {5, 6, 100000};
  REQUIRE(begin(f, &k));
  twin = fuse_question(k.w.model, k.tokens, 5, 64);
  REQUIRE(twin != NULL);
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  CHECK_CODE(BLEND_E_CANCELLED, blend_fusion_erase(twin, 1, 2, cancel, &err));
  CHECK_CODE(BLEND_E_CANCELLED, blend_fusion_replace(twin, 1, 2, k.tokens, 1, cancel, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_replace(twin, 1, 2, outside, 3, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "5", blend_fusion_erase(twin, 4, 2, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "5", blend_fusion_erase(twin, 6, 0, NULL, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_erase(twin, 2, UINT64_MAX, NULL, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_erase(twin, UINT64_MAX, 2, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "row must be left",
             blend_fusion_erase(twin, 0, 5, NULL, &err));
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "reserve_tokens",
             blend_fusion_replace(twin, 0, 1, k.tokens, 66, NULL, &err));
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH,
             blend_fusion_replace(twin, 0, 1, k.tokens, (size_t)-1, NULL, &err));
  CHECK_OK(blend_fusion_erase(twin, 5, 0, NULL, &err)); /* no rows at all: nothing happens */
  CHECK(same_logits(twin, k.fusion));
  CHECK_OK(blend_fusion_get_tokens(twin, &tokens, &n, &err));
  CHECK(n == 5 && memcmp(tokens, k.tokens, 5 * sizeof *tokens) == 0);
  CHECK_OK(blend_fusion_get_report(twin, &info, &err));
  CHECK((info.flags & BLEND_FUSION_EDITED) == 0);
  CHECK_OK(blend_fusion_decode(twin, k.tokens + 9, 4, NULL, &err));
  CHECK_OK(blend_fusion_decode(k.fusion, k.tokens + 9, 4, NULL, &err));
  CHECK(same_logits(twin, k.fusion));

  /* The room that is left counts what goes: 69 rows in all. */
  CHECK_OK(blend_fusion_replace(twin, 0, 9, k.tokens, 60, NULL, &err));
  CHECK_OK(blend_fusion_replace(twin, 60, 0, k.tokens, 9, NULL, &err));
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(twin, k.tokens, 1, NULL, &err));
  CHECK_OK(blend_fusion_erase(twin, 3, 1, NULL, &err));
  CHECK_OK(blend_fusion_decode(twin, k.tokens, 1, NULL, &err));
  CHECK_OK(blend_fusion_get_report(twin, &info, &err));
  CHECK((info.flags & BLEND_FUSION_EDITED) != 0);
  blend_fusion_close(twin);
  blend_cancel_free(cancel);
  end(&k);
}
