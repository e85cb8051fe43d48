#include "backend/cpu/int8_gemm.h"

#include <algorithm>

#include "backend/cpu/first_error.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/sizes.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_pack.h"
#include "cpu/quantize.h"

namespace blend::cpu {
namespace {

using kernels::Int8Path;
using kernels::Int8Row;
using kernels::Int8Shape;
using kernels::Int8Tile;

// Whether sums of k products fit 32 bits: |sum of q p|, |zero * sum of p| <= 255 * 127 * k, and so
// is their difference.
bool sums_fit(int64_t k) { return k <= INT32_MAX / (255 * 127); }

// Puts the bytes of a row of W into its panel.
void put_row(const Int8Shape& shape, int64_t n_groups, int64_t row, const int8_t* values, int64_t k,
             int8_t* panels) {
  const auto group = static_cast<int64_t>(shape.group),
             columns = static_cast<int64_t>(shape.columns);
  int8_t* const to = panels + (row / columns * n_groups * columns + row % columns) * group;
  for (int64_t i = 0; i < k; ++i) to[i / group * columns * group + i % group] = values[i];
}

}  // namespace

void Int8Rows::decode(int64_t first, int64_t n, float* into) const {
  const auto k = static_cast<size_t>(in_);
  kernels::dequantize8(rows_.as<int8_t>() + static_cast<size_t>(first) * k, static_cast<size_t>(n),
                       k, steps_.as<float>() + first, 1, k, DType::f32,
                       reinterpret_cast<std::byte*>(into));
}

int64_t Int8Rows::kept_rows(int64_t first, kernels::FewRows& product) const {
  product.w = rows_.data() + static_cast<size_t>(first * in_);
  product.steps = steps_.as<float>() + first;
  return out_ - first;
}

Result<std::unique_ptr<CpuMatrix>> Int8Gemm::pack(std::span<const TensorView* const> parts,
                                                  Arithmetic arithmetic) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols();
  const Int8Path path = kernels::int8_path();
  const Int8Shape shape = kernels::int8_shape(path);
  const bool integers = arithmetic == Arithmetic::best && shape.group != 0 && sums_fit(k);
  const int64_t n_groups = integers ? ceil_div(k, static_cast<int64_t>(shape.group)) : 0;
  const int64_t columns = integers ? static_cast<int64_t>(shape.columns) : 64;
  const int64_t n_panels = ceil_div(n, columns);
  const auto row_bytes =
      static_cast<size_t>(integers ? n_groups : k) * (integers ? shape.group : 1);
  const auto n_rows = static_cast<size_t>(integers ? n_panels * columns : n);
  BLEND_ASSIGN(AlignedBuffer data, allocate_tensor(n_rows * row_bytes));
  BLEND_ASSIGN(AlignedBuffer steps, AlignedBuffer::allocate(n_rows * sizeof(float)));
  BLEND_ASSIGN(AlignedBuffer sums,
               AlignedBuffer::allocate(integers ? n_rows * sizeof(int32_t) : 1));
  if (integers) {
    std::fill_n(steps.as<float>() + n, n_rows - static_cast<size_t>(n), 0.0f);
    std::fill_n(sums.as<int32_t>() + n, n_rows - static_cast<size_t>(n), 0);
  }

  const auto elements = static_cast<size_t>(k);
  const size_t per_thread = lines(elements * sizeof(float)) + lines(elements);
  BLEND_ASSIGN(auto lease, scratch_.take(per_thread * pool_.n_threads()));
  FirstError error;
  const auto pack_row = [&](int64_t j, float* row, int8_t* bytes) {
    error.set(stacked.decode_row(j, row));
    float lo = 0, hi = 0;
    kernels::range_groups(row, elements, elements, &lo, &hi);
    float& step = steps.as<float>()[j];
    step = std::max(hi, -lo) / 127.0f;
    if (!integers) bytes = data.as<int8_t>() + static_cast<size_t>(j) * row_bytes;
    kernels::quantize8(row, elements, &step, elements, bytes);
    if (!integers) return;
    put_row(shape, n_groups, j, bytes, k, data.as<int8_t>());
    int32_t sum = 0;
    for (size_t i = 0; i < elements; ++i) sum += bytes[i];
    sums.as<int32_t>()[j] = sum;
  };
  pool_.parallel_for(
      static_cast<size_t>(n_panels), 1, [&](size_t begin, size_t end, uint32_t thread) {
        auto* const row = reinterpret_cast<float*>(lease.data() + per_thread * thread);
        auto* const bytes = reinterpret_cast<int8_t*>(row) + lines(elements * sizeof(float));
        const auto first = static_cast<int64_t>(begin) * columns;
        const int64_t last = static_cast<int64_t>(end) * columns;
        if (integers) {
          std::fill_n(data.data() + static_cast<size_t>(first) * row_bytes,
                      static_cast<size_t>(last - first) * row_bytes, std::byte{0});
        }
        for (int64_t j = first; j < std::min(n, last) && !error.failed(); ++j) {
          pack_row(j, row, bytes);
        }
      });
  if (error.failed()) return error.take();
  if (!integers) {
    return std::unique_ptr<CpuMatrix>(new Int8Rows(n, k, std::move(data), std::move(steps)));
  }
  return std::unique_ptr<CpuMatrix>(
      new Int8Matrix(n, k, path, std::move(data), std::move(steps), std::move(sums)));
}

// Some rows of a product.
struct Int8Gemm::Rows {
  const float* x;  // [m, in]
  int64_t m;
  float* y;  // [m, out]
  bool accumulate;

  bool as_they_are() const { return m <= static_cast<int64_t>(kernels::kInt8RowsAsTheyAre); }
};

Status Int8Gemm::run(const Int8Matrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  constexpr int64_t kMostBytes = 16 << 20;  // of x as bytes
  const int64_t at_once =
      even_part(m, kMostBytes / (w.n_groups() * 4), static_cast<int64_t>(w.shape().rows));
  for (int64_t row = 0; row < m; row += at_once) {
    BLEND_RETURN_IF_ERROR(
        run_some(w, {x + row * w.in(), std::min(at_once, m - row), y + row * w.out(), accumulate}));
  }
  return Status::ok();
}

Status Int8Gemm::run_some(const Int8Matrix& w, const Rows& rows) {
  const Int8Shape& shape = w.shape();
  const int64_t k = w.in(), n = w.out(), n_groups = w.n_groups();
  const auto block = static_cast<int64_t>(shape.rows),
             columns = static_cast<int64_t>(shape.columns);
  const bool in_parts = kernels::int8_in_parts(shape, static_cast<size_t>(rows.m));
  const int64_t at_once =
      in_parts ? std::min(n_groups, static_cast<int64_t>(shape.depth)) : n_groups;
  const int64_t y_bytes = in_parts ? sizeof(float) + sizeof(int32_t) : sizeof(float);
  const TilePlan plan =
      plan_tiles(rows.m, n, k, pool_.n_threads(),
                 units_in_cache(block, columns, at_once * int64_t{sizeof(uint32_t)}, y_bytes));
  const auto padded = static_cast<size_t>(align(rows.m, block));
  const size_t scales_bytes = lines(padded * sizeof(Int8Row));
  const size_t x_bytes = lines(padded * static_cast<size_t>(n_groups) * sizeof(uint32_t));
  // A thread's scratch while x is put into groups: a row's bytes, then a block's rows;
  const size_t quantize_bytes = lines(static_cast<size_t>(k)) +
                                lines(static_cast<size_t>(block * n_groups) * sizeof(uint32_t));
  // and while tiles are multiplied: a widened part of a panel, then a tile's sums.
  const size_t widened_bytes =
      in_parts && shape.group == 2
          ? lines(shape.depth * shape.columns * shape.group * sizeof(int16_t))
          : 0;
  const size_t sums_bytes =
      in_parts ? lines(static_cast<size_t>(plan.rows * plan.columns) * sizeof(int32_t)) : 0;
  const size_t per_thread = std::max(quantize_bytes, widened_bytes + sums_bytes);
  BLEND_ASSIGN(auto lease, scratch_.take(scales_bytes + x_bytes + per_thread * pool_.n_threads()));
  auto* const scales = reinterpret_cast<Int8Row*>(lease.data());
  auto* const groups = reinterpret_cast<uint32_t*>(lease.data() + scales_bytes);
  std::byte* const scratch = lease.data() + scales_bytes + x_bytes;
  quantize(w, rows, scratch, per_thread, scales, groups);

  const auto multiply = [&](const Tile& t, std::optional<int64_t> next, uint32_t thread) {
    Int8Tile tile;
    tile.m = static_cast<size_t>(t.rows);
    tile.n = static_cast<size_t>(t.columns);
    tile.n_groups = static_cast<size_t>(n_groups);
    tile.x = groups + t.row * n_groups;
    tile.as_it_is = rows.as_they_are();
    tile.rows = scales + t.row;
    tile.w = w.panels(t.column);
    if (next) tile.next_w = w.panels(*next);
    tile.steps = w.steps() + t.column;
    tile.sums = w.sums() + t.column;
    tile.y = rows.y + t.row * n + t.column;
    tile.y_stride = static_cast<size_t>(n);
    tile.accumulate = rows.accumulate;
    if (in_parts) {
      std::byte* const mine = scratch + per_thread * thread;
      tile.widened = reinterpret_cast<int16_t*>(mine);
      tile.so_far = reinterpret_cast<int32_t*>(mine + widened_bytes);
    }
    kernels::int8_tile(w.path(), tile);
  };
  if (rows.as_they_are()) {
    const int64_t n_panels = ceil_div(n, columns);
    const int64_t grain = panels_per_piece(n_panels, columns * k, rows.m, pool_.n_threads());
    pool_.parallel_for(static_cast<size_t>(n_panels), static_cast<size_t>(grain),
                       [&](size_t begin, size_t end, uint32_t thread) {
                         const int64_t first = static_cast<int64_t>(begin) * columns;
                         const int64_t last = static_cast<int64_t>(end) * columns;
                         multiply({0, rows.m, first, std::min(n, last) - first}, {}, thread);
                       });
    return Status::ok();
  }
  pool_.parallel_for(plan.n_tiles(), 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t i = begin; i < end; ++i) multiply(plan.tile(i), plan.next_column(i), thread);
  });
  return Status::ok();
}

// scales: [m], groups: blocks of rows, or rows where they are not grouped.
void Int8Gemm::quantize(const Int8Matrix& w, const Rows& rows, std::byte* scratch,
                        size_t per_thread, Int8Row* scales, uint32_t* groups) {
  const auto k = static_cast<size_t>(w.in()), n_groups = static_cast<size_t>(w.n_groups());
  const auto m = static_cast<size_t>(rows.m);
  const size_t block = w.shape().rows;
  const auto bring = [&](size_t row, uint8_t* side, uint32_t* to) {
    // For groups of four, bytes are written to their final position at once.
    uint8_t* const q = w.shape().group == 4 ? reinterpret_cast<uint8_t*>(to) : side;
    scales[row] = kernels::quantize_row(rows.x + row * k, k, q);
    kernels::int8_groups(w.path(), q, k, to, scales[row]);
  };
  const size_t n_blocks = (m + block - 1) / block;
  pool_.parallel_for(n_blocks, even_grain(n_blocks, row_grain(block * k), pool_.n_threads()),
                     [&](size_t begin, size_t end, uint32_t thread) {
                       auto* const q = reinterpret_cast<uint8_t*>(scratch + per_thread * thread);
                       auto* const side = reinterpret_cast<uint32_t*>(q + lines(k));
                       for (size_t b = begin; b < end; ++b) {
                         const size_t first = b * block, n_rows = std::min(block, m - first);
                         uint32_t* const to = groups + first * n_groups;
                         uint32_t* const way = rows.as_they_are() ? to : side;
                         for (size_t i = 0; i < n_rows; ++i)
                           bring(first + i, q, way + i * n_groups);
                         if (rows.as_they_are()) continue;
                         kernels::interleave_rows(side, n_rows, n_groups, block, block, to);
                       }
                     });
}

}  // namespace blend::cpu
