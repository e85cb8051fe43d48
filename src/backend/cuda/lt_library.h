// LtLibrary: cuBLASLt, opened when a backend is made.
//
// It is not linked: Python's packages put it where no loader looks, and a host may have the one of
// CUDA 12 or of CUDA 13. The functions used have the same arguments in both.
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
  X(Matmul)

// Its functions, without their prefix. Valid for the life of the process: the library stays loaded.
struct LtLibrary {
#define BLEND_LT_MEMBER(name) decltype(&::cublasLt##name) name = nullptr;
  BLEND_LT_FUNCTIONS(BLEND_LT_MEMBER)
#undef BLEND_LT_MEMBER
};

// Where to look for it, in this order: libcublasLt.so.13 where the loader finds it, then where
// Python's packages put it as seen from `folder` (../nvidia/cu13/lib); then the same of
// libcublasLt.so.12 (../nvidia/cublas/lib).
std::vector<std::string> lt_candidates(const std::string& folder);

// The first of `candidates` that can be opened and has all functions. NO_DEVICE: none; the message
// gives the reason for each.
Result<LtLibrary> open_lt_library(std::span<const std::string> candidates);

// Candidates as seen from the folder of the library that contains this code.
Result<LtLibrary> open_lt_library();

}  // namespace blend::cuda
