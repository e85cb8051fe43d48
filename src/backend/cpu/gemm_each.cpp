// Several products of one shape at once: those of a layer's experts. Each may have few rows, so it
// is not cut for all threads by itself: they share out the parts of all products.
#include <algorithm>

#include "backend/cpu/gemm.h"
#include "backend/cpu/sizes.h"
#include "cpu/few_rows.h"
#include "cpu/gemm_f32.h"

namespace blend::cpu {
namespace {

template <class Matrix>
const Matrix& matrix_of(const Gemm::Product& product) {
  return static_cast<const Matrix&>(*product.w);
}

GemmRows rows_of(const Gemm::Product& p) { return {p.x, p.m, p.y, false}; }

// A product of few rows as its kernel reads it, and how many bytes that takes besides x.
size_t few_rows_bytes(const PackedMatrix& /*w*/, const Gemm::Product& /*p*/) { return 0; }
size_t few_rows_bytes(const DecodedMatrix& w, const Gemm::Product& p) {
  return lines(FewRowsForms(w, p.m, p.steps).bytes());
}
GemmRows few_rows_of(const PackedMatrix& /*w*/, const Gemm::Product& p, std::byte* /*to*/) {
  return rows_of(p);
}
GemmRows few_rows_of(const DecodedMatrix& w, const Gemm::Product& p, std::byte* to) {
  const FewRowsForms forms(w, p.m, p.steps);
  if (forms.bytes() == 0) return rows_of(p);
  forms.pack(p.x, 0, forms.n_groups(), to);
  return forms.packed(rows_of(p), to);
}

// Whole numbers of these columns are multiplied fastest.
int64_t columns_step(const PackedMatrix& w) { return w.columns(); }
int64_t columns_step(const DecodedMatrix& /*w*/) { return kernels::kFewRowsStep; }

}  // namespace

// What becomes of one of the products.
struct Gemm::Part {
  const Product* product;
  GemmRows few;       // of few rows, as its kernel reads them
  GemmBlocks blocks;  // of many
  size_t first;       // its first tile among those of all, or byte of their x
};

Status Gemm::run_each(std::span<const Product> products) {
  if (products.empty()) return Status::ok();
  if (products[0].w->kind() == CpuMatrix::Kind::packed) {
    BLEND_RETURN_IF_ERROR(run_each_few<PackedMatrix>(products));
    return run_each_many<PackedMatrix>(products);
  }
  BLEND_RETURN_IF_ERROR(run_each_few<DecodedMatrix>(products));
  return run_each_many<DecodedMatrix>(products);
}

template <class Matrix>
Status Gemm::run_each_few(std::span<const Product> products) {
  const Matrix& any = matrix_of<Matrix>(products[0]);
  const int64_t most = few_rows_most(any);
  size_t n = 0, x_bytes = 0;
  for (const Product& p : products) {
    if (p.m > most) continue;
    ++n;
    x_bytes += few_rows_bytes(matrix_of<Matrix>(p), p);
  }
  if (n == 0) return Status::ok();
  const size_t parts_bytes = lines(n * sizeof(Part));
  BLEND_ASSIGN(auto lease, scratch_.take(parts_bytes + x_bytes));
  auto* const parts = reinterpret_cast<Part*>(lease.data());
  std::byte* const x = lease.data() + parts_bytes;
  size_t next = 0, at = 0;
  for (const Product& p : products) {
    if (p.m > most) continue;
    parts[next++] = {&p, {}, {}, at};
    at += few_rows_bytes(matrix_of<Matrix>(p), p);
  }
  const auto pack = [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const Product& p = *parts[i].product;
      parts[i].few = few_rows_of(matrix_of<Matrix>(p), p, x + parts[i].first);
    }
  };
  if (x_bytes == 0) {
    pack(0, n, 0);
  } else {
    pool_.parallel_for(n, 1, pack);
  }
  const int64_t out = any.out();
  const int64_t most_columns =
      few_rows_piece(any, out * static_cast<int64_t>(n), pool_.n_threads());
  const int64_t piece = even_part(out, most_columns, columns_step(any));
  const auto pieces = static_cast<size_t>(ceil_div(out, piece));  // of one product
  pool_.parallel_for(n * pieces, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const Part& part = parts[i / pieces];
      const int64_t first = static_cast<int64_t>(i % pieces) * piece;
      multiply_columns(matrix_of<Matrix>(*part.product), part.few, first,
                       std::min(out, first + piece), piece);
    }
  });
  return Status::ok();
}

template <class Matrix>
Status Gemm::run_each_many(std::span<const Product> products) {
  const TileUnits units = gemm_units();
  const Matrix& any = matrix_of<Matrix>(products[0]);
  const int64_t most = few_rows_most(any), k = any.in();
  const auto plan = [&](const Product& p) { return gemm_plan(any, p.m, units, 1); };
  const auto x_bytes_of = [&](const Product& p) {
    return lines(static_cast<size_t>(align(p.m, units.rows) * k) * sizeof(float));
  };
  size_t n = 0, x_bytes = 0, sums = 0, scratch = 0;
  const Product* only = nullptr;
  for (const Product& p : products) {
    if (p.m <= most) continue;
    only = &p;
    ++n;
    x_bytes += x_bytes_of(p);
    const TilePlan tiles = plan(p);
    sums = std::max(sums, gemm_sums_bytes(k, tiles));
    scratch = std::max(scratch, gemm_scratch_bytes(any, tiles));
  }
  if (n == 0) return Status::ok();
  if (n == 1) return run(matrix_of<Matrix>(*only), only->x, only->m, only->y, false);
  const size_t parts_bytes = lines(n * sizeof(Part)), per_thread = sums + scratch;
  BLEND_ASSIGN(auto lease, scratch_.take(parts_bytes + x_bytes + per_thread * pool_.n_threads()));
  auto* const parts = reinterpret_cast<Part*>(lease.data());
  std::byte* x = lease.data() + parts_bytes;
  std::byte* const threads = x + x_bytes;
  size_t next = 0, n_tiles = 0;
  for (const Product& p : products) {
    if (p.m <= most) continue;
    Part& part = parts[next++];
    part = {&p,
            {},
            {rows_of(p), plan(p), reinterpret_cast<float*>(x), threads, sums, per_thread},
            n_tiles};
    n_tiles += part.blocks.plan.n_tiles();
    x += x_bytes_of(p);
  }
  pool_.parallel_for(n, 1, [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      const GemmBlocks& to = parts[i].blocks;
      for (size_t b = 0; b < n_blocks(to.rows); ++b) {
        pack_block(to.rows, k, b, const_cast<float*>(to.x));
      }
    }
  });
  begin_tiles(any, parts[0].blocks, pool_.n_threads());
  pool_.parallel_for(n_tiles, 1, [&](size_t begin, size_t end, uint32_t thread) {
    const Part* part = std::upper_bound(parts, parts + n, begin,
                                        [](size_t i, const Part& p) { return i < p.first; }) -
                       1;
    for (size_t i = begin; i < end; ++i) {
      while (i - part->first >= part->blocks.plan.n_tiles()) ++part;
      multiply_tile(matrix_of<Matrix>(*part->product), part->blocks, i - part->first, {}, thread);
    }
  });
  return Status::ok();
}

}  // namespace blend::cpu
