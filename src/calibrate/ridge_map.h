// RidgeSums: a linear map by ridge regression, from rows that come in a stream.
//
// Rows give X^T X, X^T Y and the sums of y^2, so memory does not grow with their number. The map is
//   A = (X^T X + ridge * diag(X^T X))^-1 X^T Y
// where the ridge is relative to each input's own size, so that it means the same for inputs of any
// scale; a constant (the last input, where there is one) is not penalized.
//
// The same sums tell a map's error on rows that it was not fitted on, |Y - X A|^2, so a ridge is
// chosen by cross-validation without seeing the rows again.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "base/threads/cancel.h"
#include "base/threads/thread_pool.h"

namespace blend {

// For one matrix of inputs and one or more of outputs. A plain value, but for the pool.
struct RidgeSums {
  RidgeSums(size_t n_inputs, size_t n_outputs, size_t n_maps);

  // x: [rows, n_in]; y[i]: [rows, n_out] of map i.
  void add(ThreadPool& pool, const double* x, std::span<const std::vector<double>> y, size_t rows);
  RidgeSums& operator+=(const RidgeSums& other);

  size_t n_in, n_out;
  std::vector<double> gram;                // X^T X: [n_in, n_in]
  std::vector<std::vector<double>> cross;  // [n_maps] X^T Y: [n_in, n_out]
  std::vector<std::vector<double>> power;  // [n_maps] sum of y^2: [n_out]
};

// The ridge, of those tried, for which maps fitted on either half leave the least error on
// the other: shares of the squared outputs, summed over all maps. NUMERIC where none of them can be
// fitted.
Result<double> choose_ridge(ThreadPool& pool, std::span<const RidgeSums> halves, bool constant,
                            const Watch& watch);

// One map: [n_out, n_in], or [n_out, rank] and [rank, n_in] whose product it is.
struct RidgeMap {
  std::vector<std::vector<double>> matrices;
  // Share of the squared outputs that it explains where it was fitted, for the first and the
  // second half of the outputs (K and V).
  double explained[2] = {0, 0};
};

// rank 0: full; otherwise the best map of that rank in the fitted rows' own measure (reduced-rank
// regression, Izenman 1975). NUMERIC when there are too few rows for the ridge.
Result<std::vector<RidgeMap>> solve_ridge(ThreadPool& pool, const RidgeSums& sums, bool constant,
                                          double ridge, size_t rank, const Watch& watch);

}  // namespace blend
