// Fidelity: how often fused answers agree with full prefill, and the recompute ratio that follows.
//
// A check compares one answer, position by position: the token that the fused cache prefers with
// the one that full prefill prefers after the same tokens. The share of positions where both are
// the same is the agreement. The ratio is one rung of a ladder and moves by one rung at a time: up
// if the agreement measured at its rung is below the target, down if it is clearly above.
//
// Plain values without threads or clocks. The store keeps them (FORMAT.md); fidelity_book.h shares
// them between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace blend {

// The ratios of the ladder, ascending: shares of the reused rows of a prompt that has kUsualRows of
// them or more.
inline constexpr std::array<double, 9> kLadder = {0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1};
inline constexpr uint64_t kUsualRows = 800;
// The rung nearest to a ratio; the lowest is of 0 alone.
uint32_t rung_of(double ratio);
// A shorter prompt needs a larger share of its n rows for the same agreement, and can afford it:
// ratio^a, where a falls from 1 by 1/700 a row to 0.3, which it is for 310 rows and fewer.
// usual_share() is the inverse.
double share_of(double ratio, uint64_t n_rows);
double usual_share(double share, uint64_t n_rows);

// The default target of the agreement, and the range that a host may ask for.
inline constexpr double kUsualTarget = 0.98;
inline constexpr double kLeastTarget = 0.5;
inline constexpr double kMostTarget = 0.999;

// The result of one check.
struct CheckedAnswer {
  uint32_t n_tokens = 0;  // positions that were compared
  uint32_t n_agree = 0;
  uint32_t n_kl = 0;  // positions whose KL is known
  double kl = 0;      // sum of KL(full prefill || fused) over these
};

struct Interval {
  double low = 0, high = 1;
};

// Agreement over checks; later checks count more. Tokens of one answer are not independent, so the
// interval is that of a cluster sample: Wilson's, with the effective number of tokens that follows
// from the spread between the answers.
struct Evidence {
  // Each check multiplies the weight of the earlier ones by this: their sum stays below 256 checks.
  static constexpr float kFade = 1.0f - 1.0f / 256;

  float checks = 0;
  float tokens = 0;
  float agree = 0;
  float agree2 = 0, cross = 0, tokens2 = 0;  // sums of agree^2, agree * tokens, tokens^2 by check

  void add(const CheckedAnswer& answer);
  double agreement() const { return tokens > 0 ? static_cast<double>(agree / tokens) : 0; }
  // z: half the width of the interval in standard deviations. [0, 1] without evidence.
  Interval interval(double z) const;
  bool operator==(const Evidence&) const = default;
};

// All checks at one rung.
struct RungRecord {
  uint64_t n_checks = 0;  // since the record began; these two counts do not fade
  uint64_t n_tokens = 0;
  Evidence evidence;
  float identical = 0;     // answers that agree at every position; fades as the evidence does
  float kl = 0, n_kl = 0;  // fade too

  void add(const CheckedAnswer& answer);
  double mean_kl() const { return n_kl > 0 ? static_cast<double>(kl / n_kl) : 0; }
  bool operator==(const RungRecord&) const = default;
};

// The ratio for one target, as a rung of the ladder.
struct LadderState {
  // Moving up needs less certainty that the target is missed than moving down that it is kept.
  static constexpr float kLeastUp = 6, kLeastDown = 8;  // checks on the rung
  static constexpr double kSureUp = 1.28, kSureDown = 1.645;
  // A rung that missed the target is tried again after this many checks, then after twice as many.
  static constexpr uint32_t kFirstWait = 64;
  static constexpr uint32_t kMostDoublings = 6;

  uint32_t target_ppm = 0;
  uint8_t rung = 0;
  uint8_t bounces = 0;     // how often the rung below has missed the target
  bool came_down = false;  // the last move was down, from a rung that kept the target
  uint32_t wait = 0;       // checks before the next move down
  Evidence since;          // checks at this rung since the last move

  double target() const { return target_ppm * 1e-6; }
  // Adds a check of an answer at this rung.
  void observe(const CheckedAnswer& answer);
  bool operator==(const LadderState&) const = default;

 private:
  void move_to(uint32_t to);
};

// All checks of one model, kind of stored record and policy.
struct FidelityRecord {
  // Maximum number of targets; a further one replaces the first.
  static constexpr size_t kMostTargets = 4;

  std::array<RungRecord, kLadder.size()> rungs{};
  std::vector<LadderState> states;

  // The ratio that keeps the target, as far as is known. `first`: the rung for a target that is not
  // followed yet.
  double ratio(double target, uint32_t first) const;
  // Follows this target from now on, beginning at the rung `first`. True: it is a new target.
  bool follow(double target, uint32_t first);
  // Adds a check of an answer that was fused at this ratio.
  void observe(double ratio, const CheckedAnswer& answer);
  bool empty() const { return states.empty() && *this == FidelityRecord{}; }
  bool operator==(const FidelityRecord&) const = default;

  std::string encode() const;
  // Nothing for bytes that encode() cannot have written: the caller ignores them.
  static std::optional<FidelityRecord> decode(std::span<const std::byte> bytes);
};

}  // namespace blend
