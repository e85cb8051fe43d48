// Profiles of a model: made, checked, applied.
#ifndef BLEND_CPP_PROFILE_HPP
#define BLEND_CPP_PROFILE_HPP

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "blend/cpp/fuse.hpp"
#include "blend/cpp/model.hpp"
#include "blend/cpp/prompt.hpp"
#include "blend/profile.h"

namespace blendpp {

// A line of a table as it is measured; valid during the call only. Return true to go on.
using MeasurementFn = std::function<bool(const blend_measurement& line)>;

namespace detail {

inline int32_t on_measurement(void* user, const blend_measurement* line) noexcept {
  return static_cast<Guarded<MeasurementFn>*>(user)->call(*line);
}

}  // namespace detail

using ProfileInfo = detail::Sized<blend_profile_info>;
using Measurement = detail::Sized<blend_measurement>;
using CodecCost = detail::Sized<blend_codec_cost>;
using Verdict = detail::Sized<blend_verdict>;

struct CalibrateOptions
    : detail::Initialised<blend_calibrate_options, blend_calibrate_options_init> {
  MeasurementFn on_measurement;
  ProgressFn on_progress;
};

struct VerifyOptions : detail::Initialised<blend_verify_options, blend_verify_options_init> {
  MeasurementFn on_measurement;
  ProgressFn on_progress;
};

// What calibration found out about one model. Immutable, thread-safe; must be open as long as
// options that it was applied to are used.
class Profile {
 public:
  // An empty path: the one beside the model (blend_profile_open). Throws NOT_FOUND where none is.
  explicit Profile(const Model& model, const std::string& path = {}) {
    detail::Outcome outcome;
    blend_profile* raw = nullptr;
    outcome.check(blend_profile_open(&raw, model.get(), path.empty() ? nullptr : path.c_str(),
                                     outcome.out()));
    handle_ = {raw, {model.log()}};
  }
  // What it points to is valid while the profile is open.
  ProfileInfo info() const { return detail::filled<ProfileInfo>(&blend_profile_get_info, get()); }
  // What chunks are to be prefilled after.
  Tokens chunk_prefix() const {
    const ProfileInfo i = info();
    return Tokens(i.chunk_prefix, i.chunk_prefix + i.n_chunk_prefix);
  }
  Measurement measurement(size_t index) const {
    return detail::filled<Measurement>(&blend_profile_get_measurement, get(), index);
  }
  // What storing chunks with `codec` costs beside the fuse; nothing for one that was not measured.
  std::optional<CodecCost> codec_cost(uint32_t codec) const {
    detail::Outcome outcome;
    CodecCost cost;
    const int32_t code = blend_profile_get_codec_cost(get(), codec, &cost, outcome.out());
    if (code == BLEND_E_NOT_FOUND) return std::nullopt;
    outcome.check(code);
    return cost;
  }
  // Shares of the squared drift of K and V that the map of `layer` took away where it was fitted.
  std::pair<double, double> drift(uint32_t layer) const {
    detail::Outcome outcome;
    std::pair<double, double> shares{0, 0};
    outcome.check(
        blend_profile_get_drift(get(), layer, &shares.first, &shares.second, outcome.out()));
    return shares;
  }
  // Sets policy, ratio, chunk prefix and profile; metric and check layer then follow the profile.
  void apply(FuseOptions& options) const {
    detail::Outcome outcome;
    outcome.check(blend_profile_apply(get(), &options, outcome.out()));
  }
  // [n_layers], or empty: all layers alike.
  std::vector<float> layer_steps() const {
    const ProfileInfo i = info();
    return std::vector<float>(i.layer_steps, i.layer_steps + i.n_layer_steps);
  }
  const blend_profile* get() const noexcept { return handle_.get(); }

 private:
  detail::Handle<blend_profile, blend_profile_close> handle_;
};

inline void Store::set_codec_profile(const Profile& profile) const {
  detail::Outcome outcome;
  outcome.check(blend_store_set_codec_profile(get(), profile.get(), outcome.out()));
}

namespace detail {

// The C form of sample prompts; valid while they are.
class Samples {
 public:
  explicit Samples(const std::vector<Prompt>& prompts) {
    for (const Prompt& prompt : prompts) segments_.push_back(prompt.segments());
    for (const auto& list : segments_) {
      blend_sample sample{};
      sample.struct_size = sizeof sample;
      sample.segments = list.data();
      sample.n_segments = list.size();
      samples_.push_back(sample);
    }
  }
  const blend_sample* data() const noexcept { return samples_.data(); }
  size_t size() const noexcept { return samples_.size(); }

 private:
  std::vector<std::vector<blend_segment>> segments_;
  std::vector<blend_sample> samples_;
};

}  // namespace detail

// Measures sample prompts and writes a profile to `path` (empty: beside the model). False: written,
// but no ratio kept the limits.
inline bool calibrate(const Model& model, const std::vector<Prompt>& samples,
                      const std::string& path,
                      const CalibrateOptions& options = CalibrateOptions()) {
  detail::Outcome outcome;
  const detail::Samples list(samples);
  detail::Guarded<ProgressFn> progress{options.on_progress, outcome};
  detail::Guarded<MeasurementFn> lines{options.on_measurement, outcome};
  CalibrateOptions copy = detail::with_progress(options, options.on_progress, progress);
  if (options.on_measurement) {
    static_cast<blend_calibrate_options&>(copy).on_measurement = &detail::on_measurement;
    copy.measurement_user = &lines;
  }
  return outcome.check(blend_calibrate(model.get(), list.data(), list.size(), &copy,
                                       path.empty() ? nullptr : path.c_str(), outcome.out())) !=
         BLEND_BELOW_LIMITS;
}

// Measures a profile on samples that it was not made from.
inline Verdict verify(const Model& model, const Profile& profile,
                      const std::vector<Prompt>& samples,
                      const VerifyOptions& options = VerifyOptions()) {
  detail::Outcome outcome;
  const detail::Samples list(samples);
  detail::Guarded<ProgressFn> progress{options.on_progress, outcome};
  detail::Guarded<MeasurementFn> lines{options.on_measurement, outcome};
  VerifyOptions copy = detail::with_progress(options, options.on_progress, progress);
  if (options.on_measurement) {
    static_cast<blend_verify_options&>(copy).on_measurement = &detail::on_measurement;
    copy.measurement_user = &lines;
  }
  Verdict verdict;
  outcome.check(blend_verify(model.get(), profile.get(), list.data(), list.size(), &copy, &verdict,
                             outcome.out()));
  return verdict;
}

}  // namespace blendpp

#endif
