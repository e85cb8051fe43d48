/* The machine's measurement and the advice on storage, through the ABI. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

static blend_storage storage(double bytes_per_s, double cost) {
  blend_storage d = {.struct_size = sizeof d};
  d.bytes_per_s = bytes_per_s;
  d.cost_per_gb_hour = cost;
  return d;
}

static blend_machine_options short_prefills(void) {
  blend_machine_options o = {.struct_size = sizeof o};
  o.max_tokens = 80;
  return o;
}

void control_machine(const fixture* f) {
  world w;
  blend_machine* machine = NULL;
  blend_machine* again = NULL;
  blend_machine_info info = {.struct_size = sizeof info};
  blend_machine_options o = short_prefills();
  const char* path = path_in(f, "machine");
  uint64_t n = 0, ns = 0, most = 0;
  blend_cancel* cancel = NULL;
  REQUIRE(open_world(f, &w));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_open(NULL, w.model, path, &o, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_open(&machine, NULL, path, &o, &err));
  CHECK_CODE(BLEND_E_IO, blend_machine_open(&machine, w.model, path_in(f, "a/b"), &o, &err));
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  o.cancel = cancel;
  CHECK_CODE(BLEND_E_CANCELLED, blend_machine_open(&machine, w.model, path, &o, &err));
  o.cancel = NULL;
  o.flags = 2;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "flags",
             blend_machine_open(&machine, w.model, path, &o, &err));
  o.flags = 0;
  CHECK(machine == NULL);
  CHECK_OK(blend_machine_open(&machine, w.model, path, &o, &err));
  CHECK_CODE(BLEND_EXISTS, blend_machine_open(&again, w.model, path, &o, &err));
  REQUIRE(machine != NULL && again != NULL);
  blend_machine_close(again);
  o.flags = BLEND_MACHINE_MEASURE;
  CHECK_OK(blend_machine_open(&again, w.model, path, &o, &err));
  blend_machine_close(again);
  blend_machine_close(NULL);
  close_world(&w); /* the machine keeps what it needs of the model */

  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_info(NULL, &info, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_info(machine, NULL, &err));
  CHECK_OK(blend_machine_get_info(machine, &info, &err));
  CHECK(info.n_points == 2 && info.n_threads > 0 && info.measured_unix_s > 1700000000);
  CHECK(info.cpu != NULL && strlen(info.cpu) > 0);
  CHECK_OK(blend_machine_get_point(machine, 0, &n, &ns, &err));
  CHECK(n == 64 && ns > 0);
  CHECK_OK(blend_machine_get_point(machine, 1, &n, &most, &err));
  CHECK(n == 80 && most > 0);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_point(machine, 2, &n, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_point(NULL, 0, &n, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_point(machine, 0, NULL, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_point(machine, 0, &n, NULL, &err));
  CHECK_OK(blend_machine_get_recompute_ns(machine, 80, 1, &ns, &err));
  CHECK(ns == most);
  CHECK_OK(blend_machine_get_recompute_ns(machine, 80, 0.5, &ns, &err));
  CHECK(ns >= most / 2 && ns <= most / 2 + 1);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_recompute_ns(machine, 80, 1.5, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_recompute_ns(machine, 80, NAN, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_recompute_ns(NULL, 80, 1, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_get_recompute_ns(machine, 80, 1, NULL, &err));
  blend_machine_close(machine);
  blend_cancel_free(cancel);
}

void control_advise(const fixture* f) {
  world w;
  blend_machine* machine = NULL;
  blend_machine_options mo = short_prefills();
  blend_advise_options o;
  blend_storage storages[3];
  blend_advice advice[3];
  uint64_t prefill = 0, n_bytes;
  double bytes;
  int i;
  REQUIRE(open_world(f, &w));
  CHECK_OK(blend_machine_open(&machine, w.model, NULL, &mo, &err));
  REQUIRE(machine != NULL);
  CHECK(blend_advise_options_init(&o, sizeof o) == BLEND_OK);
  CHECK(o.check_layer == 1 && o.n_tokens == 4096 && o.ratio == 0.15);
  for (i = 0; i < 3; ++i) {
    memset(&advice[i], 0, sizeof advice[i]);
    advice[i].struct_size = sizeof advice[i];
  }

  /* 80 tokens from storages that load in an eighth, half and ten times what a prefill takes. 4
   * layers of 2 * 32 elements of 16 bits a token. */
  o.n_tokens = 80;
  o.ratio = 0.25;
  o.check_layer = 0;
  CHECK_OK(blend_machine_get_recompute_ns(machine, 80, 1, &prefill, &err));
  bytes = 80.0 * 4 * 2 * 32 * 2;
  storages[0] = storage(bytes / (0.125e-9 * (double)prefill), 3);
  storages[1] = storage(bytes / (0.5e-9 * (double)prefill), 2);
  storages[2] = storage(bytes / (10e-9 * (double)prefill), 1);
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].flags == (BLEND_ADVICE_NO_DELAY | BLEND_ADVICE_CHEAPEST));
  CHECK(advice[1].flags == 0);
  CHECK(advice[2].flags == BLEND_ADVICE_SLOWER_THAN_PREFILL);
  /* Layer by layer, of which the last is computed for the last row alone: near the paper's formula.
   */
  CHECK(fabs(advice[0].hidden_ratio - 0.125) < 0.05 && advice[0].ratio == 0.25);
  CHECK(fabs(advice[1].hidden_ratio - 0.5) < 0.2);
  CHECK(advice[1].ratio > 0.25 && advice[1].ratio < advice[1].hidden_ratio);
  CHECK(advice[2].ratio == 1);
  CHECK(fabs((double)advice[0].recompute_ns / (double)prefill - 0.25) < 0.01);
  CHECK(fabs(advice[1].cost_per_hour - bytes * 2e-9) < 1e-12);
  /* What comes later is no sooner there than what comes slower. */
  storages[0].latency_s = 0.375e-9 * (double)prefill;
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].flags == 0);
  storages[0].latency_s = -1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "storage 0: latency_s",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  storages[0].latency_s = 0;
  /* The cheaper of two that add no delay, the faster of equal cost. */
  storages[1] = storage(storages[0].bytes_per_s * 2, 3);
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].flags == BLEND_ADVICE_NO_DELAY);
  CHECK(advice[1].flags == (BLEND_ADVICE_NO_DELAY | BLEND_ADVICE_CHEAPEST));
  CHECK_OK(blend_machine_advise(machine, storages, 3, NULL, advice, &err));
  /* Codecs: of 80 tokens of 4 layers int8 has a byte an element, and a scale of 4 bytes for each of
   * K's 32 channels and each of V's tokens and heads. */
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].load_bytes == (uint64_t)bytes && advice[0].load_ns > 0);
  prefill = advice[0].load_ns;
  o.codec = BLEND_CODEC_INT8;
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].load_bytes > (uint64_t)bytes / 2 &&
        advice[0].load_bytes < (uint64_t)bytes * 3 / 4);
  CHECK(fabs((double)advice[0].load_ns / (double)prefill - (double)advice[0].load_bytes / bytes) <
        1e-3);
  o.chunk_tokens = 2; /* K's scales are shared by fewer */
  n_bytes = advice[0].load_bytes;
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  CHECK(advice[0].load_bytes > n_bytes);
  o.codec = 99;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "codec",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.codec = 0;

  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_advise(NULL, storages, 3, &o, advice, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_advise(machine, NULL, 3, &o, advice, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_advise(machine, storages, 3, &o, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "no storages",
             blend_machine_advise(machine, storages, 0, &o, advice, &err));
  o.check_layer = 4;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "4 layers",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.check_layer = 0;
  o.ratio = -0.5;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "ratio",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.ratio = 0.25;
  o.n_tokens = 0;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT,
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.n_tokens = UINT64_MAX;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT,
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.n_tokens = 80;
  o.kv_dtype = 9;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT,
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  o.kv_dtype = 0;
  storages[1].bytes_per_s = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "storage 1",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  storages[1] = storage(1, NAN);
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "storage 1",
             blend_machine_advise(machine, storages, 3, &o, advice, &err));
  storages[1] = storage(1e-30, 0); /* longer than a clock can say */
  CHECK_OK(blend_machine_advise(machine, storages, 3, &o, advice, &err));
  storages[2].struct_size = 4;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_machine_advise(machine, storages, 3, &o, advice, &err));
  storages[2].struct_size = sizeof storages[2];
  advice[2].struct_size = 4;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_machine_advise(machine, storages, 3, &o, advice, &err));
  blend_machine_close(machine);
  close_world(&w);
}

/* A machine that takes `ns` for a prefill of 64 tokens, by way of the file that says so. */
static blend_machine* machine_that_takes(const fixture* f, const blend_model* model, double ns) {
  const char* path = path_in(f, "machine");
  blend_machine_options o = short_prefills();
  blend_machine* machine = NULL;
  char text[4096];
  char* line;
  size_t n;
  FILE* file;
  o.flags = BLEND_MACHINE_MEASURE;
  CHECK_OK(blend_machine_open(&machine, model, path, &o, &err));
  blend_machine_close(machine);
  machine = NULL;
  o.flags = 0;
  file = fopen(path, "rb");
  if (file == NULL) return NULL;
  n = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[n] = '\0';
  line = strstr(text, "prefill ");
  if (line == NULL) return NULL;
  *line = '\0';
  file = fopen(path, "wb");
  if (file == NULL) return NULL;
  fprintf(file, "%sprefill 64 %.0f\nend\n", text, ns);
  fclose(file);
  CHECK_CODE(BLEND_EXISTS, blend_machine_open(&machine, model, path, &o, &err));
  return machine;
}

static blend_fusion* fuse_auto(const world* w, const blend_segment* segments,
                               const blend_machine* machine, uint64_t target_ns,
                               blend_fusion_report* info) {
  blend_fuse_options o = fuse_options();
  blend_fusion* fusion = NULL;
  o.ratio = BLEND_RATIO_AUTO;
  o.machine = machine;
  o.ttft_target_ns = target_ns;
  o.chunk_prefix = NULL;
  CHECK_OK(blend_fuse(&fusion, w->model, w->store, segments, 4, &o, &err));
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  if (fusion != NULL) CHECK_OK(blend_fusion_get_report(fusion, info, &err));
  return fusion;
}

void control_of_a_fuse(const fixture* f) {
  world w;
  int32_t tokens[4][64];
  blend_segment segments[4];
  blend_fusion* fusion;
  blend_fusion_report info;
  blend_segment_info seg;
  blend_store_report stat = {.struct_size = sizeof stat};
  blend_machine* machine;
  blend_model* other;
  blend_fuse_options o = fuse_options();
  double load_ns, prefill_ns;
  int i;
  REQUIRE(open_world(f, &w));
  for (i = 0; i < 4; ++i) {
    fill_tokens(tokens[i], 64, 7 + 31 * i);
    segments[i] =
        segment(i < 3 ? BLEND_SEGMENT_CHUNK : BLEND_SEGMENT_QUESTION, tokens[i], i < 3 ? 64 : 8);
    if (i < 3) CHECK_OK(blend_precompute(w.model, w.store, tokens[i], 64, NULL, NULL, &err));
  }

  /* Nothing was read yet: a few layers are, to see. A machine so slow that nothing hides chooses
   * the least ratio. */
  machine = machine_that_takes(f, w.model, 1e15);
  REQUIRE(machine != NULL);
  fusion = fuse_auto(&w, segments, machine, 0, &info);
  CHECK(info.ratio == 0.15 && (info.flags & BLEND_FUSION_RATIO_CHOSEN) != 0);
  blend_fusion_close(fusion);
  blend_machine_close(machine);

  /* No machine: nothing is chosen. */
  fusion = fuse_auto(&w, segments, NULL, 0, &info);
  CHECK(info.ratio == 0.15 && (info.flags & BLEND_FUSION_RATIO_CHOSEN) == 0);
  blend_fusion_close(fusion);

  /* A machine so slow that nothing hides: the least ratio, by choice. */
  machine = machine_that_takes(f, w.model, 1e15);
  fusion = fuse_auto(&w, segments, machine, 0, &info);
  CHECK(info.ratio == 0.15 && (info.flags & BLEND_FUSION_RATIO_CHOSEN) != 0);
  CHECK(info.n_rows_selected == 29); /* 15 % of 192 */
  blend_fusion_close(fusion);
  blend_machine_close(machine);

  /* One on which computing all takes a thousand times what loading does, so that no disturbance of
   * the few microseconds that were read turns it round: loading it is. The account says why. */
  CHECK_OK(blend_store_get_report(w.store, &stat, &err));
  CHECK(stat.read_bytes_per_s > 0);
  load_ns = 1e9 * (64 * 4 + 128 * 3) * 2.0 * 32 * 4 / stat.read_bytes_per_s;
  prefill_ns = 1000 * load_ns;
  machine = machine_that_takes(f, w.model, prefill_ns * 64 / 200);
  fusion = fuse_auto(&w, segments, machine, 0, &info);
  CHECK(info.ratio >= 0.15 && (info.flags & BLEND_FUSION_RATIO_CHOSEN) != 0);
  CHECK(info.n_rows_sooner_computed == 0 && info.n_hits == 3);
  CHECK(info.load_expected_ns > 0 && info.compute_expected_ns > 0);
  CHECK(info.ttft_expected_ns >= info.compute_expected_ns);
  CHECK(info.ttft_expected_ns < info.computing_expected_ns);
  blend_fusion_close(fusion);
  blend_machine_close(machine);

  /* Time to spare buys exactness: all of it, or none where there is no time at all. */
  machine = machine_that_takes(f, w.model, prefill_ns * 64 / 200);
  fusion = fuse_auto(&w, segments, machine, (uint64_t)1e15, &info);
  CHECK(info.n_rows_sooner_computed == 192 && info.n_rows_always == 200);
  CHECK((info.flags & BLEND_FUSION_TARGET_MISSED) == 0);
  blend_fusion_close(fusion);
  fusion = fuse_auto(&w, segments, machine, 1, &info);
  CHECK((info.flags & BLEND_FUSION_TARGET_MISSED) != 0);
  blend_fusion_close(fusion);

  /* Schedules of the host's and models of another kind. */
  other = open_model(w.ctx, f->other_model);
  REQUIRE(other != NULL);
  o.ratio = BLEND_RATIO_AUTO;
  o.machine = machine;
  fusion = NULL;
  CHECK_SAYS(BLEND_E_MISMATCH, "machine",
             blend_fuse(&fusion, other, w.store, segments, 4, &o, &err));
  CHECK(fusion == NULL);
  blend_machine_close(machine);

  /* Prefill in no time: what is stored is better computed, and full prefill it is. */
  machine = machine_that_takes(f, w.model, 1);
  fusion = fuse_auto(&w, segments, machine, 0, &info);
  for (i = 0; i < 3; ++i) {
    memset(&seg, 0, sizeof seg);
    seg.struct_size = sizeof seg;
    CHECK_OK(blend_fusion_get_segment(fusion, (size_t)i, &seg, &err));
    CHECK(seg.source == BLEND_SOURCE_COMPUTED);
  }
  CHECK(info.n_rows_always == 200 && info.n_rows_selected == 0);
  CHECK(info.n_rows_sooner_computed == 192);
  blend_fusion_close(fusion);
  blend_machine_close(machine);
  blend_model_close(other);
  close_world(&w);
}
