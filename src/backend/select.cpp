#include "backend/select.h"

#include <dlfcn.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "backend/module.h"
#include "base/files/module_file.h"
#include "cpu/isa.h"

namespace blend {
namespace {

Result<std::unique_ptr<Backend>> make_cuda_backend(int32_t device, ThreadPool& pool) {
  auto module = open_module_file(kCudaModule, "BLEND_CUDA_MODULE");
  if (!module.is_ok()) {
    return make_error(
        BLEND_E_NO_DEVICE,
        "the CUDA backend cannot be loaded (%s): install %s beside libblend.so, or choose the "
        "backend 'cpu'",
        module.status().message().c_str(), kCudaModule);
  }
  const auto create =
      reinterpret_cast<BackendModuleCreate>(dlsym(*module, kCudaModuleEntry));  // NOLINT
  if (create == nullptr) {
    return make_error(BLEND_E_NO_DEVICE,
                      "%s has no entry %s: it is of another version; install "
                      "the one that came with this libblend (%s)",
                      kCudaModule, kCudaModuleEntry, BLEND_VERSION_STRING);
  }
  BackendModuleRequest request;
  request.version = BLEND_VERSION_STRING;
  request.device = device;
  request.pool = &pool;
  Backend* backend = nullptr;
  char message[1024] = "";
  const int32_t code = create(&request, &backend, message, sizeof message);
  if (code < 0) return Status{code, message};
  return std::unique_ptr<Backend>(backend);
}

Result<std::unique_ptr<Backend>> make_cpu(ThreadPool& pool, DType cache,
                                          std::vector<BackendNote>* notes) {
  if (notes != nullptr && kernels::simd_is_slow()) {
    notes->push_back({BLEND_E_UNSUPPORTED,
                      std::string("this CPU computes several times slower than it could: it has ") +
                          kernels::simd_name() + ", and fast kernels need AVX2 or better"});
  }
  return make_cpu_backend(pool, cache);
}

}  // namespace

Result<BackendSpec> parse_backend(const char* name) {
  BackendSpec spec;
  const std::string_view text = name == nullptr ? "cpu" : name;
  if (text == "cpu") return spec;
  spec.kind = BackendSpec::Kind::automatic;
  if (text == "auto") return spec;
  spec.kind = BackendSpec::Kind::cuda;
  if (text == "cuda") return spec;
  if (text.substr(0, 5) == "cuda:") {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, spec.device);
    if (error == std::errc() && stop == end && spec.device >= 0) return spec;
  }
  return make_error(
      BLEND_E_INVALID_ARGUMENT,
      "backend '%.64s' is not known: 'cpu', 'cuda', 'cuda:N' (N counts devices from 0) "
      "and 'auto' are",
      name);
}

Result<std::unique_ptr<Backend>> make_backend(const BackendSpec& spec, ThreadPool& pool,
                                              std::vector<BackendNote>* notes) {
  // Other backends use some of the CPU's kernels.
  if (!kernels::cpu_suffices()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "this CPU lacks SSE4.2 or AES, which libblend is compiled for; where it is a "
                      "virtual machine's, choose a CPU model that shows them (x86-64-v2 or the "
                      "host's own)");
  }
  const DType cache = spec.cache.value_or(DType::f32);
  if (spec.kind == BackendSpec::Kind::cpu) return make_cpu(pool, cache, notes);
  if (spec.kind == BackendSpec::Kind::cuda && spec.cache.value_or(DType::bf16) != DType::bf16) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "cache_dtype %s: the CUDA backend keeps K and V in bf16; leave the choice to it",
        dtype_name(cache));
  }
  auto backend = make_cuda_backend(spec.device, pool);
  if (backend.is_ok() || spec.kind == BackendSpec::Kind::cuda) return backend;
  if (notes != nullptr) {
    notes->push_back({BLEND_E_NO_DEVICE, "computing on the CPU: " + backend.status().message()});
  }
  return make_cpu(pool, cache, notes);
}

}  // namespace blend
