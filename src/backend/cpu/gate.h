// The kernel of an activation.
#pragma once

#include "cpu/swiglu.h"
#include "model/config.h"

namespace blend::cpu {

inline auto gate_of(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return kernels::geglu;
    case Activation::clamped_silu:
      return kernels::clamped_swiglu;
    case Activation::relu2:  // up is its own gate
      return kernels::reglu;
    case Activation::silu:
      break;
  }
  return kernels::swiglu;
}

}  // namespace blend::cpu
