// The layers at which a policy reads the question's attention over the stored rows, before a row of
// a chunk is computed. Policies say what they want to know; this file says which layers show it.
#pragma once

#include <cstdint>

namespace blend {

struct RowMixer;  // model/config.h

// The question's attention that a policy needs before layer 0.
enum class Asks : uint8_t {
  nothing,
  early,   // at layer 1: hardly any work
  middle,  // the mean over the middle layers, where a model reads what it needs for the answer
};

// Layers, both ends included.
struct LayerRange {
  uint32_t first = 0;
  uint32_t last = 0;

  uint32_t size() const { return last - first + 1; }
  bool has(uint32_t layer) const { return layer >= first && layer <= last; }
};

// The layers whose attention is read: of these, those that attend; the last does. All layers up to
// it are computed for the question's rows. n_layers >= 2; `what` is not `nothing`.
LayerRange asked_layers(Asks what, uint32_t n_layers, const RowMixer& mixer);

}  // namespace blend
