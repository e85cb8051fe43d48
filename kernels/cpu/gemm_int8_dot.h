// The paths of gemm_int8.h whose instruction adds up four products of bytes.
#pragma once

#include "cpu/gemm_int8.h"

namespace blend::kernels {

// Without rows: this build has no such path.
Int8Shape int8_dot_shape(Int8Path path);
void int8_dot_tile(Int8Path path, const Int8Tile& tile);

}  // namespace blend::kernels
