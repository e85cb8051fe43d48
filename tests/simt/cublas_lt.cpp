#include <algorithm>
#include <vector>

#include "formats/half.h"
#include "simt/cublasLt.h"

namespace simt {
struct LtHandle {};

// Element (row, column) of a column-major matrix.
static float element(const void* data, const LtLayout& m, uint64_t row, uint64_t col) {
  const uint64_t at = col * static_cast<uint64_t>(m.ld) + row;
  if (m.type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  return blend::bf16_to_f32(static_cast<const uint16_t*>(data)[at]);
}
// Every column must begin at what the algorithm was chosen for.
static void check_alignment(const char* name, const void* p, const LtLayout& m, uint64_t least) {
  const uint64_t column = static_cast<uint64_t>(m.ld) * (m.type == CUDA_R_32F ? 4 : 2);
  if (reinterpret_cast<uintptr_t>(p) % least != 0 || (m.cols > 1 && column % least != 0)) {
    die("cublasLtMatmul: %s is aligned less than the %llu bytes that its algorithm was chosen for",
        name, static_cast<unsigned long long>(least));
  }
}
}  // namespace simt

using simt::LtLayout;

const char* cublasLtGetStatusString(cublasStatus_t /*status*/) { return "emulated status"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new simt::LtHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t /*compute*/,
                                        cudaDataType_t /*scale*/) {
  *desc = new simt::LtMatmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(int32_t)) simt::die("an operation is an int32_t");
  std::memcpy(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &desc->transpose_a : &desc->transpose_b,
              value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) simt::die("a leading dimension less than the rows");
  *layout = new LtLayout{type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new simt::LtPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;
  if (bytes != sizeof(uint32_t)) simt::die("an alignment is an uint32_t");
  std::memcpy(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
              bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*desc*/, cublasLtMatrixLayout_t /*a*/,
    cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int requested, cublasLtMatmulHeuristicResult_t results[],
    int* found) {
  if (requested < 1) simt::die("no algorithm was asked for");
  const simt::Gemm gemm = simt::gemm_machine(false);
  bool aligned = false;
  for (int i = 0; i < 4; ++i) {
    results[0].algo.data[i] = preference->alignment[i];
    aligned |= preference->alignment[i] > 4;
  }
  results[0].algo.data[4] = d->cols;
  *found = 0;
  if (gemm == simt::Gemm::none) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (gemm == simt::Gemm::unaligned && aligned) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0].workspaceSize = 0;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t desc,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* /*workspace*/, size_t /*workspace_bytes*/,
                              cudaStream_t stream) {
  const LtLayout la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout;
  const bool ta = desc->transpose_a == CUBLAS_OP_T, tb = desc->transpose_b == CUBLAS_OP_T;
  const uint64_t m = ta ? la.cols : la.rows, k = ta ? la.rows : la.cols;
  const uint64_t n = tb ? lb.rows : lb.cols;
  if ((tb ? lb.cols : lb.rows) != k || ld.rows != m || ld.cols != n || lc.rows != m ||
      lc.cols != n) {
    simt::die("cublasLtMatmul: the shapes do not go together");
  }
  if (algo->data[4] != n) simt::die("an algorithm for another number of rows: slower on a device");
  simt::check_alignment("A", a, la, algo->data[0]);
  simt::check_alignment("B", b, lb, algo->data[1]);
  simt::check_alignment("C", c, lc, algo->data[2]);
  simt::check_alignment("D", d, ld, algo->data[3]);
  float x, y;
  std::memcpy(&x, alpha, sizeof x);
  std::memcpy(&y, beta, sizeof y);
  const simt::Gemm gemm = simt::gemm_machine(true);
  // Each begins at an element of its own and takes every so-manyth.
  const uint64_t parts = gemm == simt::Gemm::by_rows ? 1 + algo->data[4] % 5 : 1;
  // Through launch(), so that it waits for its turn in the stream like any kernel.
  simt::launch(1, 1, 0, stream, nullptr, [=] {
    // [k][n], so that the sums of a row of the result, each in its own order, go side by side.
    std::vector<float> right(k * n);
    for (uint64_t e = 0; e < k; ++e) {
      for (uint64_t j = 0; j < n; ++j) right[e * n + j] = element(b, lb, tb ? j : e, tb ? e : j);
    }
    std::vector<float> sums(n), of_part(n);
    for (uint64_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (uint64_t part = 0; part < parts; ++part) {
        std::fill(of_part.begin(), of_part.end(), 0.0f);
        for (uint64_t e = part; e < k; e += parts) {
          const float left = element(a, la, ta ? e : i, ta ? i : e);
          for (uint64_t j = 0; j < n; ++j) of_part[j] += left * right[e * n + j];
        }
        for (uint64_t j = 0; j < n; ++j) sums[j] += of_part[j];
      }
      for (uint64_t j = 0; j < n; ++j) {
        float sum = sums[j] * x;
        if (y != 0) sum += y * element(c, lc, i, j);
        const uint64_t at = j * static_cast<uint64_t>(ld.ld) + i;
        if (ld.type == CUDA_R_32F) {
          static_cast<float*>(d)[at] = sum;
        } else {
          static_cast<uint16_t*>(d)[at] = blend::f32_to_bf16(sum);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
