#include "control/fidelity.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/wire.h"

namespace blend {
namespace {

// A prior for the design effect while there are few answers, and the number of checks that it
// weighs as much as.
constexpr double kGuessedSpread = 2;
constexpr double kGuessWeight = 4;

constexpr uint32_t kFidelityVersion = 4;  // 2, 3: shares of short prompts were others
// No real sum is larger. Damaged sums that are larger are refused, so all sums stay finite.
constexpr float kMostSum = 1e12f;

double exponent(uint64_t n_rows) {
  constexpr double kLeast = 0.3, kRows = 700;
  const auto missing = static_cast<double>(kUsualRows - std::min(n_rows, kUsualRows));
  return std::max(kLeast, 1 - missing / kRows);
}

uint32_t to_ppm(double target) { return static_cast<uint32_t>(std::lround(target * 1e6)); }

void put(ByteWriter& out, float value) { out.put(std::bit_cast<uint32_t>(value)); }

// Whether checks can have added up to these sums.
bool get(ByteReader& in, float& value) {
  value = std::bit_cast<float>(in.get<uint32_t>());
  return value >= 0 && value <= kMostSum;  // not for NaN
}

void put(ByteWriter& out, const Evidence& e) {
  for (const float f : {e.checks, e.tokens, e.agree, e.agree2, e.cross, e.tokens2}) put(out, f);
}

bool get(ByteReader& in, Evidence& e) {
  bool sound = true;
  for (float* const f : {&e.checks, &e.tokens, &e.agree, &e.agree2, &e.cross, &e.tokens2}) {
    sound = get(in, *f) && sound;
  }
  return sound && e.agree <= e.tokens;
}

}  // namespace

uint32_t rung_of(double ratio) {
  // A host's ratio for a short prompt is a tiny one of usual prompts, but that is not reuse.
  uint32_t nearest = ratio > 0 ? 1 : 0;
  for (uint32_t i = 1; i < kLadder.size(); ++i) {
    if (std::abs(kLadder[i] - ratio) < std::abs(kLadder[nearest] - ratio)) nearest = i;
  }
  return nearest;
}

double share_of(double ratio, uint64_t n_rows) { return std::pow(ratio, exponent(n_rows)); }

double usual_share(double share, uint64_t n_rows) {
  return std::pow(std::clamp(share, 0.0, 1.0), 1 / exponent(n_rows));
}

void Evidence::add(const CheckedAnswer& answer) {
  const auto n = static_cast<float>(answer.n_tokens), a = static_cast<float>(answer.n_agree);
  for (float* const f : {&checks, &tokens, &agree, &agree2, &cross, &tokens2}) *f *= kFade;
  checks += 1;
  tokens += n;
  agree += a;
  agree2 += a * a;
  cross += a * n;
  tokens2 += n * n;
}

Interval Evidence::interval(double z) const {
  if (!(tokens > 0)) return {};
  const double n = static_cast<double>(tokens), k = static_cast<double>(checks);
  const double p = agreement();
  // The design effect: the variance of the agreement over clusters, relative to that of as many
  // independent tokens.
  const double near_p = (static_cast<double>(agree) + 1) / (n + 2);  // neither 0 nor 1
  const double squares = static_cast<double>(agree2) - 2 * p * static_cast<double>(cross) +
                         p * p * static_cast<double>(tokens2);
  const double seen = std::max(squares, 0.0) / (near_p * (1 - near_p) * n);
  const double spread = (k * seen + kGuessWeight * kGuessedSpread) / (k + kGuessWeight);
  const double counted = n / std::max(spread, 1.0);
  const double z2 = z * z / counted;
  const double middle = (p + z2 / 2) / (1 + z2);
  const double half = z / (1 + z2) * std::sqrt(p * (1 - p) / counted + z2 / (4 * counted));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

void RungRecord::add(const CheckedAnswer& answer) {
  ++n_checks;
  n_tokens += answer.n_tokens;
  evidence.add(answer);
  identical = identical * Evidence::kFade + (answer.n_agree == answer.n_tokens ? 1.0f : 0.0f);
  kl = kl * Evidence::kFade + static_cast<float>(answer.kl);
  n_kl = n_kl * Evidence::kFade + static_cast<float>(answer.n_kl);
}

void LadderState::move_to(uint32_t to) {
  came_down = to < rung;
  rung = static_cast<uint8_t>(to);
  since = {};
}

void LadderState::observe(const CheckedAnswer& answer) {
  if (answer.n_tokens == 0) return;
  since.add(answer);
  if (wait > 0) --wait;
  if (since.checks >= kLeastUp && since.interval(kSureUp).high < target() &&
      rung + 1u < kLadder.size()) {
    // The rung is not tried again for a while, each time for longer. Otherwise the ratio would
    // alternate between two rungs for ever.
    wait = kFirstWait << bounces;
    bounces = static_cast<uint8_t>(std::min<uint32_t>(bounces + 1u, kMostDoublings));
    move_to(rung + 1u);
    return;
  }
  if (since.checks < kLeastDown || since.interval(kSureDown).low <= target()) return;
  if (came_down) bounces = 0;  // the rung that it came down to keeps the target
  if (wait == 0 && rung > 0) move_to(rung - 1u);
}

double FidelityRecord::ratio(double target, uint32_t first) const {
  const uint32_t ppm = to_ppm(target);
  for (const LadderState& s : states) {
    if (s.target_ppm == ppm) return kLadder[s.rung];
  }
  return kLadder[first];
}

bool FidelityRecord::follow(double target, uint32_t first) {
  const uint32_t ppm = to_ppm(target);
  const auto same = [&](const LadderState& s) { return s.target_ppm == ppm; };
  if (std::any_of(states.begin(), states.end(), same)) return false;
  if (states.size() >= kMostTargets) states.erase(states.begin());
  LadderState& state = states.emplace_back();
  state.target_ppm = ppm;
  state.rung = static_cast<uint8_t>(first);
  return true;
}

void FidelityRecord::observe(double ratio, const CheckedAnswer& answer) {
  if (answer.n_tokens == 0) return;
  const uint32_t rung = rung_of(ratio);
  rungs[rung].add(answer);
  for (LadderState& s : states) {
    if (s.rung == rung) s.observe(answer);
  }
}

std::string FidelityRecord::encode() const {
  ByteWriter out;
  out.put(kFidelityVersion);
  out.put(static_cast<uint32_t>(states.size()));
  for (const RungRecord& r : rungs) {
    out.put(r.n_checks);
    out.put(r.n_tokens);
    put(out, r.evidence);
    for (const float f : {r.identical, r.kl, r.n_kl}) put(out, f);
  }
  for (const LadderState& s : states) {
    out.put(s.target_ppm);
    out.put(s.rung);
    out.put(s.bounces);
    out.put(static_cast<uint16_t>(s.came_down ? 1 : 0));
    out.put(s.wait);
    put(out, s.since);
  }
  return out.take();
}

std::optional<FidelityRecord> FidelityRecord::decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  FidelityRecord out;
  bool sound = in.get<uint32_t>() == kFidelityVersion;
  const auto n_states = in.get<uint32_t>();
  if (!sound || n_states > kMostTargets) return std::nullopt;
  for (RungRecord& r : out.rungs) {
    r.n_checks = in.get<uint64_t>();
    r.n_tokens = in.get<uint64_t>();
    sound = get(in, r.evidence) && sound;
    for (float* const f : {&r.identical, &r.kl, &r.n_kl}) sound = get(in, *f) && sound;
  }
  for (uint32_t i = 0; i < n_states; ++i) {
    LadderState& s = out.states.emplace_back();
    s.target_ppm = in.get<uint32_t>();
    s.rung = in.get<uint8_t>();
    s.bounces = in.get<uint8_t>();
    const auto came_down = in.get<uint16_t>();
    s.came_down = came_down == 1;
    s.wait = in.get<uint32_t>();
    sound = get(in, s.since) && sound;
    sound = sound && s.rung < kLadder.size() && s.bounces <= LadderState::kMostDoublings &&
            came_down <= 1 && s.target_ppm <= 1'000'000;
  }
  if (!sound || !in.ok() || in.remaining() != 0) return std::nullopt;
  return out;
}

}  // namespace blend
