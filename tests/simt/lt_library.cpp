// The emulated cuBLASLt is linked: nothing is to be opened.
#include "backend/cuda/lt_library.h"

namespace blend::cuda {

Result<LtLibrary> open_lt_library() {
  LtLibrary linked;
#define BLEND_LT_LINKED(name) linked.name = &::cublasLt##name;
  BLEND_LT_FUNCTIONS(BLEND_LT_LINKED)
#undef BLEND_LT_LINKED
  return linked;
}

}  // namespace blend::cuda
