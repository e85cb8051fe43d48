/* Exact after a moment: an answer streamed from a fork of what was fused, and corrected by full
 * prefill. */
#include <pthread.h>
#include <string.h>

#include "fixture.h"

enum { kChunk = 24, kChunks = 4, kQuestion = 6, kAnswer = 40, kSeeds = 5 };

typedef struct answer {
  int32_t tokens[kAnswer];
  size_t n;
} answer;

static int32_t hear(void* user, int32_t token, const char* text, size_t text_bytes) {
  answer* a = (answer*)user;
  (void)text;
  (void)text_bytes;
  if (a->n < kAnswer) a->tokens[a->n++] = token;
  return 0;
}

static int32_t go_on(blend_fusion* fusion, answer* a, uint32_t n) {
  blend_generate_options o;
  if (blend_generate_options_init(&o, sizeof o) != BLEND_OK) return BLEND_E_INTERNAL;
  o.max_tokens = n;
  o.ignore_eos = 1;
  return blend_fusion_generate(fusion, &o, hear, a, NULL, NULL);
}

/* Chunks as they were prefilled alone, nothing recomputed: as wrong as it gets. Or full prefill. */
static blend_fusion* fuse_seed(const world* w, int32_t seed, uint32_t policy) {
  int32_t tokens[kChunks + 1][kChunk];
  blend_segment segments[kChunks + 1];
  blend_fuse_options o = fuse_options();
  blend_fusion* fusion = NULL;
  int i;
  for (i = 0; i <= kChunks; ++i) {
    fill_tokens(tokens[i], kChunk, 3 + 53 * i + seed);
    segments[i] = segment(BLEND_SEGMENT_CHUNK, tokens[i], kChunk);
  }
  segments[kChunks] = segment(BLEND_SEGMENT_QUESTION, tokens[kChunks], kQuestion);
  o.policy = policy;
  o.on_miss = BLEND_MISS_PRECOMPUTE;
  o.reserve_tokens = kAnswer + 8;
  CHECK_OK(blend_fuse(&fusion, w->model, w->store, segments, kChunks + 1, &o, &err));
  return fusion;
}

static int says_exact(const blend_fusion* fusion) {
  blend_fusion_report info = {.struct_size = sizeof info};
  CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  return (info.flags & BLEND_FUSION_EXACT) != 0;
}

static size_t common(const answer* a, const answer* b) {
  size_t n = 0;
  while (n < a->n && n < b->n && a->tokens[n] == b->tokens[n]) ++n;
  return n;
}

typedef struct prefill {
  blend_fusion* fusion;
  int32_t code;
} prefill;

static void* prefill_beside(void* user) {
  prefill* p = (prefill*)user;
  p->code = blend_fusion_make_exact(p->fusion, NULL, 0, NULL, NULL, NULL);
  return NULL;
}

void exact_after_a_moment(const fixture* f) {
  world w;
  int32_t seed;
  int corrected = 0;
  REQUIRE(open_world(f, &w));
  for (seed = 0; seed < kSeeds; ++seed) {
    blend_fusion *fusion = fuse_seed(&w, seed, BLEND_POLICY_REUSE), *shown = NULL;
    blend_fusion* full = fuse_seed(&w, seed, BLEND_POLICY_FULL);
    answer streamed = {{0}, 0}, right = {{0}, 0};
    size_t kept = 99;
    REQUIRE(fusion != NULL && full != NULL);
    CHECK_OK(blend_fusion_fork(&shown, fusion, &err));
    REQUIRE(shown != NULL);
    CHECK(!same_logits(fusion, full));
    if (seed % 2 == 0) { /* full prefill runs while the answer is streamed */
      prefill beside = {fusion, BLEND_E_INTERNAL};
      pthread_t thread;
      REQUIRE(pthread_create(&thread, NULL, prefill_beside, &beside) == 0);
      CHECK(go_on(shown, &streamed, 24) == BLEND_OK);
      CHECK(pthread_join(thread, NULL) == 0 && beside.code == BLEND_OK);
      CHECK(says_exact(fusion) && same_logits(fusion, full));
    } else {
      CHECK(go_on(shown, &streamed, 24) == BLEND_OK);
      CHECK(!says_exact(fusion));
    }
    CHECK(!says_exact(shown));
    CHECK_OK(blend_fusion_make_exact(fusion, streamed.tokens, streamed.n, &kept, NULL, &err));
    CHECK(says_exact(fusion));
    CHECK(go_on(full, &right, 30) == BLEND_OK);
    CHECK(kept == common(&streamed, &right));
    if (kept < streamed.n) corrected = 1;
    streamed.n = kept;
    CHECK(go_on(fusion, &streamed, (uint32_t)(30 - kept)) == BLEND_OK);
    CHECK(streamed.n == 30 && common(&streamed, &right) == 30);
    CHECK(same_logits(fusion, full));
    blend_fusion_close(shown);
    blend_fusion_close(fusion);
    blend_fusion_close(full);
  }
  CHECK(corrected); /* otherwise nothing was shown */
  close_world(&w);
}

void exact_is_said_until_an_edit(const fixture* f) {
  world w;
  blend_fusion *fusion, *full, *fork = NULL;
  const int32_t token = 77;
  REQUIRE(open_world(f, &w));
  fusion = fuse_seed(&w, 1, BLEND_POLICY_REUSE);
  full = fuse_seed(&w, 1, BLEND_POLICY_FULL);
  REQUIRE(fusion != NULL && full != NULL);
  CHECK_OK(blend_fusion_make_exact(fusion, NULL, 0, NULL, NULL, &err));
  CHECK_OK(blend_fusion_fork(&fork, fusion, &err));
  REQUIRE(fork != NULL);
  CHECK(says_exact(fusion) && says_exact(fork));
  CHECK_OK(blend_fusion_replace(fusion, 2, 1, &token, 1, NULL, &err));
  CHECK(!says_exact(fusion) && says_exact(fork));
  CHECK_OK(blend_fusion_decode(fork, &token, 1, NULL, &err));
  CHECK_OK(blend_fusion_decode(full, &token, 1, NULL, &err));
  CHECK(same_logits(fork, full));
  /* Edited rows are prefilled as they now are: twice the same edit is the same text. */
  CHECK_OK(blend_fusion_make_exact(fusion, NULL, 0, NULL, NULL, &err));
  CHECK_OK(blend_fusion_replace(full, 2, 1, &token, 1, NULL, &err));
  CHECK_OK(blend_fusion_decode(fusion, &token, 1, NULL, &err));
  CHECK(!same_logits(fusion, full)); /* the edit alone is an approximation */
  CHECK_OK(blend_fusion_make_exact(full, NULL, 0, NULL, NULL, &err));
  CHECK_OK(blend_fusion_make_exact(fusion, NULL, 0, NULL, NULL, &err));
  {
    const float *a = NULL, *b = NULL;
    size_t n = 0, i;
    CHECK_OK(blend_fusion_get_logits(fusion, &a, &n, &err));
    CHECK_OK(blend_fusion_get_logits(full, &b, &n, &err));
    for (i = 0; i < n; ++i) CHECK(a[i] - b[i] < 1e-3f && b[i] - a[i] < 1e-3f);
  }
  blend_fusion_close(fork);
  blend_fusion_close(fusion);
  blend_fusion_close(full);
  close_world(&w);
}

void exact_changes_nothing_where_it_fails(const fixture* f) {
  world w;
  blend_fusion *fusion, *other, *full;
  blend_cancel* cancel = NULL;
  int32_t tokens[kAnswer + 9];
  size_t kept = 99;
  REQUIRE(open_world(f, &w));
  fusion = fuse_seed(&w, 1, BLEND_POLICY_REUSE);
  other = fuse_seed(&w, 1, BLEND_POLICY_REUSE);
  REQUIRE(fusion != NULL && other != NULL);
  fill_tokens(tokens, kAnswer + 9, 5);
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  CHECK_CODE(BLEND_E_CANCELLED, blend_fusion_make_exact(fusion, tokens, 2, &kept, cancel, &err));
  CHECK(kept == 0);
  /* Full prefill has nothing left to do, and nothing to cancel. */
  full = fuse_seed(&w, 1, BLEND_POLICY_FULL);
  REQUIRE(full != NULL);
  CHECK(!says_exact(full));
  CHECK_OK(blend_fusion_make_exact(full, NULL, 0, &kept, cancel, &err));
  CHECK(says_exact(full));
  blend_fusion_close(full);
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "reserve_tokens",
             blend_fusion_make_exact(fusion, tokens, kAnswer + 9, &kept, NULL, &err));
  tokens[1] = 100000;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "blend_fusion_make_exact",
             blend_fusion_make_exact(fusion, tokens, 2, &kept, NULL, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_make_exact(fusion, NULL, 2, &kept, NULL, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_fusion_make_exact(NULL, NULL, 0, &kept, NULL, &err));
  CHECK(!says_exact(fusion) && same_logits(fusion, other));
  blend_cancel_free(cancel);
  blend_fusion_close(fusion);
  blend_fusion_close(other);
  close_world(&w);
}
