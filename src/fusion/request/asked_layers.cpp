#include "fusion/request/asked_layers.h"

#include <algorithm>

namespace blend {
namespace {

constexpr uint32_t kEarly = 1;
// The middle layers are all but the first and the last sixth.
constexpr uint32_t kLeftOut = 6;

}  // namespace

LayerRange asked_layers(Asks what, uint32_t n_layers) {
  if (what != Asks::middle) return {kEarly, kEarly};
  const uint32_t first = n_layers / kLeftOut;
  return {first, std::max(first, n_layers - 1 - n_layers / kLeftOut)};
}

}  // namespace blend
