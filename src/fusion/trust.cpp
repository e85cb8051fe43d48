#include "fusion/trust.h"

namespace blend {
namespace {

// What calibration measures: one check layer, and deviations, where the policy ranks by them, as
// the paper has them.
bool measured_kind(const FuseOptions& o) {
  const PolicyEntry& policy = policy_entry(o.policy);
  if (!o.check_layers.empty() || !policy.has(policy_table::kCalibrated)) return false;
  return !policy.needs.deviation ||
         (o.deviation.norm == DeviationNorm::l2 && !o.deviation.relative);
}

// This kind of fusing; nothing for one that calibration does not measure.
std::optional<FusingKind> kind_of(const Profile& p, const FuseOptions& o) {
  const std::optional<uint32_t> prefix = prefix_index(p, o.chunk_prefix);
  if (!measured_kind(o) || !prefix.has_value()) return std::nullopt;
  if (o.policy == Policy::attention) {
    return FusingKind{*prefix, static_cast<uint32_t>(o.policy), kAttentionMetric.code(),
                      p.check_layer, false};
  }
  // The cascade weighs by itself.
  const RowMetric metric = {o.deviation.metric, o.weighed || o.policy == Policy::cascade};
  return FusingKind{*prefix, static_cast<uint32_t>(o.policy), metric.code(), o.check_layer,
                    o.drift != nullptr};
}

// The least ratio at which it keeps the limits; 1 when none does, nothing for a kind that was not
// measured.
std::optional<double> least_ratio_of(const Profile& p, const FuseOptions& o) {
  const std::optional<FusingKind> kind = kind_of(p, o);
  return kind.has_value() ? least_ratio(p, *kind) : std::nullopt;
}

bool kept_at(const Profile& p, const FuseOptions& o, double ratio) {
  const std::optional<FusingKind> kind = kind_of(p, o);
  return kind.has_value() && vouches(p, *kind, ratio);
}

Status use_drift(const Calibration& c, FuseOptions& o) {
  const bool must = c.correction == DriftUse::on || c.correction == DriftUse::unguarded;
  if (must && c.drift == nullptr) {
    return {BLEND_E_INVALID_ARGUMENT,
            "the profile has no drift maps: calibrate with them, or leave the correction AUTO"};
  }
  const Profile& p = *c.profile;
  const uint32_t first_check =
      o.check_layers.empty() ? o.check_layer : o.check_layers.front().layer;
  const bool fits = first_check == p.check_layer && o.chunk_prefix == p.chunk_prefix();
  if (must && !fits) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "the drift maps are of check layer %u and a chunk prefix of %zu "
                      "tokens, the profile's; this fuse has others",
                      p.check_layer, p.chunk_prefix().size());
  }
  if (fits && (must || (p.corrected && c.correction == DriftUse::automatic))) {
    o.drift = c.drift;
    // Where the rows that matter are not recomputed nobody can judge these maps, and they do harm
    // (docs/research/2026-11-policies-small-models.md): on their own only with the policy that
    // calibration measures them with.
    if (must || o.policy == Policy::cascade) o.stored_drift = c.stored_drift;
    o.drift_required = must;
    o.drift_guarded = c.correction != DriftUse::unguarded;
  }
  return Status::ok();
}

}  // namespace

void make_full(FuseOptions& o) {
  o.policy = Policy::full;
  o.check_layers.clear();
  o.terms.clear();
  o.drift.reset();
  o.stored_drift.reset();
  o.drift_required = false;
  o.trust = Trust::unknown;
}

Status drift_doubt(double share) {
  return make_error(
      BLEND_E_UNTRUSTED,
      "the profile's drift maps do not hold for this prompt: of what they foretold of "
      "the recomputed rows a share of %.2f is there, less than %g: calibrate on text "
      "like this, fuse with BLEND_CORRECTION_OFF, or prefill in full "
      "(BLEND_ON_UNTRUSTED_FULL)",
      share, kLeastDriftShare);
}

Status check_profile(const Profile& profile, const ModelDescription& model) {
  const ModelConfig& c = model.config();
  if (profile.fingerprint == model.fingerprint() && profile.n_layers == c.n_layers &&
      profile.kv_dim == c.kv_dim()) {
    return model.check_tokens(profile.chunk_prefix(), "the profile's chunk prefix");
  }
  return make_error(BLEND_E_MISMATCH,
                    "the profile is of model %s, this one is %s: calibrate this model",
                    to_hex(profile.fingerprint).substr(0, 16).c_str(),
                    to_hex(model.fingerprint()).substr(0, 16).c_str());
}

Trust trust_in(const Profile& profile, const FuseOptions& o) {
  if (o.policy == Policy::full) return Trust::unknown;
  const bool vouched = kept_at(profile, o, o.ratio.ratio());
  return vouched ? Trust::vouched : Trust::doubted;
}

Status doubt_of(const Profile& profile, const FuseOptions& o) {
  const std::optional<double> least = least_ratio_of(profile, o);
  if (!least.has_value()) {
    return {BLEND_E_UNTRUSTED,
            "the profile did not measure fusing with this policy, metric, norm, check layer, chunk "
            "prefix and correction: fuse as the profile says (blend_profile_apply), calibrate this "
            "way of "
            "fusing, or prefill in full (BLEND_ON_UNTRUSTED_FULL)"};
  }
  if (!kept_at(profile, o, 1.0)) {
    return make_error(BLEND_E_UNTRUSTED,
                      "no measured ratio kept the profile's limits, mean KL %g and top-1 %g: "
                      "calibrate with more ratios or other limits, or prefill in full "
                      "(BLEND_ON_UNTRUSTED_FULL)",
                      profile.max_kl, profile.min_top1);
  }
  return make_error(
      BLEND_E_UNTRUSTED,
      "ratio %g is below %g, from which on the profile's limits, mean KL %g and top-1 "
      "%g, were kept: raise it, or prefill in full (BLEND_ON_UNTRUSTED_FULL)",
      o.ratio.ratio(), *least, profile.max_kl, profile.min_top1);
}

Status apply_calibration(const Calibration& c, FuseOptions& o) {
  if (c.profile == nullptr) {
    if (c.correction == DriftUse::automatic || c.correction == DriftUse::off) return Status::ok();
    return {BLEND_E_INVALID_ARGUMENT,
            "BLEND_CORRECTION_ON and BLEND_CORRECTION_UNGUARDED need a profile"};
  }
  o.on_untrusted = c.on_untrusted;
  BLEND_RETURN_IF_ERROR(use_drift(c, o));
  // The controller's r*: calibration's, where it measured this kind of fusing.
  if (const auto least = least_ratio_of(*c.profile, o)) o.ratio.begin_at(*least);
  o.trust = trust_in(*c.profile, o);
  if (o.trust != Trust::doubted) return Status::ok();
  if (c.on_untrusted == OnUntrusted::fail) return doubt_of(*c.profile, o);
  if (c.on_untrusted == OnUntrusted::full) make_full(o);
  return Status::ok();
}

uint32_t trust_flags(Trust trust, bool chooses) {
  if (trust == Trust::doubted) return BLEND_FUSION_UNTRUSTED;
  return trust == Trust::unknown && chooses ? BLEND_FUSION_UNCALIBRATED : 0;
}

}  // namespace blend
