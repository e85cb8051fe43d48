#include "backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <new>

#include "backend/cpu/first_error.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/weights.h"
#include "cpu/convert.h"
#include "cpu/dot.h"

namespace blend::cpu {
namespace {

using Desc = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;
constexpr auto kBlockedTag = dnnl::memory::format_tag::BA16a64b;

// While it lives, OpenMP regions of the calling thread have one thread, so that oneDNN starts none
// of its own and primitives are created for one thread. The setting is the thread's own (an ICV of
// the OpenMP data environment), and the host's value comes back.
class OneOmpThread {
 public:
  OneOmpThread() : saved_(omp_get_max_threads()) {
    if (saved_ != 1) omp_set_num_threads(1);
  }
  ~OneOmpThread() {
    if (saved_ != 1) omp_set_num_threads(saved_);
  }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int saved_;
};

// Runs fn(), which may throw what oneDNN's C++ wrapper throws. Also on compute threads, where
// nothing may escape: hence no allocation on the way out.
template <typename Fn>
Status guarded(Fn fn) noexcept {
  try {
    return fn();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return Status::out_of_memory();
    return make_error(BLEND_E_INTERNAL, "the GEMM library failed: %s", e.what());
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  } catch (const std::exception& e) {
    return make_error(BLEND_E_INTERNAL, "the GEMM failed: %s", e.what());
  }
}

Desc weights_desc(int64_t k, int64_t n, bool blocked) {
  if (blocked) return Desc({k, n}, kF32, kBlockedTag);
  return Desc({k, n}, kF32, dnnl::memory::dims{1, k});
}

Desc rows_desc(int64_t rows, int64_t cols) {
  return Desc({rows, cols}, kF32, dnnl::memory::dims{cols, 1});
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t align(int64_t n, int64_t to) { return ceil_div(n, to) * to; }
// Bytes rounded up to whole cache lines, so that threads' parts of a buffer share none.
constexpr size_t lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

TilePlan plan_tiles(int64_t m, int64_t n, int64_t k, uint32_t n_threads, int64_t most_columns) {
  constexpr int64_t kRows = 256, kColumns = 512, kFewestRows = 64;
  constexpr double kWorthSharing = 1e6;  // FLOPs: some 5 us of one core, a thread's wake-up
  if (n_threads == 1 ||
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) <
          kWorthSharing) {
    const int64_t rows = std::min(m, kRows);
    const int64_t columns = std::min(align(n, kPanelColumns), most_columns);
    return {rows, columns, ceil_div(m, rows), ceil_div(n, columns)};
  }
  TilePlan plan;
  plan.rows = align(ceil_div(m, ceil_div(m, kRows)), 8);
  plan.columns = std::min({align(n, kPanelColumns), kColumns, most_columns});
  const auto count = [&] {
    plan.rows = std::min(plan.rows, m);
    plan.row_tiles = ceil_div(m, plan.rows);
    plan.column_tiles = ceil_div(n, plan.columns);
    return plan.row_tiles * plan.column_tiles;
  };
  const int64_t wanted = 2 * static_cast<int64_t>(n_threads);
  while (count() < wanted) {
    if (plan.rows >= 2 * kFewestRows) {
      plan.rows = align(plan.rows / 2, 8);
    } else if (plan.columns > kPanelColumns) {
      plan.columns = align(plan.columns / 2, kPanelColumns);
    } else {
      break;
    }
  }
  return plan;
}

// One product.
struct Gemm::Operands {
  const CpuMatrix& w;
  const float* x;
  int64_t m;
  float* y;
  bool accumulate;
};

// Its tiles and the primitives of full and last ones.
struct Gemm::Tiles {
  TilePlan plan;
  bool direct = false;  // a tile is contiguous in y: written there, or else by way of scratch
  std::shared_ptr<const Primitive> primitives[2][2];  // [last row tile][last column tile]
  // Of a thread's scratch, in this order: the slice of W that it decoded last, the tile, oneDNN's.
  size_t slice_bytes = 0;
  size_t tile_bytes = 0;
  size_t library_bytes = 0;
  size_t per_thread() const {
    return lines(slice_bytes) + lines(tile_bytes) + lines(library_bytes);
  }
};

// What a thread has decoded in its scratch: neighbouring tiles share the slice.
struct Gemm::Decoded {
  int64_t column_tile = -1;
};

Gemm::Gemm(ThreadPool& pool, ScratchPool& scratch)
    : pool_(pool), scratch_(scratch), engine_(dnnl::engine::kind::cpu, 0) {}

std::shared_ptr<const Gemm::Primitive> Gemm::primitive(const Key& key) {
  std::lock_guard lock(mutex_);
  if (const auto it = index_.find(key); it != index_.end()) {
    lru_.splice(lru_.begin(), lru_, it->second);
    return it->second->second;
  }
  const auto [m, k, n, blocked, accumulate] = key;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  auto made = std::make_shared<Primitive>();
  made->desc = dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(rows_desc(m, k), weights_desc(k, n, blocked), rows_desc(m, n)), attr,
      engine_);
  made->matmul = dnnl::matmul(made->desc);
  made->scratch_bytes = made->desc.scratchpad_desc().get_size();
  lru_.emplace_front(key, made);
  index_.emplace(key, lru_.begin());
  if (lru_.size() > kMaxPrimitives) {
    index_.erase(lru_.back().first);
    lru_.pop_back();
  }
  return made;
}

Result<std::unique_ptr<PackedMatrix>> Gemm::pack(std::span<const TensorView* const> parts,
                                                 Packing packing) {
  BLEND_ASSIGN(const StackedParts stacked, StackedParts::of(parts));
  const int64_t n = stacked.rows(), k = stacked.cols();
  bool blocked = false;
  const OneOmpThread one_thread;
  if (packing == Packing::best) {
    // Without AVX-512 oneDNN has no matmul for this format; its GEMM reads the plain rows instead.
    const Status tried = guarded([&] {
      (void)primitive({1, k, std::min(n, kPanelColumns), true, false});
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
      const Desc panel = weights_desc(k, kPanelColumns, true);
      panel_bytes = panel.get_size();
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      reorder_desc = dnnl::reorder::primitive_desc(engine_, weights_desc(k, kPanelColumns, false),
                                                   engine_, panel, attr);
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
    const OneOmpThread one;
    for (size_t panel = begin; panel < end && !error.failed(); ++panel) {
      std::byte* const to = data.data() + panel * panel_bytes;
      float* const rows =
          reinterpret_cast<float*>(blocked ? lease.data() + per_thread * thread : to);
      float* row = rows;
      const int64_t first = static_cast<int64_t>(panel) * kPanelColumns;
      const int64_t last = std::min(n, first + kPanelColumns);
      for (int64_t w_row = first; w_row < last; ++w_row, row += k) {
        const auto [part, part_row] = stacked.part_of(w_row);
        decode_row(*part, part_row, row);
        const size_t bad = kernels::find_not_finite(row, static_cast<size_t>(k));
        if (bad == static_cast<size_t>(k)) continue;
        error.set(not_finite(*part, static_cast<size_t>(part_row * k) + bad, row[bad]));
        return;
      }
      std::fill(row, rows + kPanelColumns * k, 0.0f);
      if (!blocked) continue;
      error.set(guarded([&] {
        dnnl::stream stream(engine_);
        dnnl::memory from(weights_desc(k, kPanelColumns, false), engine_, rows);
        dnnl::memory into(weights_desc(k, kPanelColumns, true), engine_, to);
        dnnl::memory library(reorder_desc.scratchpad_desc(), engine_,
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

void Gemm::run_tile(const Operands& op, const Tiles& tiles, size_t tile, std::byte* scratch,
                    Decoded& decoded, dnnl::stream& stream) const {
  // Neighbours share the weight slice, so that it is read from memory once.
  const int64_t row_tile = static_cast<int64_t>(tile) % tiles.plan.row_tiles;
  const int64_t column_tile = static_cast<int64_t>(tile) / tiles.plan.row_tiles;
  const Primitive& p = *tiles.primitives[row_tile == tiles.plan.row_tiles - 1]
                                        [column_tile == tiles.plan.column_tiles - 1];
  const int64_t row = row_tile * tiles.plan.rows, column = column_tile * tiles.plan.columns;
  const int64_t rows = std::min(tiles.plan.rows, op.m - row);
  const int64_t columns = std::min(tiles.plan.columns, op.w.out() - column);
  float* const y = op.y + row * op.w.out() + column;
  float* const own_slice = reinterpret_cast<float*>(scratch);
  float* const out =
      tiles.direct ? y : reinterpret_cast<float*>(scratch + lines(tiles.slice_bytes));
  const float* const slice = op.w.decoded() && decoded.column_tile == column_tile
                                 ? own_slice
                                 : op.w.slice(column, columns, own_slice);
  decoded.column_tile = column_tile;

  // The wrapper takes no const pointers; oneDNN only reads source and weights.
  float* const x = const_cast<float*>(op.x + row * op.w.in());
  p.matmul.execute(
      stream,
      {{DNNL_ARG_SRC, dnnl::memory(p.desc.src_desc(), engine_, x)},
       {DNNL_ARG_WEIGHTS, dnnl::memory(p.desc.weights_desc(), engine_, const_cast<float*>(slice))},
       {DNNL_ARG_DST, dnnl::memory(p.desc.dst_desc(), engine_, out)},
       {DNNL_ARG_SCRATCHPAD,
        dnnl::memory(p.desc.scratchpad_desc(), engine_,
                     scratch + lines(tiles.slice_bytes) + lines(tiles.tile_bytes))}});
  stream.wait();
  if (tiles.direct) return;
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = out + i * columns;
    float* to = y + i * op.w.out();
    if (op.accumulate) {
      for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
    } else {
      std::copy(from, from + columns, to);
    }
  }
}

Result<Gemm::Tiles> Gemm::plan(const Operands& op) {
  const CpuMatrix& w = op.w;
  // A decoded slice stays in the second-level cache while the rows' tiles go by.
  constexpr int64_t kSliceElements = 256 << 10;
  const int64_t most_columns =
      w.decoded() ? std::clamp(kSliceElements / w.in() / kPanelColumns * kPanelColumns,
                               kPanelColumns, int64_t{512})
                  : INT64_MAX;
  Tiles tiles;
  tiles.plan = plan_tiles(op.m, w.out(), w.in(), pool_.n_threads(), most_columns);
  tiles.direct = tiles.plan.column_tiles == 1 || tiles.plan.rows == 1;
  BLEND_RETURN_IF_ERROR(guarded([&] {
    const int64_t last_rows = op.m - (tiles.plan.row_tiles - 1) * tiles.plan.rows;
    const int64_t last_columns = w.out() - (tiles.plan.column_tiles - 1) * tiles.plan.columns;
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 2; ++c) {
        // Full tiles need no primitive where the last is the only one.
        if ((r == 0 && tiles.plan.row_tiles == 1) || (c == 0 && tiles.plan.column_tiles == 1)) {
          continue;
        }
        auto p = primitive({r == 1 ? last_rows : tiles.plan.rows, w.in(),
                            c == 1 ? last_columns : tiles.plan.columns, w.blocked(),
                            op.accumulate && tiles.direct});
        tiles.library_bytes = std::max(tiles.library_bytes, p->scratch_bytes);
        tiles.primitives[r][c] = std::move(p);
      }
    }
    return Status::ok();
  }));
  if (!tiles.direct) {
    tiles.tile_bytes = static_cast<size_t>(tiles.plan.rows * tiles.plan.columns) * sizeof(float);
  }
  if (w.decoded()) {
    tiles.slice_bytes = static_cast<size_t>(tiles.plan.columns * w.in()) * sizeof(float);
  }
  return tiles;
}

Status Gemm::run(const CpuMatrix& w, const float* x, int64_t m, float* y, bool accumulate) {
  if (m == 0) return Status::ok();
  const Operands op{w, x, m, y, accumulate};
  if (w.decoded() && m <= kFewRows) return run_few(op);
  const OneOmpThread one_thread;
  BLEND_ASSIGN(const Tiles tiles, plan(op));
  const size_t n_threads = pool_.n_threads(), per_thread = tiles.per_thread();
  // Each thread's scratch begins with what it knows of it.
  constexpr size_t kHead = lines(sizeof(Decoded));
  BLEND_ASSIGN(auto lease, scratch_.take((kHead + per_thread) * n_threads));
  const auto scratch = [&](size_t thread) { return lease.data() + (kHead + per_thread) * thread; };
  for (size_t i = 0; i < n_threads; ++i) new (scratch(i)) Decoded;

  FirstError error;
  const size_t row_tiles = static_cast<size_t>(tiles.plan.row_tiles);
  const size_t column_tiles = static_cast<size_t>(tiles.plan.column_tiles);
  // A slice is decoded once where there are enough of them for every thread.
  const size_t grain = w.decoded() && column_tiles >= 2 * n_threads ? row_tiles : 1;
  pool_.parallel_for(
      row_tiles * column_tiles, grain, [&](size_t begin, size_t end, uint32_t thread) {
        const OneOmpThread one;
        Decoded& decoded = *std::launder(reinterpret_cast<Decoded*>(scratch(thread)));
        error.set(guarded([&] {
          dnnl::stream stream(engine_);
          for (size_t i = begin; i < end; ++i) {
            run_tile(op, tiles, i, scratch(thread) + kHead, decoded, stream);
          }
          return Status::ok();
        }));
      });
  return error.failed() ? error.take() : Status::ok();
}

// Every weight is used a few times only: a row of W is decoded into the first-level cache and
// multiplied there.
Status Gemm::run_few(const Operands& op) {
  const size_t n = static_cast<size_t>(op.w.out()), k = static_cast<size_t>(op.w.in());
  const size_t per_thread = lines(k * sizeof(float));
  BLEND_ASSIGN(auto lease, scratch_.take(per_thread * pool_.n_threads()));
  // Some 10 us of one core.
  const size_t grain = std::max<size_t>(1, (64 << 10) / k);
  pool_.parallel_for(n, grain, [&](size_t begin, size_t end, uint32_t thread) {
    float* const row = reinterpret_cast<float*>(lease.data() + per_thread * thread);
    for (size_t j = begin; j < end; ++j) {
      (void)op.w.slice(static_cast<int64_t>(j), 1, row);
      for (size_t i = 0; i < static_cast<size_t>(op.m); ++i) {
        const float product = kernels::dot(op.x + i * k, row, k);
        float& y = op.y[i * n + j];
        y = op.accumulate ? y + product : product;
      }
    }
  });
  return Status::ok();
}

}  // namespace blend::cpu
