#include "detail.h"

namespace blend_shim {

ProfileInfo::ProfileInfo() noexcept {
  const blendpp::ProfileInfo c;
  ProfileInfo& s = *this;
  BLEND_PROFILE_INFO_FIELDS(BLEND_SHIM_FROM_C)
}
CalibrateOptions::CalibrateOptions() noexcept {
  const blendpp::CalibrateOptions c;
  CalibrateOptions& s = *this;
  BLEND_CALIBRATE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
void CalibrateOptions::add_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { prefixes_.emplace_back(tokens, tokens + n_tokens); });
}
void CalibrateOptions::add_metric(uint32_t metric) noexcept {
  keep([&] { metrics_.push_back(metric); });
}
void CalibrateOptions::add_ratio(double ratio) noexcept {
  keep([&] { ratios_.push_back(ratio); });
}
VerifyOptions::VerifyOptions() noexcept {
  const blendpp::VerifyOptions c;
  VerifyOptions& s = *this;
  BLEND_VERIFY_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
void VerifyOptions::add_ratio(double ratio) noexcept {
  keep([&] { ratios_.push_back(ratio); });
}
Verdict::Verdict() noexcept {
  const blendpp::Verdict c;
  Verdict& s = *this;
  BLEND_VERDICT_FIELDS(BLEND_SHIM_FROM_C)
}

namespace {

std::vector<blendpp::Prompt> to_c(const Samples& samples) {
  require_complete(samples);
  std::vector<blendpp::Prompt> prompts;
  for (const Prompt& prompt : samples.prompts_) prompts.push_back(prompt.get());
  return prompts;
}

Verdict verdict_of(const blendpp::Verdict& c) {
  Verdict s;
  BLEND_VERDICT_FIELDS(BLEND_SHIM_FROM_C)
  return s;
}

Advice advice_of(const blendpp::Advice& c) {
  Advice s;
  BLEND_ADVICE_FIELDS(BLEND_SHIM_FROM_C)
  return s;
}

// What the options of both have in common.
template <typename C>
void add_call(const Call& s, C& c) {
  c.on_progress = progress_of(s);
  c.cancel = raw(s.cancel_);
  if (Listener* listener = s.listener_) {
    c.on_measurement = [listener](const blend_measurement& line) {
      return listener->measurement(measurement_line(line));
    };
  }
}

}  // namespace

Profile::Profile(std::shared_ptr<Slot<blendpp::Profile>> slot) noexcept : slot_(std::move(slot)) {}
Profile::~Profile() = default;

Profile* Profile::open(const Model& model, const std::string& path, Outcome& out) noexcept {
  return guarded(out, [&] {
    const auto opened = model.slot().get();
    return new Profile(make_slot("profile", std::make_shared<blendpp::Profile>(*opened, path)));
  });
}

bool Profile::calibrate(const Model& model, const Samples& samples, const CalibrateOptions& options,
                        const std::string& path, Outcome& out) noexcept {
  return guarded(out, [&] {
    const CalibrateOptions& s = options;
    require_complete(s);
    blendpp::CalibrateOptions c;
    BLEND_CALIBRATE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    add_call(s, c);
    std::vector<blend_token_list> prefixes;
    for (const auto& prefix : s.prefixes_) prefixes.push_back({prefix.data(), prefix.size()});
    if (!prefixes.empty()) {
      c.chunk_prefixes = prefixes.data();
      c.n_chunk_prefixes = prefixes.size();
    }
    if (!s.metrics_.empty()) {
      c.metrics = s.metrics_.data();
      c.n_metrics = s.metrics_.size();
    }
    if (!s.ratios_.empty()) {
      c.ratios = s.ratios_.data();
      c.n_ratios = s.ratios_.size();
    }
    return blendpp::calibrate(*model.slot().get(), to_c(samples), path, c);
  });
}

Verdict Profile::verify(const Model& model, const Samples& samples, const VerifyOptions& options,
                        Outcome& out) const noexcept {
  return guarded(out, [&] {
    const VerifyOptions& s = options;
    require_complete(s);
    blendpp::VerifyOptions o;
    {
      blendpp::VerifyOptions& c = o;
      BLEND_VERIFY_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    }
    add_call(s, o);
    if (!s.ratios_.empty()) {
      o.ratios = s.ratios_.data();
      o.n_ratios = s.ratios_.size();
    }
    const blendpp::Verdict c =
        blendpp::verify(*model.slot().get(), *slot_->get(), to_c(samples), o);
    return verdict_of(c);
  });
}

ProfileInfo Profile::info(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto profile = slot_->get();
    const blendpp::ProfileInfo c = profile->info();
    ProfileInfo s;
    BLEND_PROFILE_INFO_FIELDS(BLEND_SHIM_FROM_C)
    s.fingerprint = fingerprint_hex(c.fingerprint);
    return s;
  });
}

View Profile::chunk_prefix(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto profile = slot_->get();
    const blendpp::ProfileInfo info = profile->info();
    return View(profile, info.chunk_prefix, info.n_chunk_prefix);
  });
}

Measurement Profile::measurement(size_t index, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto profile = slot_->get();
    Measurement line = measurement_line(profile->measurement(index));
    line.owner_ = profile;
    return line;
  });
}

double Profile::drift_k(uint32_t layer, Outcome& out) const noexcept {
  return guarded(out, [&] { return slot_->get()->drift(layer).first; });
}
double Profile::drift_v(uint32_t layer, Outcome& out) const noexcept {
  return guarded(out, [&] { return slot_->get()->drift(layer).second; });
}
void Profile::close() noexcept { slot_->take(); }

// ---- Machine

MachineOptions::MachineOptions() noexcept {
  const blendpp::MachineOptions c;
  MachineOptions& s = *this;
  BLEND_MACHINE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
MachineInfo::MachineInfo() noexcept {
  const blendpp::MachineInfo c;
  MachineInfo& s = *this;
  BLEND_MACHINE_INFO_FIELDS(BLEND_SHIM_FROM_C)
}
AdviseOptions::AdviseOptions() noexcept {
  const blendpp::AdviseOptions c;
  AdviseOptions& s = *this;
  BLEND_ADVISE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
Advice::Advice() noexcept {
  const blendpp::Advice c;
  Advice& s = *this;
  BLEND_ADVICE_FIELDS(BLEND_SHIM_FROM_C)
}
void Devices::add(double bytes_per_s, double cost_per_gb_hour) noexcept {
  keep([&] {
    speeds_.push_back(bytes_per_s);
    costs_.push_back(cost_per_gb_hour);
  });
}

Advice Advices::at(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (i >= advices_.size()) invalid("no device " + std::to_string(i) + " in the list");
    return advices_[i];
  });
}

Machine::Machine(std::shared_ptr<Slot<blendpp::Machine>> slot) noexcept : slot_(std::move(slot)) {}
Machine::~Machine() = default;

Machine* Machine::open(const Model& model, const std::string& path, const MachineOptions& options,
                       Outcome& out) noexcept {
  return guarded(out, [&] {
    const MachineOptions& s = options;
    require_complete(s);
    blendpp::MachineOptions c;
    BLEND_MACHINE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    c.on_progress = progress_of(s);
    c.cancel = raw(s.cancel_);
    const auto opened = model.slot().get();
    return new Machine(make_slot("machine", std::make_shared<blendpp::Machine>(*opened, path, c)));
  });
}

MachineInfo Machine::info(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto machine = slot_->get();
    const blendpp::MachineInfo c = machine->info();
    MachineInfo s;
    BLEND_MACHINE_INFO_FIELDS(BLEND_SHIM_FROM_C)
    s.cpu = c.cpu;
    s.kept = machine->kept();
    return s;
  });
}

MachinePoint Machine::point(uint64_t index, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto [n_tokens, ns] = slot_->get()->point(index);
    return MachinePoint{n_tokens, ns};
  });
}

uint64_t Machine::recompute_ns(uint64_t n_tokens, double ratio, Outcome& out) const noexcept {
  return guarded(out, [&] { return slot_->get()->recompute_ns(n_tokens, ratio); });
}

Advices Machine::advise(const Devices& devices, const AdviseOptions& options,
                        Outcome& out) const noexcept {
  return guarded(out, [&] {
    require_complete(devices);
    const AdviseOptions& s = options;
    blendpp::AdviseOptions c;
    BLEND_ADVISE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    std::vector<blendpp::Device> list(devices.size());
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].bytes_per_s = devices.speeds_[i];
      list[i].cost_per_gb_hour = devices.costs_[i];
    }
    Advices advices;
    for (const auto& advice : slot_->get()->advise(list, c)) {
      advices.advices_.push_back(advice_of(advice));
    }
    return advices;
  });
}
void Machine::close() noexcept { slot_->take(); }

}  // namespace blend_shim
