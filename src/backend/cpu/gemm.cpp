#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "backend/cpu/first_error.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/sizes.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_f32.h"
#include "cpu/gemm_pack.h"

namespace blend::cpu {
namespace {

using kernels::GemmTile;
using kernels::kGemmDepth;

// Rows of W that are packed into a panel together.
constexpr int64_t kAtOnce = 4;

TileUnits tile_units() {
  const kernels::GemmShape shape = kernels::gemm_shape();
  return units_in_cache(static_cast<int64_t>(shape.rows), static_cast<int64_t>(shape.columns),
                        kGemmDepth * sizeof(float), sizeof(float));
}

// The type of panels of these parts: their own type, where all have the same.
DType panel_dtype(const StackedParts& stacked) {
  const TensorView& first = *stacked.parts()[0];
  for (const TensorView* part : stacked.parts()) {
    if (part->blocks != BlockType::none || part->dtype != first.dtype) return DType::f32;
  }
  return first.dtype == DType::f16 && !kernels::gemm_widens_f16() ? DType::f32 : first.dtype;
}

}  // namespace

// Some rows of a product.
struct Gemm::Rows {
  const float* x;  // [m, in]
  int64_t m;
  float* y;  // [m, out]
  bool accumulate;
};

Result<std::unique_ptr<PackedMatrix>> Gemm::pack(std::span<const TensorView* const> parts) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols(), columns = tile_units().columns;
  const DType dtype = panel_dtype(stacked);
  const int64_t n_panels = ceil_div(n, columns);
  BLEND_ASSIGN(AlignedBuffer panels,
               allocate_tensor(static_cast<size_t>(n_panels * columns * k * dtype_size(dtype))));

  const size_t row_bytes = static_cast<size_t>(k) * sizeof(float);
  const size_t per_thread = lines(kAtOnce * row_bytes);
  BLEND_ASSIGN(auto lease, scratch_.take(per_thread * pool_.n_threads()));
  FirstError error;
  const auto pack_some = [&](int64_t first, float* rows) {  // [kAtOnce, k]
    const int64_t n_rows = std::clamp<int64_t>(n - first, 0, kAtOnce);
    for (int64_t i = 0; i < n_rows && !error.failed(); ++i) {
      error.set(stacked.decode_row(first + i, rows + i * k));
    }
    if (error.failed()) return;
    const int64_t at = first / columns * columns * k + first % columns;
    const auto pack = [&](auto* to, auto interleave) {
      interleave(rows, static_cast<size_t>(n_rows), static_cast<size_t>(k), kAtOnce,
                 static_cast<size_t>(columns), to + at);
    };
    if (dtype == DType::f32) return pack(panels.as<float>(), kernels::interleave_rows);
    // All are finite: now copy their bits unchanged.
    for (int64_t i = 0; i < n_rows; ++i) {
      const auto [part, row] = stacked.part_of(first + i);
      std::memcpy(reinterpret_cast<uint16_t*>(rows) + i * k, part->row(row), row_bytes / 2);
    }
    pack(panels.as<uint16_t>(), kernels::interleave_rows_16);
  };
  pool_.parallel_for(
      static_cast<size_t>(n_panels), 1, [&](size_t begin, size_t end, uint32_t thread) {
        auto* const rows = reinterpret_cast<float*>(lease.data() + per_thread * thread);
        const int64_t last = static_cast<int64_t>(end) * columns;
        for (int64_t row = static_cast<int64_t>(begin) * columns; row < last; row += kAtOnce) {
          if (error.failed()) return;
          pack_some(row, rows);
        }
      });
  if (error.failed()) return error.take();
  return std::make_unique<PackedMatrix>(n, k, dtype, columns, std::move(panels));
}

Status Gemm::run(const PackedMatrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  const Rows all{x, m, y, accumulate};
  if (m <= static_cast<int64_t>(kernels::kRowsAsTheyAre)) return run_as_they_are(w, all);
  return run_blocks(w, all);
}

Status Gemm::run(const DecodedMatrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  const Rows all{x, m, y, accumulate};
  if (m <= static_cast<int64_t>(kernels::kFewRowsMost)) return run_few(w, all);
  return run_blocks(w, all);
}

// Every weight is read from memory once and used a few times: threads share out pieces of W.
Status Gemm::run_as_they_are(const PackedMatrix& w, const Rows& rows) {
  const int64_t k = w.in(), n = w.out(), columns = w.columns();
  const int64_t n_panels = ceil_div(n, columns);
  const int64_t grain = panels_per_piece(n_panels, columns * k, rows.m, pool_.n_threads());
  pool_.parallel_for(static_cast<size_t>(n_panels), static_cast<size_t>(grain),
                     [&](size_t begin, size_t end, uint32_t) {
                       const int64_t first = static_cast<int64_t>(begin) * columns;
                       const int64_t last = std::min(n, static_cast<int64_t>(end) * columns);
                       GemmTile tile;
                       tile.m = static_cast<size_t>(rows.m);
                       tile.n = static_cast<size_t>(last - first);
                       tile.k = static_cast<size_t>(k);
                       tile.x = rows.x;
                       tile.as_it_is = true;
                       tile.w = w.panels(first);
                       tile.dtype = w.dtype();
                       tile.y = rows.y + first;
                       tile.y_stride = static_cast<size_t>(n);
                       tile.accumulate = rows.accumulate;
                       kernels::gemm_tile(tile);
                     });
  return Status::ok();
}

// A product whose rows are in blocks, its tiles, and each thread's scratch.
struct Gemm::Blocks {
  const Rows& rows;
  const TilePlan& plan;
  const float* x;  // the blocks
  std::byte* scratch;
  size_t sums, per_thread;  // bytes of a tile's sums, and of all that a thread has

  // Tile `t` on a thread, except for W.
  GemmTile tile(const Tile& t, int64_t k, int64_t out, uint32_t thread) const {
    GemmTile tile;
    tile.m = static_cast<size_t>(t.rows);
    tile.n = static_cast<size_t>(t.columns);
    tile.k = static_cast<size_t>(k);
    tile.x = x + t.row * k;
    tile.y = rows.y + t.row * out + t.column;
    tile.y_stride = static_cast<size_t>(out);
    tile.accumulate = rows.accumulate;
    if (sums != 0) tile.sums = reinterpret_cast<float*>(scratch + per_thread * thread);
    return tile;
  }
  std::byte* scratch_of(uint32_t thread) const { return scratch + per_thread * thread + sums; }
};

namespace {

TilePlan plan_of(const PackedMatrix& w, int64_t m, const TileUnits& units, uint32_t n_threads) {
  return plan_tiles(m, w.out(), w.in(), n_threads, units);
}
// A decoded slice stays in the second-level cache while the blocks of rows pass by, and is used up
// before the next is decoded. (Two Zen 5 cores with AVX-512 and 1 MiB each: k, n = 576, 1536 at 512
// rows 390 GFLOP/s with slices of 1 MiB, 455 with a quarter.)
TilePlan plan_of(const DecodedMatrix& w, int64_t m, TileUnits units, uint32_t n_threads) {
  constexpr int64_t kElements = 64 << 10;
  const int64_t most = std::min(units.most_columns, kElements / w.in()) / units.columns;
  // The most panels, up to this number, with which no thread gets a slice more than others: nine
  // slices of two panels take two threads as long as ten.
  const int64_t panels = ceil_div(w.out(), units.columns);
  const auto longest = [&](int64_t each) {
    return ceil_div(ceil_div(panels, each), static_cast<int64_t>(n_threads)) * each;
  };
  int64_t each = std::max<int64_t>(1, most);
  for (int64_t fewer = each - 1; fewer > 0; --fewer) {
    if (longest(fewer) < longest(each)) each = fewer;
  }
  units.most_columns = each * units.columns;
  TilePlan plan = plan_tiles(m, w.out(), w.in(), n_threads, units);
  plan.in_turn = 1;
  return plan;
}

// Bytes of a tile's sums between the parts of k.
size_t sums_bytes(int64_t k, const TilePlan& plan) {
  if (k <= static_cast<int64_t>(kGemmDepth)) return 0;
  return lines(static_cast<size_t>(plan.rows * plan.columns) * sizeof(float));
}

// A thread's scratch after those sums: a panel's part as f32;
size_t scratch_bytes(const PackedMatrix& w, const TilePlan& /*plan*/) {
  return lines(kGemmDepth * static_cast<size_t>(w.columns()) * sizeof(float));
}
// or which slice it decoded last, rows on their way into a panel, and the slice.
struct Slice {
  int64_t column = -1;
};
// Number of rows of W packed into a panel together: all where they are not too long, so that its
// lines are written whole. They are decoded row by row, as memory prefetches along a row only. (The
// same two cores at 77 rows, 4, 16 and 32 rows together: k, n = 576, 1536 320, 357 and 364 GFLOP/s,
// 8192, 2048 324, 366 and 374; all rows in parts of 1024 columns 347 and 312.)
int64_t decoded_together(int64_t k, int64_t panel_columns) {
  constexpr int64_t kElements = 128 << 10;
  int64_t rows = panel_columns;
  while (rows > 4 && rows * k > kElements) rows /= 2;
  return rows;
}
size_t decoded_bytes(int64_t k) {
  const int64_t rows = decoded_together(k, tile_units().columns);
  return lines(static_cast<size_t>(rows * k) * sizeof(float));
}
size_t scratch_bytes(const DecodedMatrix& w, const TilePlan& plan) {
  return lines(sizeof(Slice)) + decoded_bytes(w.in()) +
         lines(static_cast<size_t>(plan.columns * w.in()) * sizeof(float));
}

}  // namespace

template <class Matrix>
Status Gemm::run_blocks(const Matrix& w, const Rows& all) {
  constexpr int64_t kMostBytes = 16 << 20;  // of x in blocks
  const TileUnits units = tile_units();
  const int64_t k = w.in(), row_bytes = k * static_cast<int64_t>(sizeof(float));
  const int64_t at_once = even_part(all.m, kMostBytes / row_bytes, units.rows);
  for (int64_t row = 0; row < all.m; row += at_once) {
    const Rows rows{all.x + row * k, std::min(at_once, all.m - row), all.y + row * w.out(),
                    all.accumulate};
    const TilePlan plan = plan_of(w, rows.m, units, pool_.n_threads());
    const size_t x_bytes = lines(static_cast<size_t>(align(rows.m, units.rows) * row_bytes));
    const size_t sums = sums_bytes(k, plan), per_thread = sums + scratch_bytes(w, plan);
    BLEND_ASSIGN(auto lease, scratch_.take(x_bytes + per_thread * pool_.n_threads()));
    auto* const x = reinterpret_cast<float*>(lease.data());
    pack_x(rows, k, x);
    multiply(w, {rows, plan, x, lease.data() + x_bytes, sums, per_thread});
  }
  return Status::ok();
}

void Gemm::pack_x(const Rows& rows, int64_t k, float* blocks) {
  const auto unit = kernels::gemm_shape().rows;
  const auto m = static_cast<size_t>(rows.m), cols = static_cast<size_t>(k);
  const size_t n_blocks = (m + unit - 1) / unit;
  pool_.parallel_for(n_blocks, even_grain(n_blocks, row_grain(unit * cols), pool_.n_threads()),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t b = begin; b < end; ++b) {
                         kernels::interleave_rows(rows.x + b * unit * cols,
                                                  std::min(unit, m - b * unit), cols, unit, unit,
                                                  blocks + b * unit * cols);
                       }
                     });
}

void Gemm::multiply(const PackedMatrix& w, const Blocks& blocks) {
  pool_.parallel_for(blocks.plan.n_tiles(), 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t i = begin; i < end; ++i) {
      const Tile t = blocks.plan.tile(i);
      GemmTile tile = blocks.tile(t, w.in(), w.out(), thread);
      tile.w = w.panels(t.column);
      if (const auto next = blocks.plan.next_column(i)) tile.next_w = w.panels(*next);
      tile.dtype = w.dtype();
      tile.scratch = reinterpret_cast<float*>(blocks.scratch_of(thread));
      kernels::gemm_tile(tile);
    }
  });
}

void Gemm::multiply(const DecodedMatrix& w, const Blocks& blocks) {
  const TilePlan& plan = blocks.plan;
  const uint32_t n_threads = pool_.n_threads();
  const auto k = static_cast<size_t>(w.in());
  const size_t columns = kernels::gemm_shape().columns;
  const int64_t together = decoded_together(w.in(), static_cast<int64_t>(columns));
  for (uint32_t i = 0; i < n_threads; ++i) new (blocks.scratch_of(i)) Slice;
  const auto decode = [&](const Tile& t, float* rows, float* panels) {
    const int64_t last = align(t.columns, static_cast<int64_t>(columns));
    for (int64_t j = 0; j < last; j += together) {
      const int64_t there = std::clamp<int64_t>(t.columns - j, 0, together);
      w.decode(t.column + j, there, rows);
      const auto at = static_cast<size_t>(j);
      kernels::interleave_rows(rows, static_cast<size_t>(there), k, static_cast<size_t>(together),
                               columns, panels + at / columns * columns * k + at % columns);
    }
  };
  // A slice is decoded once where there are enough of them for every thread.
  const bool enough = static_cast<size_t>(plan.column_tiles) >= 2 * n_threads;
  const size_t grain = enough ? static_cast<size_t>(plan.row_tiles) : 1;
  pool_.parallel_for(plan.n_tiles(), grain, [&](size_t begin, size_t end, uint32_t thread) {
    std::byte* const scratch = blocks.scratch_of(thread);
    Slice& slice = *std::launder(reinterpret_cast<Slice*>(scratch));
    auto* const rows = reinterpret_cast<float*>(scratch + lines(sizeof(Slice)));
    float* const panels = rows + decoded_bytes(w.in()) / sizeof(float);
    for (size_t i = begin; i < end; ++i) {
      const Tile t = plan.tile(i);
      if (slice.column != t.column) decode(t, rows, panels);
      slice.column = t.column;
      GemmTile tile = blocks.tile(t, w.in(), w.out(), thread);
      tile.w = panels;
      kernels::gemm_tile(tile);
    }
  });
}

// Weights are decoded in registers, for all rows at once.
Status Gemm::run_few(const DecodedMatrix& w, const Rows& rows) {
  if (rows.m == 1) {
    run_pieces(w, rows);
    return Status::ok();
  }
  const auto m = static_cast<size_t>(rows.m), k = static_cast<size_t>(w.in());
  BLEND_ASSIGN(auto lease, scratch_.take(m * kernels::few_rows_padded(k) * sizeof(float)));
  auto* const x = reinterpret_cast<float*>(lease.data());
  const kernels::RowGroups groups = kernels::few_rows_groups(m);
  pool_.parallel_for(groups.n, row_grain(groups.rows(0) * k),
                     [&](size_t begin, size_t end, uint32_t) {
                       kernels::few_rows_pack(rows.x, m, k, begin, end - begin, x);
                     });
  run_pieces(w, {x, rows.m, rows.y, rows.accumulate});
  return Status::ok();
}

void Gemm::run_pieces(const DecodedMatrix& w, const Rows& rows) {
  kernels::FewRows shape;
  shape.m = static_cast<size_t>(rows.m);
  shape.k = static_cast<size_t>(w.in());
  shape.y_stride = static_cast<size_t>(w.out());
  shape.accumulate = rows.accumulate;
  shape.x = rows.x;
  // Prefetches past a piece's end usually load another thread's data, so pieces are long;
  // there are at least four a thread.
  constexpr size_t kStep = kernels::kFewRowsStep, kElements = 512 << 10;
  const size_t fit = std::min(kElements / shape.k, shape.y_stride / (4 * pool_.n_threads()));
  const size_t grain = std::max(kStep, fit / kStep * kStep);
  pool_.parallel_for(shape.y_stride, grain, [&](size_t begin, size_t end, uint32_t) {
    while (begin < end) {
      kernels::FewRows piece = shape;
      const auto there = static_cast<size_t>(w.kept_rows(static_cast<int64_t>(begin), piece));
      piece.n = std::min({there, end - begin, grain});  // one thread gets all pieces as one
      piece.y = rows.y + begin;
      kernels::few_rows(piece);
      begin += piece.n;
    }
  });
}

}  // namespace blend::cpu
