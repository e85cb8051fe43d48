#include "fusion/resolve/resolve.h"

#include <algorithm>

#include "fusion/policy/policy.h"
#include "fusion/prompt/prompt.h"
#include "fusion/resolve/auto_ratio.h"
#include "fusion/resolve/trust.h"
#include "model/config.h"

namespace blend {
namespace {

constexpr double kMostTempered = 100;  // far beyond any use

// "BLEND_POLICY_PROBE, ...": the policies that read the question's attention before layer 0.
std::string asking_policies() {
  return policy_list([](const PolicyEntry& e) { return e.needs.probe(); }, " and ",
                     "BLEND_POLICY_");
}

// Share of the reused rows that pass the cascade's first choice; `ratio` of all pass the second.
double let_through(double ratio) { return std::min(1.0, std::max(0.15, 2 * ratio)); }

// Rows are chosen by what K, V and attention say, so where a layer attends.
Status check_attending(const Schedule& schedule, const RowMixer& mixer) {
  for (size_t i = 0; i < schedule.size(); ++i) {
    const uint32_t layer = schedule[i].layer;
    if (layer == 0 || !mixer.has(layer)) continue;
    std::string attending;
    for (uint32_t at = 1; at < mixer.layers.size(); ++at) {
      if (!mixer.has(at)) attending += (attending.empty() ? "" : ", ") + std::to_string(at);
    }
    return make_error(
        BLEND_E_INVALID_ARGUMENT,
        "check_layers %zu: layer %u of this model does not attend; those that do are %s", i, layer,
        attending.c_str());
  }
  return Status::ok();
}

Result<Schedule> schedule_of(const SelectionPolicy* policy, const FuseOptions& options,
                             double ratio, uint32_t n_layers, const RowMixer& mixer) {
  if (policy == nullptr) {
    if (options.check_layers.empty()) return Schedule{};
    return Status{BLEND_E_INVALID_ARGUMENT,
                  "check_layers are given, but the policy chooses no rows at any layer"};
  }
  const bool probes = policy->needs().probe(), measures = !policy->needs().nothing() && !probes;
  if (!options.check_layers.empty()) {
    BLEND_RETURN_IF_ERROR(check_schedule(options.check_layers, measures ? 1 : 0, n_layers));
    if (probes && options.check_layers.front().layer != 0) {
      return Status{BLEND_E_INVALID_ARGUMENT,
                    "check_layers 0: with " + asking_policies() +
                        " the first must be 0, where the question's attention chooses"};
    }
    if (measures || probes) {
      BLEND_RETURN_IF_ERROR(check_attending(options.check_layers, mixer));
    }
    return options.check_layers;
  }
  if (probes && n_layers < 2) {
    return Status{BLEND_E_UNSUPPORTED,
                  asking_policies() +
                      " need a model of two layers or more, and this one has one: choose another "
                      "policy"};
  }
  if (probes && !policy->needs().deviation) {
    return Schedule{{0, ratio}};
  }
  if (!measures && !probes) return Schedule{{0, ratio}};
  // K, V of layer 0 depend on no other row, so there is no deviation to measure. A model of one
  // layer has no later layer to choose rows for: its check layer is the one after the last.
  if (n_layers == 1) return Schedule{{1, ratio}};
  if (options.check_layer < 1 || options.check_layer >= n_layers) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "check_layer %u must lie in 1 .. %u for this model",
                      options.check_layer, n_layers - 1);
  }
  // Where some layers do not attend, the first ones may know nothing of rows far away.
  const uint32_t check_layer = dependent_layer(mixer, n_layers, options.check_layer);
  if (check_layer == n_layers) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "no layer of this model from %u on attends and knows of rows far away, so there "
        "is no deviation to measure: choose a policy that measures none",
        options.check_layer);
  }
  if (probes) {
    return Schedule{{0, let_through(ratio)}, {check_layer, ratio}};
  }
  return Schedule{{check_layer, ratio}};
}

// Errors if the host insists on drift maps that do not apply.
Status check_drift(const ResolvedFuse& o) {
  if (o.drift == nullptr) return Status::ok();
  if (o.needs.asks == Asks::middle) {
    return {BLEND_E_INVALID_ARGUMENT,
            "BLEND_POLICY_ATTENTION reads the rows as they are stored up to the middle layers, so "
            "they are not corrected: leave the correction AUTO or OFF, or choose CASCADE or HKVD"};
  }
  const CheckLayer* const first = first_measured(o.schedule);
  if (first != nullptr && first->layer == o.drift->check_layer()) return Status::ok();
  if (o.stored_drift != nullptr && !o.schedule.empty() && o.schedule.front().layer == 0) {
    return Status::ok();
  }
  return make_error(BLEND_E_INVALID_ARGUMENT,
                    "BLEND_CORRECTION_ON needs a policy whose first check layer is %u, where the "
                    "drift maps were fitted",
                    o.drift->check_layer());
}

// ---- Options by themselves

Status check_tempering(const char* name, double value) {
  if (value > 0.0 && value <= kMostTempered) return Status::ok();  // NaN fails
  return make_error(BLEND_E_INVALID_ARGUMENT, "%s %g must lie in (0, %g]", name, value,
                    kMostTempered);
}

Status check_options(const FuseOptions& o, const ResolvedFuse& fuse, const FuseSite& site) {
  if (!(fuse.ratio >= 0.0 && fuse.ratio <= 1.0)) {  // NaN fails too
    return make_error(BLEND_E_INVALID_ARGUMENT, "ratio %g must lie in [0, 1]", fuse.ratio);
  }
  BLEND_RETURN_IF_ERROR(check_tempering("ape_temperature", o.ape_temperature));
  BLEND_RETURN_IF_ERROR(check_tempering("ape_scale", o.ape_scale));
  const bool reads = fuse.policy != Policy::full;
  if (!site.has_store && reads && fuse.on_miss != OnMiss::compute) {
    return {BLEND_E_INVALID_ARGUMENT,
            "a store is needed unless the policy is BLEND_POLICY_FULL or on_miss is "
            "BLEND_MISS_COMPUTE"};
  }
  if (site.steps && !site.loaded && reads && fuse.on_miss == OnMiss::precompute) {
    return {BLEND_E_INVALID_ARGUMENT,
            "a model that is only described cannot prefill what is missing: set on_miss to "
            "BLEND_MISS_COMPUTE or BLEND_MISS_FAIL"};
  }
  return Status::ok();
}

// The library's own schedule, at another ratio.
Schedule schedule_at(double ratio, Schedule schedule) {
  if (schedule.empty()) return schedule;
  schedule.back().ratio = ratio;
  if (schedule.size() > 1) schedule.front().ratio = let_through(ratio);
  return schedule;
}

// ---- The parts of a fuse

// Whether the device computes all that is asked for in the time of one row. Chunks that are named
// by an id alone have an unknown length here.
bool is_free(const FuseRequest& request, const FuseSite& site) {
  uint64_t n_rows = 0;
  for (const Segment& segment : request.segments) {
    if (!segment.tokens.has_value()) return false;
    n_rows += segment.tokens->size();
  }
  return n_rows <= site.free_rows;
}

// Resolves Policy::automatic: full prefill if that costs nothing; the profile's choice or the
// default; or hkvd if that is not possible.
void choose_policy(const FuseRequest& request, const FuseSite& site, ResolvedFuse& out) {
  const FuseOptions& o = request.options;
  out.policy = o.policy;
  out.why = "the host named it";
  if (o.policy != Policy::automatic) return;
  const std::vector<Segment>& segments = request.segments;
  const bool asks = !segments.empty() && segments.back().kind == SegmentKind::question &&
                    segments.back().tokens.has_value() && !segments.back().tokens->empty();
  if (o.ratio.agreement.has_value() && o.check_layers.empty() && o.on_miss != OnMiss::fail &&
      is_free(request, site)) {
    out.policy = Policy::full;
    out.why = "so short a prompt takes the device no longer in full";
    return;
  }
  const Profile* const profile = o.calibration.profile;
  out.policy = profile == nullptr ? kDefaultPolicy : static_cast<Policy>(profile->policy);
  out.why = profile == nullptr ? "the default" : "the profile chose it";
  if (asks && !site.steps && site.n_layers > 1 && o.check_layers.empty()) return;
  out.policy = Policy::hkvd;
  out.why =
      "the question's attention cannot be read: there is no question, the host runs the layers or "
      "gives check_layers, or the model has one layer";
}

OnMiss on_miss(OnMiss asked, const FuseSite& site) {
  // A layerwise fuse does not have what the host computes, so it cannot store it afterwards.
  if (!site.steps || asked != OnMiss::compute_store) return asked;
  return site.loaded ? OnMiss::precompute : OnMiss::compute;
}

Status choose_ranking(const FuseOptions& o, ResolvedFuse& out) {
  BLEND_ASSIGN(out.ranking, make_selection_policy(out.policy, o));
  out.needs = out.ranking == nullptr ? Needs{} : out.ranking->needs();
  out.tempers = tempers(out.policy, o);
  out.own_schedule = !o.check_layers.empty();
  BLEND_ASSIGN(out.schedule, schedule_of(out.ranking.get(), o, out.ratio, out.n_layers, out.mixer));
  const DriftUse use = o.calibration.correction;
  // Where rows are chosen by what they moved by, their mean says little about the others.
  out.shifts =
      out.needs.asks == Asks::middle && (use == DriftUse::automatic || use == DriftUse::shift);
  const bool must = use == DriftUse::on || use == DriftUse::unguarded;
  return must ? check_drift(out) : Status::ok();
}

}  // namespace

Result<ResolvedFuse> resolve(const FuseRequest& request, const FuseSite& site) {
  const FuseOptions& o = request.options;
  ResolvedFuse out;
  out.n_layers = site.n_layers;
  out.mixer = site.mixer;
  out.ratio = o.ratio.begin;
  out.on_miss = on_miss(o.on_miss, site);
  choose_policy(request, site, out);
  BLEND_RETURN_IF_ERROR(calibrate(o, out));
  const bool in_full =
      out.trust == Trust::doubted && o.calibration.on_untrusted == OnUntrusted::full;
  if (in_full) out = full_instead(out);
  BLEND_RETURN_IF_ERROR(check_options(o, out, site));
  if (!in_full) BLEND_RETURN_IF_ERROR(choose_ranking(o, out));
  return out;
}

bool must_fall_back(const ResolvedFuse& fuse, const FuseRequest& request, const Prompt& prompt) {
  if (request.options.policy != Policy::automatic || fuse.policy != Policy::cascade) return false;
  return std::any_of(prompt.segments.begin(), prompt.segments.end(),
                     [](const PromptSegment& s) { return s.stale() && !s.has_impact(); });
}

Result<ResolvedFuse> fall_back(const ResolvedFuse& fuse, const FuseRequest& request) {
  ResolvedFuse out = fuse;
  out.policy = Policy::hkvd;
  out.why = "a chunk lacks the statistics that the cascade reads";
  out.stored_drift.reset();
  // The profile trusted another way of fusing.
  if (out.trust == Trust::vouched) out.trust = Trust::doubted;
  BLEND_RETURN_IF_ERROR(choose_ranking(request.options, out));
  return out;
}

ResolvedFuse full_instead(const ResolvedFuse& fuse) {
  ResolvedFuse out;
  out.policy = Policy::full;
  out.why = "what it would approximate is in doubt";
  out.n_layers = fuse.n_layers;
  out.mixer = fuse.mixer;
  out.ratio = fuse.ratio;
  out.least_ratio = fuse.least_ratio;
  out.drift_guarded = fuse.drift_guarded;
  out.on_miss = fuse.on_miss;
  return out;
}

ResolvedFuse at_ratio(const ResolvedFuse& fuse, double ratio) {
  ResolvedFuse out = fuse;
  out.ratio = std::max(fuse.least_ratio, ratio);
  if (!out.own_schedule) out.schedule = schedule_at(out.ratio, fuse.schedule);
  return out;
}

ResolvedFuse choose_ratio(const ResolvedFuse& fuse, const RatioRequest& asked,
                          const KnownCosts& known, Prompt& prompt) {
  if (fuse.schedule.empty() || fuse.own_schedule || !asked.is_automatic) return fuse;
  std::optional<uint32_t> asks_upto;
  if (fuse.needs.probe()) asks_upto = fuse.asked().last;
  const PassRules rules{[&](double ratio) { return schedule_at(ratio, fuse.schedule); }, asks_upto,
                        fuse.first_stored_layer(fuse.has_drift_for_schedule())};
  const auto choice = choose_by_cost(known, rules, fuse.ratio, asked.target_s, prompt);
  if (!choice.has_value()) return fuse;
  ResolvedFuse out = fuse;
  out.choice = choice;
  out.schedule = schedule_at(choice->ratio, fuse.schedule);
  return out;
}

}  // namespace blend
