/* The store through the ABI: ids, other models, tenants, read-only, quota. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

void chunks_by_id(const fixture* f) {
  world w;
  int32_t tokens[40], other[10];
  blend_chunk_id id, again, unknown, parsed;
  blend_segment by_id[3], by_tokens[3];
  blend_fusion *a = NULL, *b = NULL;
  blend_segment_info info = {.struct_size = sizeof info};
  blend_fuse_options o = fuse_options();
  char hex[65];
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 40, 3);
  fill_tokens(other, 10, 99);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 10, NULL, NULL, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens + 10, 20, NULL, &id, &err));
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens + 10, 20, NULL, &again, &err));
  CHECK(memcmp(&id, &again, sizeof id) == 0);

  by_tokens[0] = by_id[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 10);
  by_tokens[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 10, 20);
  by_tokens[2] = by_id[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 30, 10);
  by_id[1] = segment(BLEND_SEGMENT_CHUNK, NULL, 0);
  by_id[1].id = &id;
  o.on_miss = BLEND_MISS_FAIL;
  CHECK_OK(blend_fuse(&a, w.model, w.store, by_tokens, 3, &o, &err));
  CHECK_OK(blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  CHECK(same_logits(a, b));
  CHECK_OK(blend_fusion_get_segment(a, 1, &info, &err));
  CHECK(memcmp(&info.id, &id, sizeof id) == 0);
  CHECK_OK(blend_fusion_get_segment(b, 1, &info, &err));
  CHECK(info.n_rows == 20 && info.first_row == 10 && info.source == BLEND_SOURCE_STORE);
  blend_fusion_close(b);
  b = NULL;

  /* Both: the stored tokens must be equal. */
  by_id[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 10, 20);
  by_id[1].id = &id;
  CHECK_OK(blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  CHECK(same_logits(a, b));
  blend_fusion_close(b);
  b = NULL;
  by_id[1].n_tokens = 19;
  CHECK_CODE(BLEND_E_MISMATCH, blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  by_id[1].tokens = other;
  by_id[1].n_tokens = 10;
  o.on_miss = BLEND_MISS_PRECOMPUTE;
  CHECK_CODE(BLEND_E_MISMATCH, blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  tokens[29] += 1; /* one token differs, the last */
  by_id[1] = by_tokens[1];
  by_id[1].id = &id;
  CHECK_CODE(BLEND_E_MISMATCH, blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  tokens[29] -= 1;

  /* An id alone that is nowhere cannot be precomputed either. */
  memset(&unknown, 0x5A, sizeof unknown);
  by_id[1] = segment(BLEND_SEGMENT_CHUNK, NULL, 0);
  by_id[1].id = &unknown;
  CHECK_SAYS(BLEND_E_NOT_FOUND, "5a5a", blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  o.on_miss = BLEND_MISS_COMPUTE;
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&b, w.model, w.store, by_id, 3, &o, &err));
  CHECK(b == NULL);
  blend_fusion_close(a);

  blend_chunk_id_to_hex(&id, hex);
  CHECK(strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64);
  CHECK_OK(blend_chunk_id_from_hex(&parsed, hex, &err));
  CHECK(memcmp(&id, &parsed, sizeof id) == 0);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_chunk_id_from_hex(&parsed, hex + 1, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_chunk_id_from_hex(&parsed, "", &err));
  hex[10] = 'g';
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_chunk_id_from_hex(&parsed, hex, &err));
  close_world(&w);
}

/* Two models share a store: the same tokens are two chunks, and an id of one is refused by the
 * other. */
void chunks_of_another_model(const fixture* f) {
  world w;
  blend_model* other;
  int32_t tokens[20];
  blend_chunk_id id, other_id;
  blend_segment s[2];
  blend_fusion* fusion = NULL;
  blend_fuse_options o = fuse_options();
  REQUIRE(open_world(f, &w));
  other = open_model(w.ctx, f->other_model);
  REQUIRE(other != NULL);
  fill_tokens(tokens, 20, 3);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, NULL, &id, &err));
  CHECK_OK(blend_precompute(other, w.store, tokens, 12, NULL, &other_id, &err)); /* not EXISTS */
  CHECK(memcmp(&id, &other_id, sizeof id) != 0);
  s[0] = segment(BLEND_SEGMENT_CHUNK, NULL, 0);
  s[0].id = &other_id;
  s[1] = segment(BLEND_SEGMENT_QUESTION, tokens + 12, 8);
  CHECK_CODE(BLEND_E_MISMATCH, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  CHECK(fusion == NULL);
  CHECK_OK(blend_fuse(&fusion, other, w.store, s, 2, &o, &err));
  blend_fusion_close(fusion);
  blend_model_close(other);
  close_world(&w);
}

typedef struct seen {
  int n;
  int sorted;
  uint64_t n_tokens;
  blend_chunk_id last;
} seen;

static int32_t look(void* user, const blend_chunk_info* info, const char* problem) {
  seen* s = (seen*)user;
  if (s->n > 0 && memcmp(&s->last, &info->id, sizeof s->last) >= 0) s->sorted = 0;
  s->last = info->id;
  s->n_tokens += info->n_tokens;
  s->n += 1;
  CHECK(problem == NULL);
  CHECK(info->n_layers == 4 && info->kv_dtype == BLEND_DTYPE_F32);
  CHECK(info->bytes == (uint64_t)info->n_layers * 2 * info->n_tokens * info->kv_dim * 4);
  return 0;
}

static int32_t refuse(void* user, const blend_chunk_info* info, const char* problem) {
  (void)user;
  (void)info;
  (void)problem;
  return -321;
}

void chunks_list_and_remove(const fixture* f) {
  world w;
  int32_t tokens[64];
  blend_chunk_id ids[5];
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_model_info info = {.struct_size = sizeof info};
  seen s;
  int i, verify;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < 5; ++i) {
    fill_tokens(tokens, 64, 10 * i);
    CHECK_OK(blend_precompute(w.model, w.store, tokens, (size_t)(10 + i), NULL, &ids[i], &err));
  }
  for (verify = 0; verify < 2; ++verify) {
    memset(&s, 0, sizeof s);
    s.sorted = 1;
    CHECK_OK(blend_store_list(w.store, NULL, NULL, verify, look, &s, &err));
    CHECK(s.n == 5 && s.sorted && s.n_tokens == 60);
  }
  {
    blend_error* err = NULL;
    CHECK(blend_store_list(w.store, NULL, NULL, 0, refuse, NULL, &err) == BLEND_E_CALLBACK);
    CHECK(blend_error_detail(err) == -321);
    blend_error_free(err);
  }
  CHECK_OK(blend_model_get_info(w.model, &info, &err));
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 5 && stat.n_tokens == 60 && stat.written == 5);
  CHECK(stat.bytes == (uint64_t)info.n_layers * 2 * 60 * info.n_kv_heads * info.head_dim * 4);
  CHECK_OK(blend_store_remove(w.store, &ids[2], NULL, &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_remove(w.store, &ids[2], NULL, &err));
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 4 && stat.n_tokens == 48);
  fill_tokens(tokens, 64, 20);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, NULL, NULL, &err)); /* not EXISTS */
  close_world(&w);
}

typedef struct labels {
  int n;
  char all[512]; /* "label|tags;" of each */
} labels;

static int32_t note_label(void* user, const blend_chunk_info* info, const char* problem) {
  labels* l = (labels*)user;
  CHECK(problem == NULL);
  l->n += 1;
  strcat(l->all, info->label);
  strcat(l->all, "|");
  strcat(l->all, info->tags);
  strcat(l->all, ";");
  return 0;
}

/* The only chunk of the store is called so. */
static int is_called(const blend_store* store, const char* label_and_tags) {
  labels l;
  memset(&l, 0, sizeof l);
  CHECK_OK(blend_store_list(store, NULL, NULL, 0, note_label, &l, &err));
  return l.n == 1 && strcmp(l.all, label_and_tags) == 0;
}

void chunks_have_labels(const fixture* f) {
  world w;
  int32_t tokens[20];
  char too_long[BLEND_LABEL_BYTES + 2];
  blend_chunk_id id;
  blend_precompute_options p = {.struct_size = sizeof p};
  blend_store* reader = NULL;
  blend_store_options so;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 20, 3);
  p.label = "manual.pdf#1";
  p.tags = "lang=en draft";
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &id, &err));
  CHECK(is_called(w.store, "manual.pdf#1|draft lang=en;"));
  /* Nothing said: nothing changed. Said: the last word, without computing. */
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens, 12, NULL, NULL, &err));
  CHECK(is_called(w.store, "manual.pdf#1|draft lang=en;"));
  p.label = "copy.pdf#7";
  p.tags = NULL;
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens, 12, &p, NULL, &err));
  CHECK(is_called(w.store, "copy.pdf#7|draft lang=en;"));
  CHECK_OK(blend_store_set_label(w.store, &id, NULL, NULL, "final", &err));
  CHECK(is_called(w.store, "copy.pdf#7|final;"));
  CHECK_OK(blend_store_set_label(w.store, &id, "", "", "", &err));
  CHECK(is_called(w.store, "|;"));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_set_label(w.store, &id, "acme", "x", NULL, &err));

  memset(too_long, 'x', sizeof too_long - 1);
  too_long[sizeof too_long - 1] = '\0';
  p.label = too_long;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "1025 bytes; at most 1024",
             blend_precompute(w.model, w.store, tokens, 12, &p, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "not UTF-8",
             blend_store_set_label(w.store, &id, NULL, "\xff", NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "list of tags",
             blend_store_set_label(w.store, &id, NULL, NULL, "a\nb", &err));
  CHECK(is_called(w.store, "|;"));
  CHECK(blend_store_options_init(&so, sizeof so) == BLEND_OK);
  so.flags = BLEND_STORE_READ_ONLY;
  so.kv_dtype = BLEND_DTYPE_F32;
  CHECK_OK(blend_store_open(&reader, w.ctx, path_in(f, "store"), &so, &err));
  p.label = "other";
  CHECK_CODE(BLEND_E_READ_ONLY, blend_store_set_label(reader, &id, NULL, "x", NULL, &err));
  CHECK_CODE(BLEND_E_READ_ONLY, blend_precompute(w.model, reader, tokens, 12, &p, NULL, &err));
  blend_store_close(reader);
  close_world(&w);
}

static int n_of(const blend_store* store, const char* tenant, const blend_filter_options* filter) {
  labels l;
  memset(&l, 0, sizeof l);
  CHECK_OK(blend_store_list(store, tenant, filter, 0, note_label, &l, &err));
  return l.n;
}

void chunks_by_label(const fixture* f) {
  static const char* const names[5] = {"a.md#1", "a.md#2", "b.md#1", "", "a.md#1"};
  static const char* const tags[5] = {"lang=en", "lang=de", "lang=en old", "", "lang=en"};
  world w;
  int32_t tokens[20];
  char model[65];
  blend_model_info info = {.struct_size = sizeof info};
  blend_precompute_options p = {.struct_size = sizeof p};
  blend_filter_options by = {.struct_size = sizeof by};
  blend_chunk_id fingerprint;
  labels l;
  uint64_t n = 7;
  int i;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < 5; ++i) {
    fill_tokens(tokens, 20, 10 * i);
    p.label = names[i];
    p.tags = tags[i];
    p.tenant = i == 4 ? "acme" : NULL;
    CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, NULL, &err));
  }
  CHECK(n_of(w.store, NULL, NULL) == 5 && n_of(w.store, "", &by) == 4);
  by.label = "a.md";
  CHECK(n_of(w.store, NULL, &by) == 3 && n_of(w.store, "acme", &by) == 1);
  by.label = "*#1";
  by.tags = "lang=en";
  CHECK(n_of(w.store, "", &by) == 2);
  by.tags = "lang=* old";
  CHECK(n_of(w.store, NULL, &by) == 1);
  by.label = by.tags = NULL;
  by.flags = BLEND_FILTER_UNLABELLED;
  CHECK(n_of(w.store, NULL, &by) == 1);
  by.flags = 0;
  CHECK_OK(blend_model_get_info(w.model, &info, &err));
  memcpy(fingerprint.bytes, info.fingerprint, sizeof fingerprint.bytes);
  blend_chunk_id_to_hex(&fingerprint, model);
  by.model = model;
  CHECK(n_of(w.store, NULL, &by) == 5);
  model[0] = model[0] == '0' ? '1' : '0';
  CHECK(n_of(w.store, NULL, &by) == 0);
  by.model = "model.gguf";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "'model.gguf' names no model",
             blend_store_list(w.store, NULL, &by, 0, note_label, &l, &err));
  by.model = NULL;
  by.flags = 64;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT,
             blend_store_list(w.store, NULL, &by, 0, note_label, &l, &err));

  /* Nothing said removes nothing, whoever asks. */
  by.flags = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "every chunk",
             blend_store_remove_matching(w.store, "acme", &by, NULL, NULL, &n, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT,
             blend_store_remove_matching(w.store, NULL, NULL, NULL, NULL, NULL, &err));
  CHECK(n == 0 && n_of(w.store, NULL, NULL) == 5);
  by.label = "a.md";
  {
    blend_error* err = NULL;
    CHECK(blend_store_remove_matching(w.store, "", &by, refuse, NULL, &n, &err) ==
          BLEND_E_CALLBACK);
    CHECK(blend_error_detail(err) == -321 && n == 0);
    blend_error_free(err);
  }
  memset(&l, 0, sizeof l);
  CHECK_OK(blend_store_remove_matching(w.store, "", &by, note_label, &l, &n, &err));
  CHECK(n == 2 && l.n == 2 && n_of(w.store, "", NULL) == 2 && n_of(w.store, "acme", NULL) == 1);
  CHECK_OK(blend_store_remove_matching(w.store, "", &by, NULL, NULL, &n, &err)); /* none left */
  CHECK(n == 0);
  by.label = "*";
  CHECK_OK(blend_store_remove_matching(w.store, NULL, &by, NULL, NULL, &n, &err));
  CHECK(n == 3 && n_of(w.store, NULL, NULL) == 0);
  close_world(&w);
}

/* Tenant and chunk prefix are part of an id: chunks with another one are never shared. */
void chunks_tenants(const fixture* f) {
  world w;
  int32_t tokens[30];
  blend_chunk_id plain, empty, alice, bob, prefixed;
  blend_precompute_options p = {.struct_size = sizeof p};
  blend_segment s[2];
  blend_fusion* fusion = NULL;
  blend_fuse_options o = fuse_options();
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 30, 3);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &plain, &err));
  p.tenant = "";
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens, 12, &p, &empty, &err));
  p.tenant = "alice";
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &alice, &err));
  p.tenant = "bob";
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &bob, &err));
  p.tenant = NULL;
  p.chunk_prefix = tokens + 20;
  p.n_chunk_prefix = 4;
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &prefixed, &err));
  CHECK(memcmp(&plain, &empty, sizeof plain) == 0);
  CHECK(memcmp(&plain, &alice, sizeof plain) != 0);
  CHECK(memcmp(&alice, &bob, sizeof plain) != 0);
  CHECK(memcmp(&plain, &prefixed, sizeof plain) != 0);

  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 12);
  s[1] = segment(BLEND_SEGMENT_QUESTION, tokens + 12, 8);
  o.on_miss = BLEND_MISS_FAIL;
  o.tenant = "carol";
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  o.tenant = "bob";
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  blend_fusion_close(fusion);
  fusion = NULL;
  o.chunk_prefix = tokens + 20;
  o.n_chunk_prefix = 4;
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  o.tenant = NULL;
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  blend_fusion_close(fusion);
  close_world(&w);
}

static int32_t count(void* user, const blend_chunk_info* info, const char* problem) {
  (void)info;
  (void)problem;
  ++*(int*)user;
  return 0;
}

/* Whoever has an id of another tenant's has nothing. */
void chunks_of_another_tenant(const fixture* f) {
  static const char* const kOthers[] = {NULL, "", "evil", "acme2"};
  world w;
  int32_t tokens[30];
  blend_chunk_id acme, everyones, saved;
  blend_precompute_options p = {.struct_size = sizeof p};
  blend_segment s[2];
  blend_fusion *fusion = NULL, *again = NULL;
  blend_fuse_options o = fuse_options();
  int by_id, i, n;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 30, 3);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &everyones, &err));
  p.tenant = "acme";
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, &p, &acme, &err));
  s[1] = segment(BLEND_SEGMENT_QUESTION, tokens + 12, 8);
  o.on_miss = BLEND_MISS_FAIL;
  for (by_id = 0; by_id < 2; ++by_id) {
    /* By the id alone, and with the right tokens. */
    s[0] = segment(BLEND_SEGMENT_CHUNK, by_id ? NULL : tokens, by_id ? 0 : 12);
    s[0].id = &acme;
    for (i = 0; i < 4; ++i) {
      o.tenant = kOthers[i];
      CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
      CHECK(fusion == NULL);
    }
    s[0].id = &everyones;
    o.tenant = "acme";
    CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    s[0].id = &acme;
    CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
    if (by_id == 0) blend_fusion_close(fusion);
    if (by_id == 0) fusion = NULL;
  }
  /* A saved conversation: while it is queued, and from the disk. */
  CHECK_OK(blend_fusion_save(fusion, w.store, "acme", NULL, &saved, &err));
  for (n = 0; n < 2; ++n) {
    for (i = 0; i < 4; ++i) {
      CHECK_CODE(BLEND_E_NOT_FOUND,
                 blend_fusion_restore(&again, w.model, w.store, &saved, kOthers[i], 8, NULL, &err));
      CHECK(again == NULL);
    }
    CHECK_OK(blend_fusion_restore(&again, w.model, w.store, &saved, "acme", 8, NULL, &err));
    CHECK(again != NULL);
    blend_fusion_close(again);
    again = NULL;
    CHECK_OK(blend_store_flush(w.store, &err));
  }
  blend_fusion_close(fusion);

  n = 0;
  CHECK_OK(blend_store_list(w.store, "acme", NULL, 1, count, &n, &err));
  CHECK(n == 2);
  n = 0;
  CHECK_OK(blend_store_list(w.store, "", NULL, 0, count, &n, &err));
  CHECK(n == 1);
  n = 0;
  CHECK_OK(blend_store_list(w.store, "evil", NULL, 0, count, &n, &err));
  CHECK(n == 0);
  CHECK_OK(blend_store_list(w.store, NULL, NULL, 0, count, &n, &err));
  CHECK(n == 3);
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_remove(w.store, &acme, "evil", &err));
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_store_remove(w.store, &acme, "", &err));
  CHECK_OK(blend_store_remove(w.store, &acme, "acme", &err));
  CHECK_OK(blend_store_remove(w.store, &saved, NULL, &err)); /* whoever's */
  close_world(&w);
}

void chunks_read_only(const fixture* f) {
  world w;
  int32_t tokens[40];
  blend_store_options options;
  blend_chunk_id id;
  blend_segment s[3];
  blend_fusion *hit = NULL, *before = NULL;
  blend_fuse_options o = fuse_options();
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 40, 3);
  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 12);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 5, 12);
  s[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 12, 8);
  CHECK_OK(blend_fuse(&before, w.model, w.store, s, 3, &o, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens + 20, 6, NULL, &id, &err));
  blend_store_close(w.store);

  w.store = NULL;
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  options.kv_dtype = BLEND_DTYPE_F32;
  options.flags = BLEND_STORE_READ_ONLY;
  CHECK_OK(blend_store_open(&w.store, w.ctx, path_in(f, "store"), &options, &err));
  REQUIRE(w.store != NULL);
  o.on_miss = BLEND_MISS_FAIL;
  CHECK_OK(blend_fuse(&hit, w.model, w.store, s, 3, &o, &err));
  CHECK(same_logits(before, hit));
  CHECK_CODE(BLEND_E_READ_ONLY,
             blend_precompute(w.model, w.store, tokens + 22, 6, NULL, NULL, &err));
  CHECK_CODE(BLEND_E_READ_ONLY, blend_store_remove(w.store, &id, NULL, &err));
  /* A miss is computed all the same; it is just not kept. */
  {
    blend_fusion* miss = NULL;
    o.on_miss = BLEND_MISS_PRECOMPUTE;
    s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 7, 12);
    CHECK_OK(blend_fuse(&miss, w.model, w.store, s, 3, &o, &err));
    CHECK_OK(blend_store_flush(w.store, &err));
    blend_fusion_close(miss);
    o.on_miss = BLEND_MISS_FAIL;
    miss = NULL;
    CHECK_CODE(BLEND_E_NOT_FOUND, blend_fuse(&miss, w.model, w.store, s, 3, &o, &err));
  }
  blend_fusion_close(hit);
  blend_fusion_close(before);
  close_world(&w);
}

/* A full store that must not evict refuses a precompute; a fuse that misses still answers. */
void chunks_quota(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_store* store = NULL;
  blend_store_options options;
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_fusion *fusion = NULL, *inside = NULL;
  blend_segment s[3];
  blend_fuse_options o = fuse_options();
  int32_t tokens[200];
  int32_t code;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  fill_tokens(tokens, 200, 3);
  CHECK(blend_store_options_init(&options, sizeof options) == BLEND_OK);
  options.kv_dtype = BLEND_DTYPE_F32;
  options.eviction = BLEND_EVICT_NEVER;
  options.quota_bytes = 64 * 1024; /* a token takes 1 KiB here: 4 layers, K and V, 32 floats */
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, "small"), &options, &err));
  REQUIRE(store != NULL);
  CHECK_OK(blend_precompute(model, store, tokens, 40, NULL, NULL, &err));
  CHECK_CODE(BLEND_E_FULL, blend_precompute(model, store, tokens + 1, 40, NULL, NULL, &err));
  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 40);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 1, 40);
  s[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 50, 8);
  CHECK_OK(blend_fuse(&fusion, model, store, s, 3, &o, &err));
  code = blend_store_flush(store, NULL);
  CHECK(code == BLEND_E_FULL);
  CHECK(blend_store_flush(store, NULL) == BLEND_OK); /* told once */
  CHECK_OK(blend_store_get_report(store, &stat, &err));
  CHECK(stat.n_chunks == 1 && stat.write_errors == 1 && stat.quota_bytes == 64 * 1024);
  blend_store_close(store);

  store = open_store(f, ctx, "large");
  CHECK_OK(blend_fuse(&inside, model, store, s, 3, &o, &err));
  CHECK(same_logits(fusion, inside));
  blend_fusion_close(inside);
  blend_fusion_close(fusion);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* BLEND_PUT_AFTER_BOS stores a second record, and a chunk after BOS alone is a prefix hit. */
void chunks_behind_bos(const fixture* f) {
  world w;
  int32_t tokens[30], question[5], bos;
  blend_precompute_options o = {.struct_size = sizeof o, .flags = BLEND_PUT_AFTER_BOS};
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_model_info model = {.struct_size = sizeof model};
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_fuse_options reuse = fuse_options(), full = fuse_options();
  blend_fusion *a = NULL, *b = NULL;
  blend_segment s[3];
  if (!open_world(f, &w)) return;
  CHECK_OK(blend_model_get_info(w.model, &model, &err));
  bos = model.bos_token;
  REQUIRE(bos >= 0);
  fill_tokens(tokens, 30, 5);
  fill_tokens(question, 5, 9);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 30, &o, NULL, &err));
  CHECK_CODE(BLEND_EXISTS, blend_precompute(w.model, w.store, tokens, 30, &o, NULL, &err));
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 2);
  /* After a predecessor the copy is still the one after BOS alone, which is there. */
  o.predecessor = question;
  o.n_predecessor = 5;
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 30, &o, NULL, &err));
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.n_chunks == 3);
  s[0] = segment(BLEND_SEGMENT_PREFIX, &bos, 1);
  s[1] = segment(BLEND_SEGMENT_CHUNK, tokens, 30);
  s[2] = segment(BLEND_SEGMENT_QUESTION, question, 5);
  reuse.policy = BLEND_POLICY_REUSE;
  full.policy = BLEND_POLICY_FULL;
  CHECK_OK(blend_fuse(&a, w.model, w.store, s, 3, &reuse, &err));
  CHECK_OK(blend_fuse(&b, w.model, w.store, s, 3, &full, &err));
  if (a != NULL && b != NULL) {
    const float *x, *y;
    size_t n, m, i;
    CHECK_OK(blend_fusion_get_report(a, &info, &err));
    CHECK(info.n_rows_exact >= 30);
    CHECK_OK(blend_fusion_get_logits(a, &x, &n, &err));
    CHECK_OK(blend_fusion_get_logits(b, &y, &m, &err));
    for (i = 0; i < n && n == m; ++i) CHECK(x[i] - y[i] < 1e-4f && y[i] - x[i] < 1e-4f);
  }
  blend_fusion_close(a);
  blend_fusion_close(b);
  close_world(&w);
}
