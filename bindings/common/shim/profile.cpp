#include "detail.h"

namespace blend_shim {

CalibrateOptions::CalibrateOptions() noexcept { show(*this, blendpp::CalibrateOptions()); }
void CalibrateOptions::add_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { prefixes_.emplace_back(tokens, tokens + n_tokens); });
}
void CalibrateOptions::add_policy(uint32_t policy) noexcept {
  keep([&] { policies_.push_back(policy); });
}
void CalibrateOptions::add_check_layer(uint32_t layer) noexcept {
  keep([&] { check_layers_.push_back(layer); });
}
void CalibrateOptions::add_metric(uint32_t metric) noexcept {
  keep([&] { metrics_.push_back(metric); });
}
void CalibrateOptions::add_ratio(double ratio) noexcept {
  keep([&] { ratios_.push_back(ratio); });
}
VerifyOptions::VerifyOptions() noexcept { show(*this, blendpp::VerifyOptions()); }
void VerifyOptions::add_ratio(double ratio) noexcept {
  keep([&] { ratios_.push_back(ratio); });
}

namespace {

std::vector<blendpp::Prompt> to_c(const Samples& samples) {
  require_complete(samples);
  std::vector<blendpp::Prompt> prompts;
  for (const Prompt& prompt : samples.prompts_) prompts.push_back(prompt.get());
  return prompts;
}

// Common options of both.
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
    give(c, s);
    add_call(s, c);
    std::vector<blend_token_list> prefixes;
    for (const auto& prefix : s.prefixes_) prefixes.push_back({prefix.data(), prefix.size()});
    if (!prefixes.empty()) {
      c.chunk_prefixes = prefixes.data();
      c.n_chunk_prefixes = prefixes.size();
    }
    if (!s.policies_.empty()) {
      c.policies = s.policies_.data();
      c.n_policies = s.policies_.size();
    }
    if (!s.metrics_.empty()) {
      c.metrics = s.metrics_.data();
      c.n_metrics = s.metrics_.size();
    }
    if (!s.check_layers_.empty()) {
      c.check_layers = s.check_layers_.data();
      c.n_check_layers = s.check_layers_.size();
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
    blendpp::VerifyOptions c;
    give(c, s);
    add_call(s, c);
    if (!s.ratios_.empty()) {
      c.ratios = s.ratios_.data();
      c.n_ratios = s.ratios_.size();
    }
    return shown<Verdict>(blendpp::verify(*model.slot().get(), *slot_->get(), to_c(samples), c));
  });
}

ProfileInfo Profile::info(Outcome& out) const noexcept {
  return guarded(out, [&] { return shown<ProfileInfo>(slot_->get()->info()); });
}

View Profile::chunk_prefix(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto profile = slot_->get();
    const blendpp::ProfileInfo info = profile->info();
    return View(profile, info.chunk_prefix, info.n_chunk_prefix);
  });
}

View Profile::layer_steps(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto profile = slot_->get();
    const blendpp::ProfileInfo info = profile->info();
    return View(profile, info.layer_steps, info.n_layer_steps);
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

Drift Profile::drift(uint32_t layer, Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto [k, v] = slot_->get()->drift(layer);
    return Drift{k, v};
  });
}
CodecCost Profile::codec_cost(uint32_t codec, Outcome& out) const noexcept {
  return guarded(out, [&] {
    blendpp::detail::Outcome outcome;
    blendpp::CodecCost cost;
    outcome.check(blend_profile_get_codec_cost(slot_->get()->get(), codec, &cost, outcome.out()));
    return shown<CodecCost>(cost);
  });
}
void Profile::close() noexcept { slot_->take(); }

// ---- Machine

MachineOptions::MachineOptions() noexcept { show(*this, blendpp::MachineOptions()); }
AdviseOptions::AdviseOptions() noexcept { show(*this, blendpp::AdviseOptions()); }
void Storages::add(double bytes_per_s, double cost_per_gb_hour) noexcept {
  keep([&] {
    speeds_.push_back(bytes_per_s);
    costs_.push_back(cost_per_gb_hour);
  });
}

Advice Advices::at(size_t i, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (i >= advices_.size()) invalid("no storage " + std::to_string(i) + " in the list");
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
    give(c, s);
    c.on_progress = progress_of(s);
    c.cancel = raw(s.cancel_);
    const auto opened = model.slot().get();
    return new Machine(make_slot("machine", std::make_shared<blendpp::Machine>(*opened, path, c)));
  });
}

MachineInfo Machine::info(Outcome& out) const noexcept {
  return guarded(out, [&] {
    const auto machine = slot_->get();
    MachineInfo s = shown<MachineInfo>(machine->info());
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

Advices Machine::advise(const Storages& storages, const AdviseOptions& options,
                        Outcome& out) const noexcept {
  return guarded(out, [&] {
    require_complete(storages);
    blendpp::AdviseOptions c;
    give(c, options);
    std::vector<blendpp::Storage> list(storages.size());
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].bytes_per_s = storages.speeds_[i];
      list[i].cost_per_gb_hour = storages.costs_[i];
    }
    Advices advices;
    for (const auto& advice : slot_->get()->advise(list, c)) {
      advices.advices_.push_back(shown<Advice>(advice));
    }
    return advices;
  });
}
void Machine::close() noexcept { slot_->take(); }

}  // namespace blend_shim
