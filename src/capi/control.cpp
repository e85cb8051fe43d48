// The machine's measured speed, and what storage it advises.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "control/advise.h"
#include "engine/chunk_shape.h"
#include "store/codec/codec.h"

using blend::Result;
using blend::Status;

namespace {

blend_advise_options default_advise_options() {
  blend_advise_options o{};
  o.struct_size = sizeof o;
  o.check_layer = 1;
  o.n_tokens = 4096;
  o.ratio = 0.15;
  return o;
}

constexpr uint64_t kUsualChunk = 512;

Status check_ratio(double ratio) {
  if (ratio >= 0.0 && ratio <= 1.0) return Status::ok();  // NaN fails
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", ratio);
}

uint64_t nanoseconds(double seconds) {
  constexpr double kMost = 1e18;  // 30 years: what a storage of a byte a day would take
  return static_cast<uint64_t>(std::llround(std::min(seconds * 1e9, kMost)));
}

Result<std::vector<blend::Storage>> read_storages(const blend_storage* storages, size_t n) {
  BLEND_RETURN_IF_ERROR(blend::capi::check_elements(storages, n, "storage"));
  std::vector<blend::Storage> out;
  for (size_t i = 0; i < n; ++i) {
    const std::string name = "storage " + std::to_string(i);
    blend_storage d{};
    Status status = blend::capi::read_struct(blend::capi::element(storages, i), d);
    if (!status.is_ok()) return status.with_context(name);
    if (!(d.bytes_per_s > 0.0) || !std::isfinite(d.bytes_per_s)) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "storage %zu: bytes_per_s %g must be above 0", i, d.bytes_per_s);
    }
    if (!(d.cost_per_gb_hour >= 0.0) || !std::isfinite(d.cost_per_gb_hour)) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "storage %zu: cost_per_gb_hour %g must not be negative", i,
                               d.cost_per_gb_hour);
    }
    if (!(d.latency_s >= 0.0) || !std::isfinite(d.latency_s)) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "storage %zu: latency_s %g must not be negative", i, d.latency_s);
    }
    out.push_back({d.bytes_per_s, d.cost_per_gb_hour, d.latency_s});
  }
  return out;
}

Result<blend::AdvisedPrompt> advised_prompt(const blend_advise_options& o,
                                            const blend_machine& machine) {
  const blend::Model& model = *machine.model;
  const blend::ModelConfig& c = model.config();
  BLEND_RETURN_IF_ERROR(check_ratio(o.ratio));
  if (o.check_layer >= c.n_kept()) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                             "check_layer %u: %u layers of the model keep rows", o.check_layer,
                             c.n_kept());
  }
  if (o.n_tokens == 0 || o.n_tokens > UINT32_MAX) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_tokens %llu must lie in 1 .. 2^32-1",
                             static_cast<unsigned long long>(o.n_tokens));
  }
  if (o.kv_dtype > BLEND_DTYPE_BF16) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "kv_dtype %u is not a BLEND_DTYPE_ value",
                             o.kv_dtype);
  }
  blend_store as_stored;
  as_stored.kv_dtype = o.kv_dtype;
  const blend::DType dtype = blend::capi::resolve_kv_dtype(as_stored, model);
  blend::AdvisedPrompt out;
  out.config = &c;
  out.machine = {&machine.profile.prefill(), &machine.pace};
  out.n_tokens = o.n_tokens;
  out.check_layer = o.check_layer;
  BLEND_ASSIGN(const std::optional<blend::Codec> codec, blend::capi::read_codec(o.codec));
  const uint64_t chunk =
      std::min<uint64_t>(o.n_tokens, o.chunk_tokens == 0 ? kUsualChunk : o.chunk_tokens);
  const blend::ChunkShape stored = blend::chunk_shape(c, static_cast<uint32_t>(chunk), dtype);
  out.chunk_tokens = chunk;
  double bytes = 0;
  for (uint32_t i = 0; i < c.n_kept(); ++i) {
    bytes +=
        static_cast<double>(blend::longest_layer(codec.value_or(blend::Codec::none), stored, i));
  }
  out.token_bytes = bytes / c.n_kept() / static_cast<double>(chunk);
  return out;
}

}  // namespace

extern "C" {

int32_t blend_machine_options_init(blend_machine_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_machine_open(blend_machine** out, const blend_model* model, const char* path,
                           const blend_machine_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Result<int32_t> {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    blend_machine_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if ((o.flags & ~BLEND_MACHINE_MEASURE) != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_MACHINE_ bits",
                               o.flags);
    }
    BLEND_ASSIGN(const auto loaded, model->fusible());
    BLEND_RETURN_IF_ERROR(blend::capi::check_count("n_threads", o.n_threads));
    const blend::ThreadCap cap(o.n_threads);
    blend::MachineProfile::Options timed;
    if (o.max_tokens != 0) timed.max_tokens = o.max_tokens;
    timed.measure = (o.flags & BLEND_MACHINE_MEASURE) != 0;
    BLEND_ASSIGN(blend::MachineProfile profile,
                 blend::MachineProfile::open(
                     loaded, path == nullptr ? "" : path, timed,
                     blend::capi::make_watch(o.cancel, o.progress, o.progress_user)));
    const int32_t code = profile.kept() ? BLEND_EXISTS : BLEND_OK;
    *out = new blend_machine{loaded, std::move(profile)};
    return code;
  });
}

void blend_machine_close(blend_machine* machine) { delete machine; }

int32_t blend_machine_get_info(const blend_machine* machine, blend_machine_info* info,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(machine);
    blend_machine_info values{};
    values.n_threads = machine->profile.key().n_threads;
    values.n_points = machine->profile.prefill().points().size();
    values.measured_unix_s = machine->profile.measured_unix_s();
    values.cpu = machine->profile.key().cpu.c_str();
    return blend::capi::write_struct(info, values);
  });
}

int32_t blend_machine_get_point(const blend_machine* machine, uint64_t point, uint64_t* n_tokens,
                                uint64_t* prefill_ns, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(machine);
    BLEND_REQUIRE(n_tokens);
    BLEND_REQUIRE(prefill_ns);
    const auto& points = machine->profile.prefill().points();
    if (point >= points.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "point %llu: %zu lengths were measured",
                               static_cast<unsigned long long>(point), points.size());
    }
    *n_tokens = points[point].n_tokens;
    *prefill_ns = points[point].ns;
    return Status::ok();
  });
}

int32_t blend_machine_get_recompute_ns(const blend_machine* machine, uint64_t n_tokens,
                                       double ratio, uint64_t* ns, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(machine);
    BLEND_REQUIRE(ns);
    BLEND_RETURN_IF_ERROR(check_ratio(ratio));
    *ns = nanoseconds(ratio * machine->profile.prefill().seconds(n_tokens));
    return Status::ok();
  });
}

int32_t blend_advise_options_init(blend_advise_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_advise_options());
}

int32_t blend_machine_advise(const blend_machine* machine, const blend_storage* storages,
                             size_t n_storages, const blend_advise_options* options,
                             blend_advice* advice, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(machine);
    if (n_storages == 0) return {BLEND_E_INVALID_ARGUMENT, "there are no storages to choose from"};
    BLEND_REQUIRE(storages);
    BLEND_REQUIRE(advice);
    blend_advise_options o = default_advise_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    BLEND_ASSIGN(const blend::AdvisedPrompt prompt, advised_prompt(o, *machine));
    BLEND_ASSIGN(const std::vector<blend::Storage> list, read_storages(storages, n_storages));
    BLEND_RETURN_IF_ERROR(blend::capi::check_elements(advice, n_storages, "advice"));
    const blend::Advice advised = blend::advise(prompt, o.ratio, list);
    for (size_t i = 0; i < n_storages; ++i) {
      const blend::StorageAdvice& a = advised.storages[i];
      blend_advice values{};
      values.flags = (a.hides ? BLEND_ADVICE_NO_DELAY : 0u) |
                     (advised.cheapest == i ? BLEND_ADVICE_CHEAPEST : 0u) |
                     (a.slower_than_prefill ? BLEND_ADVICE_SLOWER_THAN_PREFILL : 0u);
      values.load_ns = nanoseconds(a.load_s);
      values.recompute_ns = nanoseconds(advised.recompute_s);
      values.hidden_ratio = a.hidden_ratio;
      values.ratio = a.ratio;
      values.cost_per_hour = a.cost_per_hour;
      values.load_bytes = prompt.load_bytes();
      BLEND_RETURN_IF_ERROR(blend::capi::write_struct(blend::capi::element(advice, i), values));
    }
    return Status::ok();
  });
}

}  // extern "C"
