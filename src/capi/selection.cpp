#include "capi/selection.h"

#include "capi/error.h"
#include "capi/fuse_call.h"
#include "capi/structs.h"

namespace blend::capi {
namespace {

// A length that no array can have is not followed.
constexpr size_t kMostElements = 1 << 16;

Result<Schedule> read_check_layers(const blend_check_layer* in, size_t n) {
  Schedule out;
  if (n == 0) return out;
  if (in == nullptr) return null_argument("check_layers");
  if (n > kMostElements) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "n_check_layers %zu is more than %zu", n,
                      kMostElements);
  }
  for (size_t i = 0; i < n; ++i) out.push_back({in[i].layer, in[i].ratio});
  return out;
}

Result<std::vector<PolicyTerm>> read_terms(const blend_policy_term* in, size_t n) {
  std::vector<PolicyTerm> out;
  if (n == 0) return out;
  if (in == nullptr) return null_argument("terms");
  if (n > kMostElements) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "n_terms %zu is more than %zu", n, kMostElements);
  }
  for (size_t i = 0; i < n; ++i) {
    BLEND_RETURN_IF_ERROR(check_choice("terms[].policy", in[i].policy, kLastPolicy));
    out.push_back({static_cast<Policy>(in[i].policy), in[i].share});
  }
  return out;
}

Result<blend_selection_options> read_struct_of(const blend_selection_options* selection) {
  blend_selection_options o{};
  BLEND_RETURN_IF_ERROR(read_struct(selection, o));
  return o;
}

}  // namespace

Status check_metric(uint32_t metric) {
  if (RowMetric::is_code(metric)) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "metric %u is not a BLEND_METRIC_ value", metric);
}

Status read_selection(const blend_selection_options* selection, const Profile* profile,
                      FuseOptions& out) {
  BLEND_ASSIGN(const blend_selection_options o, read_struct_of(selection));
  if (o.metric != BLEND_METRIC_AUTO) BLEND_RETURN_IF_ERROR(check_metric(o.metric));
  if (o.norm > BLEND_NORM_L1) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "norm %u is not one of 0 .. %u", o.norm,
                      BLEND_NORM_L1);
  }
  if (o.relative > 1) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "relative %u must be 0 or 1", o.relative);
  }
  RowMetric metric = out.metric();
  if (o.metric != BLEND_METRIC_AUTO) {
    metric = RowMetric::from_code(o.metric);
  } else if (profile != nullptr) {
    metric = RowMetric::from_code(profile->metric);
  }
  out.deviation.metric = metric.of;
  out.weighed = metric.weighed;
  out.deviation.norm = static_cast<DeviationNorm>(o.norm);
  out.deviation.relative = o.relative != 0;
  if (o.check_layer != 0) {
    out.check_layer = o.check_layer;
  } else if (profile != nullptr) {
    out.check_layer = profile->check_layer;
  }
  out.seed = o.seed;
  if (o.ape_temperature != 0) out.ape_temperature = o.ape_temperature;
  if (o.ape_scale != 0) out.ape_scale = o.ape_scale;
  BLEND_ASSIGN(out.check_layers, read_check_layers(o.check_layers, o.n_check_layers));
  BLEND_ASSIGN(out.terms, read_terms(o.terms, o.n_terms));
  if (o.score != nullptr) {
    out.score = [fn = o.score, user = o.score_user](uint32_t layer, std::span<const uint32_t> rows,
                                                    std::span<const float> deviation,
                                                    std::span<float> scores) {
      return fn(user, layer, rows.data(), deviation.data(), rows.size(), scores.data());
    };
  }
  return Status::ok();
}

Result<DriftUse> read_correction(const blend_selection_options* selection) {
  BLEND_ASSIGN(const blend_selection_options o, read_struct_of(selection));
  if (o.correction <= BLEND_CORRECTION_SHIFT) return static_cast<DriftUse>(o.correction);
  return make_error(BLEND_E_INVALID_ARGUMENT, "correction %u is not one of 0 .. %u", o.correction,
                    BLEND_CORRECTION_SHIFT);
}

}  // namespace blend::capi

extern "C" {

int32_t blend_selection_options_init(blend_selection_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

}  // extern "C"
