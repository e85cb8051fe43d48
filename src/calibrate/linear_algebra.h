// The linear algebra of the drift fit, in double precision.
//
// Matrices are row-major. The functions use the pool's threads and keep no state: thread-safe on
// distinct matrices.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/threads/thread_pool.h"

namespace blend {

// sum of a[i] * b[i], in eight interleaved sums: the order is fixed, so is the result.
double dot(const double* a, const double* b, size_t n);

// out += x^T y; x: [rows, n], y: [rows, m], out: [n, m].
void add_product(ThreadPool& pool, const double* x, size_t n, const double* y, size_t m,
                 size_t rows, double* out);

// A = L L^T of a symmetric positive definite matrix, of which the lower triangle is read and
// becomes L. NUMERIC when a pivot is not positive.
Status cholesky(ThreadPool& pool, std::span<double> a, size_t n);
// Solves L L^T X = B in place; l: [n, n], b: [n, m].
void cholesky_solve(ThreadPool& pool, std::span<const double> l, size_t n, std::span<double> b,
                    size_t m);

// Eigenvalues, descending, and eigenvectors (row i belongs to value i) of the symmetric a: [n, n],
// by cyclic Jacobi rotations. NUMERIC when they do not converge (the matrix holds a NaN).
struct Eigen {
  std::vector<double> values;   // [n]
  std::vector<double> vectors;  // [n, n]
};
Result<Eigen> symmetric_eigen(std::vector<double> a, size_t n);

}  // namespace blend
