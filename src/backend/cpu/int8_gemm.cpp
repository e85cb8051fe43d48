#include "backend/cpu/int8_gemm.h"

#include <algorithm>

#include "backend/cpu/first_error.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/library.h"
#include "backend/cpu/memory.h"
#include "cpu/few_rows.h"
#include "cpu/int8_rows.h"
#include "cpu/quantize.h"

namespace blend::cpu {
namespace {

using kernels::Int8Row;

constexpr int64_t kInputs = 64;  // W's columns are padded to whole blocks of the library's format

// Where the bytes of a row of W go.
class Panels {
 public:
  Panels(int64_t k, std::byte* data)
      : panel_bytes_(static_cast<size_t>(align(k, kInputs) * kPanelColumns)),
        data_(reinterpret_cast<int8_t*>(data)) {}

  size_t panel_bytes() const { return panel_bytes_; }
  // values: [k]
  void put(int64_t row, const int8_t* values, int64_t k) const {
    int8_t* const to = data_ + static_cast<size_t>(row / kPanelColumns) * panel_bytes_ +
                       static_cast<size_t>(row % kPanelColumns * 4);
    for (int64_t i = 0; i < k; ++i) to[i / 4 * kPanelColumns * 4 + i % 4] = values[i];
  }

 private:
  size_t panel_bytes_;
  int8_t* data_;
};

}  // namespace

const float* Int8Rows::slice(int64_t first, int64_t n, float* into) const {
  const auto k = static_cast<size_t>(in_);
  kernels::dequantize8(rows_.as<int8_t>() + static_cast<size_t>(first) * k, static_cast<size_t>(n),
                       k, steps_.as<float>() + first, 1, k, DType::f32,
                       reinterpret_cast<std::byte*>(into));
  return into;
}

int64_t Int8Rows::kept_rows(int64_t first, kernels::FewRows& product) const {
  product.w = rows_.data() + static_cast<size_t>(first * in_);
  product.steps = steps_.as<float>() + first;
  return out_ - first;
}

Result<bool> Int8Gemm::multiplies(int64_t k) {
  // |sum of q p|, |zero * sum of p| <= 255 * 127 * k, and so is their difference.
  if (k > INT32_MAX / (255 * 127)) return false;
  bool can = false;
  const Status tried = guarded([&] {
    const auto matmul = matmuls_.get({1, k, kPanelColumns, WeightLayout::int8_panels, false});
    can = matmul->desc.weights_desc().get_size() == Panels(k, nullptr).panel_bytes();
    return Status::ok();
  });
  if (tried.code() == BLEND_E_OUT_OF_MEMORY) return tried;
  return can;
}

Result<std::unique_ptr<CpuMatrix>> Int8Gemm::pack(std::span<const TensorView* const> parts,
                                                  Arithmetic arithmetic) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols();
  bool integers = false;
  if (arithmetic == Arithmetic::best) {
    BLEND_ASSIGN(integers, multiplies(k));
  }
  const auto row_bytes = static_cast<size_t>(k);
  const size_t panel_bytes = Panels(k, nullptr).panel_bytes();
  const auto n_panels = static_cast<size_t>(ceil_div(n, kPanelColumns));
  BLEND_ASSIGN(AlignedBuffer data,
               allocate_tensor(integers ? n_panels * panel_bytes : static_cast<size_t>(n * k)));
  BLEND_ASSIGN(AlignedBuffer steps, AlignedBuffer::allocate(static_cast<size_t>(n) * 4));
  BLEND_ASSIGN(AlignedBuffer sums,
               AlignedBuffer::allocate(integers ? static_cast<size_t>(n) * 4 : 1));

  const size_t per_thread = lines(row_bytes * sizeof(float)) + lines(row_bytes);
  BLEND_ASSIGN(auto lease, scratch_.take(per_thread * pool_.n_threads()));
  FirstError error;
  pool_.parallel_for(n_panels, 1, [&](size_t begin, size_t end, uint32_t thread) {
    auto* const row = reinterpret_cast<float*>(lease.data() + per_thread * thread);
    auto* const bytes = reinterpret_cast<int8_t*>(row) + lines(row_bytes * sizeof(float));
    for (size_t panel = begin; panel < end && !error.failed(); ++panel) {
      if (integers) std::fill_n(data.data() + panel * panel_bytes, panel_bytes, std::byte{0});
      const auto first = static_cast<int64_t>(panel) * kPanelColumns;
      for (int64_t j = first; j < std::min(n, first + kPanelColumns) && !error.failed(); ++j) {
        error.set(stacked.decode_row(j, row));
        float lo = 0, hi = 0;
        kernels::range_groups(row, row_bytes, row_bytes, &lo, &hi);
        float& step = steps.as<float>()[j];
        step = std::max(hi, -lo) / 127.0f;
        kernels::quantize8(row, row_bytes, &step, row_bytes, bytes);
        if (!integers) {
          std::copy_n(bytes, row_bytes, data.as<int8_t>() + static_cast<size_t>(j) * row_bytes);
          continue;
        }
        Panels(k, data.data()).put(j, bytes, k);
        int32_t sum = 0;
        for (size_t i = 0; i < row_bytes; ++i) sum += bytes[i];
        sums.as<int32_t>()[j] = sum;
      }
    }
  });
  if (error.failed()) return error.take();
  if (!integers) {
    return std::unique_ptr<CpuMatrix>(new Int8Rows(n, k, std::move(data), std::move(steps)));
  }
  return std::unique_ptr<CpuMatrix>(
      new Int8Matrix(n, k, panel_bytes, std::move(data), std::move(steps), std::move(sums)));
}

// One product, x as bytes.
struct Int8Gemm::Operands {
  const Int8Matrix& w;
  const uint8_t* q;     // [m, in]
  const Int8Row* rows;  // [m]
  float* y;
  bool accumulate;
  size_t tile_bytes;  // of a thread's scratch
};

// A thread's scratch has the tile's integers, then oneDNN's.
void Int8Gemm::run_tile(const Operands& op, const Tile& tile, std::byte* scratch,
                        dnnl::stream& stream) const {
  auto* const products = reinterpret_cast<int32_t*>(scratch);
  run_matmul(tile.matmul, matmuls_.engine(), stream, op.q + tile.row * op.w.in(),
             op.w.panel(tile.column), products, scratch + op.tile_bytes);
  for (int64_t i = 0; i < tile.rows; ++i) {
    kernels::finish_int8(products + i * tile.columns, op.w.sums() + tile.column,
                         op.w.steps() + tile.column, op.rows[tile.row + i],
                         static_cast<size_t>(tile.columns), op.accumulate,
                         op.y + (tile.row + i) * op.w.out() + tile.column);
  }
}

Status Int8Gemm::run(const Int8Matrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  // The integers of a tile, 256 KiB, are still in the second-level cache when they are read.
  constexpr int64_t kMostColumns = 256;
  BLEND_ASSIGN(
      const TileMatmuls tiles,
      TileMatmuls::of(matmuls_, plan_tiles(m, w.out(), w.in(), pool_.n_threads(), kMostColumns),
                      {m, w.in(), w.out(), WeightLayout::int8_panels, false}));
  const auto n_rows = static_cast<size_t>(m), k = static_cast<size_t>(w.in());
  const size_t rows_bytes = lines(n_rows * sizeof(Int8Row)), q_bytes = lines(n_rows * k);
  const size_t tile_bytes = lines(tiles.elements() * sizeof(int32_t));
  const size_t per_thread = tile_bytes + lines(tiles.library_bytes());
  BLEND_ASSIGN(auto lease, scratch_.take(rows_bytes + q_bytes + per_thread * pool_.n_threads()));
  auto* const rows = reinterpret_cast<Int8Row*>(lease.data());
  auto* const q = reinterpret_cast<uint8_t*>(lease.data() + rows_bytes);
  pool_.parallel_for(n_rows, row_grain(k), [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) rows[i] = kernels::quantize_row(x + i * k, k, q + i * k);
  });

  const Operands op{w, q, rows, y, accumulate, tile_bytes};
  std::byte* const scratch = lease.data() + rows_bytes + q_bytes;
  FirstError error;
  pool_.parallel_for(tiles.n_tiles(), 1, [&](size_t begin, size_t end, uint32_t thread) {
    error.set(guarded([&] {
      dnnl::stream stream(matmuls_.engine());
      for (size_t i = begin; i < end; ++i) {
        run_tile(op, tiles.tile(i), scratch + per_thread * thread, stream);
      }
      return Status::ok();
    }));
  });
  return error.failed() ? error.take() : Status::ok();
}

}  // namespace blend::cpu
