#include "fusion/resolve/trust.h"

#include "fusion/prompt/record_kind.h"
#include "fusion/resolve/resolve.h"

namespace blend {
namespace {

// Whether calibration measures such a fuse: one check layer and, if the policy ranks by deviations,
// those of the paper.
bool measured_kind(const FuseOptions& o, Policy of) {
  const PolicyEntry& policy = policy_entry(of);
  if (!o.check_layers.empty() || !policy.has(policy_table::kCalibrated)) return false;
  return !policy.needs.deviation ||
         (o.deviation.norm == DeviationNorm::l2 && !o.deviation.relative);
}

// The kind of this fuse; nothing for one that calibration does not measure.
std::optional<FusingKind> kind_of(const Profile& p, const FuseOptions& o, const ResolvedFuse& f) {
  const std::optional<uint32_t> prefix = prefix_index(p, o.chunk_prefix);
  if (!measured_kind(o, f.policy) || !prefix.has_value()) return std::nullopt;
  const auto policy = static_cast<uint32_t>(f.policy);
  if (!policy_entry(f.policy).needs.deviation) {
    return FusingKind{*prefix, policy, kAttentionMetric.code(), p.check_layer, false};
  }
  // The cascade always weighs.
  const RowMetric metric = {o.deviation.metric, o.weighed || f.policy == Policy::cascade};
  return FusingKind{*prefix, policy, metric.code(), o.check_layer, f.drift != nullptr};
}

// The least ratio at which the fuse keeps the limits; 1 if none does; nothing for a kind that was
// not measured.
std::optional<double> least_ratio_of(const Profile& p, const FuseOptions& o,
                                     const ResolvedFuse& f) {
  const std::optional<FusingKind> kind = kind_of(p, o, f);
  return kind.has_value() ? least_ratio(p, *kind) : std::nullopt;
}

bool kept_at(const Profile& p, const FuseOptions& o, const ResolvedFuse& f, double ratio) {
  const std::optional<FusingKind> kind = kind_of(p, o, f);
  return kind.has_value() && vouches(p, *kind, ratio);
}

Status use_drift(const FuseOptions& o, ResolvedFuse& out) {
  const Calibration& c = o.calibration;
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
    out.drift = c.drift;
    // These maps can be judged only if the rows that matter are recomputed, otherwise they do harm
    // (docs/research/2026-11-policies-small-models.md). So without the host's order they are used
    // only with the policy with which calibration measures them.
    if (must || out.policy == Policy::cascade) out.stored_drift = c.stored_drift;
    out.drift_guarded = c.correction != DriftUse::unguarded;
  }
  return Status::ok();
}

}  // namespace

Result<ResolvedFuse> judge_records(const FuseOptions& o, const ResolvedFuse& fuse,
                                   const Prompt& prompt) {
  const Profile* const profile = o.calibration.profile;
  if (profile == nullptr || fuse.trust != Trust::vouched || fuse.ratio >= 1 ||
      profile->n_contexts == 0 || worst_record(prompt.segments) <= RecordUse::contextual) {
    return fuse;
  }
  switch (o.calibration.on_untrusted) {
    case OnUntrusted::fail:
      return Status{
          BLEND_E_UNTRUSTED,
          "the profile measured chunks in the context of others, and this prompt has one that is "
          "stored without: store it with its corpus, calibrate with n_contexts 0, "
          "or prefill in full (BLEND_ON_UNTRUSTED_FULL)"};
    case OnUntrusted::full:
      return full_instead(fuse);
    case OnUntrusted::fuse:
      break;
  }
  ResolvedFuse doubted = fuse;
  doubted.trust = Trust::doubted;
  return doubted;
}

Status drift_doubt(double share) {
  return make_error(
      BLEND_E_UNTRUSTED,
      "the profile's drift maps do not fit this prompt: the recomputed rows confirm a share of "
      "%.2f of their predictions, less than %g: calibrate on text like this, fuse with "
      "BLEND_CORRECTION_OFF, or prefill in full (BLEND_ON_UNTRUSTED_FULL)",
      share, kLeastDriftShare);
}

Status check_profile(const Profile& profile, const ModelDescription& model) {
  const ModelConfig& c = model.config();
  if ((c.mixer.any() || c.attends_unlike()) &&
      !(profile.drift.empty() && profile.stored_drift.empty())) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the profile has drift maps, which are of K and V of one width in every "
                      "layer, and those of this %s are not: calibrate this model",
                      c.architecture.c_str());
  }
  if (profile.fingerprint == model.fingerprint() && profile.n_layers == c.n_kept() &&
      profile.kv_dim == c.kv_dim()) {
    return model.check_tokens(profile.chunk_prefix(), "the profile's chunk prefix");
  }
  return make_error(BLEND_E_MISMATCH,
                    "the profile is of model %s, this one is %s: calibrate this model",
                    to_hex(profile.fingerprint).substr(0, 16).c_str(),
                    to_hex(model.fingerprint()).substr(0, 16).c_str());
}

Trust trust_in(const Profile& profile, const FuseOptions& o, const ResolvedFuse& fuse) {
  if (fuse.policy == Policy::full) return Trust::unknown;
  const bool vouched = kept_at(profile, o, fuse, fuse.ratio);
  return vouched ? Trust::vouched : Trust::doubted;
}

Status doubt_of(const Profile& profile, const FuseOptions& o, const ResolvedFuse& fuse) {
  const std::optional<double> least = least_ratio_of(profile, o, fuse);
  if (!least.has_value()) {
    return {BLEND_E_UNTRUSTED,
            "the profile did not measure fusing with this policy, metric, norm, check layer, chunk "
            "prefix and correction: fuse as the profile says (blend_profile_apply), calibrate this "
            "way of "
            "fusing, or prefill in full (BLEND_ON_UNTRUSTED_FULL)"};
  }
  if (!kept_at(profile, o, fuse, 1.0)) {
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
      fuse.ratio, *least, profile.max_kl, profile.min_top1);
}

Status calibrate(const FuseOptions& o, ResolvedFuse& fuse) {
  const Calibration& c = o.calibration;
  if (c.profile == nullptr) {
    fuse.drift = c.drift;
    fuse.stored_drift = c.stored_drift;
    if (c.correction != DriftUse::on && c.correction != DriftUse::unguarded) return Status::ok();
    return {BLEND_E_INVALID_ARGUMENT,
            "BLEND_CORRECTION_ON and BLEND_CORRECTION_UNGUARDED need a profile"};
  }
  BLEND_RETURN_IF_ERROR(use_drift(o, fuse));
  // The controller's r* is that of calibration, if it measured this kind of fusing.
  const std::optional<double> least = least_ratio_of(*c.profile, o, fuse);
  if (least.has_value() && o.ratio.is_automatic) fuse.ratio = fuse.least_ratio = *least;
  fuse.trust = trust_in(*c.profile, o, fuse);
  const bool refused = fuse.trust == Trust::doubted && c.on_untrusted == OnUntrusted::fail;
  return refused ? doubt_of(*c.profile, o, fuse) : Status::ok();
}

uint32_t trust_flags(Trust trust, bool chooses) {
  if (trust == Trust::doubted) return BLEND_FUSION_UNTRUSTED;
  return trust == Trust::unknown && chooses ? BLEND_FUSION_UNCALIBRATED : 0;
}

}  // namespace blend
