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

#define N_PASSAGES 3

static const char* const passages[N_PASSAGES] = {
    "Lily had a red ball. She kept it in a box under her bed.",
    "One day, Tom came to play. He put the ball on top of the tree house.",
    "Lily looked in the box. The ball was not there. She was sad.",
};

/* Every call that can fail reports the same way; -1 tells main to clean up. */
static int failed(const char* what, int32_t code, blend_error** error) {
  if (code >= 0) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, blend_error_message(*error), blend_code_name(code));
  blend_error_free(*error);
  *error = NULL;
  return -1;
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

/* Stores the passages, unless they are there already. A fuse does so by itself, one passage at a
 * time, with those that it does not find; all of them at once serve each other as context. */
static int precompute(const blend_model* model, const blend_store* store) {
  blend_corpus_options options = {.struct_size = sizeof options};
  blend_error* error = NULL;

  options.on_record = print_record;
  return failed("precompute",
                blend_precompute_texts(model, store, passages, N_PASSAGES, NULL, &options, &error),
                &error);
}

static int fuse(const blend_model* model, const blend_store* store, const char* question,
                blend_fusion** fusion) {
  blend_fuse_options options;
  blend_text_options texts;
  blend_error* error = NULL;

  blend_fuse_options_init(&options, sizeof options);
  options.reserve_tokens = 64; /* room for the answer */
  blend_text_options_init(&texts, sizeof texts);
  texts.fuse = &options;
  return failed(
      "fuse",
      blend_fuse_texts(fusion, model, store, passages, N_PASSAGES, question, &texts, &error),
      &error);
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
  int status = EXIT_FAILURE;

  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: %s MODEL.gguf STORE_DIR [QUESTION]\n", argv[0]);
    return 2;
  }
  if (failed("context", blend_ctx_create(&ctx, NULL, &error), &error)) goto done;
  if (failed("model", blend_model_open(&model, ctx, argv[1], NULL, &error), &error)) goto done;
  if (failed("store", blend_store_open(&store, ctx, argv[2], NULL, &error), &error)) goto done;
  if (precompute(model, store)) goto done;
  if (fuse(model, store, argc > 3 ? argv[3] : "Where is the ball?", &fusion)) goto done;
  if (answer(fusion)) goto done;
  status = EXIT_SUCCESS;

done: /* any order, NULL included */
  blend_fusion_close(fusion);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
  return status;
}
