/* struct_size: what older and newer hosts may pass. */
#include <string.h>

#include "fixture.h"

typedef int32_t (*init_fn)(void*, size_t);

/* One init function: writes its own bytes only, clears what it does not know, refuses too little.
 */
static void check_init(const char* name, init_fn init, size_t size, size_t first) {
  unsigned char buffer[1024];
  uint32_t told;
  size_t i;
  memset(buffer, 0xAA, sizeof buffer);
  if (init(buffer, size) != BLEND_OK) capi_fail(__FILE__, __LINE__, "%s refuses its size", name);
  memcpy(&told, buffer, sizeof told);
  if (told != size) capi_fail(__FILE__, __LINE__, "%s: struct_size is %u", name, (unsigned)told);
  for (i = size; i < sizeof buffer; ++i) {
    if (buffer[i] != 0xAA) {
      capi_fail(__FILE__, __LINE__, "%s wrote past its struct", name);
      break;
    }
  }
  /* A host built with a later header: 32 members of ours to come. */
  memset(buffer, 0xAA, sizeof buffer);
  if (init(buffer, size + 32) != BLEND_OK) {
    capi_fail(__FILE__, __LINE__, "%s refuses a larger struct", name);
  }
  memcpy(&told, buffer, sizeof told);
  if (told != size + 32) capi_fail(__FILE__, __LINE__, "%s: larger struct_size", name);
  for (i = size; i < size + 32; ++i) {
    if (buffer[i] != 0) {
      capi_fail(__FILE__, __LINE__, "%s leaves the tail uncleared", name);
      break;
    }
  }
  if (buffer[size + 32] != 0xAA) capi_fail(__FILE__, __LINE__, "%s wrote past a larger one", name);
  /* A host built with the first header. */
  if (init(buffer, first) != BLEND_OK) capi_fail(__FILE__, __LINE__, "%s: first size", name);
  /* Too small: nothing may be written. */
  memset(buffer, 0xAA, sizeof buffer);
  if (init(buffer, first - 1) != BLEND_E_INVALID_STRUCT ||
      init(buffer, 4) != BLEND_E_INVALID_STRUCT || init(buffer, 0) != BLEND_E_INVALID_STRUCT) {
    capi_fail(__FILE__, __LINE__, "%s accepts a struct that is too small", name);
  }
  /* And no host has a struct of megabytes: a size that was never set. */
  if (init(buffer, SIZE_MAX) != BLEND_E_INVALID_STRUCT ||
      init(buffer, 0xfffffff0u) != BLEND_E_INVALID_STRUCT ||
      init(buffer, 1u << 20) != BLEND_E_INVALID_STRUCT) {
    capi_fail(__FILE__, __LINE__, "%s accepts a struct of any size", name);
  }
  if (buffer[0] != 0xAA) capi_fail(__FILE__, __LINE__, "%s wrote to a refused struct", name);
}

/* Typed thunks: calling through a cast function pointer would be undefined. Today's sizes are those
 * of the first release. */
/* clang-format off */
#define STRUCTS(X) \
  X(blend_ctx_options) \
  X(blend_model_options) \
  X(blend_model_description) \
  X(blend_store_options) \
  X(blend_remote_options) \
  X(blend_precompute_options) \
  X(blend_corpus_options) \
  X(blend_fuse_options) \
  X(blend_selection_options) \
  X(blend_generate_options) \
  X(blend_chat_options) \
  X(blend_filter_options) \
  X(blend_transfer_options) \
  X(blend_machine_options) \
  X(blend_advise_options) \
  X(blend_calibrate_options) \
  X(blend_verify_options) \
  X(blend_text_options) \
  X(blend_embed_options)
/* clang-format on */
#define THUNK(type) \
  static int32_t init_##type(void* p, size_t n) { return type##_init((type*)p, n); }
STRUCTS(THUNK)

void structs_init(const fixture* f) {
  (void)f;
#define RUN(type) check_init(#type, init_##type, sizeof(type), sizeof(type));
  STRUCTS(RUN)
}

/* Calls `call` with a struct that is too small, larger with a zero tail, and larger with a tail
 * that asks for something unknown. `clean` undoes a success. */
#define CHECK_SIZES(type, first, init, call, clean) \
  do {                                              \
    struct {                                        \
      type o;                                       \
      unsigned char tail[32];                       \
    } later;                                        \
    type* o = &later.o;                             \
    memset(&later, 0, sizeof later);                \
    CHECK(init(o, sizeof *o) == BLEND_OK);          \
    o->struct_size = (uint32_t)(first)-1;           \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);       \
    o->struct_size = 0;                             \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);       \
    o->struct_size = 0xfffffff0u;                   \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);       \
    CHECK(init(o, sizeof later) == BLEND_OK);       \
    later.tail[31] = 1;                             \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);       \
    later.tail[31] = 0;                             \
    CHECK_OK(call);                                 \
    clean;                                          \
  } while (0)

/* Infos are written, not read: a larger one gets zeros where this library knows nothing. */
#define CHECK_INFO(type, first, call)                                                \
  do {                                                                               \
    struct {                                                                         \
      type o;                                                                        \
      unsigned char tail[32];                                                        \
    } later;                                                                         \
    type* o = &later.o;                                                              \
    int i_;                                                                          \
    memset(&later, 0xAA, sizeof later);                                              \
    o->struct_size = (uint32_t)(first)-1;                                            \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);                                        \
    o->struct_size = 0;                                                              \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);                                        \
    o->struct_size = 0xfffffff0u; /* not written to */                               \
    CHECK_CODE(BLEND_E_INVALID_STRUCT, call);                                        \
    o->struct_size = (uint32_t)(first); /* an older host's */                        \
    CHECK_OK(call);                                                                  \
    CHECK((first) == sizeof *o || ((const unsigned char*)o)[sizeof *o - 1] == 0xAA); \
    o->struct_size = (uint32_t)sizeof *o;                                            \
    CHECK_OK(call);                                                                  \
    CHECK(later.tail[0] == 0xAA);                                                    \
    o->struct_size = (uint32_t)sizeof later;                                         \
    CHECK_OK(call);                                                                  \
    CHECK(o->struct_size == sizeof later);                                           \
    for (i_ = 0; i_ < 32; ++i_) CHECK(later.tail[i_] == 0);                          \
  } while (0)

void structs_size(const fixture* f) {
  world w;
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_fusion* fusion = NULL;
  int32_t tokens[12], more[12];
  blend_segment s;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 12, 3);
  fill_tokens(more, 12, 8);
  s = segment(BLEND_SEGMENT_QUESTION, tokens, 12);

  CHECK_SIZES(blend_ctx_options, sizeof(blend_ctx_options), blend_ctx_options_init,
              blend_ctx_create(&ctx, o, &err), blend_ctx_close(ctx));
  CHECK_SIZES(blend_model_options, sizeof(blend_model_options), blend_model_options_init,
              blend_model_open(&model, w.ctx, f->model, o, &err), blend_model_close(model));
  CHECK_INFO(blend_model_info, sizeof(blend_model_info), blend_model_get_info(w.model, o, &err));
  CHECK_SIZES(blend_store_options, sizeof(blend_store_options), blend_store_options_init,
              blend_store_open(&store, w.ctx, path_in(f, "s2"), o, &err), blend_store_close(store));
  CHECK_SIZES(blend_precompute_options, sizeof(blend_precompute_options),
              blend_precompute_options_init,
              blend_precompute(w.model, w.store, more, 12, o, NULL, &err), (void)0);
  CHECK_SIZES(blend_fuse_options, sizeof(blend_fuse_options), blend_fuse_options_init,
              blend_fuse(&fusion, w.model, w.store, &s, 1, o, &err), (void)0);
  blend_fusion_close(fusion);
  CHECK_SIZES(blend_text_options, sizeof(blend_text_options), blend_text_options_init,
              blend_fuse_texts(&fusion, w.model, NULL, NULL, 0, "a", o, &err), (void)0);
  REQUIRE(fusion != NULL);
  CHECK_INFO(blend_store_stat, sizeof(blend_store_stat), blend_store_get_stat(w.store, o, &err));
  CHECK_INFO(blend_store_report, sizeof(blend_store_report),
             blend_store_get_report(w.store, o, &err));
  CHECK_INFO(blend_remote_stat, sizeof(blend_remote_stat),
             blend_store_get_remote_stat(w.store, o, &err));
  CHECK_INFO(blend_fusion_info, sizeof(blend_fusion_info), blend_fusion_get_info(fusion, o, &err));
  CHECK_INFO(blend_codec_stat, sizeof(blend_codec_stat),
             blend_store_get_codec_stat(w.store, BLEND_CODEC_NONE, o, &err));
  CHECK_INFO(blend_fusion_report, sizeof(blend_fusion_report),
             blend_fusion_get_report(fusion, o, &err));
  CHECK_INFO(blend_layer_info, sizeof(blend_layer_info),
             blend_fusion_get_layer(fusion, 0, o, &err));
  CHECK_INFO(blend_segment_info, sizeof(blend_segment_info),
             blend_fusion_get_segment(fusion, 0, o, &err));
  {
    struct {
      blend_generate_options o;
      unsigned char tail[32];
    } later;
    memset(&later, 0, sizeof later);
    CHECK(blend_generate_options_init(&later.o, sizeof later) == BLEND_OK);
    later.tail[0] = 1;
    CHECK_CODE(BLEND_E_INVALID_STRUCT,
               blend_fusion_generate(fusion, &later.o, NULL, NULL, NULL, &err));
    later.o.struct_size = 8;
    CHECK_CODE(BLEND_E_INVALID_STRUCT,
               blend_fusion_generate(fusion, &later.o, NULL, NULL, NULL, &err));
  }
  { /* A struct that another one points to is read by its own size. */
    blend_fuse_options o = fuse_options();
    blend_store_options so;
    blend_selection_options selection = {.struct_size = 8};
    blend_remote_options remote = {.struct_size = 8};
    blend_fusion* other = NULL;
    CHECK(blend_store_options_init(&so, sizeof so) == BLEND_OK);
    o.selection = &selection;
    so.remote = &remote;
    CHECK_SAYS(BLEND_E_INVALID_STRUCT, "blend_selection_options",
               blend_fuse(&other, w.model, w.store, &s, 1, &o, &err));
    CHECK_SAYS(BLEND_E_INVALID_STRUCT, "blend_remote_options",
               blend_store_open(&store, w.ctx, path_in(f, "s3"), &so, &err));
    CHECK(other == NULL && store == NULL);
  }
  { /* The short report says what the long one says. */
    blend_fusion_info info = {.struct_size = sizeof info};
    blend_fusion_report report = {.struct_size = sizeof report};
    CHECK_OK(blend_fusion_get_info(fusion, &info, &err));
    CHECK_OK(blend_fusion_get_report(fusion, &report, &err));
    CHECK(info.flags == report.flags && info.policy == report.policy);
    CHECK(info.n_layers == report.n_layers && info.n_layers > 0 && info.ratio == report.ratio);
    CHECK(info.n_rows == report.n_rows && info.n_rows > 0);
    CHECK(info.n_rows_reused == report.n_rows_reused && info.n_rows_exact == report.n_rows_exact);
    CHECK(info.n_rows_selected == report.n_rows_selected);
    CHECK(info.n_hits == report.n_hits && info.n_misses == report.n_misses);
    CHECK(info.ttft_ns == report.ttft_ns && info.ttft_ns > 0 && info.wait_ns == report.wait_ns);
    CHECK(info.bytes_loaded == report.bytes_loaded);
  }
  blend_fusion_close(fusion);
  close_world(&w);
}

/* An array of segments from a host with a larger struct: the stride is struct_size. */
void structs_segments_of_a_later_release(const fixture* f) {
  struct later {
    blend_segment s;
    uint64_t unknown[2];
  } later[2];
  blend_segment plain[2];
  world w;
  blend_fusion *a = NULL, *b = NULL;
  blend_fuse_options o = fuse_options();
  int32_t tokens[20];
  int i;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 20, 3);
  for (i = 0; i < 2; ++i) {
    plain[i] = segment(i == 0 ? BLEND_SEGMENT_TEXT : BLEND_SEGMENT_QUESTION, tokens + 10 * i, 10);
    memset(&later[i], 0, sizeof later[i]);
    later[i].s.struct_size = sizeof later[i];
    later[i].s.kind = plain[i].kind;
    later[i].s.tokens = plain[i].tokens;
    later[i].s.n_tokens = plain[i].n_tokens;
  }
  o.policy = BLEND_POLICY_FULL;
  CHECK_OK(blend_fuse(&a, w.model, w.store, plain, 2, &o, &err));
  CHECK_OK(blend_fuse(&b, w.model, w.store, &later[0].s, 2, &o, &err));
  CHECK(same_logits(a, b));
  blend_fusion_close(a);
  blend_fusion_close(b);
  a = NULL;
  later[1].unknown[1] = 1;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_fuse(&a, w.model, w.store, &later[0].s, 2, &o, &err));
  later[1].unknown[1] = 0;
  /* A stride that was never set is not followed. */
  later[0].s.struct_size = 0xfffffff0u;
  CHECK_SAYS(BLEND_E_INVALID_STRUCT, "segment 0",
             blend_fuse(&a, w.model, w.store, &later[0].s, 2, &o, &err));
  plain[1].struct_size = 8;
  {
    blend_error* err = NULL;
    const int32_t code = blend_fuse(&a, w.model, w.store, plain, 2, &o, &err);
    CHECK(code == BLEND_E_INVALID_STRUCT || code == BLEND_E_INVALID_ARGUMENT);
    blend_error_free(err);
  }
  plain[0].struct_size = plain[1].struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_fuse(&a, w.model, w.store, plain, 2, &o, &err));
  CHECK(a == NULL);
  close_world(&w);
}
