// The tiles of one product, each with the primitive that computes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/cpu/matmul_cache.h"
#include "backend/cpu/tiles.h"
#include "base/status.h"

namespace blend::cpu {

// y [row .. row + rows, column .. column + columns].
struct Tile {
  int64_t row, rows, column, columns;
  int64_t column_tile;
  const Matmul& matmul;
};

// Immutable.
class TileMatmuls {
 public:
  // `whole`: the product that is cut as `plan` says, and what its tiles' primitives do.
  static Result<TileMatmuls> of(MatmulCache& cache, const TilePlan& plan, const MatmulKey& whole);

  const TilePlan& plan() const { return plan_; }
  size_t n_tiles() const { return static_cast<size_t>(plan_.row_tiles * plan_.column_tiles); }
  size_t elements() const { return static_cast<size_t>(plan_.rows * plan_.columns); }  // of a tile
  // What oneDNN takes of a thread's scratch, at most.
  size_t library_bytes() const { return library_bytes_; }
  // Neighbours share their columns, so that these rows of W are read from memory once.
  Tile tile(size_t i) const;

 private:
  TilePlan plan_;
  int64_t m_ = 0, n_ = 0;
  using Pair = std::array<std::shared_ptr<const Matmul>, 2>;
  std::array<Pair, 2> matmuls_;  // [last row tile][last column tile]
  size_t library_bytes_ = 0;
};

}  // namespace blend::cpu
