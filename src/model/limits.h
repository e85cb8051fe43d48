#pragma once

#include <cstdint>

namespace blend {

// Bounds of a model's description, whatever its format. Far above any model, so that products of
// two of them stay inside 32 bits where a reader multiplies them and inside 64 everywhere.
inline constexpr uint32_t kMaxLayers = 1 << 16;
inline constexpr uint32_t kMaxHeads = 1 << 14;
inline constexpr uint32_t kMaxHeadDim = 1 << 14;
inline constexpr uint32_t kMaxWidth = 1 << 26;
inline constexpr uint32_t kMaxExperts = 1 << 12;
inline constexpr uint32_t kMaxTaps = 64;
inline constexpr uint32_t kMaxExpertGroups = 1 << 6;
inline constexpr uint32_t kMaxContext = 16 << 20;
inline constexpr uint32_t kMaxVocab = 1 << 26;

}  // namespace blend
