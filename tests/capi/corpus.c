/* A corpus whose chunks serve each other as context, and what a fuse finds of it. */
#include <string.h>

#include "fixture.h"

#define N_TEXTS 4
#define N_TOKENS 24

typedef struct seen {
  size_t n, n_existed, n_contexts;
  size_t stop_at; /* SIZE_MAX: never */
  blend_chunk_id ids[N_TEXTS];
} seen;

static int32_t on_record(void* user, const blend_corpus_record* record) {
  seen* s = user;
  if (record->index == s->stop_at) return 5;
  CHECK(record->index == s->n && s->n < N_TEXTS);
  s->ids[s->n++] = record->id;
  s->n_existed += record->existed;
  s->n_contexts += record->n_contexts;
  return 0;
}

static void fill_texts(int32_t tokens[N_TEXTS][N_TOKENS], blend_corpus_chunk chunks[N_TEXTS]) {
  size_t i, k;
  memset(chunks, 0, N_TEXTS * sizeof chunks[0]);
  for (i = 0; i < N_TEXTS; ++i) {
    fill_tokens(tokens[i], N_TOKENS, 5);
    for (k = 0; k < N_TOKENS / 2; ++k) tokens[i][k] = (int32_t)(20 + 40 * i + k);
    chunks[i].struct_size = sizeof chunks[i];
    chunks[i].tokens = tokens[i];
    chunks[i].n_tokens = N_TOKENS;
  }
}

static blend_corpus_options corpus_options(const int32_t* head, size_t n, seen* s) {
  blend_corpus_options o = {.struct_size = sizeof o};
  o.chunk_prefix = head;
  o.n_chunk_prefix = n;
  o.on_record = on_record;
  o.record_user = s;
  return o;
}

/* Head and contextual records; a fuse takes the head of its own prompt and finds them. */
void corpus_is_found(const fixture* f) {
  world w;
  int32_t tokens[N_TEXTS][N_TOKENS], head[3], question[5];
  blend_corpus_chunk chunks[N_TEXTS];
  seen s = {.stop_at = SIZE_MAX};
  blend_corpus_options o;
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_segment prompt[4];
  blend_fuse_options fail = fuse_options();
  blend_fusion* fusion = NULL;
  blend_segment_info info = {.struct_size = sizeof info};
  if (!open_world(f, &w)) return;
  fill_texts(tokens, chunks);
  fill_tokens(head, 3, 9);
  fill_tokens(question, 5, 11);
  o = corpus_options(head, 3, &s);
  o.n_contexts = 2;
  CHECK_OK(blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  CHECK(s.n == N_TEXTS && s.n_existed == 0 &&
        s.n_contexts == (N_TEXTS - 1) * N_TEXTS /* short: all others */);
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 2 * N_TEXTS);
  s.n = 0;
  CHECK_CODE(BLEND_EXISTS, blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  CHECK(s.n_existed == N_TEXTS);

  prompt[0] = segment(BLEND_SEGMENT_TEXT, head, 3);
  prompt[1] = segment(BLEND_SEGMENT_CHUNK, tokens[1], N_TOKENS);
  prompt[2] = segment(BLEND_SEGMENT_CHUNK, tokens[0], N_TOKENS);
  prompt[3] = segment(BLEND_SEGMENT_QUESTION, question, 5);
  fail.on_miss = BLEND_MISS_FAIL;
  fail.chunk_prefix = NULL; /* the head of the prompt */
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, prompt, 4, &fail, &err));
  REQUIRE(fusion != NULL);
  CHECK_OK(blend_fusion_get_segment(fusion, 1, &info, &err));
  CHECK(info.exact == 1 && info.record == BLEND_RECORD_EXACT);
  CHECK_OK(blend_fusion_get_segment(fusion, 2, &info, &err));
  CHECK(info.exact == 0 && info.record == BLEND_RECORD_CONTEXTUAL);
  CHECK(memcmp(&info.id, &s.ids[0], sizeof info.id) == 0);
  blend_fusion_close(fusion);

  /* After another head they are misses; those that were made alone serve with FAIL only. */
  fusion = NULL;
  prompt[0] = segment(BLEND_SEGMENT_TEXT, question, 5);
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, prompt, 4, &fail, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens[0], N_TOKENS, NULL, NULL, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens[1], N_TOKENS, NULL, NULL, &err));
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, prompt, 4, &fail, &err));
  if (fusion != NULL) {
    blend_fusion_report all = {.struct_size = sizeof all};
    CHECK_OK(blend_fusion_get_report(fusion, &all, &err));
    CHECK((all.flags & BLEND_FUSION_ALONE) != 0);
  }
  blend_fusion_close(fusion);
  close_world(&w);
}

void corpus_arguments(const fixture* f) {
  world w;
  int32_t tokens[N_TEXTS][N_TOKENS];
  blend_corpus_chunk chunks[N_TEXTS];
  seen s = {.stop_at = 2};
  blend_corpus_options o = corpus_options(NULL, 0, &s);
  blend_precompute_options named = {.struct_size = sizeof named};
  blend_context_passage passages[2];
  blend_chunk_id plain, contextual;
  if (!open_world(f, &w)) return;
  fill_texts(tokens, chunks);
  CHECK_CODE(BLEND_EXISTS, blend_precompute_corpus(w.model, w.store, NULL, 0, NULL, &err));
  CHECK_SAYS(BLEND_E_CALLBACK, "stop",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  o.n_contexts = BLEND_MOST_CONTEXTS + 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "n_contexts",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  o.n_contexts = 0;
  o.min_similarity = 0.95;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "min_similarity",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  o.min_similarity = 0;
  o.flags = 64;
  CHECK_SAYS(BLEND_E_INVALID_STRUCT, "flags",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  o.flags = 0;
  chunks[2].n_tokens = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "chunk 2",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));
  chunks[2].n_tokens = N_TOKENS;
  tokens[2][3] = 100000;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "chunk 2",
             blend_precompute_corpus(w.model, w.store, chunks, N_TEXTS, &o, &err));

  /* Passages that the host names. */
  passages[0].tokens = tokens[1];
  passages[0].n_tokens = N_TOKENS;
  passages[1].tokens = NULL;
  passages[1].n_tokens = 4;
  named.contexts = passages;
  named.n_contexts = 2;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "passage 1",
             blend_precompute(w.model, w.store, tokens[0], N_TOKENS, &named, NULL, &err));
  named.n_contexts = 1;
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 11, &named, &contextual, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 11, NULL, &plain, &err));
  CHECK(memcmp(&plain, &contextual, sizeof plain) != 0);
  /* A draft is made again as soon as no draft is asked for, and no record becomes one. */
  named.flags = BLEND_PUT_DRAFT;
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 12, &named, &contextual, &err));
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens[3], 12, &named, NULL, &err));
  named.flags = 0;
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 12, &named, &plain, &err));
  CHECK(memcmp(&plain, &contextual, sizeof plain) == 0);
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens[3], 12, &named, NULL, &err));
  named.flags = BLEND_PUT_DRAFT;
  named.n_contexts = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "draft",
             blend_precompute(w.model, w.store, tokens[3], 13, &named, NULL, &err));
  named.flags = 0;
  named.n_contexts = BLEND_MOST_CONTEXTS + 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "n_contexts",
             blend_precompute(w.model, w.store, tokens[0], N_TOKENS, &named, NULL, &err));

  /* A predecessor counts for the id as a chunk prefix does, with passages before it or none. */
  named.n_contexts = 0;
  named.chunk_prefix = tokens[1];
  named.n_chunk_prefix = 5;
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 11, &named, &plain, &err));
  named.n_chunk_prefix = 2;
  named.predecessor = tokens[1] + 2;
  named.n_predecessor = 3;
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  named.n_contexts = 1;
  CHECK_OK(blend_precompute(w.model, w.store, tokens[3], 11, &named, &contextual, &err));
  CHECK(memcmp(&plain, &contextual, sizeof plain) != 0);
  CHECK_OK(blend_chunk_find(w.model, w.store, tokens[3], 11, &named, &plain, &err));
  CHECK(memcmp(&plain, &contextual, sizeof plain) == 0);
  named.n_predecessor = 2;
  CHECK_CODE(BLEND_E_NOT_FOUND,
             blend_chunk_find(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  named.flags = BLEND_PUT_DRAFT;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "draft",
             blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  named.flags = 0;
  tokens[1][3] = 100000;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "predecessor",
             blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  tokens[1][3] = 5;
  named.n_predecessor = SIZE_MAX;
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "predecessor",
             blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  named.n_predecessor = 2;
  named.predecessor = NULL;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "predecessor",
             blend_precompute(w.model, w.store, tokens[3], 11, &named, NULL, &err));
  close_world(&w);
}
