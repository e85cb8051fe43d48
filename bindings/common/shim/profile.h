// Measurements: profiles of a model, and how fast this machine is.
#ifndef BLEND_SHIM_PROFILE_H
#define BLEND_SHIM_PROFILE_H

#include "model.h"
#include "prompt.h"

namespace blendpp {
class Machine;
class Profile;
}  // namespace blendpp

namespace blend_shim {

struct ProfileInfo {
  BLEND_PROFILE_INFO_FIELDS(BLEND_SHIM_DECLARE)
};

class CalibrateOptions : public Call {
 public:
  CalibrateOptions() noexcept;
  BLEND_CALIBRATE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  // None added: the defaults of blend_calibrate_options.
  void add_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept;
  void add_policy(uint32_t policy) noexcept;
  void add_metric(uint32_t metric) noexcept;
  void add_check_layer(uint32_t layer) noexcept;
  void add_ratio(double ratio) noexcept;
#ifndef SWIG
  std::vector<std::vector<int32_t>> prefixes_;
  std::vector<uint32_t> policies_;
  std::vector<uint32_t> metrics_;
  std::vector<uint32_t> check_layers_;
  std::vector<double> ratios_;
#endif
};

class VerifyOptions : public Call {
 public:
  VerifyOptions() noexcept;
  BLEND_VERIFY_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
  void add_ratio(double ratio) noexcept;
#ifndef SWIG
  std::vector<double> ratios_;
#endif
};

struct Verdict {
  BLEND_VERDICT_FIELDS(BLEND_SHIM_DECLARE)
};

struct CodecCost {
  BLEND_CODEC_COST_FIELDS(BLEND_SHIM_DECLARE)
};

// Shares of the squared drift of K and of V that the map of a layer took away.
struct Drift {
  double k = 0;
  double v = 0;
};

// The profile that calibration made of one model. Every function may be called on any thread at any
// time; options that were given it keep it open.
class Profile {
 public:
  // Null on failure.
  // An empty path: the profile beside the model, here and below.
  static Profile* open(const Model& model, const std::string& path, Outcome& out) noexcept;
  // Measures sample prompts and writes a profile to `path`. False: written, but no ratio kept the
  // limits; or the call failed.
  static bool calibrate(const Model& model, const Samples& samples, const CalibrateOptions& options,
                        const std::string& path, Outcome& out) noexcept;
  ~Profile();
  Verdict verify(const Model& model, const Samples& samples, const VerifyOptions& options,
                 Outcome& out) const noexcept;
  ProfileInfo info(Outcome& out) const noexcept;
  View chunk_prefix(Outcome& out) const noexcept;
  View layer_steps(Outcome& out) const noexcept;  // none: all layers alike
  Measurement measurement(size_t index, Outcome& out) const noexcept;
  Drift drift(uint32_t layer, Outcome& out) const noexcept;  // NOT_FOUND: the layer has no map
  // NOT_FOUND: the codec was not measured.
  CodecCost codec_cost(uint32_t codec, Outcome& out) const noexcept;
  void close() noexcept;
#ifndef SWIG
  const Slot<blendpp::Profile>& slot() const noexcept { return *slot_; }
#endif

 private:
#ifndef SWIG
  explicit Profile(std::shared_ptr<Slot<blendpp::Profile>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Profile>> slot_;
#else
  Profile();
#endif
};

class MachineOptions : public Call {
 public:
  MachineOptions() noexcept;
  BLEND_MACHINE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

struct MachineInfo {
  BLEND_MACHINE_INFO_FIELDS(BLEND_SHIM_DECLARE)
  bool kept = false;  // read from the file: nothing was measured
};

struct MachinePoint {
  uint64_t n_tokens = 0;
  uint64_t prefill_ns = 0;
};

struct AdviseOptions {
  AdviseOptions() noexcept;
  BLEND_ADVISE_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

struct Advice {
  BLEND_ADVICE_FIELDS(BLEND_SHIM_DECLARE)
};

class Storages : public Builder {
 public:
  void add(double bytes_per_s, double cost_per_gb_hour) noexcept;
  size_t size() const noexcept { return speeds_.size(); }
#ifndef SWIG
  std::vector<double> speeds_;
  std::vector<double> costs_;
#endif
};

class Advices {
 public:
  size_t size() const noexcept { return advices_.size(); }
  Advice at(size_t i, Outcome& out) const noexcept;  // i < size()
#ifndef SWIG
  std::vector<Advice> advices_;
#endif
};

// How fast this machine prefills a model. Every function may be called on any thread at any time;
// options that were given it keep it open.
class Machine {
 public:
  // Null on failure. path "": the measurement is not kept.
  static Machine* open(const Model& model, const std::string& path, const MachineOptions& options,
                       Outcome& out) noexcept;
  ~Machine();
  MachineInfo info(Outcome& out) const noexcept;
  MachinePoint point(uint64_t index, Outcome& out) const noexcept;
  uint64_t recompute_ns(uint64_t n_tokens, double ratio, Outcome& out) const noexcept;
  Advices advise(const Storages& storages, const AdviseOptions& options,
                 Outcome& out) const noexcept;
  void close() noexcept;
#ifndef SWIG
  const Slot<blendpp::Machine>& slot() const noexcept { return *slot_; }
#endif

 private:
#ifndef SWIG
  explicit Machine(std::shared_ptr<Slot<blendpp::Machine>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Machine>> slot_;
#else
  Machine();
#endif
};

}  // namespace blend_shim

#endif
