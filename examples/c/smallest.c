/* smallest.c - documents and a question in, an answer out: smallest [MODEL.gguf [STORE_DIR]] */
#include <blend/blend.h>
#include <stdio.h>
#define TRY(call) \
  if ((call) < 0) return puts(blend_error_message(error)), 1

static int32_t print_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  return (void)token, fwrite(text, 1, text_bytes, user) != text_bytes;
}

int main(int argc, char** argv) {
  const char* docs[] = {"Hugo Rask works at the south inn.", "There he guards the square anchor."};
  const char* model_file = argc > 1 ? argv[1] : "examples/models/blend-qa.gguf";
  const char* question = "What does Hugo Rask guard?";
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  blend_error* error = NULL;
  TRY(blend_ctx_create(&ctx, NULL, &error));
  TRY(blend_model_open(&model, ctx, model_file, NULL, &error));
  TRY(blend_store_open(&store, ctx, argc > 2 ? argv[2] : "blend-store", NULL, &error));
  TRY(blend_fuse_texts(&fusion, model, store, docs, 2, question, NULL, &error));
  TRY(blend_fusion_generate(fusion, NULL, print_token, stdout, NULL, &error));
  blend_fusion_close(fusion);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
  return puts("") < 0;
}
