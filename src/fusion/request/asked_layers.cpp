#include "fusion/request/asked_layers.h"

#include <algorithm>

#include "control/check_layer.h"
#include "model/config.h"

namespace blend {
namespace {

// As early as what the question has read is in its Q and K.
constexpr uint32_t kEarly = 1;
// The middle layers are all but the first and the last sixth.
constexpr uint32_t kLeftOut = 6;

// The attending layer that is nearest to the last of `range`; before it if there is one.
uint32_t attending(const LayerRange& range, uint32_t n_layers, const RowMixer& mixer) {
  for (uint32_t i = range.last + 1; i-- > range.first;) {
    if (!mixer.has(i)) return i;
  }
  uint32_t later = range.last;
  while (later + 1 < n_layers && mixer.has(later)) ++later;
  if (!mixer.has(later)) return later;
  uint32_t before = range.first;
  while (before > 0 && mixer.has(before)) --before;
  return before;
}

}  // namespace

LayerRange asked_layers(Asks what, uint32_t n_layers, const RowMixer& mixer) {
  LayerRange range{kEarly, kEarly};
  if (what == Asks::middle) {
    range.first = n_layers / kLeftOut;
    range.last = std::max(range.first, n_layers - 1 - n_layers / kLeftOut);
  }
  if (!mixer.any()) return range;
  if (what != Asks::middle) {
    const uint32_t early = dependent_layer(mixer, n_layers, kEarly);
    if (early < n_layers) return {early, early};
  }
  range.last = attending(range, n_layers, mixer);
  if (what != Asks::middle) range.first = range.last;
  range.first = std::min(range.first, range.last);
  return range;
}

}  // namespace blend
