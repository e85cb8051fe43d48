// ConvOps: layers that convolve over a few rows (RowMixer in model/config.h).
#pragma once

#include <cstdint>
#include <span>

#include "backend/attention.h"
#include "backend/kv_cache.h"
#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"

namespace blend {

// Part of a backend (backend.h): its rules of order and threads hold here as well. Where a backend
// has it, its caches keep u in the layers that convolve, one row of d_model elements a slot, and
// what works on a cache's rows K | V works on these: write_kv(), move_rows(), scatter(), read_kv()
// and, in two halves, encode_kv(). None of them rotates u.
class ConvOps {
 public:
  virtual ~ConvOps() = default;
  // u = B * X; bx: [rows, 2 * d_model] = B | X; u: [rows, d_model].
  virtual Status gate(Tensor bx, Tensor u) = 0;
  // y[i] = c[i] * sum over j < n_taps of w[n_taps - 1 - j] * u(pos[i] - j), element by element, in
  // place of c; u of a slot below 0 is 0. taps: load_vector(), [d_model, n_taps]; c: [rows,
  // d_model]; pos: host.
  virtual Status convolve(const KvCache& cache, uint32_t layer, const Weight& taps, Tensor c,
                          const uint32_t* pos) = 0;
  // convolve() of rows that each see a cache of their own; bit for bit its result for each by
  // itself.
  virtual Status convolve_each(uint32_t layer, const Weight& taps, Tensor c,
                               std::span<const RowOver> rows) = 0;
};

}  // namespace blend
