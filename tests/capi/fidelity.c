/* Answers that are compared with full prefill, as a host sees it. */
#include <string.h>

#include "fixture.h"

enum { kChunk = 20, kQuestion = 6 };

typedef struct seen {
  int n;
  blend_fidelity_row rows[32];
  int stop_at; /* refuse the row of this index; -1: never */
} seen;

static int32_t see(void* user, const blend_fidelity_row* row) {
  seen* s = (seen*)user;
  CHECK(row->struct_size == sizeof *row);
  if (s->n < 32) s->rows[s->n] = *row;
  return s->n++ == s->stop_at ? 55 : 0;
}

static seen look(const blend_store* store, const blend_model* model, double target) {
  seen s;
  memset(&s, 0, sizeof s);
  s.stop_at = -1;
  CHECK_OK(blend_store_get_fidelity(store, model, target, see, &s, &err));
  return s;
}

/* The last row at this ratio. The ratio in force has a row too, checked or not. */
static blend_fidelity_row row_at(const blend_store* store, double ratio) {
  const seen s = look(store, NULL, 0);
  blend_fidelity_row row;
  int i;
  memset(&row, 0, sizeof row);
  for (i = 0; i < s.n; ++i) {
    CHECK(s.rows[i].ratio_now == 0.6 && s.rows[i].in_force == (s.rows[i].ratio == 0.6 ? 1u : 0u));
    if (s.rows[i].ratio == ratio) row = s.rows[i];
  }
  CHECK(s.n == 2);
  return row;
}

static blend_store* open_checked(const fixture* f, const blend_ctx* ctx, uint32_t every) {
  blend_store_options o;
  blend_store* store = NULL;
  CHECK(blend_store_options_init(&o, sizeof o) == BLEND_OK);
  CHECK(o.check_every == 0 && o.check_tokens == 0);
  o.kv_dtype = BLEND_DTYPE_F32;
  o.check_every = every;
  CHECK_OK(blend_store_open(&store, ctx, path_in(f, "checked"), &o, &err));
  return store;
}

/* Two chunks, the second of which is not exact, and a question. */
static blend_fusion* fuse_seed(const world* w, int32_t seed, const blend_fuse_options* o) {
  int32_t first[kChunk], second[kChunk], question[kQuestion];
  blend_segment segments[3];
  blend_fusion* fusion = NULL;
  fill_tokens(first, kChunk, 3 + seed);
  fill_tokens(second, kChunk, 90 + seed);
  fill_tokens(question, kQuestion, 200 + seed);
  segments[0] = segment(BLEND_SEGMENT_CHUNK, first, kChunk);
  segments[1] = segment(BLEND_SEGMENT_CHUNK, second, kChunk);
  segments[2] = segment(BLEND_SEGMENT_QUESTION, question, kQuestion);
  CHECK_OK(blend_fuse(&fusion, w->model, w->store, segments, 3, o, &err));
  return fusion;
}

static blend_fuse_options at_ratio(double ratio) {
  blend_fuse_options o = fuse_options();
  o.policy = BLEND_POLICY_HKVD;
  o.ratio = ratio;
  return o;
}

static void generate(blend_fusion* fusion, uint32_t n) {
  blend_generate_options o;
  CHECK(blend_generate_options_init(&o, sizeof o) == BLEND_OK);
  o.max_tokens = n;
  o.ignore_eos = 1;
  CHECK_OK(blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
}

static uint32_t flags_of(const blend_fusion* fusion) {
  blend_fusion_report info = {.struct_size = sizeof info};
  CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  return info.flags;
}

static double ratio_of(const blend_fusion* fusion) {
  blend_fusion_report info = {.struct_size = sizeof info};
  CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  return info.ratio;
}

static int open_here(const fixture* f, world* w, uint32_t every) {
  memset(w, 0, sizeof *w);
  w->ctx = open_ctx();
  if (w->ctx == NULL) return 0;
  w->model = open_model(w->ctx, f->model);
  w->store = open_checked(f, w->ctx, every);
  return w->model != NULL && w->store != NULL;
}

void fidelity_is_seen_and_kept(const fixture* f) {
  world w;
  const blend_fuse_options all = at_ratio(1), full = fuse_options();
  blend_fuse_options exact = full;
  blend_fusion* fusion;
  blend_fidelity_row row;
  seen s;
  blend_store_report stat = {.struct_size = sizeof stat};
  REQUIRE(open_here(f, &w, 1));
  CHECK(look(w.store, NULL, 0).n == 0);
  fusion = fuse_seed(&w, 1, &all);
  REQUIRE(fusion != NULL);
  CHECK((flags_of(fusion) & BLEND_FUSION_CHECKED) != 0);
  generate(fusion, 5);
  generate(fusion, 4); /* one answer in two calls */
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_run_checks(w.store, &err));
  row = row_at(w.store, 1);
  CHECK(row.policy == BLEND_POLICY_HKVD && row.record == BLEND_RECORD_ALONE);
  CHECK(row.n_checks == 1 && row.n_tokens == 9);
  CHECK(row.agreement == 1 && row.agreement_high == 1 && row.agreement_low < 1);
  CHECK(row.identical == 1 && row.mean_kl < 1e-5);
  row = row_at(w.store, 0.6);
  CHECK(row.n_checks == 0 && row.agreement == 0 && row.agreement_high == 0);
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.checks_done == 1 && stat.checks_dropped == 0 && stat.checks_queued == 0);
  /* Full prefill has nothing to be checked. */
  exact.policy = BLEND_POLICY_FULL;
  fusion = fuse_seed(&w, 1, &exact);
  REQUIRE(fusion != NULL);
  CHECK((flags_of(fusion) & BLEND_FUSION_CHECKED) == 0);
  blend_fusion_close(fusion);
  blend_store_close(w.store);
  w.store = open_checked(f, w.ctx, UINT32_MAX);
  REQUIRE(w.store != NULL);
  CHECK(row_at(w.store, 1).n_tokens == 9);
  fusion = fuse_seed(&w, 2, &all);
  REQUIRE(fusion != NULL);
  CHECK((flags_of(fusion) & BLEND_FUSION_CHECKED) == 0);
  blend_fusion_close(fusion);
  memset(&s, 0, sizeof s); /* stops at once */
  CHECK_CODE(BLEND_E_CALLBACK, blend_store_get_fidelity(w.store, NULL, 0, see, &s, &err));
  close_world(&w);
}

/* A host that samples by itself: token by token, then a text of its own, which ends the answer. */
void fidelity_of_a_host_that_decodes(const fixture* f) {
  world w;
  const blend_fuse_options all = at_ratio(1);
  blend_fusion *fusion, *other = NULL;
  int32_t more[3];
  int i;
  blend_fidelity_row row;
  REQUIRE(open_here(f, &w, 1));
  fusion = fuse_seed(&w, 1, &all);
  REQUIRE(fusion != NULL);
  fill_tokens(more, 3, 40);
  for (i = 0; i < 4; ++i) {
    const int32_t token = 30 + i; /* whatever it is: full prefill is asked after the same */
    CHECK_OK(blend_fusion_decode(fusion, &token, 1, NULL, &err));
  }
  CHECK_OK(blend_fusion_decode(fusion, more, 3, NULL, &err));
  CHECK_OK(blend_fusion_decode(fusion, more, 1, NULL, &err));
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_run_checks(w.store, &err));
  row = row_at(w.store, 1);
  CHECK(row.n_checks == 1 && row.n_tokens == 5 && row.agreement == 1);
  /* A fusion and its fork are checked once together. */
  fusion = fuse_seed(&w, 2, &all);
  REQUIRE(fusion != NULL);
  CHECK_OK(blend_fusion_fork(&other, fusion, &err));
  REQUIRE(other != NULL);
  generate(other, 3);
  blend_fusion_close(fusion);
  blend_fusion_close(other);
  CHECK_OK(blend_store_run_checks(w.store, &err));
  CHECK(row_at(w.store, 1).n_tokens == 8);
  /* Rows are taken out again: what was answered before is checked as it was. */
  fusion = fuse_seed(&w, 3, &all);
  REQUIRE(fusion != NULL);
  generate(fusion, 4);
  CHECK_OK(blend_fusion_erase(fusion, 1, 2, NULL, &err));
  generate(fusion, 4);
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_run_checks(w.store, &err));
  row = row_at(w.store, 1);
  CHECK(row.n_tokens == 12 && row.agreement == 1);
  /* After full prefill there is nothing to check. */
  fusion = fuse_seed(&w, 4, &all);
  REQUIRE(fusion != NULL);
  CHECK((flags_of(fusion) & BLEND_FUSION_CHECKED) != 0);
  CHECK_OK(blend_fusion_make_exact(fusion, NULL, 0, NULL, NULL, &err));
  CHECK((flags_of(fusion) & BLEND_FUSION_CHECKED) == 0);
  generate(fusion, 4);
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_run_checks(w.store, &err));
  CHECK(row_at(w.store, 1).n_tokens == 12);
  close_world(&w);
}

void fidelity_moves_the_ratio(const fixture* f) {
  world w;
  blend_fuse_options keeps = at_ratio(BLEND_RATIO_FIDELITY);
  int32_t i;
  double ratio = 0, first = 0;
  seen s;
  int in_force = 0;
  REQUIRE(open_here(f, &w, 1));
  keeps.agreement_target = 0.5; /* easily kept */
  for (i = 0; i < 24; ++i) {
    blend_fusion* const fusion = fuse_seed(&w, i, &keeps);
    REQUIRE(fusion != NULL);
    ratio = ratio_of(fusion);
    if (i == 0) first = ratio;
    generate(fusion, 16);
    blend_fusion_close(fusion);
    CHECK_OK(blend_store_run_checks(w.store, &err));
  }
  CHECK(first > 0.6); /* chunks stored alone, and a short prompt */
  CHECK(ratio < first);
  s = look(w.store, NULL, 0.5);
  for (i = 0; i < s.n; ++i) {
    in_force += (int)s.rows[i].in_force;
    CHECK(s.rows[i].ratio_now <= ratio);
  }
  CHECK(s.n >= 2 && in_force == 1);
  CHECK(look(w.store, NULL, 0).rows[0].ratio_now == 0.6); /* of another target nothing is known */
  keeps.agreement_target = 0.4;
  i = 0;
  {
    int32_t token = 5;
    blend_segment question = segment(BLEND_SEGMENT_QUESTION, &token, 1);
    blend_fusion* fusion = NULL;
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "agreement_target",
               blend_fuse(&fusion, w.model, w.store, &question, 1, &keeps, &err));
  }
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "agreement_target",
             blend_store_get_fidelity(w.store, NULL, 1, see, &s, &err));
  {
    blend_store_options o;
    blend_store* store = NULL;
    CHECK(blend_store_options_init(&o, sizeof o) == BLEND_OK);
    o.check_tokens = 257;
    CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "check_tokens",
               blend_store_open(&store, w.ctx, path_in(f, "s"), &o, &err));
  }
  close_world(&w);
}

/* Whatever is closed first, an answer that is not whole yet harms nobody. */
void fidelity_closed_in_any_order(const fixture* f) {
  int order;
  for (order = 0; order < 6; ++order) {
    world w;
    const blend_fuse_options half = at_ratio(0.15);
    blend_fusion* fusion;
    int step;
    REQUIRE(open_here(f, &w, 1));
    fusion = fuse_seed(&w, 1, &half);
    REQUIRE(fusion != NULL);
    generate(fusion, 4);
    for (step = 0; step < 3; ++step) {
      const int what = (order < 3 ? order + step : order + 2 * step) % 3;
      if (what == 0) blend_fusion_close(fusion);
      if (what == 1) blend_store_close(w.store);
      if (what == 2) blend_model_close(w.model);
    }
    blend_ctx_close(w.ctx);
  }
}
