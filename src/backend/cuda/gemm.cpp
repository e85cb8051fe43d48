#include "backend/cuda/gemm.h"

#include <algorithm>
#include <cstdint>

namespace blend::cuda {
namespace {

Status check_lt(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::ok();
  return make_error(BLEND_E_INTERNAL, "%s: %s", call, cublasLtGetStatusString(status));
}
#define BLEND_LT_CHECK(call) BLEND_RETURN_IF_ERROR(check_lt((call), #call))

template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
class UniqueLt {
 public:
  UniqueLt() = default;
  ~UniqueLt() {
    if (handle_ != nullptr) (void)kDestroy(handle_);
  }
  UniqueLt(const UniqueLt&) = delete;
  UniqueLt& operator=(const UniqueLt&) = delete;
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

// The descriptors of one product.
class Descriptors {
 public:
  Status create(const GemmShape& s) {
    const cudaDataType_t result = s.out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const auto rows = static_cast<uint64_t>(s.rows), in = static_cast<uint64_t>(s.in),
               out = static_cast<uint64_t>(s.out);
    const int32_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    BLEND_LT_CHECK(cublasLtMatmulDescCreate(product_.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLEND_LT_CHECK(cublasLtMatmulDescSetAttribute(product(), CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transposed, sizeof transposed));
    BLEND_LT_CHECK(cublasLtMatmulDescSetAttribute(product(), CUBLASLT_MATMUL_DESC_TRANSB, &plain,
                                                  sizeof plain));
    BLEND_LT_CHECK(cublasLtMatrixLayoutCreate(w_.out(), CUDA_R_16BF, in, out, s.in));
    BLEND_LT_CHECK(cublasLtMatrixLayoutCreate(x_.out(), CUDA_R_16BF, in, rows, s.in));
    BLEND_LT_CHECK(cublasLtMatrixLayoutCreate(y_.out(), result, out, rows, s.out));
    return Status::ok();
  }
  cublasLtMatmulDesc_t product() const { return product_.get(); }
  cublasLtMatrixLayout_t w() const { return w_.get(); }
  cublasLtMatrixLayout_t x() const { return x_.get(); }
  cublasLtMatrixLayout_t y() const { return y_.get(); }

 private:
  UniqueLt<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  UniqueLt<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> w_, x_, y_;
};

// The largest power of two, up to 16, that divides the address and the bytes of a row.
uint32_t alignment_of(const void* p, int64_t row_bytes) {
  const uint64_t both = reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(row_bytes) | 16u;
  return static_cast<uint32_t>(both & (~both + 1));
}

// What the library thinks best.
Status find(cublasLtHandle_t handle, const Descriptors& d, size_t workspace, uint32_t x_alignment,
            uint32_t y_alignment, const GemmShape& s, cublasLtMatmulAlgo_t& algorithm) {
  UniqueLt<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
  BLEND_LT_CHECK(cublasLtMatmulPreferenceCreate(preference.out()));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return check_lt(
        cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
  };
  const uint32_t w_alignment = 16;
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace}));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w_alignment));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y_alignment));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y_alignment));
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, d.product(), d.w(), d.x(), d.y(), d.y(), preference.get(), 1, &result, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return make_error(
        BLEND_E_INTERNAL, "cuBLASLt has no algorithm for [%lld, %lld] x [%lld, %lld]^T: %s",
        static_cast<long long>(s.rows), static_cast<long long>(s.in), static_cast<long long>(s.out),
        static_cast<long long>(s.in), cublasLtGetStatusString(status));
  }
  algorithm = result.algo;
  return Status::ok();
}

}  // namespace

int64_t gemm_bucket(int64_t rows) {
  if (rows <= 16) return rows;
  const int64_t step = rows <= 512 ? 64 : rows <= 4096 ? 512 : 4096;
  return (rows + step - 1) / step * step;
}

Result<std::unique_ptr<Gemm>> Gemm::create(Device& device) {
  std::unique_ptr<Gemm> g(new Gemm(device));
  BLEND_LT_CHECK(cublasLtCreate(&g->handle_));
  BLEND_ASSIGN(g->workspace_, device.allocate(kWorkspaceBytes));
  return g;
}

Gemm::~Gemm() {
  const DeviceScope scope(device_.context());
  if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
}

Status Gemm::run(const GemmShape& shape, const uint16_t* x, const uint16_t* w, void* y,
                 bool accumulate) {
  if (shape.rows == 0 || shape.out == 0) return Status::ok();
  const uint32_t x_alignment = alignment_of(x, shape.in * 2);
  const uint32_t y_alignment = alignment_of(y, shape.out * (shape.out_bf16 ? 2 : 4));
  const Key key{shape.in,       shape.out,   gemm_bucket(shape.rows),
                shape.out_bf16, x_alignment, y_alignment};
  Descriptors d;
  BLEND_RETURN_IF_ERROR(d.create(shape));
  cublasLtMatmulAlgo_t algorithm{};
  bool known = false;
  {
    const std::lock_guard lock(mutex_);
    const auto kept = algorithms_.find(key);
    known = kept != algorithms_.end();
    if (known) algorithm = kept->second;
  }
  // One that was found for other rows of the bucket may not take these.
  cublasLtMatmulHeuristicResult_t result{};
  if (!known ||
      cublasLtMatmulAlgoCheck(handle_, d.product(), d.w(), d.x(), d.y(), d.y(), &algorithm,
                              &result) != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > workspace_.bytes()) {
    BLEND_RETURN_IF_ERROR(
        find(handle_, d, workspace_.bytes(), x_alignment, y_alignment, shape, algorithm));
    const std::lock_guard lock(mutex_);
    algorithms_[key] = algorithm;
  }
  const float one = 1.0f, beta = accumulate ? 1.0f : 0.0f;
  return check_lt(
      cublasLtMatmul(handle_, d.product(), &one, w, d.w(), x, d.x(), &beta, y, d.y(), y, d.y(),
                     &algorithm, workspace_.as<void>(), workspace_.bytes(), device_.compute()),
      "cublasLtMatmul");
}

}  // namespace blend::cuda
