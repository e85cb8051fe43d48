// How fast this machine prefills, and what storage is worth.
#ifndef BLEND_CPP_MACHINE_HPP
#define BLEND_CPP_MACHINE_HPP

#include <string>
#include <utility>
#include <vector>

#include "blend/cpp/model.hpp"
#include "blend/machine.h"

namespace blendpp {

using MachineInfo = detail::Sized<blend_machine_info>;
using AdviseOptions = detail::Initialised<blend_advise_options, blend_advise_options_init>;
using Advice = detail::Sized<blend_advice>;

struct MachineOptions : detail::Initialised<blend_machine_options, blend_machine_options_init> {
  ProgressFn on_progress;
};

// How fast this machine prefills a model. Immutable, thread-safe.
class Machine {
 public:
  // `path`: the file that keeps the measurement; empty: nothing is kept.
  Machine(const Model& model, const std::string& path,
          const MachineOptions& options = MachineOptions()) {
    detail::Outcome outcome;
    detail::Guarded<ProgressFn> guarded{options.on_progress, outcome};
    const MachineOptions copy = detail::with_progress(options, options.on_progress, guarded);
    blend_machine* raw = nullptr;
    kept_ =
        outcome.check(blend_machine_open(&raw, model.get(), path.empty() ? nullptr : path.c_str(),
                                         &copy, outcome.out())) == BLEND_EXISTS;
    handle_ = {raw, {model.log()}};
  }
  bool kept() const noexcept { return kept_; }  // it was in the file: nothing was measured
  // The string in it is valid while the machine is open.
  MachineInfo info() const { return detail::filled<MachineInfo>(&blend_machine_get_info, get()); }
  // Tokens and nanoseconds of one measured length.
  std::pair<uint64_t, uint64_t> point(uint64_t index) const {
    detail::Outcome outcome;
    std::pair<uint64_t, uint64_t> point;
    outcome.check(
        blend_machine_get_point(get(), index, &point.first, &point.second, outcome.out()));
    return point;
  }
  uint64_t recompute_ns(uint64_t n_tokens, double ratio) const {
    detail::Outcome outcome;
    uint64_t ns = 0;
    outcome.check(blend_machine_get_recompute_ns(get(), n_tokens, ratio, &ns, outcome.out()));
    return ns;
  }
  // One advice a storage.
  std::vector<Advice> advise(const std::vector<Storage>& storages,
                             const AdviseOptions& options = AdviseOptions()) const {
    detail::Outcome outcome;
    std::vector<Advice> advice(storages.size());
    outcome.check(blend_machine_advise(get(), storages.data(), storages.size(), &options,
                                       advice.data(), outcome.out()));
    return advice;
  }
  const blend_machine* get() const noexcept { return handle_.get(); }

 private:
  bool kept_ = false;
  detail::Handle<blend_machine, blend_machine_close> handle_;
};

}  // namespace blendpp

#endif
