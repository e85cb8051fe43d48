#include "backend/cuda/gemm.h"

#include <algorithm>
#include <cstdint>

#include "cuda/plain_gemm.h"

namespace blend::cuda {
namespace {

Status check_lt(const LtLibrary& lt, cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return Status::ok();
  return make_error(BLEND_E_INTERNAL, "cublasLt%s: %s", call, lt.GetStatusString(status));
}
// BLEND_LT(lt, Function, arguments...)
#define BLEND_LT(lt, name, ...) BLEND_RETURN_IF_ERROR(check_lt((lt), (lt).name(__VA_ARGS__), #name))

template <typename Handle>
class UniqueLt {
 public:
  explicit UniqueLt(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
  ~UniqueLt() {
    if (handle_ != nullptr) (void)destroy_(handle_);
  }
  UniqueLt(const UniqueLt&) = delete;
  UniqueLt& operator=(const UniqueLt&) = delete;
  Handle get() const { return handle_; }
  Handle* out() { return &handle_; }

 private:
  cublasStatus_t (*destroy_)(Handle);
  Handle handle_ = nullptr;
};

// The descriptors of one product.
class Descriptors {
 public:
  explicit Descriptors(const LtLibrary& lt)
      : lt_(lt),
        product_(lt.MatmulDescDestroy),
        w_(lt.MatrixLayoutDestroy),
        x_(lt.MatrixLayoutDestroy),
        y_(lt.MatrixLayoutDestroy) {}
  Status create(const GemmShape& s) {
    const cudaDataType_t result = s.out_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const auto rows = static_cast<uint64_t>(s.rows), in = static_cast<uint64_t>(s.in),
               out = static_cast<uint64_t>(s.out);
    const int32_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    BLEND_LT(lt_, MatmulDescCreate, product_.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F);
    BLEND_LT(lt_, MatmulDescSetAttribute, product(), CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
             sizeof transposed);
    BLEND_LT(lt_, MatmulDescSetAttribute, product(), CUBLASLT_MATMUL_DESC_TRANSB, &plain,
             sizeof plain);
    BLEND_LT(lt_, MatrixLayoutCreate, w_.out(), CUDA_R_16BF, in, out, s.in);
    BLEND_LT(lt_, MatrixLayoutCreate, x_.out(), CUDA_R_16BF, in, rows, s.in);
    BLEND_LT(lt_, MatrixLayoutCreate, y_.out(), result, out, rows, s.out);
    return Status::ok();
  }
  cublasLtMatmulDesc_t product() const { return product_.get(); }
  cublasLtMatrixLayout_t w() const { return w_.get(); }
  cublasLtMatrixLayout_t x() const { return x_.get(); }
  cublasLtMatrixLayout_t y() const { return y_.get(); }

 private:
  const LtLibrary& lt_;
  UniqueLt<cublasLtMatmulDesc_t> product_;
  UniqueLt<cublasLtMatrixLayout_t> w_, x_, y_;
};

// The largest power of two, up to 16, that divides the address and the bytes of a row.
uint32_t alignment_of(const void* p, int64_t row_bytes) {
  const uint64_t both = reinterpret_cast<uintptr_t>(p) | static_cast<uint64_t>(row_bytes) | 16u;
  return static_cast<uint32_t>(both & (~both + 1));
}

struct Alignments {
  uint32_t w = 16, x = 16, y = 16;
};

// The library's best algorithm for a shape; `found` says whether there is any.
Status ask(const LtLibrary& lt, cublasLtHandle_t handle, const GemmShape& shape, size_t workspace,
           const Alignments& alignments, cublasLtMatmulAlgo_t& algorithm, bool& found) {
  Descriptors d(lt);
  BLEND_RETURN_IF_ERROR(d.create(shape));
  UniqueLt<cublasLtMatmulPreference_t> preference(lt.MatmulPreferenceDestroy);
  BLEND_LT(lt, MatmulPreferenceCreate, preference.out());
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return check_lt(
        lt, lt.MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
        "MatmulPreferenceSetAttribute");
  };
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace}));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.w));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.x));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.y));
  BLEND_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.y));
  cublasLtMatmulHeuristicResult_t result{};
  int n = 0;
  const cublasStatus_t status = lt.MatmulAlgoGetHeuristic(handle, d.product(), d.w(), d.x(), d.y(),
                                                          d.y(), preference.get(), 1, &result, &n);
  found = status == CUBLAS_STATUS_SUCCESS && n > 0;
  if (found) algorithm = result.algo;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return Status::ok();
  return check_lt(lt, status, "MatmulAlgoGetHeuristic");
}

}  // namespace

Result<std::unique_ptr<Gemm>> Gemm::create(Device& device) {
  BLEND_ASSIGN(const LtLibrary lt, open_lt_library());
  std::unique_ptr<Gemm> g(new Gemm(device, lt));
  BLEND_LT(lt, Create, &g->handle_);
  BLEND_ASSIGN(g->workspace_, device.allocate(kWorkspaceBytes));
  return g;
}

Gemm::~Gemm() {
  const DeviceScope scope(device_.context());
  if (handle_ != nullptr) (void)lt_.Destroy(handle_);
}

Result<Gemm::Choice> Gemm::choose(const GemmShape& shape, uint32_t x_alignment,
                                  uint32_t y_alignment) {
  const Key key{shape.in, shape.out, shape.rows, shape.out_bf16, x_alignment, y_alignment};
  {
    const MutexLock lock(mutex_);
    const auto kept = choices_.find(key);
    if (kept != choices_.end()) return kept->second;
  }
  // Rows of an odd length begin anywhere. The algorithm for any address is asked for last: it is
  // slower.
  const Alignments least{2, 2, shape.out_bf16 ? 2u : 4u};
  Choice choice;
  for (const Alignments& alignments : {Alignments{16, x_alignment, y_alignment}, least}) {
    if (choice.found) break;
    BLEND_RETURN_IF_ERROR(
        ask(lt_, handle_, shape, workspace_.bytes(), alignments, choice.algorithm, choice.found));
  }
  const MutexLock lock(mutex_);
  if (choices_.size() >= kMostChoices) choices_.clear();
  choices_[key] = choice;
  return choice;
}

Status Gemm::run(const GemmShape& shape, const uint16_t* x, const uint16_t* w, void* y,
                 bool accumulate) {
  if (shape.rows == 0 || shape.out == 0) return Status::ok();
  const uint32_t x_alignment = alignment_of(x, shape.in * 2);
  const uint32_t y_alignment = alignment_of(y, shape.out * (shape.out_bf16 ? 2 : 4));
  BLEND_ASSIGN(const Choice choice, choose(shape, x_alignment, y_alignment));
  if (!choice.found) {
    kernels::cuda::plain_gemm(x, w, y, static_cast<size_t>(shape.rows),
                              static_cast<size_t>(shape.in), static_cast<size_t>(shape.out),
                              shape.out_bf16, accumulate, device_.compute());
    return check_launch("plain_gemm");
  }
  Descriptors d(lt_);
  BLEND_RETURN_IF_ERROR(d.create(shape));
  const float one = 1.0f, beta = accumulate ? 1.0f : 0.0f;
  return check_lt(
      lt_,
      lt_.Matmul(handle_, d.product(), &one, w, d.w(), x, d.x(), &beta, y, d.y(), y, d.y(),
                 &choice.algorithm, workspace_.as<void>(), workspace_.bytes(), device_.compute()),
      "Matmul");
}

}  // namespace blend::cuda
