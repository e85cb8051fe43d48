// Memory, weights and the row-wise operations; row_ops.cpp, attention_ops.cpp and step_ops.cpp have
// the rest.
#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cuda/tensors.h"
#include "backend/weight_error.h"
#include "cuda/attention.h"
#include "cuda/attention_each.h"
#include "cuda/attention_mass.h"
#include "cuda/attention_tempered.h"

namespace blend::cuda {
namespace {

namespace k = kernels::cuda;

constexpr size_t kPieceBytes = size_t{16} << 20;  // of a weight on its way

// Element `index` of a tensor in host memory.
float element(const TensorView& tensor, size_t index) {
  const size_t block = block_elements(tensor.blocks), first = index / block * block;
  std::vector<float> values(block);
  decode_weights(tensor.dtype, tensor.blocks,
                 tensor.data + weight_row_bytes(tensor.dtype, tensor.blocks, first), block,
                 values.data());
  return values[index - first];
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<Device> device, ThreadPool& pool)
    : core_(std::move(device), pool) {
  traits_.operand_bytes = traits_.cache_bytes = sizeof(uint16_t);
  traits_.decodes_packed = true;
  traits_.block_rows = 4096;
  // Products of this few rows take as long as reading the weights (that ends at some 300 rows
  // on an H100), so a step may have all of them: only the attention of the present rows
  // grows. And a table of them fits into a launch's arguments.
  traits_.step_rows = k::StepRows::kMost;
  // From A100 to H200, tensor cores do 150 to 300 products of bf16 for each byte that the memory
  // brings. docs/cuda.md has what an H200 takes for few rows.
  traits_.free_rows = 256;
  traits_.pads_steps = true;  // cuBLASLt has other algorithms for other row counts
}

Result<std::unique_ptr<Backend>> CudaBackend::create(int32_t device, ThreadPool& pool) {
  BLEND_ASSIGN(auto opened, Device::open(device));
  std::unique_ptr<CudaBackend> b(new CudaBackend(std::move(opened), pool));
  // Left before the backend is destroyed, should the rest fail.
  const auto scope = b->core_.enter();
  b->name_ = "cuda:" + std::to_string(device) + " (" + b->core_.device().name() + ")";
  BLEND_CUDA_CHECK(k::prepare_attention());
  BLEND_CUDA_CHECK(k::prepare_attention_each());
  BLEND_CUDA_CHECK(k::prepare_attention_mass());
  BLEND_CUDA_CHECK(k::prepare_attention_tempered());
  BLEND_RETURN_IF_ERROR(b->core_.start());
  BLEND_ASSIGN(b->gemm_, Gemm::create(b->core_.device()));
  return std::unique_ptr<Backend>(std::move(b));
}

// ---- Memory

Result<std::unique_ptr<DeviceBuffer>> CudaBackend::allocate(size_t bytes) {
  const auto scope = core_.enter();
  BLEND_ASSIGN(Memory memory, core_.device().allocate(bytes));
  return std::unique_ptr<DeviceBuffer>(new CudaBuffer(std::move(memory)));
}

Result<std::unique_ptr<DeviceBuffer>> CudaBackend::allocate_host(size_t bytes) {
  const auto scope = core_.enter();
  BLEND_ASSIGN(Pinned memory, core_.device().pin(bytes));
  return std::unique_ptr<DeviceBuffer>(new CudaHostBuffer(core_.device(), std::move(memory)));
}

Result<std::unique_ptr<Fence>> CudaBackend::fence() {
  const auto scope = core_.enter();
  BLEND_ASSIGN(UniqueEvent event, core_.device().make_event());
  BLEND_CUDA_CHECK(cudaEventRecord(event.get(), core_.device().copies()));
  return std::unique_ptr<Fence>(new CudaFence(core_.device(), std::move(event)));
}

Status CudaBackend::download(const Tensor& src, float* dst) {
  const auto n = static_cast<size_t>(src.rows * src.cols);
  if (n == 0) return Status::ok();
  const auto scope = core_.enter();
  if (type_of(src) == DType::f32) return core_.fetch(dst, src.data, n * sizeof(float));
  BLEND_ASSIGN(const Memory wide, core_.device().allocate(n * sizeof(float)));
  k::to_f32(src.data, DType::bf16, n, wide.as<float>(), 0, nullptr, core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("download"));
  return core_.fetch(dst, wide.as<void>(), n * sizeof(float));
}

// ---- Weights

Status CudaBackend::load_pieces(const TensorView& tensor, size_t rows, size_t cols, UsePiece use,
                                void* context) {
  const size_t row_bytes = cols * static_cast<size_t>(dtype_size(tensor.dtype));
  const size_t rows_at_once = std::max<size_t>(1, kPieceBytes / std::max<size_t>(row_bytes, 1));
  const bool quantized = tensor.blocks != BlockType::none;
  std::vector<float> decoded(quantized ? std::min(rows_at_once, rows) * cols : 0);
  BLEND_ASSIGN(const Memory bad, core_.make_counter());
  for (size_t first = 0; first < rows; first += rows_at_once) {
    const size_t n = std::min(rows_at_once, rows - first);
    BLEND_ASSIGN(const Memory raw, core_.device().allocate(n * row_bytes));
    const std::byte* from = tensor.data + first * row_bytes;
    if (quantized) {
      core_.pool().parallel_for(n, 64, [&](size_t begin, size_t end, uint32_t) {
        decode_blocks(tensor.blocks, tensor.row(static_cast<int64_t>(first + begin)),
                      (end - begin) * cols, decoded.data() + begin * cols);
      });
      from = reinterpret_cast<const std::byte*>(decoded.data());
    }
    BLEND_RETURN_IF_ERROR(core_.stager().copy(raw.as<void>(), from, n * row_bytes));
    use(context, raw.as<void>(), first, n, bad.as<unsigned long long>());
    BLEND_RETURN_IF_ERROR(check_launch("loading a weight"));
  }
  BLEND_ASSIGN(const unsigned long long index, core_.read_counter(bad));
  if (index == CudaCore::kNone) return Status::ok();
  return not_finite(tensor, index, element(tensor, index));
}

Result<std::unique_ptr<Weight>> CudaBackend::load_matrix(std::span<const TensorView* const> parts,
                                                         WeightForm /*form*/) {
  const auto scope = core_.enter();
  if (parts.empty()) return make_error(BLEND_E_INTERNAL, "a matrix of no parts");
  const int64_t in = parts[0]->shape.back(), stride = (in + 7) / 8 * 8;
  int64_t out = 0;
  for (const TensorView* part : parts) {
    if (part->shape.size() != 2 || part->shape[1] != in) {
      return make_error(BLEND_E_INTERNAL, "tensor '%s' does not stack on '%s'", part->name.c_str(),
                        parts[0]->name.c_str());
    }
    out += part->shape[0];
  }
  auto memory = core_.device().allocate(static_cast<size_t>(out * stride) * sizeof(uint16_t));
  if (!memory.is_ok()) return memory.status().with_context("tensor '" + parts[0]->name + "'");
  struct Context {
    const TensorView* part;
    size_t in, stride;
    uint16_t* to;
    cudaStream_t stream;
  } c{nullptr, static_cast<size_t>(in), static_cast<size_t>(stride), memory->as<uint16_t>(),
      core_.stream()};
  for (const TensorView* part : parts) {
    c.part = part;
    const auto rows = static_cast<size_t>(part->shape[0]);
    BLEND_RETURN_IF_ERROR(load_pieces(
        *part, rows, c.in,
        [](void* context, const void* raw, size_t first, size_t n, unsigned long long* bad) {
          const auto& w = *static_cast<const Context*>(context);
          k::to_bf16_rows(raw, w.part->dtype, n, w.in, w.to + first * w.stride, w.stride,
                          first * w.in, bad, w.stream);
        },
        &c));
    c.to += rows * c.stride;
  }
  return std::unique_ptr<Weight>(new CudaMatrix(std::move(*memory), out, in, stride));
}

Result<std::unique_ptr<Weight>> CudaBackend::load_table(const TensorView& table,
                                                        bool known_finite) {
  const auto scope = core_.enter();
  if (table.shape.size() != 2) {
    return make_error(BLEND_E_INTERNAL, "tensor '%s' is not a table", table.name.c_str());
  }
  // A quantized table is kept decoded.
  auto memory = core_.device().allocate(static_cast<size_t>(table.elements()) *
                                        static_cast<size_t>(dtype_size(table.dtype)));
  if (!memory.is_ok()) return memory.status().with_context("tensor '" + table.name + "'");
  struct Context {
    const TensorView* table;
    size_t cols;
    std::byte* to;
    bool known_finite;
    cudaStream_t stream;
    cudaError_t error;
  } c{&table,
      static_cast<size_t>(table.shape[1]),
      memory->as<std::byte>(),
      known_finite,
      core_.stream(),
      cudaSuccess};
  BLEND_RETURN_IF_ERROR(load_pieces(
      table, static_cast<size_t>(table.shape[0]), c.cols,
      [](void* context, const void* raw, size_t first, size_t n, unsigned long long* bad) {
        auto& w = *static_cast<Context*>(context);
        const size_t row_bytes = w.cols * static_cast<size_t>(dtype_size(w.table->dtype));
        if (!w.known_finite)
          k::check_finite(raw, w.table->dtype, n * w.cols, first * w.cols, bad, w.stream);
        const cudaError_t error = cudaMemcpyAsync(w.to + first * row_bytes, raw, n * row_bytes,
                                                  cudaMemcpyDeviceToDevice, w.stream);
        if (error != cudaSuccess) w.error = error;
      },
      &c));
  BLEND_CUDA_CHECK(c.error);
  return std::unique_ptr<Weight>(new CudaTable(std::move(*memory), table.dtype, table.shape[1]));
}

// Small: put together on the host.
Result<std::unique_ptr<Weight>> CudaBackend::load_vector(std::span<const TensorView* const> parts,
                                                         float offset) {
  std::vector<float> values;
  for (const TensorView* part : parts) {
    const size_t first = values.size(), n = static_cast<size_t>(part->elements());
    values.resize(first + n);
    decode_weights(part->dtype, part->blocks, part->data, n, values.data() + first);
    for (size_t i = 0; i < n; ++i) {
      if (!std::isfinite(values[first + i])) return not_finite(*part, i, values[first + i]);
      values[first + i] += offset;
    }
  }
  const auto scope = core_.enter();
  BLEND_ASSIGN(Memory memory, core_.device().allocate(values.size() * sizeof(float)));
  BLEND_RETURN_IF_ERROR(
      core_.stager().copy(memory.as<void>(), values.data(), values.size() * sizeof(float)));
  return std::unique_ptr<Weight>(
      new CudaVector(std::move(memory), static_cast<int64_t>(values.size())));
}

// ---- Rows

Status CudaBackend::embed(const Weight& table, const int32_t* tokens, Tensor out) {
  const auto& t = static_cast<const CudaTable&>(table);
  if (t.cols() != out.cols || type_of(out) != DType::f32) {
    return make_error(BLEND_E_INTERNAL, "embed: %lld columns of a table of %lld",
                      static_cast<long long>(out.cols), static_cast<long long>(t.cols()));
  }
  if (out.rows == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Memory ids, core_.stager().upload(tokens, static_cast<size_t>(out.rows)));
  k::embed(t.data(), t.dtype(), ids.as<int32_t>(), rows_of(out), core_.stream());
  return check_launch("embed");
}

Status CudaBackend::gather(Tensor src, const uint32_t* rows, Tensor dst) {
  if (src.cols != dst.cols || src.elem_bytes != dst.elem_bytes) {
    return make_error(BLEND_E_INTERNAL, "gather: rows of another shape");
  }
  if (dst.rows == 0 || dst.cols == 0) return Status::ok();
  const auto scope = core_.enter();
  BLEND_ASSIGN(const Memory picked, core_.stager().upload(rows, static_cast<size_t>(dst.rows)));
  const auto bytes = static_cast<size_t>(dst.rows * dst.cols * dst.elem_bytes);
  const auto* const from = static_cast<const std::byte*>(src.data);
  auto* const to = static_cast<std::byte*>(dst.data);
  const bool apart =
      to + bytes <= from || from + static_cast<size_t>(src.rows * src.cols * src.elem_bytes) <= to;
  if (apart) {
    k::gather(rows_of(src), picked.as<uint32_t>(), rows_of(dst), core_.stream());
    return check_launch("gather");
  }
  // All rows are copied at once, so in shared memory one might be overwritten before it was read.
  BLEND_ASSIGN(const Memory aside, core_.device().allocate(bytes));
  Tensor out = dst;
  out.data = aside.as<void>();
  k::gather(rows_of(src), picked.as<uint32_t>(), rows_of(out), core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("gather"));
  BLEND_CUDA_CHECK(cudaMemcpyAsync(to, out.data, bytes, cudaMemcpyDeviceToDevice, core_.stream()));
  return Status::ok();
}

Status CudaBackend::rms_norm(Tensor x, const Weight& weight, float eps, Tensor out) {
  const auto& w = static_cast<const CudaVector&>(weight);
  if (w.size() != x.cols) return make_error(BLEND_E_INTERNAL, "rms_norm: weight of another size");
  const auto scope = core_.enter();
  k::rms_norm(rows_of(x), w.data(), eps, rows_of(out), core_.stream());
  return check_launch("rms_norm");
}

Status CudaBackend::matmul(const Weight& w, Tensor x, Tensor y, bool accumulate) {
  const auto& m = static_cast<const CudaMatrix&>(w);
  if (x.cols != m.in() || y.cols != m.out() || x.rows != y.rows) {
    return make_error(BLEND_E_INTERNAL, "matmul: [%lld, %lld] x [%lld, %lld]^T into [%lld, %lld]",
                      static_cast<long long>(x.rows), static_cast<long long>(x.cols),
                      static_cast<long long>(m.out()), static_cast<long long>(m.in()),
                      static_cast<long long>(y.rows), static_cast<long long>(y.cols));
  }
  if (x.rows == 0) return Status::ok();
  const auto scope = core_.enter();
  const GemmShape shape{x.rows, m.stride(), m.out(), type_of(y) == DType::bf16};
  if (type_of(x) == DType::bf16 && m.stride() == m.in()) {
    return gemm_->run(shape, static_cast<const uint16_t*>(x.data), m.data(), y.data, accumulate);
  }
  // f32 operands, or rows not aligned to 16 bytes.
  const auto rows = static_cast<size_t>(x.rows), cols = static_cast<size_t>(x.cols),
             stride = static_cast<size_t>(m.stride());
  BLEND_ASSIGN(const Memory operand, core_.device().allocate(rows * stride * sizeof(uint16_t)));
  k::to_bf16_rows(x.data, type_of(x), rows, cols, operand.as<uint16_t>(), stride, 0, nullptr,
                  core_.stream());
  BLEND_RETURN_IF_ERROR(check_launch("matmul"));
  return gemm_->run(shape, operand.as<uint16_t>(), m.data(), y.data, accumulate);
}

Status CudaBackend::glu(Activation activation, Tensor gate_up, Tensor out) {
  const auto scope = core_.enter();
  if (activation == Activation::clamped_silu) {
    return make_error(BLEND_E_UNSUPPORTED, "the CUDA backend has no clamped SwiGLU");
  }
  if (activation == Activation::silu) {
    k::swiglu(rows_of(gate_up), rows_of(out), core_.stream());
    return check_launch("swiglu");
  }
  k::geglu(rows_of(gate_up), rows_of(out), core_.stream());
  return check_launch("geglu");
}

}  // namespace blend::cuda
