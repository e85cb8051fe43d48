// Fidelity: how often full prefill would have gone on as the fused answers did, and which recompute
// ratio follows from that.
//
// A check compares one answer, position by position: the token that the fused cache prefers with
// the one that full prefill prefers after the same tokens. The share of positions where both are
// the same is the agreement. The ratio stands on one rung of a ladder and moves by one rung at a
// time: up when the agreement seen on its rung is below the target, down when it is clearly above.
//
// Plain values without threads or clocks: the store keeps them (FORMAT.md), fidelity_book.h shares
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace blend {

// The ratios that are told apart, ascending: shares of a prompt with kUsualRows rows to choose
// among, or more.
inline constexpr std::array<double, 9> kLadder = {0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1};
inline constexpr uint64_t kUsualRows = 800;
// The rung nearest to a ratio.
uint32_t rung_of(double ratio);
// A shorter prompt needs a larger share of its n rows for the same agreement, and has less time to
// lose by it: 1 - (1 - ratio)^k with k = sqrt(kUsualRows / n), which is about k * ratio where that
// is small. usual_share() is the way back.
double share_of(double ratio, uint64_t n_rows);
double usual_share(double share, uint64_t n_rows);

// The agreement that is kept when the host states none, and what it may state.
inline constexpr double kUsualTarget = 0.98;
inline constexpr double kLeastTarget = 0.5;
inline constexpr double kMostTarget = 0.999;

// What one check saw.
struct CheckedAnswer {
  uint32_t n_tokens = 0;  // positions that were compared
  uint32_t n_agree = 0;
  uint32_t n_kl = 0;  // positions whose KL is known
  double kl = 0;      // their sum, KL(full prefill || fused)
};

struct Interval {
  double low = 0, high = 1;
};

// Agreement over checks, of which a later one counts more. Tokens of one answer are no independent
// witnesses, so the interval is that of a sample in clusters: Wilson's, with as many tokens as the
// spread between the answers leaves of them.
struct Evidence {
  // Each check makes the earlier ones count less by this factor: 256 checks count at most.
  static constexpr float kFade = 1.0f - 1.0f / 256;

  float checks = 0;
  float tokens = 0;
  float agree = 0;
  float agree2 = 0, cross = 0, tokens2 = 0;  // sums of agree^2, agree * tokens, tokens^2 by check

  void add(const CheckedAnswer& answer);
  double agreement() const { return tokens > 0 ? static_cast<double>(agree / tokens) : 0; }
  // z: half of the interval in standard deviations. 0 .. 1 where nothing is known.
  Interval interval(double z) const;
  bool operator==(const Evidence&) const = default;
};

// What was seen at one rung.
struct RungRecord {
  uint64_t n_checks = 0;  // since the record began, without forgetting, as the next
  uint64_t n_tokens = 0;
  Evidence evidence;
  float identical = 0;     // answers that agree at every position; forgets as the evidence does
  float kl = 0, n_kl = 0;  // forget likewise

  void add(const CheckedAnswer& answer);
  double mean_kl() const { return n_kl > 0 ? static_cast<double>(kl / n_kl) : 0; }
  bool operator==(const RungRecord&) const = default;
};

// Where the ratio stands for one target.
struct LadderState {
  // Up: as soon as a target is missed; down: only when it is clear that it is kept.
  static constexpr float kLeastUp = 6, kLeastDown = 8;  // checks on the rung
  static constexpr double kSureUp = 1.28, kSureDown = 1.645;
  // A rung that missed the target is tried again after so many checks, then after twice as many.
  static constexpr uint32_t kFirstWait = 64;
  static constexpr uint32_t kMostDoublings = 6;

  uint32_t target_ppm = 0;
  uint8_t rung = 0;
  uint8_t bounces = 0;     // times that the rung below was left for missing the target
  bool came_down = false;  // it stands here because the rung above kept the target
  uint32_t wait = 0;       // checks until it may go down
  Evidence since;          // on this rung, since it came here

  double target() const { return target_ppm * 1e-6; }
  // Takes a check that was made on this rung.
  void observe(const CheckedAnswer& answer);
  bool operator==(const LadderState&) const = default;

 private:
  void move_to(uint32_t to);
};

// All that is known of one model, kind of stored records and policy.
struct FidelityRecord {
  // Targets that are followed; a further one takes the place of the first.
  static constexpr size_t kMostTargets = 4;

  std::array<RungRecord, kLadder.size()> rungs{};
  std::vector<LadderState> states;

  // The ratio that keeps the target, as far as is known. first: the rung of one that is not
  // followed.
  double ratio(double target, uint32_t first) const;
  // From here on the ratio for this target moves, from `first` on. True: it is a new one.
  bool follow(double target, uint32_t first);
  // Takes a check of an answer that was fused at this ratio.
  void observe(double ratio, const CheckedAnswer& answer);
  bool empty() const { return states.empty() && *this == FidelityRecord{}; }
  bool operator==(const FidelityRecord&) const = default;

  std::string encode() const;
  // Nothing for bytes that encode() does not give: they are ignored.
  static std::optional<FidelityRecord> decode(std::span<const std::byte> bytes);
};

}  // namespace blend
