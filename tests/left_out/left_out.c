/* A build without chat templates, grammars and the remote tier: it does the rest, and says by what
 * option it would have them.
 *   left_out MODEL FOLDER */
#include <stdio.h>
#include <string.h>

#include "blend/blend.h"
#include "blend/remote.h"

static int failed;

static void fail(const char* what, const blend_error* err) {
  fprintf(stderr, "%s: %s\n", what, err == NULL ? "no error" : blend_error_message(err));
  failed = 1;
}

static void check(const char* what, int32_t code, blend_error* err) {
  if (code != BLEND_OK) fail(what, err);
  blend_error_free(err);
}

/* The code is UNSUPPORTED, and the sentence names the way out. */
static void check_left_out(const char* what, const char* option, int32_t code, blend_error* err) {
  if (code != BLEND_E_UNSUPPORTED || strstr(blend_error_message(err), option) == NULL) {
    fail(what, err);
  }
  blend_error_free(err);
}

#define OK(call)             \
  do {                       \
    blend_error* err = NULL; \
    int32_t code = call;     \
    check(#call, code, err); \
  } while (0)
#define LEFT_OUT(option, call)                \
  do {                                        \
    blend_error* err = NULL;                  \
    int32_t code = call;                      \
    check_left_out(#call, option, code, err); \
  } while (0)

static const char* const kDocuments[] = {"Hugo Rask lives in the north tower."};

static void fuses_tokens(const blend_model* model, const blend_store* store) {
  static const int32_t tokens[] = {5, 6, 7, 8, 9, 10};
  blend_segment segments[2];
  blend_fusion* fusion = NULL;
  memset(segments, 0, sizeof segments);
  segments[0].struct_size = segments[1].struct_size = sizeof segments[0];
  segments[0].kind = BLEND_SEGMENT_CHUNK;
  segments[1].kind = BLEND_SEGMENT_QUESTION;
  segments[0].tokens = segments[1].tokens = tokens;
  segments[0].n_tokens = segments[1].n_tokens = sizeof tokens / sizeof tokens[0];
  OK(blend_fuse(&fusion, model, store, segments, 2, NULL, &err));
  blend_fusion_close(fusion);
}

static void puts_plain_text(const blend_model* model, const blend_store* store) {
  blend_fusion* fusion = NULL;
  blend_text_options options;
  blend_text_options_init(&options, sizeof options);
  options.flags = BLEND_TEXT_PLAIN;
  OK(blend_fuse_texts(&fusion, model, store, kDocuments, 1, "Who lives there?", &options, &err));
  blend_fusion_close(fusion);
}

static void has_no_templates(const blend_model* model, const blend_store* store) {
  blend_chat* chat = NULL;
  blend_call_reader* reader = NULL;
  blend_fusion* fusion = NULL;
  blend_template_info info = {.struct_size = sizeof info};
  blend_chat_message message;
  blend_text_options options;
  memset(&message, 0, sizeof message);
  message.struct_size = sizeof message;
  message.role = "user";
  message.content = "Hello";
  message.content_bytes = strlen(message.content);
  LEFT_OUT("-DBLEND_CHAT=ON", blend_chat_render(&chat, model, &message, 1, NULL, 0, NULL, &err));
  blend_text_options_init(&options, sizeof options);
  options.template_source = "{{ messages[0].content }}";
  LEFT_OUT("-DBLEND_CHAT=ON",
           blend_fuse_texts(&fusion, model, store, kDocuments, 1, "Who?", &options, &err));
  LEFT_OUT("-DBLEND_CHAT=ON",
           blend_fuse_messages(&fusion, model, store, &message, 1, kDocuments, 1, &options, &err));
  LEFT_OUT("-DBLEND_CHAT=ON",
           blend_model_get_template_info(model, options.template_source, &info, &err));
  LEFT_OUT("-DBLEND_CHAT=ON", blend_call_reader_open(&reader, model, NULL, &err));
  blend_chat_close(chat);
}

static void has_no_grammars(const blend_model* model) {
  blend_grammar* grammar = NULL;
  blend_grammar_options call;
  LEFT_OUT("-DBLEND_GRAMMAR=ON", blend_grammar_open(&grammar, model, NULL, &err));
  LEFT_OUT("scripts/setup grammar", blend_grammar_open(&grammar, model, NULL, &err));
  blend_grammar_options_init(&call, sizeof call);
  call.language = BLEND_GRAMMAR_CALL;
  LEFT_OUT("-DBLEND_GRAMMAR=ON", blend_grammar_open(&grammar, model, &call, &err));
}

static void has_no_remote_tier(const blend_ctx* ctx, const blend_store* store, const char* folder) {
  blend_store* other = NULL;
  blend_store_options options;
  blend_remote_options remote;
  blend_remote_stat stat;
  blend_remote_options_init(&remote, sizeof remote);
  remote.url = "redis://127.0.0.1:1";
  blend_store_options_init(&options, sizeof options);
  options.remote = &remote;
  LEFT_OUT("-DBLEND_REMOTE=ON", blend_store_open(&other, ctx, folder, &options, &err));
  LEFT_OUT("-DBLEND_REMOTE=ON", blend_store_remote_check(store, &err));
  LEFT_OUT("-DBLEND_REMOTE=ON", blend_store_remote_push(store, NULL, NULL, &err));
  memset(&stat, 0, sizeof stat);
  stat.struct_size = sizeof stat;
  OK(blend_store_get_remote_stat(store, &stat, &err));
  if (stat.state != BLEND_REMOTE_NONE) fail("the state of the remote tier", NULL);
}

int main(int argc, char** argv) {
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  if (argc != 3) return 2;
  OK(blend_ctx_create(&ctx, NULL, &err));
  if (failed) return 1;
  OK(blend_model_open(&model, ctx, argv[1], NULL, &err));
  OK(blend_store_open(&store, ctx, argv[2], NULL, &err));
  if (failed) return 1;
  fuses_tokens(model, store);
  puts_plain_text(model, store);
  has_no_templates(model, store);
  has_no_grammars(model);
  has_no_remote_tier(ctx, store, argv[2]);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
  return failed;
}
