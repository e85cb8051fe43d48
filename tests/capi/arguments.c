/* Values out of range or contradictory: a code, and a sentence that names the thing. */
#include <math.h>
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT

void arguments_of_open(const fixture* f) {
  static const char* const kNoBackend[] = {
      "", "tpu", "CPU", "cuda:", "cuda:-1", "cuda:1x", "cuda0"};
  size_t i;
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_ctx_options c = {.struct_size = sizeof c};
  blend_store_options s;
  c.n_threads = 1025;
  CHECK_SAYS(INVALID, "1025", blend_ctx_create(&ctx, &c, &err));
  CHECK(ctx == NULL);
  c.n_threads = 1;
  for (i = 0; i < sizeof kNoBackend / sizeof *kNoBackend; ++i) {
    c.backend = kNoBackend[i];
    CHECK_SAYS(INVALID, "'cuda:N'", blend_ctx_create(&ctx, &c, &err));
  }
  c.backend = "cpu";
  c.cache_dtype = BLEND_DTYPE_BF16 + 1;
  CHECK_SAYS(INVALID, "cache_dtype 4", blend_ctx_create(&ctx, &c, &err));
  c.backend = "cuda";
  c.cache_dtype = BLEND_DTYPE_F16;
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "bf16", blend_ctx_create(&ctx, &c, &err));
  CHECK(ctx == NULL);
  c.cache_dtype = BLEND_DTYPE_BF16;
  c.backend = "cuda:9999"; /* nobody has that many */
  CHECK_CODE(BLEND_E_NO_DEVICE, blend_ctx_create(&ctx, &c, &err));
  CHECK(ctx == NULL);
  c.backend = "auto";
  CHECK_OK(blend_ctx_create(&ctx, &c, &err));
  REQUIRE(ctx != NULL);
  CHECK(strncmp(blend_ctx_backend(ctx), "cpu (", 5) == 0 ||
        strncmp(blend_ctx_backend(ctx), "cuda:0 (", 8) == 0);
  blend_ctx_close(ctx);
  ctx = open_ctx();
  REQUIRE(ctx != NULL);
  CHECK(strncmp(blend_ctx_backend(ctx), "cpu (", 5) == 0);

  CHECK_SAYS(BLEND_E_NOT_FOUND, "nothing-here",
             blend_model_open(&model, ctx, path_in(f, "nothing-here.gguf"), NULL, &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_model_open(&model, ctx, "", NULL, &err));
  CHECK(model == NULL);

  CHECK(blend_store_options_init(&s, sizeof s) == BLEND_OK);
  s.kv_dtype = 9;
  CHECK_CODE(INVALID, blend_store_open(&store, ctx, path_in(f, "s"), &s, &err));
  s.kv_dtype = BLEND_DTYPE_AUTO;
  s.flags = 1u << 30;
  CHECK_CODE(INVALID, blend_store_open(&store, ctx, path_in(f, "s"), &s, &err));
  s.flags = 0;
  s.codec = BLEND_CODEC_RANS + 1;
  CHECK_SAYS(INVALID, "codec 6", blend_store_open(&store, ctx, path_in(f, "s"), &s, &err));
  s.codec = BLEND_CODEC_DEFAULT;
  s.codec_step = 0.01;
  CHECK_SAYS(INVALID, "codec_step 0.01", blend_store_open(&store, ctx, path_in(f, "s"), &s, &err));
  s.codec_step = 0;
  s.read_mode = 4;
  CHECK_SAYS(INVALID, "read_mode 4", blend_store_open(&store, ctx, path_in(f, "s"), &s, &err));
  s.read_mode = BLEND_READ_AUTO;
  s.flags = BLEND_STORE_NO_CREATE;
  CHECK_SAYS(BLEND_E_NOT_FOUND, "no-store",
             blend_store_open(&store, ctx, path_in(f, "no-store"), &s, &err));
  s.flags = BLEND_STORE_READ_ONLY;
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_open(&store, ctx, path_in(f, "no-store"), &s, &err));
  CHECK(store == NULL);
  blend_ctx_close(ctx);
}

void arguments_tokens(const fixture* f) {
  static const int32_t kOutside[] = {-1, 320, INT32_MAX, INT32_MIN};
  world w;
  size_t i, n = 0;
  blend_fusion* fusion = NULL;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < sizeof kOutside / sizeof *kOutside; ++i) {
    int32_t tokens[3] = {5, 6, 7};
    int32_t good[3] = {5, 6, 7};
    char text[64];
    blend_segment s[2];
    blend_precompute_options p = {.struct_size = sizeof p};
    blend_fuse_options o = fuse_options();
    tokens[1] = kOutside[i];
    CHECK_CODE(INVALID, blend_precompute(w.model, w.store, tokens, 3, NULL, NULL, &err));
    p.chunk_prefix = tokens;
    p.n_chunk_prefix = 3;
    CHECK_CODE(INVALID, blend_precompute(w.model, w.store, good, 3, &p, NULL, &err));
    CHECK_CODE(INVALID, blend_model_detokenize(w.model, tokens, 3, 0, text, sizeof text, &n, &err));

    s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 3);
    s[1] = segment(BLEND_SEGMENT_QUESTION, good, 3);
    CHECK_SAYS(INVALID, "segment", blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    s[0].kind = BLEND_SEGMENT_TEXT;
    CHECK_SAYS(INVALID, "segment", blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    s[0] = segment(BLEND_SEGMENT_CHUNK, good, 3);
    o.chunk_prefix = tokens;
    o.n_chunk_prefix = 3;
    CHECK_CODE(INVALID, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    o.chunk_prefix = NULL;
    CHECK_CODE(INVALID, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    CHECK(fusion == NULL);

    fusion = fuse_question(w.model, good, 3, 8);
    REQUIRE(fusion != NULL);
    CHECK_CODE(INVALID, blend_fusion_decode(fusion, tokens, 3, NULL, &err));
    blend_fusion_close(fusion);
    fusion = NULL;
  }
  close_world(&w);
}

/* Impossible counts, and names that are not UTF-8: a code, a sentence, and that in UTF-8. */
void arguments_absurd(const fixture* f) {
  static const size_t kCounts[] = {(size_t)1 << 58, (size_t)1 << 60, (size_t)1 << 62,
                                   ((size_t)1 << 63) - 1, SIZE_MAX};
  world w;
  size_t i;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < sizeof kCounts / sizeof *kCounts; ++i) {
    const int32_t token = 5;
    const blend_chunk_id id = {{0}};
    blend_segment s = segment(BLEND_SEGMENT_QUESTION, &token, kCounts[i]);
    blend_fusion* fusion = NULL;
    blend_fuse_options o = fuse_options();
    blend_calibrate_options c;
    blend_precompute_options p = {.struct_size = sizeof p};
    const double ratio = 0.5;
    CHECK_CODE(INVALID, blend_store_prefetch(w.store, &id, kCounts[i], &err));
    CHECK_CODE(BLEND_E_CONTEXT_LENGTH,
               blend_precompute(w.model, w.store, &token, kCounts[i], NULL, NULL, &err));
    CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fuse(&fusion, w.model, NULL, &s, 1, &o, &err));
    o.chunk_prefix = p.chunk_prefix = &token;
    o.n_chunk_prefix = p.n_chunk_prefix = kCounts[i];
    s.n_tokens = 1;
    CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fuse(&fusion, w.model, NULL, &s, 1, &o, &err));
    CHECK_CODE(BLEND_E_CONTEXT_LENGTH,
               blend_precompute(w.model, w.store, &token, 1, &p, NULL, &err));
    CHECK(blend_calibrate_options_init(&c, sizeof c) == BLEND_OK);
    c.ratios = &ratio;
    c.n_ratios = kCounts[i];
    CHECK_SAYS(INVALID, "n_ratios", blend_calibrate(w.model, NULL, 0, &c, path_in(f, "p"), &err));
  }
  { /* What a binding's -1 becomes. */
    const int32_t tokens[2] = {5, 6};
    blend_fusion* fusion = fuse_question(w.model, tokens, 2, 8);
    const blend_segment s = segment(BLEND_SEGMENT_QUESTION, tokens, 2);
    blend_fuse_options o = fuse_options();
    blend_generate_options g;
    blend_precompute_options p = {.struct_size = sizeof p};
    REQUIRE(fusion != NULL);
    CHECK(blend_generate_options_init(&g, sizeof g) == BLEND_OK);
    g.max_tokens = (uint32_t)-1;
    CHECK_SAYS(INVALID, "max_tokens", blend_fusion_generate(fusion, &g, NULL, NULL, NULL, &err));
    g.max_tokens = 1;
    g.n_threads = o.n_threads = p.n_threads = (uint32_t)-1;
    CHECK_SAYS(INVALID, "n_threads", blend_fusion_generate(fusion, &g, NULL, NULL, NULL, &err));
    CHECK_SAYS(INVALID, "n_threads", blend_fusion_extend(fusion, NULL, &s, 1, &o, &err));
    CHECK_SAYS(INVALID, "n_threads", blend_precompute(w.model, w.store, tokens, 2, &p, NULL, &err));
    blend_fusion_close(fusion);
  }
  {
    blend_error* err = NULL;
    blend_model* model = NULL;
    const char* at;
    CHECK(blend_model_open(&model, w.ctx, "no\xff\xc3(\xe2\x82way", NULL, &err) ==
          BLEND_E_NOT_FOUND);
    at = blend_error_message(err);
    CHECK(strstr(at, "no\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbdway") != NULL);
    CHECK(strchr(at, '\xff') == NULL);
    blend_error_free(err);
  }
  close_world(&w);
}

void arguments_fuse_options(const fixture* f) {
  static const double kRatios[] = {-0.1, 1.5, 1.0000001, -1e-300, NAN, INFINITY, -INFINITY};
  static const uint32_t kCheckLayers[] = {4, 5, UINT32_MAX}; /* of 4 layers: 1, 2 or 3 */
  static const uint32_t kUnknown[] = {4, 99, UINT32_MAX};    /* metrics, norms */
  static const uint32_t kUnknownMisses[] = {4, 99, UINT32_MAX};
  static const blend_check_layer kChecks[] = {{1, 0.5}};
  static const blend_policy_term kTerms[] = {{BLEND_POLICY_HKVD, 1.0}};
  static const uint32_t kUnknownPolicies[] = {14, 99, UINT32_MAX};
  world w;
  int32_t tokens[20];
  blend_segment s[3];
  blend_fusion* fusion = NULL;
  size_t i;
  blend_fuse_options o;
  blend_selection_options detail;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 20, 3);
  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 8);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 5, 8);
  s[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 13, 7);
  for (i = 0; i < sizeof kRatios / sizeof *kRatios; ++i) {
    o = fuse_options();
    o.ratio = kRatios[i];
    CHECK_SAYS(INVALID, "ratio", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  }
  for (i = 0; i < sizeof kCheckLayers / sizeof *kCheckLayers; ++i) {
    o = fuse_options();
    o.policy = BLEND_POLICY_CASCADE; /* one that has a check layer */
    o.selection = &detail;
    detail = (blend_selection_options){.struct_size = sizeof detail};
    detail.check_layer = kCheckLayers[i];
    CHECK_SAYS(INVALID, "check_layer", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  }
  for (i = 0; i < sizeof kUnknown / sizeof *kUnknown; ++i) {
    o = fuse_options();
    o.policy = kUnknownPolicies[i];
    CHECK_SAYS(INVALID, "policy", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
    o = fuse_options();
    o.selection = &detail;
    detail = (blend_selection_options){.struct_size = sizeof detail};
    detail.metric = kUnknown[i];
    CHECK_SAYS(INVALID, "metric", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
    detail.metric = BLEND_METRIC_AUTO;
    detail.norm = kUnknown[i];
    CHECK_SAYS(INVALID, "norm", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
    o = fuse_options();
    o.on_miss = kUnknownMisses[i];
    CHECK_SAYS(INVALID, "on_miss", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  }
  o = fuse_options();
  o.selection = &detail;
  detail = (blend_selection_options){.struct_size = sizeof detail};
  detail.n_check_layers = 2;
  CHECK_SAYS(INVALID, "check_layers must not be NULL",
             blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  detail.check_layers = kChecks; /* a length that is nonsense is not followed */
  detail.n_check_layers = SIZE_MAX / 2;
  CHECK_SAYS(INVALID, "n_check_layers", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  o = fuse_options();
  o.policy = BLEND_POLICY_UNION;
  o.selection = &detail;
  detail = (blend_selection_options){.struct_size = sizeof detail};
  detail.n_terms = 1;
  CHECK_SAYS(INVALID, "terms must not be NULL",
             blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  detail.terms = kTerms;
  detail.n_terms = SIZE_MAX / 2;
  CHECK_SAYS(INVALID, "n_terms", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  o = fuse_options();
  CHECK_SAYS(INVALID, "store", blend_fuse(&fusion, w.model, NULL, s, 3, &o, &err));
  o.on_miss = BLEND_MISS_FAIL;
  CHECK_SAYS(INVALID, "store", blend_fuse(&fusion, w.model, NULL, s, 3, &o, &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK(fusion == NULL);
  o.on_miss = BLEND_MISS_COMPUTE;
  CHECK_OK(blend_fuse(&fusion, w.model, NULL, s, 3, &o, &err));
  blend_fusion_close(fusion);
  close_world(&w);
}

void arguments_segments(const fixture* f) {
  world w;
  int32_t tokens[30];
  blend_segment s[3];
  blend_chunk_id id;
  blend_fusion* fusion = NULL;
  blend_fuse_options o = fuse_options();
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 30, 3);
  memset(&id, 7, sizeof id);
#define FUSE(n) blend_fuse(&fusion, w.model, w.store, s, (n), &o, &err)
#define THREE(a, b, c)                    \
  do {                                    \
    s[0] = segment((a), tokens, 10);      \
    s[1] = segment((b), tokens + 10, 10); \
    s[2] = segment((c), tokens + 20, 10); \
  } while (0)

  CHECK_CODE(INVALID, FUSE(0)); /* no segments */
  THREE(BLEND_SEGMENT_TEXT, BLEND_SEGMENT_QUESTION, BLEND_SEGMENT_TEXT);
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* the question is not last */
  THREE(BLEND_SEGMENT_TEXT, BLEND_SEGMENT_QUESTION, BLEND_SEGMENT_QUESTION);
  CHECK_SAYS(INVALID, "segment 1", FUSE(3));
  THREE(BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_PREFIX, BLEND_SEGMENT_QUESTION);
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* the prefix is not first */
  THREE(BLEND_SEGMENT_QUESTION, BLEND_SEGMENT_PREFIX, BLEND_SEGMENT_TEXT);
  CHECK_SAYS(INVALID, "segment", FUSE(3));
  THREE(BLEND_SEGMENT_TEXT, 0, BLEND_SEGMENT_QUESTION);
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* no such kind */
  s[1].kind = 5;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3));
  s[1].kind = UINT32_MAX;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3));

  THREE(BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_QUESTION);
  s[1].n_tokens = 0;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* an empty chunk */
  s[1].tokens = NULL;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* neither tokens nor id */
  s[1].n_tokens = 10;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* tokens that are not there */
  THREE(BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_TEXT, BLEND_SEGMENT_QUESTION);
  s[1].tokens = NULL;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3));
  THREE(BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_TEXT, BLEND_SEGMENT_QUESTION);
  s[1].id = &id;
  CHECK_SAYS(INVALID, "segment 1", FUSE(3)); /* an id for what is not stored */
  THREE(BLEND_SEGMENT_PREFIX, BLEND_SEGMENT_TEXT, BLEND_SEGMENT_QUESTION);
  s[0].id = &id;
  CHECK_SAYS(INVALID, "segment 0", FUSE(3));
  s[0] = segment(BLEND_SEGMENT_TEXT, NULL, 0);
  CHECK_CODE(INVALID, FUSE(1)); /* a prompt without a token */
  CHECK(fusion == NULL);

  /* Odd but allowed: the same chunk twice, an empty text, no question. */
  THREE(BLEND_SEGMENT_CHUNK, BLEND_SEGMENT_TEXT, BLEND_SEGMENT_CHUNK);
  s[2].tokens = tokens;
  s[1] = segment(BLEND_SEGMENT_TEXT, NULL, 0);
  {
    blend_segment four[4];
    memcpy(four, s, sizeof s);
    four[3] = segment(BLEND_SEGMENT_TEXT, tokens, 5);
    CHECK_OK(blend_fuse(&fusion, w.model, w.store, four, 4, &o, &err));
    blend_fusion_close(fusion);
    fusion = NULL;
  }
  /* A prompt may end in a chunk; its last row is then computed, for its logits. */
  {
    blend_fusion* full = NULL;
    const float *a = NULL, *b = NULL;
    size_t n = 0, i;
    blend_fuse_options full_options = fuse_options();
    full_options.policy = BLEND_POLICY_FULL;
    o.ratio = 1;
    s[1] = segment(BLEND_SEGMENT_TEXT, tokens + 3, 4);
    CHECK_OK(FUSE(3));
    CHECK_OK(blend_fuse(&full, w.model, NULL, s, 3, &full_options, &err));
    REQUIRE(fusion != NULL && full != NULL);
    CHECK(blend_fusion_get_logits(fusion, &a, &n, NULL) == BLEND_OK);
    CHECK(blend_fusion_get_logits(full, &b, &n, NULL) == BLEND_OK);
    for (i = 0; i < n; ++i) CHECK(fabs((double)a[i] - (double)b[i]) <= 1e-4);
    blend_fusion_close(full);
    blend_fusion_close(fusion);
  }
#undef FUSE
#undef THREE
  close_world(&w);
}

void arguments_loras(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_lora_info info = {.struct_size = sizeof info};
  blend_lora loras[2];
  blend_model_options m;
  REQUIRE(ctx != NULL);
  memset(loras, 0, sizeof loras);
  loras[0].struct_size = loras[1].struct_size = sizeof loras[0];
  loras[0].path = loras[1].path = "/nowhere/adapter.gguf";
  CHECK(blend_model_options_init(&m, sizeof m) == BLEND_OK);
#define OPENS(code, words) \
  CHECK_SAYS(code, words, blend_model_open(&model, ctx, f->model, &m, &err))
  m.n_loras = 1;
  OPENS(INVALID, "loras");
  m.loras = loras;
  OPENS(BLEND_E_NOT_FOUND, "/nowhere/adapter.gguf");
  m.n_loras = SIZE_MAX / 2;
  OPENS(INVALID, "n_loras");
  m.n_loras = 2;
  loras[1].struct_size = 8;
  OPENS(BLEND_E_INVALID_STRUCT, "LoRA adapter 1");
  loras[1].struct_size = sizeof loras[0];
  loras[1].path = NULL;
  OPENS(INVALID, "LoRA adapter 1: path");
  loras[1].path = loras[0].path;
  loras[1].reserved = 1;
  OPENS(INVALID, "reserved");
  loras[1].reserved = 0;
  loras[0].scale = HUGE_VAL;
  OPENS(INVALID, "not finite");
  loras[0].scale = 0;
  /* A model is no adapter. */
  loras[0].path = f->model;
  OPENS(BLEND_E_FORMAT, "general.type");
  CHECK(model == NULL);
#undef OPENS
  m.n_loras = 0;
  CHECK_OK(blend_model_open(&model, ctx, f->model, &m, &err));
  CHECK_SAYS(INVALID, "no LoRA adapter 0", blend_model_get_lora(model, 0, &info, &err));
  CHECK_CODE(INVALID, blend_model_get_lora(NULL, 0, &info, &err));
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void arguments_context_length(const fixture* f) {
  world w;
  static int32_t tokens[600];
  blend_segment s[3];
  blend_fusion* fusion = NULL;
  blend_model* small = NULL;
  blend_model_options m;
  blend_precompute_options p = {.struct_size = sizeof p};
  blend_fuse_options o = fuse_options();
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 600, 3);
  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 300);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 10, 200);
  s[2] = segment(BLEND_SEGMENT_QUESTION, tokens, 13); /* one too many for 512 */
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "512", blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH,
             blend_precompute(w.model, w.store, tokens, 513, NULL, NULL, &err));
  p.chunk_prefix = tokens;
  p.n_chunk_prefix = 13;
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH,
             blend_precompute(w.model, w.store, tokens, 500, &p, NULL, &err));
  /* A length that overflows a sum must not pass for a short prompt. */
  s[0].n_tokens = SIZE_MAX - 100;
  CHECK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, NULL) < 0);
  CHECK(blend_precompute(w.model, w.store, tokens, SIZE_MAX - 100, NULL, NULL, NULL) < 0);
  CHECK(fusion == NULL);

  /* To the last row; then there is none left for decode. */
  s[0].n_tokens = 300;
  s[2].n_tokens = 12;
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
  REQUIRE(fusion != NULL);
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(fusion, tokens, 1, NULL, &err));
  blend_fusion_close(fusion);
  fusion = fuse_question(w.model, tokens, 5, 4);
  REQUIRE(fusion != NULL);
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(fusion, tokens, 5, NULL, &err));
  CHECK_OK(
      blend_fusion_decode(fusion, tokens, 3, NULL, &err)); /* the refused call left the rows free */
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(fusion, tokens, 2, NULL, &err));
  CHECK_OK(blend_fusion_decode(fusion, tokens, 1, NULL, &err));
  CHECK_CODE(BLEND_E_CONTEXT_LENGTH, blend_fusion_decode(fusion, tokens, 1, NULL, &err));
  blend_fusion_close(fusion);
  fusion = NULL;

  /* The host may ask for less than the model was trained for. */
  memset(&m, 0, sizeof m);
  m.struct_size = sizeof m;
  m.max_context = 16;
  CHECK_OK(blend_model_open(&small, w.ctx, f->model, &m, &err));
  s[0] = segment(BLEND_SEGMENT_TEXT, tokens, 17);
  o.policy = BLEND_POLICY_FULL;
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "16", blend_fuse(&fusion, small, w.store, s, 1, &o, &err));
  blend_model_close(small);
  close_world(&w);
}

/* Ask for the size, then for the content; a short buffer is never overrun. */
void arguments_buffers(const fixture* f) {
  static const char kText[] = "the cat and the dog";
  world w;
  int32_t tokens[64];
  char text[64];
  size_t n = 0, m = 0, i;
  REQUIRE(open_world(f, &w));
  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL,
             blend_model_tokenize(w.model, kText, strlen(kText), 0, NULL, 0, &n, &err));
  REQUIRE(n > 1 && n < 64);
  for (i = 0; i < 64; ++i) tokens[i] = -77;
  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL,
             blend_model_tokenize(w.model, kText, strlen(kText), 0, tokens, n - 1, &m, &err));
  CHECK(m == n && tokens[n - 1] == -77);
  CHECK_OK(blend_model_tokenize(w.model, kText, strlen(kText), 0, tokens, n, &m, &err));
  CHECK(m == n && tokens[n] == -77);

  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL,
             blend_model_detokenize(w.model, tokens, n, 0, NULL, 0, &m, &err));
  CHECK(m == strlen(kText));
  memset(text, 'x', sizeof text);
  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL,
             blend_model_detokenize(w.model, tokens, n, 0, text, m - 1, &m, &err));
  CHECK(text[m - 1] == 'x');
  CHECK_OK(blend_model_detokenize(w.model, tokens, n, 0, text, m, &m, &err));
  CHECK(m == strlen(kText) && memcmp(text, kText, m) == 0 && text[m] == 'x');
  close_world(&w);
}
