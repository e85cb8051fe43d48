#include "backend/cpu/gemm.h"

#include <algorithm>
#include <new>

#include "backend/cpu/first_error.h"
#include "backend/cpu/library.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/tile_matmuls.h"
#include "cpu/few_rows.h"

namespace blend::cpu {

// One product.
struct Gemm::Operands {
  const FloatMatrix& w;
  const float* x;
  int64_t m;
  float* y;
  bool accumulate;
};

// Its tiles, and what they take of a thread's scratch, in this order: the slice of W that it
// decoded last, the tile, oneDNN's.
struct Gemm::Tiles {
  TileMatmuls matmuls;
  bool direct = false;  // a tile is contiguous in y: written there, or else by way of scratch
  size_t slice_bytes = 0;
  size_t tile_bytes = 0;
  size_t per_thread() const {
    return lines(slice_bytes) + lines(tile_bytes) + lines(matmuls.library_bytes());
  }
};

// What a thread has decoded in its scratch: neighbouring tiles share the slice.
struct Gemm::Decoded {
  int64_t column_tile = -1;
};

Gemm::Gemm(ThreadPool& pool, ScratchPool& scratch, MatmulCache& matmuls)
    : pool_(pool), scratch_(scratch), matmuls_(matmuls) {}

Result<std::unique_ptr<PackedMatrix>> Gemm::pack(std::span<const TensorView* const> parts,
                                                 Packing packing) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols();
  const dnnl::engine& engine = matmuls_.engine();
  bool blocked = false;
  if (packing == Packing::best) {
    // Without AVX-512 oneDNN has no matmul for this format; its GEMM reads the plain rows instead.
    const Status tried = guarded([&] {
      (void)matmuls_.get({1, k, std::min(n, kPanelColumns), WeightLayout::panels, false});
      return Status::ok();
    });
    if (tried.code() == BLEND_E_OUT_OF_MEMORY) return tried;
    blocked = tried.is_ok();
  }
  const size_t rows_bytes = static_cast<size_t>(kPanelColumns * k) * sizeof(float);
  size_t panel_bytes = rows_bytes, library_bytes = 0;
  dnnl::reorder::primitive_desc reorder_desc;
  dnnl::reorder reorder;
  if (blocked) {
    BLEND_RETURN_IF_ERROR(guarded([&] {
      const auto panel = weights_desc(k, kPanelColumns, WeightLayout::panels);
      panel_bytes = panel.get_size();
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      reorder_desc = dnnl::reorder::primitive_desc(
          engine, weights_desc(k, kPanelColumns, WeightLayout::rows), engine, panel, attr);
      reorder = dnnl::reorder(reorder_desc);
      library_bytes = reorder_desc.scratchpad_desc().get_size();
      return Status::ok();
    }));
  }
  const size_t n_panels = static_cast<size_t>(ceil_div(n, kPanelColumns));
  BLEND_ASSIGN(AlignedBuffer data, allocate_tensor(n_panels * panel_bytes));

  const size_t per_thread = blocked ? lines(rows_bytes) + lines(library_bytes) : 0;
  BLEND_ASSIGN(auto lease, scratch_.take(per_thread * pool_.n_threads()));
  FirstError error;
  pool_.parallel_for(n_panels, 1, [&](size_t begin, size_t end, uint32_t thread) {
    for (size_t panel = begin; panel < end && !error.failed(); ++panel) {
      std::byte* const to = data.data() + panel * panel_bytes;
      float* const rows =
          reinterpret_cast<float*>(blocked ? lease.data() + per_thread * thread : to);
      float* row = rows;
      const int64_t first = static_cast<int64_t>(panel) * kPanelColumns;
      const int64_t last = std::min(n, first + kPanelColumns);
      for (int64_t w_row = first; w_row < last; ++w_row, row += k) {
        error.set(stacked.decode_row(w_row, row));
        if (error.failed()) return;
      }
      std::fill(row, rows + kPanelColumns * k, 0.0f);
      if (!blocked) continue;
      error.set(guarded([&] {
        dnnl::stream stream(engine);
        dnnl::memory from(weights_desc(k, kPanelColumns, WeightLayout::rows), engine, rows);
        dnnl::memory into(weights_desc(k, kPanelColumns, WeightLayout::panels), engine, to);
        dnnl::memory library(reorder_desc.scratchpad_desc(), engine,
                             reinterpret_cast<std::byte*>(rows) + lines(rows_bytes));
        reorder.execute(
            stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, into}, {DNNL_ARG_SCRATCHPAD, library}});
        stream.wait();
        return Status::ok();
      }));
    }
  });
  if (error.failed()) return error.take();
  return std::make_unique<PackedMatrix>(n, k, blocked, panel_bytes, std::move(data));
}

void Gemm::run_tile(const Operands& op, const Tiles& tiles, size_t i, std::byte* scratch,
                    Decoded& decoded, dnnl::stream& stream) const {
  const Tile tile = tiles.matmuls.tile(i);
  float* const y = op.y + tile.row * op.w.out() + tile.column;
  float* const own_slice = reinterpret_cast<float*>(scratch);
  float* const out =
      tiles.direct ? y : reinterpret_cast<float*>(scratch + lines(tiles.slice_bytes));
  const float* const slice = op.w.decoded() && decoded.column_tile == tile.column_tile
                                 ? own_slice
                                 : op.w.slice(tile.column, tile.columns, own_slice);
  decoded.column_tile = tile.column_tile;

  run_matmul(tile.matmul, matmuls_.engine(), stream, op.x + tile.row * op.w.in(), slice, out,
             scratch + lines(tiles.slice_bytes) + lines(tiles.tile_bytes));
  if (tiles.direct) return;
  for (int64_t r = 0; r < tile.rows; ++r) {
    const float* from = out + r * tile.columns;
    float* to = y + r * op.w.out();
    if (op.accumulate) {
      for (int64_t j = 0; j < tile.columns; ++j) to[j] += from[j];
    } else {
      std::copy(from, from + tile.columns, to);
    }
  }
}

Result<Gemm::Tiles> Gemm::plan(const Operands& op) {
  const FloatMatrix& w = op.w;
  // A decoded slice stays in the second-level cache while the rows' tiles go by.
  constexpr int64_t kSliceElements = 256 << 10;
  const int64_t most_columns =
      w.decoded() ? std::clamp(kSliceElements / w.in() / kPanelColumns * kPanelColumns,
                               kPanelColumns, int64_t{512})
                  : INT64_MAX;
  const TilePlan plan = plan_tiles(op.m, w.out(), w.in(), pool_.n_threads(), most_columns);
  Tiles tiles;
  tiles.direct = plan.column_tiles == 1 || plan.rows == 1;
  const auto layout = w.blocked() ? WeightLayout::panels : WeightLayout::rows;
  BLEND_ASSIGN(tiles.matmuls,
               TileMatmuls::of(matmuls_, plan,
                               {op.m, w.in(), w.out(), layout, op.accumulate && tiles.direct}));
  if (!tiles.direct) tiles.tile_bytes = tiles.matmuls.elements() * sizeof(float);
  if (w.decoded()) {
    tiles.slice_bytes = static_cast<size_t>(plan.columns * w.in()) * sizeof(float);
  }
  return tiles;
}

Status Gemm::run(const FloatMatrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  const Operands op{w, x, m, y, accumulate};
  if (w.decoded() && m <= kFewRows) return run_few(op);
  BLEND_ASSIGN(const Tiles tiles, plan(op));
  const size_t n_threads = pool_.n_threads(), per_thread = tiles.per_thread();
  // Each thread's scratch begins with what it knows of it.
  constexpr size_t kHead = lines(sizeof(Decoded));
  BLEND_ASSIGN(auto lease, scratch_.take((kHead + per_thread) * n_threads));
  const auto scratch = [&](size_t thread) { return lease.data() + (kHead + per_thread) * thread; };
  for (size_t i = 0; i < n_threads; ++i) new (scratch(i)) Decoded;

  FirstError error;
  const auto row_tiles = static_cast<size_t>(tiles.matmuls.plan().row_tiles);
  const auto column_tiles = static_cast<size_t>(tiles.matmuls.plan().column_tiles);
  // A slice is decoded once where there are enough of them for every thread.
  const size_t grain = w.decoded() && column_tiles >= 2 * n_threads ? row_tiles : 1;
  pool_.parallel_for(
      tiles.matmuls.n_tiles(), grain, [&](size_t begin, size_t end, uint32_t thread) {
        Decoded& decoded = *std::launder(reinterpret_cast<Decoded*>(scratch(thread)));
        error.set(guarded([&] {
          dnnl::stream stream(matmuls_.engine());
          for (size_t i = begin; i < end; ++i) {
            run_tile(op, tiles, i, scratch(thread) + kHead, decoded, stream);
          }
          return Status::ok();
        }));
      });
  return error.failed() ? error.take() : Status::ok();
}

// Every weight is used a few times only: it is decoded in registers, for all rows at once.
Status Gemm::run_few(const Operands& op) {
  kernels::FewRows shape;
  shape.m = static_cast<size_t>(op.m);
  shape.k = static_cast<size_t>(op.w.in());
  shape.y_stride = static_cast<size_t>(op.w.out());
  shape.accumulate = op.accumulate;
  shape.x = op.x;
  // What is asked for behind a piece's end is another thread's as often as not, so pieces are long
  // where W is read once, and stay in the second-level cache where it is read again for more rows;
  // there are at least four a thread.
  constexpr size_t kStep = kernels::kFewRowsStep, kRowsAtOnce = 4;
  const size_t elements = shape.m <= kRowsAtOnce ? 512 << 10 : 64 << 10;
  const size_t rows = std::min(elements / shape.k, shape.y_stride / (4 * pool_.n_threads()));
  const size_t grain = std::max(kStep, rows / kStep * kStep);
  pool_.parallel_for(shape.y_stride, grain, [&](size_t begin, size_t end, uint32_t) {
    while (begin < end) {
      kernels::FewRows piece = shape;
      const auto there = static_cast<size_t>(op.w.kept_rows(static_cast<int64_t>(begin), piece));
      piece.n = std::min({there, end - begin, grain});  // one thread gets all pieces as one
      piece.y = op.y + begin;
      kernels::few_rows(piece);
      begin += piece.n;
    }
  });
  return Status::ok();
}

}  // namespace blend::cpu
