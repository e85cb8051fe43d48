// The input of a model's fingerprint, independent of the file format.
//
// A tree of SHA-256: blocks of 8 MiB are hashed by themselves, on as many threads as there are, and
// their digests go into one hash in a fixed order, so that the result does not depend on threads.
#pragma once

#include <span>

#include "model/model_source.h"

namespace blend {

inline constexpr size_t kFingerprintBlock = size_t{8} << 20;

// Every field that results depend on: not the model's name, nor its training context.
void hash_config(const ModelConfig& config, Sha256Hasher& hasher);

// Name, type, shape and block digests of each tensor, in the given order. Reports bytes to `watch`
// between batches of blocks.
Status hash_tensors(std::span<const TensorView> tensors, const ModelSource::ParallelRun& parallel,
                    const Watch& watch, Sha256Hasher& hasher);

}  // namespace blend
