// LtLibrary: cuBLASLt, opened when a backend is made.
//
// It is not linked: Python's packages put it where no loader looks, and a host may have that of
// CUDA 12 or of CUDA 13. What is called of it has the same arguments in both.
#pragma once

#include <cublasLt.h>

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace blend::cuda {

#define BLEND_LT_FUNCTIONS(X)     \
  X(GetStatusString)              \
  X(Create)                       \
  X(Destroy)                      \
  X(MatmulDescCreate)             \
  X(MatmulDescSetAttribute)       \
  X(MatmulDescDestroy)            \
  X(MatrixLayoutCreate)           \
  X(MatrixLayoutDestroy)          \
  X(MatmulPreferenceCreate)       \
  X(MatmulPreferenceSetAttribute) \
  X(MatmulPreferenceDestroy)      \
  X(MatmulAlgoGetHeuristic)       \
  X(MatmulAlgoCheck)              \
  X(Matmul)

// Its functions, without their prefix. Good as long as the process: the library stays loaded.
struct LtLibrary {
#define BLEND_LT_MEMBER(name) decltype(&::cublasLt##name) name = nullptr;
  BLEND_LT_FUNCTIONS(BLEND_LT_MEMBER)
#undef BLEND_LT_MEMBER
};

// Where it is looked for, in this order: libcublasLt.so.13 where the loader finds it, then where
// Python's packages put it as seen from `folder` (../nvidia/cu13/lib); then the same of
// libcublasLt.so.12 (../nvidia/cublas/lib).
std::vector<std::string> lt_candidates(const std::string& folder);

// The first of `candidates` that can be opened and has all functions. NO_DEVICE: none; the message
// says of each why not.
Result<LtLibrary> open_lt_library(std::span<const std::string> candidates);

// As seen from the folder of the library that this is part of.
Result<LtLibrary> open_lt_library();

}  // namespace blend::cuda
