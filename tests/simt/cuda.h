// Stands in for NVIDIA's header of this name: what libblend uses of the driver is declared with the
// run-time library's, by whose cudaGetDriverEntryPointByVersion() it is found.
#pragma once

#include "simt/cuda_runtime.h"
