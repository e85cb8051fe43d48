// The policies, one row each: the only list of them.
//
// The enum, the makers, the bounds of the C ABI, the names of the command, the messages about
// unions and the test of docs/fusion.md read it. A new policy is a constant of the public header,
// a file in this folder, a row here, a test, and a row of docs/fusion.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "blend/experimental.h"
#include "fusion/request/asked_layers.h"

namespace blend {

// The measurements that a policy needs. One that needs none may choose before layer 0, so that rows
// that it leaves out are never computed.
struct Needs {
  bool deviation = false;
  bool question_attention = false;  // at each check layer
  // The question's attention over the stored rows, before layer 0; the first choice is then made
  // there.
  Asks asks = Asks::nothing;

  constexpr bool probe() const { return asks != Asks::nothing; }
  constexpr bool nothing() const { return !deviation && !question_attention && !probe(); }
  bool operator==(const Needs&) const = default;
};

// RANKS: a policy of its own, made by make_MEMBER() of policy.h. OTHER: one that chooses no rows,
// or consists of others. Both: member of Policy, constant, name, needs, traits. Help and messages
// keep this order.
// clang-format off
#define BLEND_POLICIES(RANKS, OTHER)                                                                           \
  OTHER(automatic,      AUTO,           "auto",           kDeviation,          kWeighs | kStandsFor)           \
  RANKS(hkvd,           HKVD,           "hkvd",           kDeviation,          kJoins | kWeighs | kCalibrated) \
  RANKS(first_k,        FIRST_K,        "first_k",        kNothing,            kJoins | kResearch)             \
  RANKS(random,         RANDOM,         "random",         kNothing,            kJoins | kResearch)             \
  RANKS(question,       QUESTION,       "question",       kReadDeviation,      kJoins | kWeighs | kResearch)   \
  RANKS(callback,       CALLBACK,       "callback",       kDeviation,          kJoins | kProgram | kResearch)  \
  RANKS(context_impact, CONTEXT_IMPACT, "context_impact", kNothing,            kJoins | kResearch)             \
  OTHER(ape,            APE,            "ape",            kNothing,            kJoins | kResearch)             \
  RANKS(probe,          PROBE,          "probe",          kEarly,              kJoins | kResearch)             \
  RANKS(cascade,        CASCADE,        "cascade",        kEarlyThenDeviation, kJoins | kCalibrated)           \
  RANKS(attention,      ATTENTION,      "attention",      kMiddle,             kJoins | kCalibrated)           \
  OTHER(combined,       UNION,          "union",          kNothing,            kProgram | kResearch)           \
  OTHER(reuse,          REUSE,          "reuse",          kNothing,            0)                              \
  OTHER(full,           FULL,           "full",           kNothing,            0)
// clang-format on

enum class Policy : uint32_t {
#define BLEND_ROW(member, code, name, needs, traits) member = BLEND_POLICY_##code,
  BLEND_POLICIES(BLEND_ROW, BLEND_ROW)
#undef BLEND_ROW
};

struct PolicyEntry {
  Policy policy;
  std::string_view name;      // in the command and the documentation
  std::string_view constant;  // after BLEND_POLICY_
  Needs needs;
  bool ranks;  // make_policy() makes one
  uint32_t traits;

  constexpr uint32_t code() const { return static_cast<uint32_t>(policy); }
  constexpr bool has(uint32_t trait) const { return (traits & trait) != 0; }
};

namespace policy_table {

// Needs.
inline constexpr Needs kNothing{};
inline constexpr Needs kDeviation{.deviation = true};
inline constexpr Needs kReadDeviation{.deviation = true, .question_attention = true};
inline constexpr Needs kEarly{.asks = Asks::early};
inline constexpr Needs kEarlyThenDeviation{.deviation = true, .asks = Asks::early};
inline constexpr Needs kMiddle{.asks = Asks::middle};

// Traits.
inline constexpr uint32_t kJoins = 1;       // may be a term of a union
inline constexpr uint32_t kWeighs = 2;      // BLEND_METRIC_*_WEIGHED applies to it
inline constexpr uint32_t kCalibrated = 4;  // calibration measures it
inline constexpr uint32_t kProgram = 8;     // programs can ask for it, the command has no name
inline constexpr uint32_t kResearch = 16;   // kept for comparison with the others
inline constexpr uint32_t kStandsFor = 32;  // another policy, until the fuse is resolved

#define BLEND_RANKS(member, code, name, needs, traits) \
  {Policy::member, name, #code, needs, true, traits},
#define BLEND_OTHER(member, code, name, needs, traits) \
  {Policy::member, name, #code, needs, false, traits},
inline constexpr PolicyEntry kPolicies[] = {BLEND_POLICIES(BLEND_RANKS, BLEND_OTHER)};
#undef BLEND_RANKS
#undef BLEND_OTHER

constexpr uint32_t last_code() {
  uint32_t last = 0;
  for (const PolicyEntry& e : kPolicies) last = std::max(last, e.code());
  return last;
}

}  // namespace policy_table

using policy_table::kPolicies;

// Codes are 0 .. kLastPolicy without a gap.
inline constexpr uint32_t kLastPolicy = policy_table::last_code();
static_assert(kLastPolicy + 1 == std::size(kPolicies));

// Null if no policy has this code.
constexpr const PolicyEntry* find_policy(uint32_t code) {
  for (const PolicyEntry& e : kPolicies) {
    if (e.code() == code) return &e;
  }
  return nullptr;
}
constexpr const PolicyEntry& policy_entry(Policy policy) {
  return *find_policy(static_cast<uint32_t>(policy));
}

// The constants for which keep(entry) holds: "A, B and C", each after `prefix`.
template <typename Keep>
std::string policy_list(const Keep& keep, std::string_view joint = " and ",
                        std::string_view prefix = "") {
  std::vector<std::string> names;
  for (const PolicyEntry& e : kPolicies) {
    if (keep(e)) names.push_back(std::string(prefix).append(e.constant));
  }
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? joint : ", ";
    out += names[i];
  }
  return out;
}

}  // namespace blend
