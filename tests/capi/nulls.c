/* NULL wherever a pointer goes: a code and a sentence, or nothing at all where the header promises
 * that NULL is accepted. */
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT

void nulls_context(const fixture* f) {
  blend_ctx* ctx = NULL;
  (void)f;
  CHECK_CODE(INVALID, blend_ctx_create(NULL, NULL, &err));
  CHECK(blend_ctx_create(NULL, NULL, NULL) == INVALID);
  CHECK_OK(blend_ctx_create(&ctx, NULL, &err)); /* no options: the defaults */
  blend_ctx_close(ctx);
  blend_ctx_close(NULL);
  CHECK(strcmp(blend_ctx_backend(NULL), "") == 0);

  CHECK_CODE(INVALID, blend_cancel_create(NULL, &err));
  blend_cancel_request(NULL);
  blend_cancel_reset(NULL);
  blend_cancel_free(NULL);

  CHECK(blend_error_code(NULL) == BLEND_OK);
  CHECK(strcmp(blend_error_message(NULL), "") == 0);
  CHECK(blend_error_detail(NULL) == 0);
  blend_error_free(NULL);
}

void nulls_model(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_model_info info = {.struct_size = sizeof info};
  int32_t tokens[8] = {5};
  char text[8];
  size_t n = 0;
  REQUIRE(ctx != NULL);
  CHECK_CODE(INVALID, blend_model_open(NULL, ctx, f->model, NULL, &err));
  CHECK_CODE(INVALID, blend_model_open(&model, NULL, f->model, NULL, &err));
  CHECK_CODE(INVALID, blend_model_open(&model, ctx, NULL, NULL, &err));
  CHECK(model == NULL);
  CHECK(blend_model_open(&model, ctx, NULL, NULL, NULL) == INVALID);
  blend_model_close(NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);

  CHECK_CODE(INVALID, blend_model_get_info(NULL, &info, &err));
  CHECK_CODE(INVALID, blend_model_get_info(model, NULL, &err));

  CHECK_CODE(INVALID, blend_model_tokenize(NULL, "a", 1, 0, tokens, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_tokenize(model, NULL, 1, 0, tokens, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_tokenize(model, "a", 1, 0, NULL, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_tokenize(model, "a", 1, 0, tokens, 8, NULL, &err));
  CHECK_OK(blend_model_tokenize(model, NULL, 0, 0, NULL, 0, &n, &err)); /* an empty text */
  CHECK(n == 0);

  CHECK_CODE(INVALID, blend_model_detokenize(NULL, tokens, 1, 0, text, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_detokenize(model, NULL, 1, 0, text, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_detokenize(model, tokens, 1, 0, NULL, 8, &n, &err));
  CHECK_CODE(INVALID, blend_model_detokenize(model, tokens, 1, 0, text, 8, NULL, &err));
  CHECK_OK(blend_model_detokenize(model, NULL, 0, 0, NULL, 0, &n, &err));
  CHECK(n == 0);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

static int32_t visit(void* user, const blend_chunk_info* info, const char* problem) {
  (void)user;
  (void)info;
  (void)problem;
  return 0;
}

static int32_t fidelity(void* user, const blend_fidelity_row* row) {
  (void)user;
  (void)row;
  return 0;
}

static int32_t metric(void* user, const char* name, const char* labels, const char* help,
                      uint32_t flags, double value) {
  (void)user;
  (void)name;
  (void)labels;
  (void)help;
  (void)flags;
  (void)value;
  return 0;
}

void nulls_store(const fixture* f) {
  world w;
  size_t n = 0;
  blend_store* store = NULL;
  blend_store_stat stat;
  blend_codec_stat codec;
  blend_chunk_id id;
  char hex[65];
  int32_t tokens[4] = {5, 6, 7, 8};
  REQUIRE(open_world(f, &w));
  memset(&id, 0, sizeof id);

  CHECK(blend_store_options_init(NULL, sizeof(blend_store_options)) == INVALID);
  CHECK_CODE(INVALID, blend_store_open(NULL, w.ctx, path_in(f, "s"), NULL, &err));
  CHECK_CODE(INVALID, blend_store_open(&store, NULL, path_in(f, "s"), NULL, &err));
  CHECK_CODE(INVALID, blend_store_open(&store, w.ctx, NULL, NULL, &err));
  CHECK(store == NULL);
  blend_store_close(NULL);
  CHECK_CODE(INVALID, blend_store_flush(NULL, &err));
  CHECK_CODE(INVALID, blend_store_list(NULL, NULL, NULL, 0, visit, NULL, &err));
  CHECK_CODE(INVALID, blend_store_list(w.store, NULL, NULL, 0, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_remove_matching(NULL, NULL, NULL, visit, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_set_label(NULL, &id, NULL, "x", NULL, &err));
  CHECK_CODE(INVALID, blend_store_set_label(w.store, NULL, NULL, "x", NULL, &err));
  CHECK_CODE(INVALID, blend_store_remove(NULL, &id, NULL, &err));
  CHECK_CODE(INVALID, blend_store_remove(w.store, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_set_pinned(NULL, &id, 1, &err));
  CHECK_CODE(INVALID, blend_store_set_pinned(w.store, NULL, 1, &err));
  CHECK_CODE(INVALID, blend_store_evict(NULL, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_store_prefetch(NULL, NULL, 0, &err));
  CHECK_CODE(INVALID, blend_store_prefetch(w.store, NULL, 1, &err));
  CHECK_OK(blend_store_prefetch(w.store, NULL, 0, &err));
  CHECK_CODE(INVALID, blend_store_wait(NULL, &id, 0, &err));
  CHECK_CODE(INVALID, blend_store_wait(w.store, NULL, 0, &err));
  CHECK_CODE(INVALID, blend_store_repair(NULL, NULL, NULL, NULL, &err));
  CHECK_OK(blend_store_repair(w.store, NULL, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_copy(NULL, path_in(f, "c"), &err));
  CHECK_CODE(INVALID, blend_store_copy(w.store, NULL, &err));
  CHECK_CODE(INVALID, blend_store_compact(NULL, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_export(NULL, path_in(f, "e"), NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_export(w.store, NULL, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_import(NULL, path_in(f, "e"), NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_import(w.store, NULL, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_fidelity(NULL, w.model, 0, fidelity, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_fidelity(w.store, w.model, 0, NULL, NULL, &err));
  CHECK_OK(blend_store_get_fidelity(w.store, NULL, 0, fidelity, NULL, &err));
  CHECK_CODE(INVALID, blend_store_run_checks(NULL, &err));
  CHECK_CODE(INVALID, blend_store_list_metrics(NULL, metric, NULL, &err));
  CHECK_CODE(INVALID, blend_store_list_metrics(w.store, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_metrics(NULL, "", hex, 1, &n, &err));
  CHECK_CODE(INVALID, blend_store_get_metrics(w.store, "", NULL, 1, &n, &err));
  CHECK_CODE(INVALID, blend_store_get_metrics(w.store, "", hex, 1, NULL, &err));
  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL, blend_store_get_metrics(w.store, NULL, NULL, 0, &n, &err));
  CHECK_CODE(INVALID, blend_store_set_tenant_quota(NULL, "a", 1, &err));
  CHECK_CODE(INVALID, blend_store_set_tenant_quota(w.store, NULL, 1, &err));
  CHECK_CODE(INVALID, blend_store_get_tenant_usage(NULL, "a", NULL, NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_tenant_usage(w.store, NULL, NULL, NULL, NULL, &err));
  memset(&stat, 0, sizeof stat);
  stat.struct_size = sizeof stat;
  CHECK_CODE(INVALID, blend_store_get_report(NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_report(w.store, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_remote_stat(NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_remote_stat(w.store, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_stat(NULL, &stat, &err));
  CHECK_CODE(INVALID, blend_store_get_stat(w.store, NULL, &err));
  memset(&codec, 0, sizeof codec);
  codec.struct_size = sizeof codec;
  CHECK_CODE(INVALID, blend_store_get_codec_stat(NULL, BLEND_CODEC_ZSTD, &codec, &err));
  CHECK_CODE(INVALID, blend_store_get_codec_stat(w.store, BLEND_CODEC_ZSTD, NULL, &err));
  CHECK_CODE(INVALID, blend_store_get_codec_stat(w.store, BLEND_CODEC_DEFAULT, &codec, &err));
  CHECK_CODE(INVALID, blend_store_get_codec_stat(w.store, BLEND_CODEC_RANS + 1, &codec, &err));

  blend_chunk_id_to_hex(NULL, hex);
  blend_chunk_id_to_hex(&id, NULL);
  blend_chunk_id_to_hex(&id, hex);
  CHECK(strlen(hex) == 64);
  CHECK_CODE(INVALID, blend_chunk_id_from_hex(NULL, hex, &err));
  CHECK_CODE(INVALID, blend_chunk_id_from_hex(&id, NULL, &err));

  CHECK_CODE(INVALID, blend_precompute(NULL, w.store, tokens, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_precompute(w.model, NULL, tokens, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_precompute(w.model, w.store, NULL, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_precompute(w.model, w.store, NULL, 0, NULL, &id, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 4, NULL, NULL, &err)); /* id may be NULL */
  close_world(&w);
}

void nulls_fusion(const fixture* f) {
  world w;
  blend_fusion* fusion = NULL;
  blend_fusion* other = NULL;
  blend_chunk_id id = {{0}};
  blend_fuse_request request = {.struct_size = sizeof request};
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_layer_info layer = {.struct_size = sizeof layer};
  blend_segment_info seg_info = {.struct_size = sizeof seg_info};
  blend_segment s;
  int32_t tokens[4] = {5, 6, 7, 8};
  const uint32_t* rows = NULL;
  const int32_t* ids = NULL;
  const float* values = NULL;
  size_t n = 0;
  REQUIRE(open_world(f, &w));

  CHECK(blend_fuse_options_init(NULL, sizeof(blend_fuse_options)) == INVALID);
  s = segment(BLEND_SEGMENT_QUESTION, tokens, 4);
  CHECK_CODE(INVALID, blend_fuse(NULL, w.model, w.store, &s, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fuse(&fusion, NULL, w.store, &s, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fuse(&fusion, w.model, w.store, NULL, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fuse(&fusion, w.model, w.store, NULL, 0, NULL, &err));
  CHECK(fusion == NULL);
  blend_fusion_close(NULL);
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, &s, 1, NULL, &err)); /* the default options */
  REQUIRE(fusion != NULL);

  request.segments = &s;
  request.n_segments = 1;
  CHECK_CODE(INVALID, blend_fuse_batch(NULL, NULL, w.model, w.store, &request, 1, &err));
  CHECK_CODE(INVALID, blend_fuse_batch(&other, NULL, NULL, w.store, &request, 1, &err));
  CHECK_CODE(INVALID, blend_fuse_batch(&other, NULL, w.model, w.store, NULL, 1, &err));
  CHECK_CODE(INVALID, blend_fuse_batch(&other, NULL, w.model, NULL, &request, 1, &err));
  CHECK(other == NULL);
  CHECK_OK(blend_fuse_batch(&other, NULL, w.model, w.store, &request, 1, &err));
  blend_fusion_close(other);
  other = NULL;
  CHECK_CODE(INVALID, blend_fusion_get_report(NULL, &info, &err));
  CHECK_CODE(INVALID, blend_fusion_get_report(fusion, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_get_layer(NULL, 0, &layer, &err));
  CHECK_CODE(INVALID, blend_fusion_get_layer(fusion, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_get_layer(fusion, 4, &layer, &err)); /* of 4 layers */
  CHECK_CODE(INVALID, blend_fusion_get_segment(NULL, 0, &seg_info, &err));
  CHECK_CODE(INVALID, blend_fusion_get_segment(fusion, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_get_segment(fusion, 1, &seg_info, &err)); /* of 1 */
  CHECK_CODE(INVALID, blend_fusion_get_selected(NULL, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_selected(fusion, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_selected(fusion, &rows, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_get_deviation(NULL, &values, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_deviation(fusion, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_deviation(fusion, &values, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_get_logits(NULL, &values, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_logits(fusion, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_logits(fusion, &values, NULL, &err));

  CHECK_CODE(INVALID, blend_fusion_get_tokens(NULL, &ids, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_tokens(fusion, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_fusion_get_tokens(fusion, &ids, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_replace(NULL, 0, 1, tokens, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_replace(fusion, 0, 1, NULL, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_erase(NULL, 0, 1, NULL, &err));
  CHECK_OK(blend_fusion_replace(fusion, 0, 0, NULL, 0, NULL, &err)); /* nothing for nothing */

  CHECK_CODE(INVALID, blend_fusion_extend(NULL, w.store, NULL, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_extend(fusion, w.store, NULL, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_save(NULL, w.store, NULL, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_fusion_save(fusion, NULL, NULL, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_fusion_restore(NULL, w.model, w.store, &id, NULL, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_restore(&other, NULL, w.store, &id, NULL, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_restore(&other, w.model, NULL, &id, NULL, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_restore(&other, w.model, w.store, NULL, NULL, 0, NULL, &err));
  CHECK(other == NULL);

  CHECK_CODE(INVALID, blend_fusion_decode(NULL, tokens, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_fusion_decode(fusion, NULL, 1, NULL, &err));
  CHECK(blend_generate_options_init(NULL, sizeof(blend_generate_options)) == INVALID);
  CHECK_CODE(INVALID, blend_fusion_generate(NULL, NULL, NULL, NULL, &n, &err));
  {
    /* Neither options, callback nor count. */
    blend_error* err = NULL;
    const int32_t code = blend_fusion_generate(fusion, NULL, NULL, NULL, NULL, &err);
    CHECK(code == BLEND_OK || code == BLEND_STOPPED);
    CHECK(err == NULL);
  }
  blend_fusion_close(fusion);
  close_world(&w);
}

void nulls_profile(const fixture* f) {
  world w;
  blend_profile* profile = NULL;
  blend_profile_info info = {.struct_size = sizeof info};
  blend_measurement line = {.struct_size = sizeof line};
  blend_codec_cost cost = {.struct_size = sizeof cost};
  blend_fuse_options options;
  blend_sample sample = {.struct_size = sizeof sample};
  blend_verdict verdict = {.struct_size = sizeof verdict};
  double k = 0, v = 0;
  REQUIRE(open_world(f, &w));
  CHECK_CODE(INVALID, blend_profile_open(NULL, w.model, "p", &err));
  CHECK_CODE(INVALID, blend_profile_open(&profile, NULL, "p", &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_profile_open(&profile, w.model, path_in(f, "no"), &err));
  CHECK(profile == NULL);
  blend_profile_close(NULL);
  CHECK(blend_fuse_options_init(&options, sizeof options) == BLEND_OK);
  CHECK_CODE(INVALID, blend_profile_get_info(NULL, &info, &err));
  CHECK_CODE(INVALID, blend_profile_get_measurement(NULL, 0, &line, &err));
  CHECK_CODE(INVALID, blend_profile_get_drift(NULL, 2, &k, &v, &err));
  CHECK_CODE(INVALID, blend_profile_get_codec_cost(NULL, BLEND_CODEC_INT8, &cost, &err));
  CHECK_CODE(INVALID, blend_profile_apply(NULL, &options, &err));
  CHECK_CODE(INVALID, blend_store_set_codec_profile(NULL, NULL, &err));
  CHECK_CODE(INVALID, blend_store_set_codec_profile(w.store, NULL, &err));
  CHECK_CODE(INVALID, blend_calibrate(NULL, &sample, 1, NULL, path_in(f, "p"), &err));
  CHECK_CODE(INVALID, blend_calibrate(w.model, NULL, 1, NULL, path_in(f, "p"), &err));
  CHECK_CODE(INVALID, blend_calibrate(w.model, NULL, 0, NULL, path_in(f, "p"), &err));
  CHECK_CODE(INVALID, blend_verify(w.model, NULL, &sample, 1, NULL, &verdict, &err));
  { /* Prompts of nothing, whatever is done with them. */
    const int32_t none = 0;
    blend_segment empty = segment(BLEND_SEGMENT_TEXT, &none, 0);
    blend_sample samples[2] = {sample, sample};
    CHECK_SAYS(INVALID, "sample 0",
               blend_calibrate(w.model, samples, 2, NULL, path_in(f, "p"), &err));
    samples[0].segments = samples[1].segments = &empty;
    samples[0].n_segments = samples[1].n_segments = 1;
    CHECK_SAYS(INVALID, "sample 0",
               blend_calibrate(w.model, samples, 2, NULL, path_in(f, "p"), &err));
  }
  close_world(&w);
}

void version_and_codes(const fixture* f) {
  const char* v = blend_version();
  int dots = 0;
  (void)f;
  REQUIRE(v != NULL);
  for (; *v != '\0'; ++v) {
    CHECK(*v == '.' || (*v >= '0' && *v <= '9'));
    dots += *v == '.';
  }
  CHECK(dots == 2);
  CHECK(strcmp(blend_code_name(BLEND_OK), "BLEND_OK") == 0);
  CHECK(strcmp(blend_code_name(BLEND_EXISTS), "BLEND_EXISTS") == 0);
  CHECK(strcmp(blend_code_name(BLEND_E_NOT_FOUND), "BLEND_E_NOT_FOUND") == 0);
  CHECK(strcmp(blend_code_name(BLEND_E_INTERNAL), "BLEND_E_INTERNAL") == 0);
  CHECK(strcmp(blend_code_name(-9999), "BLEND_E_?") == 0);
}

void nulls_host(const fixture* f) {
  world w;
  blend_model* model = NULL;
  blend_model_description d;
  blend_kv_view view = {.struct_size = sizeof view};
  blend_chunk_id id;
  int32_t tokens[4] = {5, 6, 7, 8};
  REQUIRE(open_world(f, &w));
  CHECK(blend_model_description_init(NULL, sizeof d) == INVALID);
  CHECK(blend_model_description_init(&d, sizeof d) == BLEND_OK);
  CHECK_CODE(INVALID, blend_model_create_from_description(NULL, w.ctx, &d, &err));
  CHECK_CODE(INVALID, blend_model_create_from_description(&model, NULL, &d, &err));
  CHECK_CODE(INVALID, blend_model_create_from_description(&model, w.ctx, NULL, &err));
  CHECK_CODE(INVALID, blend_model_create_from_description(&model, w.ctx, &d,
                                                          &err)); /* zeros make no model */
  CHECK(model == NULL);

  CHECK_CODE(INVALID, blend_chunk_find(NULL, w.store, tokens, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_find(w.model, NULL, tokens, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_find(w.model, w.store, NULL, 4, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_find(w.model, w.store, tokens, 0, NULL, &id, &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_chunk_find(w.model, w.store, tokens, 4, NULL, NULL, &err));

  CHECK_CODE(INVALID, blend_chunk_put(NULL, w.store, tokens, 4, &view, 1, 0, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_put(w.model, NULL, tokens, 4, &view, 1, 0, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_put(w.model, w.store, NULL, 4, &view, 1, 0, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_put(w.model, w.store, tokens, 4, NULL, 1, 0, NULL, &id, &err));
  CHECK_CODE(INVALID, blend_chunk_put(w.model, w.store, tokens, 4, NULL, 0, 0, NULL, &id, &err));
  close_world(&w);
}

void nulls_layerwise(const fixture* f) {
  world w;
  blend_layerwise* layerwise = NULL;
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_layer_info layer = {.struct_size = sizeof layer};
  blend_segment_info seg_info;
  blend_segment s;
  blend_kv_view view = {.struct_size = sizeof view};
  int32_t tokens[4] = {5, 6, 7, 8};
  const int32_t* got = NULL;
  const uint32_t* rows = NULL;
  const float* values = NULL;
  const float zero = 0;
  size_t n = 0;
  REQUIRE(open_world(f, &w));
  s = segment(BLEND_SEGMENT_QUESTION, tokens, 4);
  CHECK_CODE(INVALID, blend_layerwise_create(NULL, w.model, w.store, &s, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_create(&layerwise, NULL, w.store, &s, 1, NULL, &err));
  CHECK_CODE(INVALID,
             blend_layerwise_create(&layerwise, w.model, NULL, &s, 1, NULL, &err)); /* PRECOMPUTE */
  CHECK_CODE(INVALID, blend_layerwise_create(&layerwise, w.model, w.store, NULL, 1, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_create(&layerwise, w.model, w.store, NULL, 0, NULL, &err));
  CHECK(layerwise == NULL);
  blend_layerwise_close(NULL);
  CHECK_OK(blend_layerwise_create(&layerwise, w.model, w.store, &s, 1, NULL, &err));
  REQUIRE(layerwise != NULL);

  CHECK_CODE(INVALID, blend_layerwise_restart(NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_fetch_kv(NULL, 0, &view, &err));
  CHECK_CODE(INVALID, blend_layerwise_fetch_kv(layerwise, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_fetch_kv(layerwise, 0, &view, &err)); /* k and v are NULL */
  CHECK_CODE(INVALID, blend_layerwise_synchronize(NULL, 0, &err));
  CHECK_CODE(INVALID, blend_layerwise_probe(NULL, &zero, 1, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_probe(layerwise, NULL, 1, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_probe(layerwise, &zero, 1, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_probe(layerwise, &zero, 1, &rows, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_select(NULL, 0, NULL, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_select(layerwise, 0, NULL, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_select(layerwise, 0, NULL, &rows, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_commit(NULL, 0, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_tokens(NULL, &got, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_tokens(layerwise, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_tokens(layerwise, &got, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_rows(NULL, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_rows(layerwise, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_rows(layerwise, &rows, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_report(NULL, &info, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_report(layerwise, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_layer(NULL, 0, &layer, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_layer(layerwise, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_layer(layerwise, 4, &layer, &err));
  memset(&seg_info, 0, sizeof seg_info);
  seg_info.struct_size = sizeof seg_info;
  CHECK_CODE(INVALID, blend_layerwise_get_segment(NULL, 0, &seg_info, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_segment(layerwise, 0, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_segment(layerwise, 1, &seg_info, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_selected(NULL, &rows, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_selected(layerwise, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_selected(layerwise, &rows, NULL, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_deviation(NULL, &values, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_deviation(layerwise, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_layerwise_get_deviation(layerwise, &values, NULL, &err));
  blend_layerwise_close(layerwise);
  close_world(&w);
}
