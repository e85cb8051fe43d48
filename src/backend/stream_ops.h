// StreamOps: rows that are several streams (ModelConfig::n_streams).
#pragma once

#include <cstdint>
#include <span>

#include "backend/tensor.h"
#include "backend/weight.h"
#include "base/status.h"

namespace blend {

// The streams of some rows: [rows, d_model] each, f32. `x` is the first of them.
struct StreamRows {
  Tensor x;
  std::span<const Tensor> others;

  size_t count() const { return 1 + others.size(); }
};

// Part of a backend (backend.h): its rules of order and threads hold here as well. Coefficients are
// load_vector()s; scores: what a router makes of the rows, [rows, count], whose tanh is taken.
class StreamOps {
 public:
  virtual ~StreamOps() = default;
  // x_s += sum over t of (P tanh(scores))_(s, t) x_t; P: [count * count, count].
  virtual Status predict(const Weight& coefficients, Tensor scores, const StreamRows& rows) = 0;
  // x_s = before_s + (1 + (C tanh(scores))_s) (x - before), where of all streams but the first
  // before_s is x_s; C: [count, count].
  virtual Status correct(const Weight& coefficients, Tensor scores, Tensor before,
                         const StreamRows& rows) = 0;
  // Each row of y is scaled to the root mean square of that of x; y of less than 1e-5 in the mean
  // of its squares counts as that.
  virtual Status match(Tensor x, Tensor y) = 0;
  // out = x * weight, element by element of a row; weight: [d_model].
  virtual Status weigh(Tensor x, const Weight& weight, Tensor out) = 0;
};

}  // namespace blend
