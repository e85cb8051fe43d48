/* The records of a context: their levels, codes and fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { kTokens = 40, kMostRecords = 32 };

/* Records come from the calling thread alone here. */
typedef struct heard {
  uint32_t level, n;
  int32_t codes[kMostRecords];
  char of_fused[16], path[512], architecture[64];
  int64_t layers, rows, misses;
  double ratio, ms;
} heard;

static const blend_log_field* field(const blend_log_record* r, const char* key, uint32_t type) {
  uint32_t i;
  for (i = 0; i < r->n_fields; ++i) {
    CHECK(r->fields[i].text != NULL);
    if (strcmp(r->fields[i].key, key) != 0) continue;
    CHECK(r->fields[i].type == type);
    return &r->fields[i];
  }
  capi_fail(__FILE__, __LINE__, "no field %s", key);
  return r->fields;
}

static int32_t on_log(void* user, const blend_log_record* r) {
  heard* h = (heard*)user;
  CHECK(r->struct_size == sizeof *r);
  CHECK(r->level >= BLEND_LOG_ERROR && r->level <= h->level);
  CHECK(r->time_unix_ns > 1500000000000000000u);
  CHECK(*r->component != '\0' && *r->message != '\0');
  if (h->n < kMostRecords) h->codes[h->n] = r->code;
  h->n += 1;
  if (r->code == BLEND_EVENT_STORE_OPENED) {
    snprintf(h->path, sizeof h->path, "%s", field(r, "path", BLEND_FIELD_TEXT)->text);
  }
  if (r->code == BLEND_EVENT_MODEL_OPENED) {
    snprintf(h->architecture, sizeof h->architecture, "%s",
             field(r, "architecture", BLEND_FIELD_TEXT)->text);
    h->layers = field(r, "layers", BLEND_FIELD_INTEGER)->integer;
    CHECK(field(r, "seconds", BLEND_FIELD_NUMBER)->number >= 0);
  }
  if (r->code == BLEND_EVENT_FUSED) {
    snprintf(h->of_fused, sizeof h->of_fused, "%s", field(r, "policy", BLEND_FIELD_TEXT)->text);
    h->rows = field(r, "rows", BLEND_FIELD_INTEGER)->integer;
    h->misses = field(r, "misses", BLEND_FIELD_INTEGER)->integer;
    h->ratio = field(r, "ratio", BLEND_FIELD_NUMBER)->number;
    h->ms = field(r, "ms", BLEND_FIELD_NUMBER)->number;
  }
  return 1; /* ignored */
}

static int count(const heard* h, int32_t code) {
  int n = 0;
  uint32_t i;
  for (i = 0; i < h->n && i < kMostRecords; ++i) n += h->codes[i] == code;
  return n;
}

/* A prompt of a chunk and a question, on handles of a context that is listened to. */
typedef struct scene {
  blend_ctx* ctx;
  blend_model* model;
  blend_store* store;
  int32_t tokens[kTokens + 5];
  blend_segment s[2];
} scene;

static int begin(const fixture* f, uint32_t level, heard* h, scene* c) {
  blend_ctx_options o = {.struct_size = sizeof o};
  memset(h, 0, sizeof *h);
  memset(c, 0, sizeof *c);
  h->level = level == BLEND_LOG_DEFAULT ? BLEND_LOG_INFO : level;
  o.n_threads = 1;
  o.log = on_log;
  o.log_user = h;
  o.log_level = level;
  CHECK_OK(blend_ctx_create(&c->ctx, &o, &err));
  if (c->ctx == NULL) return 0;
  c->model = open_model(c->ctx, f->model);
  c->store = open_store(f, c->ctx, "store");
  fill_tokens(c->tokens, kTokens + 5, 3);
  c->s[0] = segment(BLEND_SEGMENT_CHUNK, c->tokens, kTokens);
  c->s[1] = segment(BLEND_SEGMENT_QUESTION, c->tokens + kTokens, 5);
  return c->model != NULL && c->store != NULL;
}

static void end(scene* c) {
  blend_store_close(c->store);
  blend_model_close(c->model);
  blend_ctx_close(c->ctx);
}

static void use(const fixture* f, uint32_t level, heard* h) {
  blend_fuse_options fuse = fuse_options();
  blend_fusion* fusion = NULL;
  scene c;
  REQUIRE(begin(f, level, h, &c));
  fuse.policy = BLEND_POLICY_REUSE;
  fuse.on_miss = BLEND_MISS_COMPUTE;
  CHECK_OK(blend_fuse(&fusion, c.model, c.store, c.s, 2, &fuse, &err));
  CHECK_OK(blend_fusion_extend(fusion, c.store, &c.s[1], 1, NULL, &err));
  blend_fusion_close(fusion);
  end(&c);
}

void log_levels(const fixture* f) {
  heard h;
  use(f, BLEND_LOG_WARNING, &h);
  CHECK(count(&h, BLEND_EVENT_MODEL_OPENED) == 0 && count(&h, BLEND_EVENT_STORE_OPENED) == 0);
  use(f, BLEND_LOG_DEFAULT, &h);
  CHECK(count(&h, BLEND_EVENT_MODEL_OPENED) == 1 && count(&h, BLEND_EVENT_STORE_OPENED) == 1);
  CHECK(count(&h, BLEND_EVENT_FUSED) == 0);
  CHECK(strstr(h.path, "/store") != NULL);
  CHECK(strcmp(h.architecture, "llama") == 0);
  CHECK(h.layers == 4);
  use(f, BLEND_LOG_DEBUG, &h);
  CHECK(count(&h, BLEND_EVENT_FUSED) == 2);
  CHECK(h.rows == kTokens + 10);
  CHECK(h.ms > 0);
}

void log_of_a_fuse(const fixture* f) {
  blend_fusion* batch[1] = {NULL};
  blend_fuse_request request = {.struct_size = sizeof request};
  blend_fuse_options fuse = fuse_options();
  scene c;
  heard h;
  REQUIRE(begin(f, BLEND_LOG_DEBUG, &h, &c));
  fuse.policy = BLEND_POLICY_HKVD;
  fuse.ratio = 0.5;
  fuse.on_miss = BLEND_MISS_COMPUTE;
  request.segments = c.s;
  request.n_segments = 2;
  request.options = &fuse;
  CHECK_OK(blend_fuse_batch(batch, NULL, c.model, c.store, &request, 1, &err));
  CHECK(count(&h, BLEND_EVENT_FUSED) == 1);
  CHECK(strcmp(h.of_fused, "hkvd") == 0);
  CHECK(h.ratio == 0.5);
  CHECK(h.rows == kTokens + 5);
  CHECK(h.misses == 1);
  blend_fusion_close(batch[0]);
  end(&c);
}

void log_arguments(const fixture* f) {
  blend_ctx_options o = {.struct_size = sizeof o};
  blend_ctx* ctx = NULL;
  (void)f;
  o.log_level = BLEND_LOG_DEBUG + 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "log_level", blend_ctx_create(&ctx, &o, &err));
  CHECK(ctx == NULL);
  CHECK(strcmp(blend_code_name(BLEND_EVENT_EVICTED), "BLEND_EVENT_EVICTED") == 0);
}
