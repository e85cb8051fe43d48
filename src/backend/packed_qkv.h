// PackedQkv: Q, K and V of a layer's rows by one product with their stacked weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/kv_cache.h"
#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"

namespace blend {

// The weights of Q, K and V stacked, [q_dim + 2 * kv_dim, d_model], and those applied after their
// product; null: nothing.
struct QkvWeights {
  const Weight* stacked = nullptr;
  const Weight* bias = nullptr;    // [q_dim + 2 * kv_dim]
  const Weight* q_norm = nullptr;  // [head_dim]
  const Weight* k_norm = nullptr;  // [head_dim]
  float eps = 0;                   // of the norms
};

// Destination of Q, K and V of rows at slots of a cache.
struct QkvTarget {
  KvCache* cache = nullptr;
  uint32_t layer = 0;
  const RopeTable* q_rope = nullptr;
  const RopeTable* k_rope = nullptr;
  const uint32_t* pos = nullptr;  // host [rows]
  Tensor q;                       // [rows, q_dim], rotated
  Tensor kv;                      // [rows, 2 * kv_dim] = K before RoPE | V
  Tensor scratch;                 // f32 [rows, q_dim + 2 * kv_dim]
};

// A row of Q | K | V and the slot that it goes to, of a cache of its own.
struct RowInto {
  KvCache* cache = nullptr;
  const RopeTable* q_rope = nullptr;
  const RopeTable* k_rope = nullptr;
  uint32_t row = 0;
  uint32_t pos = 0;
};

// Part of a backend (backend.h): its rules of order and threads hold here as well. A model whose
// backend has one stacks the weights of Q, K and V.
class PackedQkv {
 public:
  virtual ~PackedQkv() = default;
  // Rows [first, first + rows) of a stacked matrix, in its memory, which both keep.
  virtual Result<std::unique_ptr<Weight>> part_of(const Weight& matrix, int64_t first,
                                                  int64_t rows) = 0;
  // matmul(), add_bias(), norm_heads(), write_kv() and rope_q() of a layer's rows at once; x:
  // [rows, d_model], normed. x and the scratch may have more rows than q.
  virtual Status project(const QkvWeights& weights, Tensor x, const QkvTarget& to) = 0;
  // project() of rows that each go to a cache of their own, bit for bit its result for each by
  // itself where the product has as many rows; q, x and scratch as there. Rows that are not named
  // go nowhere, and their Q may be anything.
  virtual Status project_each(const QkvWeights& weights, uint32_t layer, Tensor x,
                              std::span<const RowInto> rows, Tensor q, Tensor scratch) = 0;
};

}  // namespace blend
