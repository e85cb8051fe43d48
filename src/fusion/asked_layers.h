// At which layers the question is asked what it attends to, over the stored rows, before a row of a
// chunk is computed. Policies say what they want to know; which layers tell it is a matter of the
// model, and stands here.
#pragma once

#include <cstdint>

namespace blend {

// What a policy wants to know of the question before layer 0.
enum class Asks : uint8_t {
  nothing,
  early,   // at layer 1: next to no work, and all that can be known without it
  middle,  // the mean over the middle layers, where a model reads what it will answer
};

// Layers, both ends included.
struct LayerRange {
  uint32_t first = 0;
  uint32_t last = 0;

  uint32_t size() const { return last - first + 1; }
  bool has(uint32_t layer) const { return layer >= first && layer <= last; }
};

// The layers that are asked; all up to the last of them are computed for the rows that ask.
// n_layers is 2 or more, and what is asked something.
LayerRange asked_layers(Asks what, uint32_t n_layers);

}  // namespace blend
