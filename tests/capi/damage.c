/* A store that was damaged while nobody had it open: a miss and a record of the log, never a wrong
 * answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { kChunk = 60, kChunks = 3 };

typedef struct told {
  int n;
  int32_t code;
} told;

static int32_t on_log(void* user, const blend_log_record* record) {
  told* e = (told*)user;
  CHECK(record->message != NULL && strlen(record->message) > 8);
  CHECK(record->level == BLEND_LOG_WARNING);
  e->n += 1;
  e->code = record->code;
  return 0;
}

typedef struct scene {
  blend_ctx* ctx;
  blend_model* model;
  blend_store* store;
  int32_t tokens[kChunks * kChunk + 10];
  blend_segment s[kChunks + 1];
  told seen;
} scene;

static int begin(const fixture* f, scene* c) {
  blend_ctx_options o = {.struct_size = sizeof o};
  int i;
  memset(c, 0, sizeof *c);
  o.n_threads = 1;
  o.log = on_log;
  o.log_user = &c->seen;
  o.log_level = BLEND_LOG_WARNING;
  CHECK_OK(blend_ctx_create(&c->ctx, &o, &err));
  if (c->ctx == NULL) return 0;
  c->seen.n = 0; /* a CPU without fast kernels is one */
  c->model = open_model(c->ctx, f->model);
  c->store = open_store(f, c->ctx, "store");
  for (i = 0; i < kChunks * kChunk + 10; ++i) c->tokens[i] = (i * i + 11 * i + 5) % 320;
  for (i = 0; i < kChunks; ++i) {
    c->s[i] = segment(BLEND_SEGMENT_CHUNK, c->tokens + i * kChunk, kChunk);
    if (c->model != NULL && c->store != NULL) {
      CHECK_OK(blend_precompute(c->model, c->store, c->s[i].tokens, kChunk, NULL, NULL, &err));
    }
  }
  c->s[kChunks] = segment(BLEND_SEGMENT_QUESTION, c->tokens + kChunks * kChunk, 10);
  return c->model != NULL && c->store != NULL;
}

static void end(scene* c) {
  blend_store_close(c->store);
  blend_model_close(c->model);
  blend_ctx_close(c->ctx);
}

static unsigned char* read_all(const char* path, size_t* n) {
  FILE* file = fopen(path, "rb");
  unsigned char* data;
  long size;
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  data = (unsigned char*)malloc(size > 0 ? (size_t)size : 1);
  *n = data == NULL ? 0 : fread(data, 1, (size_t)size, file);
  fclose(file);
  return data;
}

/* In place: the file keeps its inode, as a failing disk would have it. */
static int write_at(const char* path, const unsigned char* data, size_t n) {
  FILE* file = fopen(path, "r+b");
  size_t written;
  if (file == NULL) return 0;
  written = fwrite(data, 1, n, file);
  return fclose(file) == 0 && written == n;
}

static int32_t count_problems(void* user, const blend_chunk_info* info, const char* problem) {
  (void)info;
  if (problem != NULL) *(int*)user += 1;
  return 0;
}

/* Fuses before and after `break_file` and compares, bit for bit. */
static void check_damage(const fixture* f,
                         int (*break_file)(const scene*, unsigned char*, size_t)) {
  scene c;
  blend_fusion *before = NULL, *after = NULL, *healed = NULL;
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_fuse_options o = fuse_options();
  char path[4096];
  unsigned char* data;
  size_t n = 0;
  int flipped, problems = 0;
  REQUIRE(begin(f, &c));
  CHECK_OK(blend_fuse(&before, c.model, c.store, c.s, kChunks + 1, &o, &err));
  REQUIRE(before != NULL);
  blend_store_close(c.store);
  c.store = NULL;

  snprintf(path, sizeof path, "%s/data.mdb", path_in(f, "store"));
  data = read_all(path, &n);
  REQUIRE(data != NULL && n > 0);
  flipped = break_file(&c, data, n);
  CHECK(flipped > 0);
  CHECK(write_at(path, data, n));
  free(data);

  CHECK(c.seen.n == 0);
  c.store = open_store(f, c.ctx, "store");
  REQUIRE(c.store != NULL);
  {
    blend_error* err = NULL;
    CHECK(blend_store_list(c.store, NULL, NULL, 1, count_problems, &problems, &err) ==
          BLEND_E_CORRUPT);
    CHECK(problems > 0);
    blend_error_free(err);
  }
  CHECK_OK(blend_fuse(&after, c.model, c.store, c.s, kChunks + 1, &o, &err));
  REQUIRE(after != NULL);
  CHECK(same_logits(before, after));
  CHECK(c.seen.n > 0 && c.seen.code == BLEND_E_CORRUPT);
  CHECK_OK(blend_fusion_get_report(after, &info, &err));
  CHECK(info.n_misses > 0);
  CHECK_OK(blend_store_get_report(c.store, &stat, &err));
  CHECK(stat.damaged > 0);

  /* The miss was stored again over the damage. */
  CHECK_OK(blend_store_flush(c.store, &err));
  o.on_miss = BLEND_MISS_FAIL;
  CHECK_OK(blend_fuse(&healed, c.model, c.store, c.s, kChunks + 1, &o, &err));
  if (healed != NULL) CHECK(same_logits(before, healed));
  blend_fusion_close(before);
  blend_fusion_close(after);
  blend_fusion_close(healed);
  end(&c);
}

/* LMDB keeps a large value in a run of pages of which only the first has a header: flags at byte
 * 10 (4: overflow), the length of the run at byte 12. One byte in the middle of each run. */
static int flip_payloads(const scene* c, unsigned char* data, size_t n) {
  uint32_t page; /* how large one is, the file's first says */
  size_t at;
  int flipped = 0;
  (void)c;
  memcpy(&page, data + 40, sizeof page);
  at = 2 * (size_t)page; /* after the two meta pages */
  while (at + page <= n) {
    uint16_t flags;
    uint32_t run;
    memcpy(&flags, data + at + 10, sizeof flags);
    memcpy(&run, data + at + 12, sizeof run);
    if (flags == 4 && run > 1 && at + (size_t)run * page <= n) {
      data[at + (size_t)run * page / 2] ^= 0x10;
      ++flipped;
      at += (size_t)run * page;
    } else {
      at += page;
    }
  }
  return flipped;
}

void damage_of_a_payload(const fixture* f) { check_damage(f, flip_payloads); }

/* The token ids stand in a chunk's description: with another one there, the chunk would be taken
 * for a different text. */
static int flip_tokens(const scene* c, unsigned char* data, size_t n) {
  const unsigned char* needle = (const unsigned char*)(c->tokens + kChunk);
  const size_t length = kChunk * sizeof *c->tokens;
  size_t i;
  int flipped = 0;
  for (i = 0; i + length <= n; ++i) {
    if (data[i] == needle[0] && memcmp(data + i, needle, length) == 0) {
      data[i + length / 2] ^= 1;
      ++flipped;
    }
  }
  return flipped;
}

void damage_of_a_description(const fixture* f) { check_damage(f, flip_tokens); }

/* What stands where a store should be. */
void damage_not_a_store(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_store* store = NULL;
  char path[4096];
  FILE* file;
  int i;
  REQUIRE(ctx != NULL);
  file = fopen(path_in(f, "plain-file"), "wb");
  REQUIRE(file != NULL);
  fputs("not a directory", file);
  fclose(file);
  CHECK(blend_store_open(&store, ctx, path_in(f, "plain-file"), NULL, NULL) < 0);
  CHECK(store == NULL);

  store = open_store(f, ctx, "garbage");
  blend_store_close(store);
  store = NULL;
  snprintf(path, sizeof path, "%s/data.mdb", path_in(f, "garbage"));
  file = fopen(path, "wb");
  REQUIRE(file != NULL);
  for (i = 0; i < 20000; ++i) fputc(i * 31 % 251, file);
  fclose(file);
  {
    blend_error* err = NULL;
    const int32_t code = blend_store_open(&store, ctx, path_in(f, "garbage"), NULL, &err);
    CHECK(code == BLEND_E_FORMAT || code == BLEND_E_CORRUPT);
    CHECK(store == NULL);
    blend_error_free(err);
  }
  blend_ctx_close(ctx);
}

/* A listing says what is wrong with the store itself, whichever chunks it was to show. */
void damage_while_open_is_told_by_a_listing(const fixture* f) {
  const blend_filter_options filter = {.struct_size = sizeof filter, .label = "*"};
  scene c;
  char path[4096];
  int problems = 0, verify;
  REQUIRE(begin(f, &c));
  snprintf(path, sizeof path, "%s/data.mdb", path_in(f, "store"));
  CHECK(fclose(fopen(path, "wb")) == 0); /* cut to nothing, as by another program */
  for (verify = 0; verify < 2; ++verify) {
    CHECK_CODE(BLEND_E_CORRUPT,
               blend_store_list(c.store, NULL, NULL, verify, count_problems, &problems, &err));
    CHECK_CODE(BLEND_E_CORRUPT,
               blend_store_list(c.store, "", &filter, verify, count_problems, &problems, &err));
  }
  CHECK(problems == 0);
  end(&c);
}
