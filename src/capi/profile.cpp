// A profile: opened, looked at, and put into the options of a fuse.
#include "profile/profile.h"

#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/log.h"
#include "capi/measurement.h"
#include "capi/structs.h"
#include "fusion/resolve/trust.h"

using blend::Status;

namespace {

uint32_t drift_inputs_code(const blend::DriftMaps& drift) {
  if (drift.empty()) return 0;
  return BLEND_DRIFT_DEVIATION | (drift.inputs.fresh ? BLEND_DRIFT_FRESH : 0u) |
         (drift.inputs.constant ? BLEND_DRIFT_CONSTANT : 0u);
}

}  // namespace

namespace blend::capi {

blend_measurement describe(const Measurement& m, const std::vector<int32_t>& chunk_prefix) {
  blend_measurement out{};
  out.struct_size = sizeof out;
  out.metric = m.metric;
  out.corrected = m.corrected ? 1 : 0;
  out.ratio = m.ratio;
  out.kl_mean = m.kl_mean;
  out.kl_p95 = m.kl_p95;
  out.top1 = m.top1;
  out.n_positions = m.n_positions;
  out.chunk_prefix = chunk_prefix.data();
  out.n_chunk_prefix = chunk_prefix.size();
  out.policy = m.policy;
  out.check_layer = m.check_layer;
  out.kl_margin = m.kl_margin;
  out.top1_margin = m.top1_margin;
  out.flops = m.flops;
  return out;
}

}  // namespace blend::capi

extern "C" {

int32_t blend_profile_open(blend_profile** out, const blend_model* model, const char* path,
                           blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    auto handle = std::make_unique<blend_profile>();
    BLEND_ASSIGN(handle->model, model->fusible());
    const std::string file = model->profile_path(path);
    BLEND_ASSIGN(handle->profile, blend::read_profile(file));
    blend::Profile& profile = handle->profile;
    const std::string name = "profile '" + file + "'";
    BLEND_RETURN_IF_ERROR(blend::check_profile(profile, *handle->model).with_context(name));
    for (const bool stored : {false, true}) {
      blend::DriftMaps& maps = stored ? profile.stored_drift : profile.drift;
      if (maps.empty()) continue;
      auto drift = blend::Drift::load(handle->model->backend(), maps);
      if (!drift.is_ok()) return drift.status().with_context(name);
      (stored ? handle->stored_drift : handle->drift) = std::move(*drift);
      maps.data = {};
    }
    if (!profile.trusted) blend::capi::tell_untrusted(handle->model->runtime().log(), file);
    *out = handle.release();
    return Status::ok();
  });
}

void blend_profile_close(blend_profile* profile) { delete profile; }

int32_t blend_profile_get_info(const blend_profile* profile, blend_profile_info* info,
                               blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(profile);
    const blend::Profile& p = profile->profile;
    blend_profile_info i{};
    i.trusted = p.trusted ? 1 : 0;
    i.metric = p.metric;
    i.check_layer = p.check_layer;
    i.ratio = p.ratio;
    i.max_kl = p.max_kl;
    i.min_top1 = p.min_top1;
    i.chunk_prefix = p.chunk_prefix().data();
    i.n_chunk_prefix = p.chunk_prefix().size();
    i.corrected = p.corrected ? 1 : 0;
    i.drift_inputs = drift_inputs_code(p.drift);
    i.drift_rank = p.drift.rank;
    i.kv_dtype = blend::capi::kv_dtype_code(p.kv_dtype);
    for (const auto& maps : {profile->drift, profile->stored_drift}) {
      if (maps != nullptr) i.drift_bytes += maps->bytes();
    }
    i.policy = p.policy;
    i.stored_rank = p.stored_drift.empty() ? 0 : p.stored_drift.rank;
    i.ridge = p.drift.ridge;
    i.n_fitted = p.n_fitted;
    i.n_measured = p.n_measured;
    i.n_contexts = p.n_contexts;
    const blend::LayerSteps& steps = p.layer_steps;
    if (!steps.empty()) {
      i.layer_steps = steps.factors.data();
      i.n_layer_steps = steps.factors.size();
      i.steps_kl_alike = steps.kl_alike;
      i.steps_kl_split = steps.kl_split;
      i.steps_gain_margin = steps.gain_margin;
      i.steps_bits_alike = steps.bits_alike;
      i.steps_bits_split = steps.bits_split;
      i.n_steps_measured = steps.n_prompts;
    }
    i.n_measurements = p.table.size();
    std::memcpy(i.fingerprint, p.fingerprint.data(), p.fingerprint.size());
    return blend::capi::write_struct(info, i);
  });
}

int32_t blend_profile_get_measurement(const blend_profile* profile, size_t index,
                                      blend_measurement* measurement, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(profile);
    const blend::Profile& p = profile->profile;
    if (index >= p.table.size()) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "measurement %zu: the profile has %zu",
                               index, p.table.size());
    }
    const blend::Measurement& m = p.table[index];
    return blend::capi::write_struct(measurement, blend::capi::describe(m, p.prefixes[m.prefix]));
  });
}

int32_t blend_profile_get_drift(const blend_profile* profile, uint32_t layer, double* k, double* v,
                                blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(profile);
    BLEND_REQUIRE(k);
    BLEND_REQUIRE(v);
    const blend::DriftMaps& drift = profile->profile.drift;
    if (layer < drift.first_layer || layer - drift.first_layer >= drift.n_maps) {
      return blend::make_error(BLEND_E_NOT_FOUND, "the profile has no drift map for layer %u",
                               layer);
    }
    *k = static_cast<double>(drift.explained_k[layer - drift.first_layer]);
    *v = static_cast<double>(drift.explained_v[layer - drift.first_layer]);
    return Status::ok();
  });
}

int32_t blend_profile_get_codec_cost(const blend_profile* profile, uint32_t codec,
                                     blend_codec_cost* cost, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(profile);
    for (const blend::CodecCost& c : profile->profile.codec_costs) {
      if (c.codec != codec) continue;
      blend_codec_cost out{};
      out.codec = c.codec;
      out.kl = c.kl;
      out.kl_margin = c.kl_margin;
      out.kl_fuse = c.kl_fuse;
      out.bits = c.bits;
      out.n_measured = c.n_prompts;
      return blend::capi::write_struct(cost, out);
    }
    return blend::make_error(BLEND_E_NOT_FOUND, "the profile has no cost of codec %u", codec);
  });
}

int32_t blend_store_set_codec_profile(const blend_store* store, const blend_profile* profile,
                                      blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(store);
    BLEND_REQUIRE(profile);
    const blend::Profile& p = profile->profile;
    return store->store->set_layer_steps(p.fingerprint, p.layer_steps.factors);
  });
}

int32_t blend_profile_apply(const blend_profile* profile, blend_fuse_options* options,
                            blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(profile);
    BLEND_REQUIRE(options);
    BLEND_RETURN_IF_ERROR(blend::capi::check_size<blend_fuse_options>(options->struct_size));
    const blend::Profile& p = profile->profile;
    options->policy = BLEND_POLICY_AUTO;
    options->ratio = p.ratio;
    // A pointer even for no tokens: NULL would be the prompt head.
    static constexpr int32_t kNothing = 0;
    options->chunk_prefix = p.chunk_prefix().empty() ? &kNothing : p.chunk_prefix().data();
    options->n_chunk_prefix = p.chunk_prefix().size();
    options->profile = profile;
    return Status::ok();
  });
}

}  // extern "C"
