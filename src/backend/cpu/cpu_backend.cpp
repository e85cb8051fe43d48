// Memory, weights and the row-wise operations; row_ops.cpp and attention_ops.cpp have the rest.
#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "backend/cpu/first_error.h"
#include "backend/cpu/gate.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/weights.h"
#include "cpu/convert.h"
#include "cpu/rms_norm.h"

namespace blend::cpu {
namespace {

class CpuBuffer final : public DeviceBuffer {
 public:
  explicit CpuBuffer(AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  void* data() const override { return buffer_.data(); }

 private:
  AlignedBuffer buffer_;
};

// Checks `tensor` for NaN and infinity, in pieces that fit the first-level cache and that are whole
// blocks where it is quantized: rows are, so the tensor is one run of them.
Status check_finite(ThreadPool& pool, const TensorView& tensor) {
  constexpr size_t kPiece = 2048;  // elements
  const size_t n = static_cast<size_t>(tensor.elements());
  FirstError error;
  pool.parallel_for((n + kPiece - 1) / kPiece, 64, [&](size_t begin, size_t end, uint32_t) {
    float values[kPiece];
    for (size_t piece = begin; piece < end && !error.failed(); ++piece) {
      const size_t first = piece * kPiece, count = std::min(kPiece, n - first);
      decode(tensor, tensor.data + weight_row_bytes(tensor.dtype, tensor.blocks, first), count,
             values);
      const size_t bad = kernels::find_not_finite(values, count);
      if (bad != count) error.set(not_finite(tensor, first + bad, values[bad]));
    }
  });
  return error.failed() ? error.take() : Status::ok();
}

}  // namespace

Result<std::unique_ptr<DeviceBuffer>> CpuBackend::allocate(size_t bytes) {
  BLEND_ASSIGN(AlignedBuffer buffer, allocate_tensor(bytes));
  return std::unique_ptr<DeviceBuffer>(new CpuBuffer(std::move(buffer)));
}

Status CpuBackend::download(const Tensor& src, float* dst) {
  if (src.rows == 0) return Status::ok();
  std::memcpy(dst, src.data, static_cast<size_t>(src.rows * src.cols) * sizeof(float));
  return Status::ok();
}

Result<std::unique_ptr<Weight>> CpuBackend::load_matrix(std::span<const TensorView* const> parts,
                                                        WeightForm form) {
  BLEND_ASSIGN(std::unique_ptr<Weight> matrix, make_matrix(parts, form));
  return matrix;
}

Result<std::unique_ptr<CpuMatrix>> CpuBackend::make_matrix(std::span<const TensorView* const> parts,
                                                           WeightForm form) {
  if (form == WeightForm::int8) return int8_gemm_.pack(parts);
  if (form != WeightForm::mapped) {
    BLEND_ASSIGN(std::unique_ptr<CpuMatrix> packed, gemm_.pack(parts));
    return packed;
  }
  BLEND_ASSIGN(StackedParts stacked, StackedParts::of(parts));
  for (const TensorView* part : parts) BLEND_RETURN_IF_ERROR(check_finite(pool_, *part));
  return std::unique_ptr<CpuMatrix>(new MappedMatrix(std::move(stacked)));
}

Result<std::unique_ptr<Weight>> CpuBackend::load_table(const TensorView& table, bool known_finite) {
  if (table.shape.size() != 2) {
    return make_error(BLEND_E_INTERNAL, "tensor '%s' is not a table", table.name.c_str());
  }
  if (!known_finite) BLEND_RETURN_IF_ERROR(check_finite(pool_, table));
  return std::unique_ptr<Weight>(new CpuTable(table));
}

Result<std::unique_ptr<Weight>> CpuBackend::load_vector(std::span<const TensorView* const> parts,
                                                        float offset) {
  int64_t n = 0;
  for (const TensorView* part : parts) {
    BLEND_RETURN_IF_ERROR(check_finite(pool_, *part));
    n += part->elements();
  }
  BLEND_ASSIGN(AlignedBuffer data, AlignedBuffer::allocate(static_cast<size_t>(n) * sizeof(float)));
  float* to = data.as<float>();
  for (const TensorView* part : parts) {
    for (int64_t row = 0; row < part->rows(); ++row, to += part->cols()) decode_row(*part, row, to);
  }
  for (int64_t i = 0; i < n; ++i) data.as<float>()[i] += offset;
  return std::unique_ptr<Weight>(new CpuVector(std::move(data), n));
}

Status CpuBackend::embed(const Weight& table, const int32_t* tokens, Tensor out) {
  const auto& t = static_cast<const CpuTable&>(table);
  if (t.cols() != out.cols) {
    return make_error(BLEND_E_INTERNAL, "embed: %lld columns of a table of %lld",
                      static_cast<long long>(out.cols), static_cast<long long>(t.cols()));
  }
  float* const to = static_cast<float*>(out.data);
  const size_t cols = static_cast<size_t>(out.cols);
  pool_.parallel_for(static_cast<size_t>(out.rows), row_grain(cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         decode_row(t.view(), tokens[i], to + i * cols);
                       }
                     });
  return Status::ok();
}

Status CpuBackend::gather(Tensor src, const uint32_t* rows, Tensor dst) {
  const size_t cols = static_cast<size_t>(src.cols), n = static_cast<size_t>(dst.rows);
  const float* const from = static_cast<const float*>(src.data);
  float* const to = static_cast<float*>(dst.data);
  const auto copy = [&](size_t begin, size_t end, uint32_t) {
    for (size_t i = begin; i < end; ++i) {
      std::memmove(to + i * cols, from + rows[i] * cols, cols * sizeof(float));
    }
  };
  const bool apart = to + n * cols <= from || from + static_cast<size_t>(src.rows) * cols <= to;
  // In shared memory a row may only be overwritten once it has been read: ascending order, alone.
  if (apart) {
    pool_.parallel_for(n, row_grain(cols), copy);
  } else {
    copy(0, n, 0);
  }
  return Status::ok();
}

Status CpuBackend::rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) {
  const auto& w = static_cast<const CpuVector&>(weight);
  if (w.size() != x.cols) return make_error(BLEND_E_INTERNAL, "rms_norm: weight of another size");
  const float* const from = static_cast<const float*>(x.data);
  float* const to = static_cast<float*>(out.data);
  const size_t cols = static_cast<size_t>(x.cols);
  pool_.parallel_for(static_cast<size_t>(x.rows), row_grain(cols),
                     [&](size_t begin, size_t end, uint32_t) {
                       for (size_t i = begin; i < end; ++i) {
                         kernels::rms_norm(from + i * cols, w.data(), eps, cols, to + i * cols);
                       }
                     });
  return Status::ok();
}

Status CpuBackend::matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  const auto& matrix = static_cast<const CpuMatrix&>(w);
  if (x.cols != matrix.in() || y.cols != matrix.out() || x.rows != y.rows) {
    return make_error(BLEND_E_INTERNAL, "matmul: [%lld, %lld] x [%lld, %lld]^T into [%lld, %lld]",
                      static_cast<long long>(x.rows), static_cast<long long>(x.cols),
                      static_cast<long long>(matrix.out()), static_cast<long long>(matrix.in()),
                      static_cast<long long>(y.rows), static_cast<long long>(y.cols));
  }
  const auto* const from = static_cast<const float*>(x.data);
  auto* const to = static_cast<float*>(y.data);
  switch (matrix.kind()) {
    case CpuMatrix::Kind::packed:
      return gemm_.run(static_cast<const PackedMatrix&>(w), from, x.rows, to, accumulate);
    case CpuMatrix::Kind::decoded:
      return gemm_.run(static_cast<const DecodedMatrix&>(w), from, x.rows, to, accumulate, x.steps);
    case CpuMatrix::Kind::int8:
      break;
  }
  return int8_gemm_.run(static_cast<const Int8Matrix&>(w), from, x.rows, to, accumulate);
}

Status CpuBackend::glu(Activation activation, Tensor gate_up, Tensor out) {
  const size_t d_ff = static_cast<size_t>(out.cols);
  const float* const from = static_cast<const float*>(gate_up.data);
  float* const to = static_cast<float*>(out.data);
  gate_rows(pool_, static_cast<size_t>(out.rows), d_ff, gate_of(activation), from, from + d_ff,
            2 * d_ff, to);
  return Status::ok();
}

}  // namespace blend::cpu

namespace blend {

Result<std::unique_ptr<Backend>> make_cpu_backend(ThreadPool& pool, DType cache) {
  try {
    return std::unique_ptr<Backend>(new cpu::CpuBackend(pool, cache));
  } catch (const std::bad_alloc&) {
    return make_error(BLEND_E_OUT_OF_MEMORY, "out of memory for the CPU backend");
  }
}

}  // namespace blend
