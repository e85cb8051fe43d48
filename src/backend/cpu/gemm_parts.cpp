#include "backend/cpu/gemm_parts.h"

#include <algorithm>
#include <new>

#include "backend/cpu/sizes.h"
#include "cpu/digit_rows.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_pack.h"

namespace blend::cpu {

using kernels::GemmTile;
using kernels::kGemmDepth;

TileUnits gemm_units() {
  const kernels::GemmShape shape = kernels::gemm_shape();
  return units_in_cache(static_cast<int64_t>(shape.rows), static_cast<int64_t>(shape.columns),
                        kGemmDepth * sizeof(float), sizeof(float));
}

namespace {

// A thread's scratch of a matrix that is decoded begins with which slice it decoded last; then come
// rows on their way into a panel, and the slice.
struct Slice {
  const void* w = nullptr;
  int64_t column = 0;
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
  const int64_t rows = decoded_together(k, gemm_units().columns);
  return lines(static_cast<size_t>(rows * k) * sizeof(float));
}

// The columns of tile `t`.
void decode_slice(const DecodedMatrix& w, const Tile& t, float* rows, float* panels) {
  const auto k = static_cast<size_t>(w.in());
  const size_t columns = kernels::gemm_shape().columns;
  const int64_t together = decoded_together(w.in(), static_cast<int64_t>(columns));
  const int64_t last = align(t.columns, static_cast<int64_t>(columns));
  for (int64_t j = 0; j < last; j += together) {
    const int64_t there = std::clamp<int64_t>(t.columns - j, 0, together);
    w.decode(t.column + j, there, rows);
    const auto at = static_cast<size_t>(j);
    kernels::interleave_rows(rows, static_cast<size_t>(there), k, static_cast<size_t>(together),
                             columns, panels + at / columns * columns * k + at % columns);
  }
}

}  // namespace

int64_t few_rows_most(const PackedMatrix& /*w*/) {
  return static_cast<int64_t>(kernels::kRowsAsTheyAre);
}
int64_t few_rows_most(const DecodedMatrix& w) {
  kernels::FewRows first;
  w.kept_rows(0, first);
  return static_cast<int64_t>(
      kernels::few_rows_most(first.dtype, first.blocks, static_cast<size_t>(w.in())));
}

FewRowsForms::FewRowsForms(const DecodedMatrix& w, int64_t m, bool steps)
    : m_(static_cast<size_t>(m)), k_(static_cast<size_t>(w.in())) {
  constexpr size_t kDigitsMost = 2;
  bool digits = false, interleaved = false;
  for (int64_t first = 0; first < w.out();) {
    kernels::FewRows piece;
    first += w.kept_rows(first, piece);
    const bool taken = (m_ <= kDigitsMost || steps) && kernels::digit_rows_take(piece.blocks);
    (taken ? digits : interleaved) = true;
  }
  if (interleaved && m_ > 1) {
    interleaved_ = lines(m_ * kernels::few_rows_padded(k_) * sizeof(float));
  }
  if (digits) digits_ = m_ * kernels::DigitRow::bytes(k_);
}

size_t FewRowsForms::n_groups() const { return kernels::few_rows_groups(m_).n; }
size_t FewRowsForms::group_elements() const { return kernels::few_rows_groups(m_).rows(0) * k_; }

void FewRowsForms::pack(const float* x, size_t group, size_t n, std::byte* to) const {
  if (interleaved_ != 0) {
    kernels::few_rows_pack(x, m_, k_, group, n, reinterpret_cast<float*>(to));
  }
  if (digits_ == 0) return;
  const kernels::RowGroups groups = kernels::few_rows_groups(m_);
  const size_t first = groups.first(group), rows = groups.first(group + n) - first;
  kernels::digit_rows_pack(x + first * k_, rows, k_,
                           to + interleaved_ + first * kernels::DigitRow::bytes(k_));
}

GemmRows FewRowsForms::packed(const GemmRows& rows, const std::byte* from) const {
  GemmRows to = rows;
  if (interleaved_ != 0) to.x = reinterpret_cast<const float*>(from);
  if (digits_ != 0) to.digits = from + interleaved_;
  return to;
}

void multiply_columns(const PackedMatrix& w, const GemmRows& rows, int64_t first, int64_t last,
                      int64_t /*most*/) {
  GemmTile tile;
  tile.m = static_cast<size_t>(rows.m);
  tile.n = static_cast<size_t>(last - first);
  tile.k = static_cast<size_t>(w.in());
  tile.x = rows.x;
  tile.as_it_is = true;
  tile.w = w.panels(first);
  tile.dtype = w.dtype();
  tile.y = rows.y + first;
  tile.y_stride = static_cast<size_t>(w.out());
  tile.accumulate = rows.accumulate;
  kernels::gemm_tile(tile);
}

void multiply_columns(const DecodedMatrix& w, const GemmRows& rows, int64_t first, int64_t last,
                      int64_t most) {
  kernels::FewRows product;
  product.m = static_cast<size_t>(rows.m);
  product.k = static_cast<size_t>(w.in());
  product.y_stride = static_cast<size_t>(w.out());
  product.accumulate = rows.accumulate;
  product.x = rows.x;
  while (first < last) {
    kernels::FewRows piece = product;
    const int64_t n = std::min({w.kept_rows(first, piece), last - first, most});
    piece.n = static_cast<size_t>(n);
    piece.y = rows.y + first;
    if (rows.digits != nullptr && kernels::digit_rows_take(piece.blocks)) {
      piece.digits = rows.digits;
      kernels::digit_rows(piece);
    } else {
      kernels::few_rows(piece);
    }
    first += n;
  }
}

int64_t few_rows_piece(const PackedMatrix& w, int64_t n_columns, uint32_t n_threads) {
  const int64_t columns = w.columns(), n_panels = ceil_div(n_columns, columns);
  return panels_per_piece(n_panels, columns * w.in(), 1, n_threads) * columns;
}
// Prefetches past a piece's end usually load another thread's data, so pieces are long; there are
// at least four a thread.
int64_t few_rows_piece(const DecodedMatrix& w, int64_t n_columns, uint32_t n_threads) {
  constexpr int64_t kStep = kernels::kFewRowsStep, kElements = 512 << 10;
  const int64_t fit = std::min(kElements / w.in(), n_columns / (4 * int64_t{n_threads}));
  return std::max(kStep, fit / kStep * kStep);
}

GemmTile GemmBlocks::tile(const Tile& t, int64_t k, int64_t out, uint32_t thread) const {
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

TilePlan gemm_plan(const PackedMatrix& w, int64_t m, const TileUnits& units, uint32_t n_threads) {
  return plan_tiles(m, w.out(), w.in(), n_threads, units);
}
// A decoded slice stays in the second-level cache while the blocks of rows pass by, and is used up
// before the next is decoded. (Two Zen 5 cores with AVX-512 and 1 MiB each: k, n = 576, 1536 at 512
// rows 390 GFLOP/s with slices of 1 MiB, 455 with a quarter.)
TilePlan gemm_plan(const DecodedMatrix& w, int64_t m, TileUnits units, uint32_t n_threads) {
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

size_t gemm_sums_bytes(int64_t k, const TilePlan& plan) {
  if (k <= static_cast<int64_t>(kGemmDepth)) return 0;
  return lines(static_cast<size_t>(plan.rows * plan.columns) * sizeof(float));
}

// A panel's part as f32.
size_t gemm_scratch_bytes(const PackedMatrix& w, const TilePlan& /*plan*/) {
  return lines(kGemmDepth * static_cast<size_t>(w.columns()) * sizeof(float));
}
size_t gemm_scratch_bytes(const DecodedMatrix& w, const TilePlan& plan) {
  return lines(sizeof(Slice)) + decoded_bytes(w.in()) +
         lines(static_cast<size_t>(plan.columns * w.in()) * sizeof(float));
}

void begin_tiles(const PackedMatrix& /*w*/, const GemmBlocks& /*blocks*/, uint32_t /*n_threads*/) {}
void begin_tiles(const DecodedMatrix& /*w*/, const GemmBlocks& blocks, uint32_t n_threads) {
  for (uint32_t i = 0; i < n_threads; ++i) new (blocks.scratch_of(i)) Slice;
}

void multiply_tile(const PackedMatrix& w, const GemmBlocks& blocks, size_t i,
                   std::optional<int64_t> next, uint32_t thread) {
  const Tile t = blocks.plan.tile(i);
  GemmTile tile = blocks.tile(t, w.in(), w.out(), thread);
  tile.w = w.panels(t.column);
  if (next) tile.next_w = w.panels(*next);
  tile.dtype = w.dtype();
  tile.scratch = reinterpret_cast<float*>(blocks.scratch_of(thread));
  kernels::gemm_tile(tile);
}

void multiply_tile(const DecodedMatrix& w, const GemmBlocks& blocks, size_t i,
                   std::optional<int64_t> /*next*/, uint32_t thread) {
  std::byte* const scratch = blocks.scratch_of(thread);
  Slice& slice = *std::launder(reinterpret_cast<Slice*>(scratch));
  auto* const rows = reinterpret_cast<float*>(scratch + lines(sizeof(Slice)));
  float* const panels = rows + decoded_bytes(w.in()) / sizeof(float);
  const Tile t = blocks.plan.tile(i);
  if (slice.w != &w || slice.column != t.column) decode_slice(w, t, rows, panels);
  slice = {&w, t.column};
  GemmTile tile = blocks.tile(t, w.in(), w.out(), thread);
  tile.w = panels;
  kernels::gemm_tile(tile);
}

size_t n_blocks(const GemmRows& rows) {
  const auto unit = kernels::gemm_shape().rows;
  return (static_cast<size_t>(rows.m) + unit - 1) / unit;
}

void pack_block(const GemmRows& rows, int64_t k, size_t block, float* blocks) {
  const auto unit = kernels::gemm_shape().rows;
  const auto m = static_cast<size_t>(rows.m), cols = static_cast<size_t>(k);
  kernels::interleave_rows(rows.x + block * unit * cols, std::min(unit, m - block * unit), cols,
                           unit, unit, blocks + block * unit * cols);
}

}  // namespace blend::cpu
