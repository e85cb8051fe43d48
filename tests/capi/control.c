/* The machine's measurement and the advice on storage, through the ABI. */
#include <math.h>
#include <string.h>

#include "fixture.h"

static blend_device device(double bytes_per_s, double cost) {
  blend_device d;
  CHECK(blend_device_init(&d, sizeof d) == BLEND_OK);
  d.bytes_per_s = bytes_per_s;
  d.cost_per_gb_hour = cost;
  return d;
}

static blend_machine_options short_prefills(void) {
  blend_machine_options o;
  CHECK(blend_machine_options_init(&o, sizeof o) == BLEND_OK);
  CHECK(o.max_tokens == 1024);
  o.max_tokens = 80;
  return o;
}

void control_machine(const fixture* f) {
  world w;
  blend_machine* machine = NULL;
  blend_machine* again = NULL;
  blend_machine_info info;
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
  o.max_tokens = 0;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_open(&machine, w.model, path, &o, &err));
  CHECK(machine == NULL);
  o.max_tokens = 80;
  CHECK_OK(blend_machine_open(&machine, w.model, path, &o, &err));
  CHECK_CODE(BLEND_EXISTS, blend_machine_open(&again, w.model, path, &o, &err));
  REQUIRE(machine != NULL && again != NULL);
  blend_machine_close(again);
  o.flags = BLEND_MACHINE_MEASURE;
  CHECK_OK(blend_machine_open(&again, w.model, path, &o, &err));
  blend_machine_close(again);
  blend_machine_close(NULL);
  close_world(&w); /* the machine keeps what it needs of the model */

  CHECK(blend_machine_info_init(&info, sizeof info) == BLEND_OK);
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
  CHECK_OK(blend_machine_recompute_ns(machine, 80, 1, &ns, &err));
  CHECK(ns == most);
  CHECK_OK(blend_machine_recompute_ns(machine, 80, 0.5, &ns, &err));
  CHECK(ns >= most / 2 && ns <= most / 2 + 1);
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_recompute_ns(machine, 80, 1.5, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_recompute_ns(machine, 80, NAN, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_recompute_ns(NULL, 80, 1, &ns, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_machine_recompute_ns(machine, 80, 1, NULL, &err));
  blend_machine_close(machine);
  blend_cancel_free(cancel);
}

void control_advise(const fixture* f) {
  world w;
  blend_machine* machine = NULL;
  blend_machine_options mo = short_prefills();
  blend_advise_options o;
  blend_device devices[3];
  blend_advice advice[3];
  uint64_t prefill = 0;
  double bytes;
  int i;
  REQUIRE(open_world(f, &w));
  CHECK_OK(blend_machine_open(&machine, w.model, NULL, &mo, &err));
  REQUIRE(machine != NULL);
  CHECK(blend_advise_options_init(&o, sizeof o) == BLEND_OK);
  CHECK(o.check_layer == 1 && o.n_tokens == 4096 && o.ratio == 0.15);
  for (i = 0; i < 3; ++i) CHECK(blend_advice_init(&advice[i], sizeof advice[i]) == BLEND_OK);

  /* The paper's formula, on 80 tokens: throughputs that load in half, twice and forty times what
   * recomputing a quarter takes. 4 layers of 2 * 32 elements of 16 bits a token. */
  o.n_tokens = 80;
  o.ratio = 0.25;
  o.check_layer = 0;
  CHECK_OK(blend_machine_recompute_ns(machine, 80, 1, &prefill, &err));
  bytes = 80.0 * 4 * 2 * 32 * 2;
  devices[0] = device(bytes / (0.125e-9 * (double)prefill), 3);
  devices[1] = device(bytes / (0.5e-9 * (double)prefill), 2);
  devices[2] = device(bytes / (10e-9 * (double)prefill), 1);
  CHECK_OK(blend_advise(machine, devices, 3, &o, advice, &err));
  CHECK(advice[0].flags == (BLEND_ADVICE_NO_DELAY | BLEND_ADVICE_CHEAPEST));
  CHECK(advice[1].flags == 0);
  CHECK(advice[2].flags == BLEND_ADVICE_SLOWER_THAN_PREFILL);
  CHECK(fabs(advice[0].hidden_ratio - 0.125) < 1e-6 && advice[0].ratio == 0.25);
  CHECK(fabs(advice[1].hidden_ratio - 0.5) < 1e-6 && advice[1].ratio == advice[1].hidden_ratio);
  CHECK(advice[2].ratio == 1);
  CHECK(advice[0].recompute_ns >= prefill / 4 && advice[0].recompute_ns <= prefill / 4 + 1);
  CHECK(fabs(advice[1].cost_per_hour - bytes * 2e-9) < 1e-12);
  /* Of two that add no delay the cheaper, of equal cost the faster. */
  devices[1] = device(devices[0].bytes_per_s * 2, 3);
  CHECK_OK(blend_advise(machine, devices, 3, &o, advice, &err));
  CHECK(advice[0].flags == BLEND_ADVICE_NO_DELAY);
  CHECK(advice[1].flags == (BLEND_ADVICE_NO_DELAY | BLEND_ADVICE_CHEAPEST));
  CHECK_OK(blend_advise(machine, devices, 3, NULL, advice, &err));

  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(NULL, devices, 3, &o, advice, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(machine, NULL, 3, &o, advice, &err));
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(machine, devices, 3, &o, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "no devices",
             blend_advise(machine, devices, 0, &o, advice, &err));
  o.check_layer = 4;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "4 layers",
             blend_advise(machine, devices, 3, &o, advice, &err));
  o.check_layer = 0;
  o.ratio = -0.5;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "ratio",
             blend_advise(machine, devices, 3, &o, advice, &err));
  o.ratio = 0.25;
  o.n_tokens = 0;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(machine, devices, 3, &o, advice, &err));
  o.n_tokens = UINT64_MAX;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(machine, devices, 3, &o, advice, &err));
  o.n_tokens = 80;
  o.kv_dtype = 9;
  CHECK_CODE(BLEND_E_INVALID_ARGUMENT, blend_advise(machine, devices, 3, &o, advice, &err));
  o.kv_dtype = 0;
  devices[1].bytes_per_s = 0;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "device 1",
             blend_advise(machine, devices, 3, &o, advice, &err));
  devices[1] = device(1, NAN);
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "device 1",
             blend_advise(machine, devices, 3, &o, advice, &err));
  devices[1] = device(1e-30, 0); /* longer than a clock can say */
  CHECK_OK(blend_advise(machine, devices, 3, &o, advice, &err));
  devices[2].struct_size = 4;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_advise(machine, devices, 3, &o, advice, &err));
  devices[2].struct_size = sizeof devices[2];
  advice[2].struct_size = 4;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_advise(machine, devices, 3, &o, advice, &err));
  blend_machine_close(machine);
  close_world(&w);
}
