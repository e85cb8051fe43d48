// Profile: what calibration found out about a model, and its file format.
//
// A profile belongs to one model (by its fingerprint) and says after what chunks are to be
// prefilled, how deviation is measured and where, which share of the rows must be recomputed, what
// that costs in quality as measured, how the rows that are not recomputed are corrected, and how
// finely each layer is to be rounded.
// PROFILE.md beside this file describes the bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "blend/experimental.h"
#include "profile/codec_cost.h"
#include "profile/drift_maps.h"
#include "profile/layer_steps.h"

namespace blend {

// One line of the measured table: fusing against full prefill, over all measured prompts.
struct Measurement {
  uint32_t prefix = 0;     // index into Profile::prefixes
  uint32_t metric = 0;     // BLEND_METRIC_*
  bool corrected = false;  // with the drift correction
  double ratio = 0;
  double kl_mean = 0;  // KL(full || fused) of the next-token distribution, nats
  double kl_p95 = 0;
  double top1 = 0;  // share of positions whose likeliest token is full prefill's
  uint64_t n_positions = 0;
  uint32_t policy = BLEND_POLICY_HKVD;
  uint32_t check_layer = 1;
  // Half the 95 % intervals of kl_mean and top1 over the prompts.
  double kl_margin = 0;
  double top1_margin = 0;
  double flops = 0;  // of full prefill's; 0: not known

  // With the margins: a limit kept on these prompts by luck does not count.
  bool keeps(double max_kl, double min_top1) const {
    return kl_mean + kl_margin <= max_kl && std::max(top1 - top1_margin, 0.0) >= min_top1;
  }
};

// The settings of a fuse that calibration measures, apart from the ratio.
struct FusingKind {
  uint32_t prefix = 0;
  uint32_t policy = BLEND_POLICY_HKVD;
  uint32_t metric = 0;
  uint32_t check_layer = 1;
  bool corrected = false;
  bool operator==(const FusingKind&) const = default;
};
inline FusingKind kind_of(const Measurement& m) {
  return {m.prefix, m.policy, m.metric, m.check_layer, m.corrected};
}

// A plain value.
struct Profile {
  Sha256 fingerprint{};  // of the model
  uint32_t n_layers = 0;
  uint32_t kv_dim = 0;
  DType kv_dtype = DType::f16;                 // type of stored chunks while measuring
  std::vector<std::vector<int32_t>> prefixes;  // measured ones
  std::vector<Measurement> table;

  // The choice.
  uint32_t prefix = 0;  // index
  uint32_t policy = BLEND_POLICY_HKVD;
  uint32_t metric = 0;  // BLEND_METRIC_*
  uint32_t check_layer = 1;
  bool corrected = false;  // whether `drift` is to be applied
  bool trusted = false;    // whether a measured ratio satisfied the limits
  double ratio = 1;        // the least that did; 1 when none did
  double max_kl = 0;       // the limits
  double min_top1 = 0;
  uint32_t n_contexts = 0;  // passages of the measured records, at most; 0: after the prefix alone
  uint64_t n_fitted = 0;    // prompts
  uint64_t n_measured = 0;  // prompts
  DriftMaps drift;          // for prefixes[prefix] and check_layer; empty: none
  DriftMaps stored_drift;   // for prefixes[prefix], of rows left out before layer 0; empty: none
  LayerSteps layer_steps;   // with chunks after prefixes[prefix]; empty: all layers alike
  // One for each codec that rounds; empty: not measured, as where everything is recomputed.
  std::vector<CodecCost> codec_costs;

  FusingKind kind() const { return {prefix, policy, metric, check_layer, corrected}; }
  const std::vector<int32_t>& chunk_prefix() const { return prefixes[prefix]; }
};

// The least ratio of one kind of fusing from which on every measured one keeps the limits, or -1.
double least_trusted_ratio(std::span<const Measurement> table, const FusingKind& kind,
                           double max_kl, double min_top1);

// The prefix's index in the profile; nullopt: it was not measured.
std::optional<uint32_t> prefix_index(const Profile& profile, std::span<const int32_t> chunk_prefix);

// The least ratio at which the profile's measurements of this kind of fusing keep its limits; 1
// (full prefill) when none of them does; nullopt for a kind that was not measured.
std::optional<double> least_ratio(const Profile& profile, const FusingKind& kind);

// Whether the profile's measurements of this kind of fusing keep its limits at `ratio`, also
// between measured ratios. False for a kind that was not measured.
bool vouches(const Profile& profile, const FusingKind& kind, double ratio);

// The file's bytes, checksum included. In the oldest version that has all of it.
std::string encode_profile(const Profile& profile);
// Trusts nothing: FORMAT for bytes that are not a profile or are cut off, MISMATCH for another
// version, CORRUPT when the checksum fails, FORMAT again for contradictory contents.
Result<Profile> decode_profile(std::span<const std::byte> bytes);

// Writes beside `path` and renames, so that the file is old or new, never half. IO names the file.
Status write_profile(const Profile& profile, const std::string& path);
Result<Profile> read_profile(const std::string& path);

}  // namespace blend
