// A library with the names of cuBLASLt and empty functions, for lt_library_test: it says which
// one it is. FAKE_LT_VERSION: what it says; FAKE_LT_PARTIAL: its last function is not there.
#define FAKE_LT_EXPORT extern "C" __attribute__((visibility("default")))

FAKE_LT_EXPORT const char* cublasLtGetStatusString(int /*status*/) { return FAKE_LT_VERSION; }
#define FAKE_LT(name) \
  FAKE_LT_EXPORT int cublasLt##name() { return 0; }
FAKE_LT(Create)
FAKE_LT(Destroy)
FAKE_LT(MatmulDescCreate)
FAKE_LT(MatmulDescSetAttribute)
FAKE_LT(MatmulDescDestroy)
FAKE_LT(MatrixLayoutCreate)
FAKE_LT(MatrixLayoutDestroy)
FAKE_LT(MatmulPreferenceCreate)
FAKE_LT(MatmulPreferenceSetAttribute)
FAKE_LT(MatmulPreferenceDestroy)
FAKE_LT(MatmulAlgoGetHeuristic)
#ifndef FAKE_LT_PARTIAL
FAKE_LT(Matmul)
#endif
