/* Which chunks a store keeps, through the ABI: eviction, pins, tenants' quotas. */
#include <string.h>

#include "fixture.h"

typedef struct seen {
  uint32_t n, n_pinned;
  uint64_t stored;
  uint32_t n_uses;
} seen;

static int32_t look(void* user, const blend_chunk_info* info, const char* problem) {
  seen* s = (seen*)user;
  (void)problem;
  ++s->n;
  s->n_pinned += info->pinned;
  s->n_uses += info->n_uses;
  s->stored += info->stored_bytes;
  return info->last_used_unix_s > 1700000000 ? 0 : 1;
}

/* The model's f32 chunks: a token takes 1 KiB. */
static blend_store* open_small(const fixture* f, const blend_ctx* ctx, uint64_t quota,
                               uint32_t eviction) {
  blend_store* store = NULL;
  blend_store_options options;
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  CHECK(options.eviction == BLEND_EVICT_LRU);
  options.kv_dtype = BLEND_DTYPE_F32;
  options.quota_bytes = quota;
  options.eviction = eviction;
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, "small"), &options, &err));
  return store;
}

void stays_quota_and_pins(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_chunk_id ids[4];
  seen s;
  uint64_t n = 0;
  int32_t tokens[60];
  int i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  fill_tokens(tokens, 60, 3);
  store = open_small(f, ctx, 160 * 1024, BLEND_EVICT_LRU);
  REQUIRE(store != NULL);
  for (i = 0; i < 3; ++i) {
    CHECK_OK(blend_precompute(model, store, tokens + i, 40, NULL, &ids[i], &err));
  }
  CHECK_OK(blend_store_set_pinned(store, &ids[0], 1, &err));
  CHECK_OK(blend_precompute(model, store, tokens + 3, 40, NULL, &ids[3], &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_chunk_find(model, store, tokens + 1, 40, NULL, NULL, &err));
  CHECK_OK(blend_chunk_find(model, store, tokens, 40, NULL, NULL, &err));
  memset(&s, 0, sizeof s);
  CHECK_OK(blend_store_list(store, NULL, NULL, 0, look, &s, &err));
  CHECK_OK(blend_store_get_report(store, &stat, &err));
  CHECK(s.n == 3 && stat.n_chunks == 3 && s.n_pinned == 1 && stat.pinned_chunks == 1);
  CHECK(s.stored <= stat.stored_bytes && stat.stored_bytes <= stat.quota_bytes);
  CHECK(stat.stored_bytes == 3 * stat.pinned_bytes);
  CHECK(stat.evicted_chunks == 1 && stat.evicted_bytes == stat.pinned_bytes);
  CHECK(stat.oldest_use_unix_s > 1700000000 && stat.newest_use_unix_s >= stat.oldest_use_unix_s);

  CHECK_SAYS(BLEND_E_FULL, "pinned", blend_store_evict(store, 0, &n, &err));
  CHECK(n == 2);
  CHECK_OK(blend_store_set_pinned(store, &ids[0], 0, &err));
  CHECK_OK(blend_store_evict(store, 0, NULL, &err));
  CHECK_OK(blend_store_get_report(store, &stat, &err));
  CHECK(stat.n_chunks == 0 && stat.stored_bytes == 0 && stat.oldest_use_unix_s == 0);
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_set_pinned(store, &ids[0], 1, &err));
  blend_store_close(store);
  store = open_small(f, ctx, 32 * 1024, BLEND_EVICT_FIFO);
  REQUIRE(store != NULL);
  CHECK_SAYS(BLEND_E_FULL, "larger than the quota",
             blend_precompute(model, store, tokens, 60, NULL, NULL, &err));
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void stays_tenants(const fixture* f) {
  world w;
  blend_precompute_options o = {.struct_size = sizeof o};
  uint64_t n = 0, stored = 0, quota = 1;
  int32_t tokens[60];
  int i;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 60, 3);
  o.tenant = "a";
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 40, &o, NULL, &err));
  CHECK_OK(blend_store_get_tenant_usage(w.store, "a", &n, &stored, &quota, &err));
  CHECK(n == 1 && stored > 40 * 1024 && quota == 0);
  CHECK_OK(blend_store_set_tenant_quota(w.store, "a", 2 * stored, &err));
  for (i = 1; i < 5; ++i) {
    CHECK_OK(blend_precompute(w.model, w.store, tokens + i, 40, &o, NULL, &err));
    CHECK_OK(blend_precompute(w.model, w.store, tokens + i, 40, NULL, NULL, &err));
  }
  CHECK_OK(blend_store_get_tenant_usage(w.store, "a", &n, NULL, &quota, &err));
  CHECK(n == 2 && quota == 2 * stored);
  CHECK_OK(blend_store_get_tenant_usage(w.store, "nobody", &n, &stored, &quota, &err));
  CHECK(n == 0 && stored == 0 && quota == 0);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_store_set_tenant_quota(w.store, "", 1, &err));
  for (i = 1; i < 5; ++i) { /* nobody else's chunks had to go */
    CHECK_OK(blend_chunk_find(w.model, w.store, tokens + i, 40, NULL, NULL, &err));
  }
  close_world(&w);
}

static int32_t count_metric(void* user, const char* name, const char* labels, const char* help,
                            uint32_t flags, double value) {
  (void)help;
  if (strcmp(name, "blend_store_chunks") == 0 && flags == 0) *(double*)user += value;
  if (strcmp(name, "blend_store_misses_total") == 0) {
    CHECK(flags == BLEND_PROMETHEUS_COUNTER && labels[0] == '\0');
  }
  return strcmp(name, "blend_store_damaged_total") == 0 ? 7 : 0;
}

/* Background puts, hints, memory; metrics; files and copies of chunks. */
void stays_care(const fixture* f) {
  world w;
  blend_precompute_options o = {.struct_size = sizeof o};
  blend_store_options options;
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_transfer_options transfer;
  blend_chunk_id ids[4];
  blend_store *copy = NULL, *other = NULL;
  uint64_t n = 0, before = 0, after = 0;
  double chunks = 0;
  char text[16384];
  char path[512];
  size_t bytes = 0;
  int32_t tokens[60];
  int i;
  REQUIRE(open_world(f, &w));
  blend_store_close(w.store);
  w.store = NULL;
  fill_tokens(tokens, 60, 3);
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  CHECK(options.ram_bytes == 0);
  options.kv_dtype = BLEND_DTYPE_F32;
  options.ram_bytes = 1u << 20;
  CHECK_OK(blend_store_open(&w.store, w.ctx, path_in(f, "cared"), &options, &err));
  REQUIRE(w.store != NULL);
  o.flags = 1u << 31;
  CHECK_CODE(BLEND_E_INVALID_STRUCT,
             blend_precompute(w.model, w.store, tokens, 40, &o, NULL, &err));
  o.flags = BLEND_PUT_BACKGROUND;
  for (i = 0; i < 4; ++i) {
    CHECK_OK(blend_precompute(w.model, w.store, tokens + i, 40, &o, &ids[i], &err));
  }
  for (i = 0; i < 4; ++i) CHECK_OK(blend_store_wait(w.store, &ids[i], -1, &err));
  CHECK_OK(blend_store_prefetch(w.store, ids, 4, &err));
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 4 && stat.ram_chunks == 4 && stat.ram_budget_bytes == 1u << 20);
  CHECK(stat.ram_bytes == stat.bytes && stat.queue_bytes == 0);

  CHECK_CODE(BLEND_E_CALLBACK, blend_store_list_metrics(w.store, count_metric, &chunks, &err));
  CHECK(chunks == 4);
  CHECK_CODE(BLEND_E_BUFFER_TOO_SMALL,
             blend_store_get_metrics(w.store, "a\"b", text, 9, &bytes, &err));
  CHECK(bytes > 1000 && bytes < sizeof text);
  CHECK_OK(blend_store_get_metrics(w.store, "a\"b", text, sizeof text, &bytes, &err));
  CHECK(strlen(text) == bytes);
  CHECK(strstr(text, "blend_store_chunks{store=\"a\\\"b\"} 4\n") != NULL);
  CHECK(strstr(text, "\n# TYPE blend_store_hits_total counter\n") != NULL);

  memset(&transfer, 0, sizeof transfer);
  transfer.struct_size = sizeof transfer;
  transfer.ids = ids;
  transfer.n_ids = 3;
  strcpy(path, path_in(f, "chunks.blend"));
  CHECK_OK(blend_store_export(w.store, path, &transfer, &n, &err));
  CHECK(n == 3);
  other = open_store(f, w.ctx, "other");
  REQUIRE(other != NULL);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_store_import(other, path, &transfer, &n, &err));
  CHECK_OK(blend_store_import(other, path, NULL, &n, &err));
  CHECK(n == 3);
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, other, tokens + 2, 40, NULL, NULL, &err));
  CHECK_OK(blend_store_import(other, path, NULL, &n, &err));
  CHECK(n == 0); /* they are there */
  transfer.ids = NULL;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_store_export(w.store, path, &transfer, &n, &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_import(other, path_in(f, "none"), NULL, &n, &err));
  CHECK_OK(blend_store_repair(w.store, NULL, NULL, &n, &err));
  CHECK(n == 0);

  strcpy(path, path_in(f, "copied"));
  CHECK_OK(blend_store_copy(w.store, path, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_store_copy(w.store, path, &err));
  CHECK_OK(blend_store_compact(path, &before, &after, &err));
  CHECK(before == after && after > stat.bytes);
  copy = open_store(f, w.ctx, "copied");
  REQUIRE(copy != NULL);
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, copy, tokens, 40, NULL, NULL, &err));
  CHECK_CODE(BLEND_E_BUSY, blend_store_compact(path, NULL, NULL, &err));
  blend_store_close(copy);
  blend_store_close(other);
  close_world(&w);
}

/* The report of a fuse tells rows from the store's memory from rows that were read. */
void stays_where_rows_came_from(const fixture* f) {
  world w;
  blend_store_options options;
  blend_segment s[3];
  blend_fuse_options o = fuse_options();
  blend_fusion* fusion = NULL;
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_layer_info layer = {.struct_size = sizeof layer};
  int32_t a[60], b[60];
  int round;
  REQUIRE(open_world(f, &w));
  blend_store_close(w.store);
  w.store = NULL;
  fill_tokens(a, 60, 3);
  fill_tokens(b, 60, 8);
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  options.kv_dtype = BLEND_DTYPE_F32;
  CHECK_OK(blend_store_open(&w.store, w.ctx, path_in(f, "tiers"), &options, &err));
  CHECK_OK(blend_precompute(w.model, w.store, a, 40, NULL, NULL, &err));
  CHECK_OK(blend_precompute(w.model, w.store, b, 30, NULL, NULL, &err));
  blend_store_close(w.store);
  options.ram_bytes = 1u << 20;
  CHECK_OK(blend_store_open(&w.store, w.ctx, path_in(f, "tiers"), &options, &err));
  REQUIRE(w.store != NULL);
  s[0] = segment(BLEND_SEGMENT_CHUNK, a, 40);
  s[1] = segment(BLEND_SEGMENT_CHUNK, b, 30);
  s[2] = segment(BLEND_SEGMENT_QUESTION, a, 5);
  for (round = 0; round < 3; ++round) {
    /* The first alone, so that the second round has one of each. */
    if (round == 0) {
      CHECK_OK(blend_fuse(&fusion, w.model, w.store, s + 1, 2, &o, &err));
    } else {
      CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
    }
    REQUIRE(fusion != NULL);
    CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
    CHECK_OK(blend_fusion_get_layer(fusion, info.n_layers - 1, &layer, &err));
    CHECK(info.bytes_loaded > 0 && layer.bytes_loaded > 0);
    if (round == 0) {
      CHECK(info.bytes_from_memory == 0 && info.n_rows_from_memory == 0);
      CHECK(layer.bytes_from_memory == 0);
    } else if (round == 1) {
      /* A first chunk is exact and needs layers that the second round never loaded. */
      CHECK(info.bytes_from_memory > 0 && info.bytes_from_memory < info.bytes_loaded);
      CHECK(info.n_rows_from_memory <= 30);
      CHECK(layer.bytes_from_memory == 30 * (layer.bytes_loaded / 70));
    } else {
      CHECK(info.bytes_from_memory == info.bytes_loaded);
      CHECK(info.n_rows_from_memory == 70 && info.n_rows_reused == 70);
      CHECK(layer.bytes_from_memory == layer.bytes_loaded);
    }
    blend_fusion_close(fusion);
    fusion = NULL;
  }
  close_world(&w);
}
