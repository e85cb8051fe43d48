// MachineProfile: how fast this machine prefills a model, measured once and kept in a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/threads/cancel.h"
#include "control/cost_model.h"
#include "engine/model.h"

namespace blend {

// What a measurement is for: another model, CPU or number of threads needs another one.
struct MachineKey {
  std::string cpu;         // as /proc/cpuinfo names it; "unknown"
  uint32_t n_threads = 0;  // under the caller's ThreadCap
  Sha256 fingerprint{};    // of the model
  bool operator==(const MachineKey&) const = default;
};
MachineKey machine_key(const Model& model);

// Immutable; safe for concurrent use.
class MachineProfile {
 public:
  struct Options {
    uint64_t max_tokens = 1024;  // of the longest prefill that is timed; at most the context
    bool measure = false;        // even when the file has a measurement that fits
  };
  // Reads the file `path` if it is of this machine and model. Otherwise it measures a few prefills
  // and writes the file. "": no file. A file that is damaged, or is not a profile, is replaced. IO:
  // the new file cannot be written. Progress: prefills.
  static Result<MachineProfile> open(const std::shared_ptr<const Model>& model,
                                     const std::string& path, const Options& options,
                                     const Watch& watch);

  const MachineKey& key() const { return key_; }
  const PrefillTimes& prefill() const { return prefill_; }
  int64_t measured_unix_s() const { return measured_unix_s_; }
  bool kept() const { return kept_; }  // read from the file, not measured now

  // The file's text: one line a fact, the last one "end".
  std::string serialize() const;
  // nullopt: not a profile of this version, or cut.
  static std::optional<MachineProfile> parse(const std::string& text);

 private:
  MachineProfile(MachineKey key, PrefillTimes prefill, int64_t measured_unix_s)
      : key_(std::move(key)), prefill_(std::move(prefill)), measured_unix_s_(measured_unix_s) {}

  MachineKey key_;
  PrefillTimes prefill_;
  int64_t measured_unix_s_ = 0;
  bool kept_ = false;
};

// Full prefills of 64, 256, ... tokens up to `max_tokens` (and that length itself), each the better
// of two runs. CANCELLED, CALLBACK.
Result<PrefillTimes> measure_prefill(const std::shared_ptr<const Model>& model, uint64_t max_tokens,
                                     const Watch& watch);

}  // namespace blend
