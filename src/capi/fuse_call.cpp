#include "capi/fuse_call.h"

#include <algorithm>
#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/selection.h"
#include "capi/structs.h"
#include "fusion/resolve/trust.h"

using blend::Result;
using blend::Segment;
using blend::Status;

namespace {

blend_fuse_options default_fuse_options() {
  const blend::FuseOptions defaults;
  blend_fuse_options o{};
  o.struct_size = sizeof o;
  o.policy = BLEND_POLICY_AUTO;
  o.ratio = BLEND_RATIO_FIDELITY;
  o.on_miss = BLEND_MISS_COMPUTE_STORE;
  o.reserve_tokens = defaults.reserve_tokens;
  return o;
}

Result<blend::RatioRequest> read_ratio(const blend_fuse_options& o) {
  BLEND_ASSIGN(const double agreement, blend::capi::read_agreement_target(o.agreement_target));
  // Without a machine there is nothing to keep to it by.
  const double target_s = o.machine == nullptr ? 0 : static_cast<double>(o.ttft_target_ns) * 1e-9;
  if (o.ratio == BLEND_RATIO_FIDELITY) return blend::RatioRequest::fidelity(agreement, target_s);
  if (o.ratio == BLEND_RATIO_AUTO) return blend::RatioRequest::automatic(target_s);
  return blend::RatioRequest::fixed(o.ratio);
}

// Of an automatic ratio, which alone is chosen by them.
Result<blend::MachineRates> read_machine(const blend_fuse_options& o,
                                         const blend::ModelDescription& model) {
  const bool automatic = o.ratio == BLEND_RATIO_FIDELITY || o.ratio == BLEND_RATIO_AUTO;
  if (!automatic || o.machine == nullptr) return blend::MachineRates{};
  if (o.machine->model->fingerprint() != model.fingerprint()) {
    return Status{BLEND_E_MISMATCH, "machine: it was opened with another model"};
  }
  return blend::MachineRates{&o.machine->profile.prefill(), &o.machine->pace};
}

Result<blend::Calibration> read_calibration(const blend_fuse_options& o,
                                            const blend::ModelDescription& model) {
  if (o.on_untrusted > BLEND_ON_UNTRUSTED_FAIL) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "on_untrusted %u is not one of 0 .. %u",
                             o.on_untrusted, BLEND_ON_UNTRUSTED_FAIL);
  }
  blend::Calibration out;
  BLEND_ASSIGN(out.correction, blend::capi::read_correction(o.selection));
  out.on_untrusted = static_cast<blend::OnUntrusted>(o.on_untrusted);
  if (o.profile == nullptr) return out;
  BLEND_RETURN_IF_ERROR(blend::check_profile(o.profile->profile, model).with_context("profile"));
  if (&o.profile->model->backend() != &model.backend()) {
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "the profile was opened on another context than the model"};
  }
  out.profile = &o.profile->profile;
  out.drift = o.profile->drift;
  out.stored_drift = o.profile->stored_drift;
  return out;
}

Result<blend::FuseOptions> read_options(const blend_fuse_options& o,
                                        const blend::ModelDescription& model) {
  if (o.policy > blend::kLastPolicy) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "policy %u is not one of 0 .. %u", o.policy,
                             blend::kLastPolicy);
  }
  if (o.on_miss > BLEND_MISS_FAIL) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "on_miss %u is not one of 0 .. %u",
                             o.on_miss, BLEND_MISS_FAIL);
  }
  if (o.n_chunk_prefix > 0) BLEND_REQUIRE(o.chunk_prefix);
  BLEND_RETURN_IF_ERROR(model.check_length(o.n_chunk_prefix, "chunk_prefix"));
  blend::FuseOptions out;
  out.policy = static_cast<blend::Policy>(o.policy);
  BLEND_RETURN_IF_ERROR(blend::capi::read_selection(
      o.selection, o.profile == nullptr ? nullptr : &o.profile->profile, out));
  BLEND_ASSIGN(out.ratio, read_ratio(o));
  out.on_miss = static_cast<blend::OnMiss>(o.on_miss);
  out.reserve_tokens = o.reserve_tokens;
  if (o.n_chunk_prefix > 0) {
    out.chunk_prefix.assign(o.chunk_prefix, o.chunk_prefix + o.n_chunk_prefix);
  }
  if (o.tenant != nullptr) out.tenant = o.tenant;
  return out;
}

Result<Segment> read_segment(const blend_segment& in, const blend::ModelDescription& model) {
  BLEND_RETURN_IF_ERROR(blend::capi::check_choice("kind", in.kind, BLEND_SEGMENT_QUESTION));
  Segment out;
  out.kind = static_cast<blend::SegmentKind>(in.kind);
  if (in.n_tokens > 0 && in.tokens == nullptr) return blend::capi::null_argument("tokens");
  BLEND_RETURN_IF_ERROR(model.check_length(in.n_tokens, "tokens"));
  // No tokens at all and an id: known by its id. Otherwise an empty list is a list.
  if (in.n_tokens > 0 || in.id == nullptr) {
    out.tokens.emplace(in.tokens, in.tokens + in.n_tokens);
  }
  if (in.id != nullptr) {
    if (in.kind != BLEND_SEGMENT_CHUNK) {
      return Status{BLEND_E_INVALID_ARGUMENT, "only a chunk segment may have an id"};
    }
    out.id.emplace();
    std::memcpy(out.id->data(), in.id->bytes, out.id->size());
  }
  return out;
}

}  // namespace

namespace blend::capi {

Status check_choice(const char* name, uint32_t value, uint32_t last) {
  if (value >= 1 && value <= last) return Status::ok();
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "%s %u is not one of 1 .. %u", name, value,
                           last);
}

Result<double> read_agreement_target(double target) {
  if (target == 0) return kUsualTarget;
  if (target >= kLeastTarget && target <= kMostTarget) return target;
  return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                           "agreement_target %g must lie in [%g, %g]; 0 is the default, %g", target,
                           kLeastTarget, kMostTarget, kUsualTarget);
}

Result<std::vector<Segment>> read_segments(const blend_segment* segments, size_t n,
                                           const blend::ModelDescription& model) {
  std::vector<Segment> out;
  BLEND_RETURN_IF_ERROR(check_elements(segments, n, "segment"));
  for (size_t i = 0; i < n; ++i) {
    const std::string name = "segment " + std::to_string(i);
    blend_segment copy{};
    if (Status s = read_struct(element(segments, i), copy); !s.is_ok()) return s.with_context(name);
    auto segment = read_segment(copy, model);
    if (!segment.is_ok()) return segment.status().with_context(name);
    out.push_back(std::move(*segment));
  }
  return out;
}

Result<FuseCall> read_fuse_call(const ModelDescription& model, const blend_store* store,
                                const blend_segment* segments, size_t n_segments,
                                const blend_fuse_options* options, const CallKind& kind) {
  if (n_segments > 0) BLEND_REQUIRE(segments);
  blend_fuse_options o = default_fuse_options();
  BLEND_RETURN_IF_ERROR(read_struct(options, o));
  FuseCall call;
  FuseRequest& request = call.job.request;
  BLEND_ASSIGN(request.options, read_options(o, model));
  BLEND_ASSIGN(call.job.machine, read_machine(o, model));
  BLEND_ASSIGN(request.segments, read_segments(segments, n_segments, model));
  if (o.chunk_prefix == nullptr) {
    request.options.after_head = true;
    request.options.chunk_prefix =
        kind.chunk_prefix != nullptr ? *kind.chunk_prefix : prompt_head(request.segments);
  }
  request.watch = make_watch(o.cancel, o.progress, o.progress_user);
  if (store != nullptr) {
    call.store.store = store->store.get();
    call.store.read_only = store->read_only;
    call.store.reads = store->reads.get();
    call.store.later = store->later.get();
    call.store.fidelity = &store->checks->book();
    call.store.kv_dtype = resolve_kv_dtype(*store, model);
  }
  BLEND_RETURN_IF_ERROR(check_count("n_threads", o.n_threads));
  call.n_threads = o.n_threads;
  BLEND_ASSIGN(request.options.calibration, read_calibration(o, model));
  const Model* const loaded = model.loaded();
  const bool computes = loaded != nullptr && !kind.steps;
  const FuseSite site{.n_layers = model.config().n_kept(),
                      .mixer = model.config().mixer,
                      .has_store = store != nullptr,
                      .steps = kind.steps,
                      .loaded = loaded != nullptr,
                      .free_rows = computes ? loaded->backend().traits().free_rows : 0};
  BLEND_ASSIGN(call.job.fuse, resolve(request, site));
  return call;
}

}  // namespace blend::capi

extern "C" {

int32_t blend_fuse_options_init(blend_fuse_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_fuse_options());
}

}  // extern "C"
