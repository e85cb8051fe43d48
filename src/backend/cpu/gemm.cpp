#include "backend/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/first_error.h"
#include "backend/cpu/gemm_parts.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/sizes.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_f32.h"
#include "cpu/gemm_pack.h"

namespace blend::cpu {
namespace {

// Rows of W that are packed into a panel together.
constexpr int64_t kAtOnce = 4;

// The type of panels of these parts: their own type, where all have the same.
DType panel_dtype(const StackedParts& stacked) {
  const TensorView& first = stacked.parts()[0];
  for (const TensorView& part : stacked.parts()) {
    if (part.blocks != BlockType::none || part.dtype != first.dtype) return DType::f32;
  }
  return first.dtype == DType::f16 && !kernels::gemm_widens_f16() ? DType::f32 : first.dtype;
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> Gemm::pack(std::span<const TensorView* const> parts) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols(), columns = gemm_units().columns;
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
  const GemmRows all{x, m, y, accumulate};
  if (m <= few_rows_most(w)) return run_as_they_are(w, all);
  return run_blocks(w, all);
}

Status Gemm::run(const DecodedMatrix& w, const float* x, int64_t m, float* y, bool accumulate,
                 bool steps) {
  if (m == 0) return Status::ok();
  const GemmRows all{x, m, y, accumulate};
  if (m <= few_rows_most(w)) return run_few(w, all, steps);
  return run_blocks(w, all);
}

// Every weight is read from memory once and used a few times: threads share out pieces of W.
Status Gemm::run_as_they_are(const PackedMatrix& w, const GemmRows& rows) {
  const int64_t n = w.out(), columns = w.columns(), n_panels = ceil_div(n, columns);
  const int64_t grain = panels_per_piece(n_panels, columns * w.in(), rows.m, pool_.n_threads());
  pool_.parallel_for(static_cast<size_t>(n_panels), static_cast<size_t>(grain),
                     [&](size_t begin, size_t end, uint32_t) {
                       const int64_t first = static_cast<int64_t>(begin) * columns;
                       const int64_t last = std::min(n, static_cast<int64_t>(end) * columns);
                       multiply_columns(w, rows, first, last, n);
                     });
  return Status::ok();
}

template <class Matrix>
Status Gemm::run_blocks(const Matrix& w, const GemmRows& all) {
  constexpr int64_t kMostBytes = 16 << 20;  // of x in blocks
  const TileUnits units = gemm_units();
  const int64_t k = w.in(), row_bytes = k * static_cast<int64_t>(sizeof(float));
  const int64_t at_once = even_part(all.m, kMostBytes / row_bytes, units.rows);
  for (int64_t row = 0; row < all.m; row += at_once) {
    const GemmRows rows{all.x + row * k, std::min(at_once, all.m - row), all.y + row * w.out(),
                        all.accumulate};
    const TilePlan plan = gemm_plan(w, rows.m, units, pool_.n_threads());
    const size_t x_bytes = lines(static_cast<size_t>(align(rows.m, units.rows) * row_bytes));
    const size_t sums = gemm_sums_bytes(k, plan), per_thread = sums + gemm_scratch_bytes(w, plan);
    BLEND_ASSIGN(auto lease, scratch_.take(x_bytes + per_thread * pool_.n_threads()));
    auto* const x = reinterpret_cast<float*>(lease.data());
    pack_x(rows, k, x);
    multiply(w, {rows, plan, x, lease.data() + x_bytes, sums, per_thread});
  }
  return Status::ok();
}

void Gemm::pack_x(const GemmRows& rows, int64_t k, float* blocks) {
  const size_t n = n_blocks(rows), elements = kernels::gemm_shape().rows * static_cast<size_t>(k);
  pool_.parallel_for(n, even_grain(n, row_grain(elements), pool_.n_threads()),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t b = begin; b < end; ++b) pack_block(rows, k, b, blocks);
                     });
}

namespace {

size_t tiles_at_once(const PackedMatrix& /*w*/, const TilePlan& /*plan*/, uint32_t /*n_threads*/) {
  return 1;
}
// A slice is decoded once where there are enough of them for every thread.
size_t tiles_at_once(const DecodedMatrix& /*w*/, const TilePlan& plan, uint32_t n_threads) {
  const bool enough = static_cast<size_t>(plan.column_tiles) >= 2 * n_threads;
  return enough ? static_cast<size_t>(plan.row_tiles) : 1;
}

}  // namespace

template <class Matrix>
void Gemm::multiply(const Matrix& w, const GemmBlocks& blocks) {
  const TilePlan& plan = blocks.plan;
  begin_tiles(w, blocks, pool_.n_threads());
  pool_.parallel_for(plan.n_tiles(), tiles_at_once(w, plan, pool_.n_threads()),
                     [&](size_t begin, size_t end, uint32_t thread) {
                       for (size_t i = begin; i < end; ++i) {
                         multiply_tile(w, blocks, i, plan.next_column(i), thread);
                       }
                     });
}

// Weights are decoded in registers, for all rows at once.
Status Gemm::run_few(const DecodedMatrix& w, const GemmRows& rows, bool steps) {
  const FewRowsForms forms(w, rows.m, steps);
  if (forms.bytes() == 0) {
    run_pieces(w, rows);
    return Status::ok();
  }
  BLEND_ASSIGN(auto lease, scratch_.take(forms.bytes()));
  pool_.parallel_for(forms.n_groups(), row_grain(forms.group_elements()),
                     [&](size_t begin, size_t end, uint32_t) {
                       forms.pack(rows.x, begin, end - begin, lease.data());
                     });
  run_pieces(w, forms.packed(rows, lease.data()));
  return Status::ok();
}

void Gemm::run_pieces(const DecodedMatrix& w, const GemmRows& rows) {
  const int64_t grain = few_rows_piece(w, w.out(), pool_.n_threads());
  pool_.parallel_for(static_cast<size_t>(w.out()), static_cast<size_t>(grain),
                     [&](size_t begin, size_t end, uint32_t) {
                       // One thread gets all pieces as one.
                       multiply_columns(w, rows, static_cast<int64_t>(begin),
                                        static_cast<int64_t>(end), grain);
                     });
}

}  // namespace blend::cpu
