/* A forked child calls everything with what it inherited: nothing may take a lock of the parent's,
 * which a thread that the child does not have may hold, and every answer is BLEND_E_FORKED. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"
#include "lock_watch.h"

typedef struct inherited {
  world w;
  blend_fusion* fusion;
  blend_layerwise* layerwise;
  blend_grammar* grammar; /* NULL: built without grammars */
  blend_chunk_id id;
  int32_t tokens[40];
  blend_segment s[3]; /* two chunks and a question */
} inherited;

static int n_wrong;

static void expect_forked(int32_t code, const char* call) {
  if (code == BLEND_E_FORKED) return;
  ++n_wrong;
  fprintf(stderr, "in a forked child %s gives %s\n", call, blend_code_name(code));
}
#define EXPECT_FORKED(call) expect_forked((call), #call)

static int32_t take_chunk(void* user, const blend_chunk_info* info, const char* problem) {
  (void)user, (void)info, (void)problem;
  return 0;
}

static int32_t take_metric(void* user, const char* name, const char* labels, const char* help,
                           uint32_t flags, double value) {
  (void)user, (void)name, (void)labels, (void)help, (void)flags, (void)value;
  return 0;
}

static int32_t take_row(void* user, const blend_fidelity_row* row) {
  (void)user, (void)row;
  return 0;
}

static void use_model(const inherited* in, const fixture* f) {
  blend_fuse_options full = fuse_options(), o = fuse_options();
  blend_fuse_request request = {.struct_size = sizeof request};
  blend_corpus_chunk corpus = {.struct_size = sizeof corpus};
  blend_machine* machine = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  blend_grammar* grammar = NULL;
  blend_grammar_options grammar_options;
  blend_chat* chat = NULL;
  blend_call_reader* reader = NULL;
  const blend_text text = {"a b", 3};
  const char* const document = "a document";
  float vector[64];
  int32_t ids[8];
  size_t n = 8;
  const size_t n_tokens = 4;
  full.policy = BLEND_POLICY_FULL;
  EXPECT_FORKED(blend_model_open(&model, in->w.ctx, f->other_model, NULL, NULL));
  EXPECT_FORKED(blend_store_open(&store, in->w.ctx, path_in(f, "another"), NULL, NULL));
  EXPECT_FORKED(blend_model_tokenize(in->w.model, "a", 1, 0, ids, 8, &n, NULL));
  EXPECT_FORKED(blend_model_embed(in->w.model, &text, 1, NULL, vector, 64, NULL, NULL));
  EXPECT_FORKED(
      blend_model_embed_tokens(in->w.model, in->tokens, &n_tokens, 1, NULL, vector, 64, NULL));
  EXPECT_FORKED(blend_fuse(&fusion, in->w.model, NULL, in->s + 2, 1, &full, NULL));
  EXPECT_FORKED(blend_fuse(&fusion, in->w.model, in->w.store, in->s, 3, &o, NULL));
  request.segments = in->s;
  request.n_segments = 3;
  request.options = &o;
  EXPECT_FORKED(blend_fuse_batch(&fusion, NULL, in->w.model, in->w.store, &request, 1, NULL));
  EXPECT_FORKED(blend_fuse_texts(&fusion, in->w.model, in->w.store, &document, 1, "a", NULL, NULL));
  EXPECT_FORKED(blend_precompute_texts(in->w.model, in->w.store, &document, 1, NULL, NULL, NULL));
  EXPECT_FORKED(blend_precompute(in->w.model, in->w.store, in->tokens, 12, NULL, NULL, NULL));
  corpus.tokens = in->tokens;
  corpus.n_tokens = 12;
  EXPECT_FORKED(blend_precompute_corpus(in->w.model, in->w.store, &corpus, 1, NULL, NULL));
  EXPECT_FORKED(blend_machine_open(&machine, in->w.model, path_in(f, "machine"), NULL, NULL));
  EXPECT_FORKED(blend_chunk_find(in->w.model, in->w.store, in->tokens, 12, NULL, NULL, NULL));
  EXPECT_FORKED(blend_call_reader_open(&reader, in->w.model, NULL, NULL));
  EXPECT_FORKED(blend_chat_render_texts(&chat, in->w.model, &document, 1, "a", NULL, NULL));
  if (in->grammar == NULL) return;
  CHECK(blend_grammar_options_init(&grammar_options, sizeof grammar_options) == BLEND_OK);
  grammar_options.language = BLEND_GRAMMAR_REGEX;
  grammar_options.text = "a*";
  EXPECT_FORKED(blend_grammar_open(&grammar, in->w.model, &grammar_options, NULL));
}

static void use_fusion(const inherited* in) {
  blend_fuse_options o = fuse_options();
  blend_fusion* fusion = NULL;
  blend_generate_request request = {.struct_size = sizeof request};
  int32_t code = 0;
  size_t n = 0;
  EXPECT_FORKED(blend_fusion_decode(in->fusion, in->tokens, 1, NULL, NULL));
  EXPECT_FORKED(blend_fusion_decode(in->fusion, in->tokens, 2, NULL, NULL));
  EXPECT_FORKED(blend_fusion_generate(in->fusion, NULL, NULL, NULL, &n, NULL));
  request.fusion = in->fusion;
  (void)blend_generate_batch(&code, &n, NULL, &request, 1, NULL);
  expect_forked(code, "a request of blend_generate_batch");
  EXPECT_FORKED(blend_fusion_extend(in->fusion, in->w.store, in->s + 2, 1, &o, NULL));
  EXPECT_FORKED(blend_fusion_erase(in->fusion, 0, 1, NULL, NULL));
  EXPECT_FORKED(blend_fusion_replace(in->fusion, 0, 1, in->tokens, 2, NULL, NULL));
  EXPECT_FORKED(blend_fusion_fork(&fusion, in->fusion, NULL));
  EXPECT_FORKED(blend_fusion_make_exact(in->fusion, in->tokens, 1, &n, NULL, NULL));
  EXPECT_FORKED(blend_fusion_save(in->fusion, in->w.store, NULL, NULL, NULL, NULL));
  EXPECT_FORKED(
      blend_fusion_restore(&fusion, in->w.model, in->w.store, &in->id, NULL, 4, NULL, NULL));
  EXPECT_FORKED(blend_layerwise_synchronize(in->layerwise, 0, NULL));
}

static void use_store(const inherited* in, const fixture* f) {
  const blend_store* const store = in->w.store;
  blend_store_stat stat = {.struct_size = sizeof stat};
  blend_store_report report = {.struct_size = sizeof report};
  blend_filter_options filter = {.struct_size = sizeof filter};
  blend_codec_stat codec = {.struct_size = sizeof codec};
  size_t n_bytes = 0;
  uint64_t n = 0;
  filter.label = "a";
  EXPECT_FORKED(blend_store_flush(store, NULL));
  EXPECT_FORKED(blend_store_wait(store, &in->id, 10, NULL));
  EXPECT_FORKED(blend_store_get_stat(store, &stat, NULL));
  EXPECT_FORKED(blend_store_get_report(store, &report, NULL));
  EXPECT_FORKED(blend_store_list(store, NULL, NULL, 0, take_chunk, NULL, NULL));
  EXPECT_FORKED(blend_store_set_label(store, &in->id, NULL, "a", NULL, NULL));
  EXPECT_FORKED(blend_store_set_pinned(store, &in->id, 1, NULL));
  EXPECT_FORKED(blend_store_remove(store, &in->id, NULL, NULL));
  EXPECT_FORKED(blend_store_remove_matching(store, "a", &filter, take_chunk, NULL, &n, NULL));
  EXPECT_FORKED(blend_store_evict(store, 0, &n, NULL));
  EXPECT_FORKED(blend_store_prefetch(store, &in->id, 1, NULL));
  EXPECT_FORKED(blend_store_set_tenant_quota(store, "a", 1 << 20, NULL));
  EXPECT_FORKED(blend_store_get_tenant_usage(store, "a", &n, &n, &n, NULL));
  EXPECT_FORKED(blend_store_repair(store, take_chunk, NULL, &n, NULL));
  EXPECT_FORKED(blend_store_copy(store, path_in(f, "copied"), NULL));
  EXPECT_FORKED(blend_store_export(store, path_in(f, "exported"), NULL, &n, NULL));
  EXPECT_FORKED(blend_store_get_codec_stat(store, BLEND_CODEC_NONE, &codec, NULL));
  EXPECT_FORKED(blend_store_list_metrics(store, take_metric, NULL, NULL));
  EXPECT_FORKED(blend_store_get_metrics(store, NULL, NULL, 0, &n_bytes, NULL));
  EXPECT_FORKED(blend_store_get_fidelity(store, in->w.model, 0, take_row, NULL, NULL));
  EXPECT_FORKED(blend_store_run_checks(store, NULL));
}

static void close_all(const inherited* in) {
  blend_grammar_close(in->grammar);
  blend_layerwise_close(in->layerwise);
  blend_fusion_close(in->fusion);
  blend_store_close(in->w.store);
  blend_model_close(in->w.model);
  blend_ctx_close(in->w.ctx);
}

/* With threads of every kind asleep in the parent: those that compute, that write, that read ahead
 * and that work in idle time. */
static int open_inherited(const fixture* f, inherited* in) {
  blend_fuse_options o = fuse_options();
  blend_precompute_options p;
  blend_grammar_options g;
  blend_fusion* again = NULL;
  memset(in, 0, sizeof *in);
  if (!open_world(f, &in->w)) return 0;
  fill_tokens(in->tokens, 40, 3);
  in->s[0] = segment(BLEND_SEGMENT_CHUNK, in->tokens, 12);
  in->s[1] = segment(BLEND_SEGMENT_CHUNK, in->tokens + 20, 12);
  in->s[2] = segment(BLEND_SEGMENT_QUESTION, in->tokens + 12, 8);
  o.on_miss = BLEND_MISS_COMPUTE_STORE;
  o.reserve_tokens = 8;
  CHECK_OK(blend_fuse(&in->fusion, in->w.model, in->w.store, in->s, 3, &o, &err));
  CHECK_OK(blend_fuse(&again, in->w.model, in->w.store, in->s, 3, &o, &err));
  blend_fusion_close(again);
  CHECK_OK(blend_store_flush(in->w.store, &err)); /* what was missing twice is there */
  CHECK_OK(blend_fusion_decode(in->fusion, in->tokens, 1, NULL, &err));
  CHECK(blend_precompute_options_init(&p, sizeof p) == BLEND_OK);
  CHECK_OK(blend_chunk_find(in->w.model, in->w.store, in->tokens, 12, &p, &in->id, &err));
  CHECK_OK(blend_store_prefetch(in->w.store, &in->id, 1, &err));
  CHECK_OK(blend_layerwise_create(&in->layerwise, in->w.model, in->w.store, in->s, 3, &o, &err));
  CHECK(blend_grammar_options_init(&g, sizeof g) == BLEND_OK);
  g.language = BLEND_GRAMMAR_REGEX;
  g.text = "a*";
  if (blend_grammar_open(&in->grammar, in->w.model, &g, NULL) < 0) in->grammar = NULL;
  return in->fusion != NULL && in->layerwise != NULL;
}

void forked_takes_no_lock(const fixture* f) {
  const struct timespec a_while = {0, 100 * 1000 * 1000};
  inherited in;
  pid_t child;
  int status = 0;
  REQUIRE(open_inherited(f, &in));
  nanosleep(&a_while, NULL); /* the threads fall asleep; if one has not, less is seen */
  child = fork();
  if (child == 0) {
    alarm(60);
    if (!lock_watch_begin()) _exit(0);
    use_model(&in, f);
    use_fusion(&in);
    use_store(&in, f);
    close_all(&in);
    _exit(lock_watch_end() != 0 || n_wrong != 0);
  }
  REQUIRE(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close_all(&in);
}
