#include "capi/fuse_request.h"

#include <algorithm>
#include <cstring>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Result;
using blend::Segment;
using blend::Status;

namespace {

blend_segment default_segment() {
  blend_segment s{};
  s.struct_size = sizeof s;
  s.kind = BLEND_SEGMENT_TEXT;
  return s;
}

blend_fuse_options default_fuse_options() {
  const blend::FuseOptions defaults;
  blend_fuse_options o{};
  o.struct_size = sizeof o;
  o.policy = static_cast<uint32_t>(defaults.policy);
  o.metric = static_cast<uint32_t>(defaults.deviation.metric);
  o.norm = static_cast<uint32_t>(defaults.deviation.norm);
  o.check_layer = defaults.check_layer;
  o.ratio = defaults.ratio;
  o.on_miss = static_cast<uint32_t>(defaults.on_miss);
  o.reserve_tokens = defaults.reserve_tokens;
  o.ape_temperature = defaults.ape_temperature;
  o.ape_scale = defaults.ape_scale;
  return o;
}

// A length that no array can have is not followed.
constexpr size_t kMaxCheckLayers = 1 << 16;
constexpr size_t kMaxTerms = 1 << 16;

Result<blend::Schedule> read_check_layers(const blend_check_layer* in, size_t n) {
  blend::Schedule out;
  if (n == 0) return out;
  if (in == nullptr) return blend::capi::null_argument("check_layers");
  if (n > kMaxCheckLayers) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_check_layers %zu is more than %zu", n,
                             kMaxCheckLayers);
  }
  for (size_t i = 0; i < n; ++i) {
    BLEND_RETURN_IF_ERROR(blend::capi::check_reserved("check_layers[].reserved0", in[i].reserved0));
    out.push_back({in[i].layer, in[i].ratio});
  }
  return out;
}

Result<std::vector<blend::PolicyTerm>> read_terms(const blend_policy_term* in, size_t n) {
  std::vector<blend::PolicyTerm> out;
  if (n == 0) return out;
  if (in == nullptr) return blend::capi::null_argument("terms");
  if (n > kMaxTerms) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "n_terms %zu is more than %zu", n,
                             kMaxTerms);
  }
  for (size_t i = 0; i < n; ++i) {
    BLEND_RETURN_IF_ERROR(blend::capi::check_reserved("terms[].reserved0", in[i].reserved0));
    BLEND_RETURN_IF_ERROR(
        blend::capi::check_choice("terms[].policy", in[i].policy, BLEND_POLICY_APE));
    out.push_back({static_cast<blend::Policy>(in[i].policy), in[i].share});
  }
  return out;
}

Result<blend::FuseOptions> read_options(const blend_fuse_options& o,
                                        const blend::ModelDescription& model) {
  BLEND_RETURN_IF_ERROR(blend::capi::check_choice("policy", o.policy, BLEND_POLICY_APE));
  BLEND_RETURN_IF_ERROR(blend::capi::check_metric(o.metric));
  BLEND_RETURN_IF_ERROR(blend::capi::check_choice("norm", o.norm, BLEND_NORM_L1));
  BLEND_RETURN_IF_ERROR(blend::capi::check_choice("on_miss", o.on_miss, BLEND_MISS_COMPUTE_STORE));
  if (o.relative > 1) {
    return blend::make_error(BLEND_E_INVALID_ARGUMENT, "relative %u must be 0 or 1", o.relative);
  }
  if (o.n_chunk_prefix > 0) BLEND_REQUIRE(o.chunk_prefix);
  BLEND_RETURN_IF_ERROR(model.check_length(o.n_chunk_prefix, "chunk_prefix"));
  blend::FuseOptions out;
  out.policy = static_cast<blend::Policy>(o.policy);
  const blend::RowMetric metric = blend::RowMetric::from_code(o.metric);
  out.deviation.metric = metric.of;
  out.weighed = metric.weighed;
  out.deviation.norm = static_cast<blend::DeviationNorm>(o.norm);
  out.deviation.relative = o.relative != 0;
  out.check_layer = o.check_layer;
  if (o.ratio == BLEND_RATIO_AUTO) {
    if (o.machine != nullptr) {
      if (o.machine->model->fingerprint() != model.fingerprint()) {
        return Status{BLEND_E_MISMATCH, "machine: it was opened with another model"};
      }
      out.auto_ratio = &o.machine->profile.prefill();
    }
  } else {
    out.ratio = o.ratio;
  }
  out.seed = o.seed;
  out.ape_temperature = o.ape_temperature;
  out.ape_scale = o.ape_scale;
  BLEND_ASSIGN(out.check_layers, read_check_layers(o.check_layers, o.n_check_layers));
  BLEND_ASSIGN(out.terms, read_terms(o.terms, o.n_terms));
  if (o.score != nullptr) {
    out.score = [fn = o.score, user = o.score_user](uint32_t layer, std::span<const uint32_t> rows,
                                                    std::span<const float> deviation,
                                                    std::span<float> scores) {
      return fn(user, layer, rows.data(), deviation.data(), rows.size(), scores.data());
    };
  }
  out.on_miss = static_cast<blend::OnMiss>(o.on_miss);
  out.reserve_tokens = o.reserve_tokens;
  if (o.n_chunk_prefix > 0)
    out.chunk_prefix.assign(o.chunk_prefix, o.chunk_prefix + o.n_chunk_prefix);
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

Status check_metric(uint32_t metric) {
  if (blend::RowMetric::is_code(metric)) return Status::ok();
  return blend::make_error(BLEND_E_INVALID_ARGUMENT, "metric %u is not a BLEND_METRIC_ value",
                           metric);
}

Result<std::vector<Segment>> read_segments(const blend_segment* segments, size_t n,
                                           const blend::ModelDescription& model) {
  std::vector<Segment> out;
  const auto* at = reinterpret_cast<const unsigned char*>(segments);
  for (size_t i = 0; i < n; ++i) {
    const auto* in = reinterpret_cast<const blend_segment*>(at);
    const std::string name = "segment " + std::to_string(i);
    if (in->struct_size != segments->struct_size) {
      return Status{BLEND_E_INVALID_STRUCT,
                    name +
                        ": struct_size differs from the first segment's; call "
                        "blend_segment_init on each"};
    }
    blend_segment copy = default_segment();
    if (Status s = blend::capi::read_struct(in, copy); !s.is_ok()) return s.with_context(name);
    auto segment = read_segment(copy, model);
    if (!segment.is_ok()) return segment.status().with_context(name);
    out.push_back(std::move(*segment));
    at += segments->struct_size;
  }
  return out;
}

Result<FuseRequest> read_fuse_request(const ModelDescription& model, const blend_store* store,
                                      const blend_segment* segments, size_t n_segments,
                                      const blend_fuse_options* options) {
  if (n_segments > 0) BLEND_REQUIRE(segments);
  blend_fuse_options o = default_fuse_options();
  BLEND_RETURN_IF_ERROR(read_struct(options, o));
  FuseRequest request;
  BLEND_ASSIGN(request.options, read_options(o, model));
  BLEND_ASSIGN(request.segments, read_segments(segments, n_segments, model));
  if (store != nullptr) {
    request.store.store = store->store.get();
    request.store.read_only = store->read_only;
    request.store.reads = store->reads.get();
    request.store.later = store->later.get();
    request.store.kv_dtype = resolve_kv_dtype(*store, model);
  }
  if (o.correction > BLEND_CORRECTION_ON) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "correction %u is not one of 0 .. %u", o.correction,
                      BLEND_CORRECTION_ON);
  }
  request.profile = o.profile;
  request.correction = o.correction;
  request.auto_ratio = o.ratio == BLEND_RATIO_AUTO;
  request.n_threads = o.n_threads;
  request.watch = make_watch(o.cancel, o.progress, o.progress_user);
  return request;
}

}  // namespace blend::capi

extern "C" {

int32_t blend_segment_init(blend_segment* segment, size_t struct_size) {
  return blend::capi::init_struct(segment, struct_size, default_segment());
}

int32_t blend_fuse_options_init(blend_fuse_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_fuse_options());
}

}  // extern "C"
