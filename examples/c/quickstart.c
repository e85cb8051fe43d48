/*
 * quickstart.c - the main job of libblend in C99: precompute, fuse, generate.
 *
 *   quickstart MODEL.gguf STORE_DIR [QUESTION]
 *
 * Three passages stand for a corpus. Their KV caches are computed once, each after what the prompt
 * begins with and in the context of similar passages, and kept in STORE_DIR; the prompt made of
 * them and the question is then fused from the store, and the answer is streamed. Run it twice: the
 * second time nothing is stored again.
 */
#include <blend/blend.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CHUNKS 3
#define MAX_TOKENS 256

static const char* const passages[N_CHUNKS] = {
    "Lily had a red ball. She kept it in a box under her bed.\n",
    "One day, Tom came to play. He put the ball on top of the tree house.\n",
    "Lily looked in the box. The ball was not there. She was sad.\n",
};

struct text {
  int32_t tokens[MAX_TOKENS];
  size_t n;
};

/* Every call that can fail reports the same way; -1 tells main to clean up. */
static int failed(const char* what, int32_t code, blend_error** error) {
  if (code >= 0) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, blend_error_message(*error), blend_code_name(code));
  blend_error_free(*error);
  *error = NULL;
  return -1;
}

static int tokenize(const blend_model* model, const char* string, uint32_t flags,
                    struct text* out) {
  blend_error* error = NULL;
  int32_t code = blend_model_tokenize(model, string, strlen(string), flags, out->tokens, MAX_TOKENS,
                                      &out->n, &error);
  return failed("tokenize", code, &error);
}

static int32_t print_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  (void)user;
  (void)token;
  fwrite(text, 1, text_bytes, stdout);
  fflush(stdout);
  return 0; /* non-zero would stop the generation */
}

static int32_t print_record(void* user, const blend_corpus_record* record) {
  char hex[65];
  (void)user;
  blend_chunk_id_to_hex(&record->id, hex);
  printf("%.16s %s\n", hex, record->existed ? "was there" : "stored");
  return 0;
}

/* Stores the passages after what the prompt begins with, unless they are there already. Alone they
 * would be read as something else. */
static int precompute(const blend_model* model, const blend_store* store, const struct text* head,
                      const struct text* chunks) {
  blend_corpus_chunk corpus[N_CHUNKS] = {{0}};
  blend_corpus_options options = {.struct_size = sizeof options};
  blend_error* error = NULL;

  for (int i = 0; i < N_CHUNKS; ++i) {
    corpus[i].struct_size = sizeof corpus[i];
    corpus[i].tokens = chunks[i].tokens;
    corpus[i].n_tokens = chunks[i].n;
  }
  options.chunk_prefix = head->tokens;
  options.n_chunk_prefix = head->n;
  options.on_record = print_record;
  return failed("precompute",
                blend_precompute_corpus(model, store, corpus, N_CHUNKS, &options, &error), &error);
}

static void put(blend_segment* segment, uint32_t kind, const struct text* text) {
  memset(segment, 0, sizeof *segment);
  segment->struct_size = sizeof *segment;
  segment->kind = kind;
  segment->tokens = text->tokens;
  segment->n_tokens = text->n;
}

/* BOS where the model wants one, the chunks in prompt order, the question. */
static int fuse(const blend_model* model, const blend_store* store, const struct text* bos,
                const struct text* chunks, const struct text* question, blend_fusion** fusion) {
  blend_segment segments[N_CHUNKS + 2];
  blend_fuse_options options;
  blend_error* error = NULL;
  size_t n = 0;

  if (bos->n != 0) put(&segments[n++], BLEND_SEGMENT_PREFIX, bos);
  for (int i = 0; i < N_CHUNKS; ++i) put(&segments[n++], BLEND_SEGMENT_CHUNK, &chunks[i]);
  put(&segments[n++], BLEND_SEGMENT_QUESTION, question);

  blend_fuse_options_init(&options, sizeof options);
  options.reserve_tokens = 64;
  return failed("fuse", blend_fuse(fusion, model, store, segments, n, &options, &error), &error);
}

static int answer(blend_fusion* fusion) {
  blend_generate_options options;
  blend_fusion_info info = {.struct_size = sizeof info};
  blend_error* error = NULL;

  blend_generate_options_init(&options, sizeof options);
  options.max_tokens = 64;
  if (failed("generate", blend_fusion_generate(fusion, &options, print_token, NULL, NULL, &error),
             &error))
    return -1;
  if (failed("info", blend_fusion_get_info(fusion, &info, &error), &error)) return -1;
  printf("\n\nfirst token after %.2f ms: %" PRIu64 " rows, %" PRIu64 " from the store, %" PRIu64
         " of them recomputed\n",
         (double)info.ttft_ns / 1e6, info.n_rows, info.n_rows_reused, info.n_rows_selected);
  return 0;
}

int main(int argc, char** argv) {
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  blend_error* error = NULL;
  struct text bos, chunks[N_CHUNKS], question;
  int status = EXIT_FAILURE;

  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: %s MODEL.gguf STORE_DIR [QUESTION]\n", argv[0]);
    return 2;
  }
  if (failed("context", blend_ctx_create(&ctx, NULL, &error), &error)) goto done;
  if (failed("model", blend_model_open(&model, ctx, argv[1], NULL, &error), &error)) goto done;
  if (failed("store", blend_store_open(&store, ctx, argv[2], NULL, &error), &error)) goto done;

  /* Each text by itself: a chunk's tokens must not depend on what stands before it. */
  if (tokenize(model, "", BLEND_TOKENIZE_BOS, &bos)) goto done;
  for (int i = 0; i < N_CHUNKS; ++i) {
    if (tokenize(model, passages[i], 0, &chunks[i])) goto done;
  }
  if (tokenize(model, argc > 3 ? argv[3] : "Then Lily", 0, &question)) goto done;

  if (precompute(model, store, &bos, chunks)) goto done;
  if (fuse(model, store, &bos, chunks, &question, &fusion)) goto done;
  if (answer(fusion)) goto done;
  status = EXIT_SUCCESS;

done: /* any order, NULL included */
  blend_fusion_close(fusion);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
  return status;
}
