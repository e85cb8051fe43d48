// HostOps: K and V of a host that runs the model itself (the step API), in the host's layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/drift.h"
#include "backend/kv_cache.h"
#include "backend/stored_run.h"
#include "backend/tensor.h"
#include "base/status.h"
#include "formats/half.h"

namespace blend {

// K and V of consecutive rows of one layer in the memory of a host: element e of head h of row i
// lies at i * row_stride + h * head_stride + e, of dtype.
struct HostKv {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  DType dtype = DType::f32;
  bool rotated = true;     // K carries its row's position; false: before RoPE
  size_t row_stride = 0;   // elements
  size_t head_stride = 0;  // elements
  uint32_t n_kv_heads = 0;
  uint32_t head_dim = 0;

  uint32_t kv_dim() const { return n_kv_heads * head_dim; }
};

// Part of a backend (backend.h): its rules of order and threads hold here as well.
class HostOps {
 public:
  virtual ~HostOps() = default;
  // Rows of `src` as the model computes them: kv[i] = K | V of row i, K rotated back from pos[i] if
  // it is rotated; pos: host [kv.rows]. NUMERIC names the first row that is not finite.
  virtual Status read(const HostKv& src, const RopeTable& rope, const uint32_t* pos, Tensor kv) = 0;
  // FusionOps::scatter() into host memory: row r of the prompt is row r of `dst`. NUMERIC when a
  // value is not finite in its dtype. Done when it returns.
  virtual Status scatter(const HostKv& dst, const RopeTable& rope, std::span<const StoredRun> runs,
                         const uint8_t* skip, const Correction* correction) = 0;
};

}  // namespace blend
