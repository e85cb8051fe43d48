#include "backend/select.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "backend/module.h"
#include "cpu/isa.h"

namespace blend {
namespace {

// The directory of the library (or program) that holds this function, with a slash; "" if unknown.
std::string own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&parse_backend), &info) == 0) return {};
  const std::string_view path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, slash + 1));
}

// Opens the module: the file that BLEND_CUDA_MODULE names, or the one beside this library, or the
// one that the loader finds. Never closed again: the driver keeps threads that run its code.
Result<void*> open_module() {
  // A program that runs with another's rights must not load what its caller names.
  const char* const named = secure_getenv("BLEND_CUDA_MODULE");
  std::string why;
  const auto open = [&why](const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char* const error = handle == nullptr ? dlerror() : nullptr;
    if (error != nullptr && why.empty()) why = error;
    return handle;
  };
  if (named != nullptr && *named != '\0') {
    if (void* const handle = open(named)) return handle;
  } else {
    const std::string beside = own_directory() + kCudaModule;
    if (void* const handle = open(beside)) return handle;
    // A module that is there but does not load says more than one that is not found elsewhere.
    if (why.find("cannot open shared object file") != std::string::npos && why.find(beside) == 0) {
      why.clear();
    }
    if (void* const handle = open(kCudaModule)) return handle;
  }
  return make_error(
      BLEND_E_NO_DEVICE,
      "the CUDA backend cannot be loaded (%s): install %s beside libblend.so together "
      "with the CUDA 13 libraries that it needs, or choose the backend 'cpu'",
      why.c_str(), kCudaModule);
}

Result<std::unique_ptr<Backend>> make_cuda_backend(int32_t device, ThreadPool& pool) {
  BLEND_ASSIGN(void* const module, open_module());
  const auto create =
      reinterpret_cast<BackendModuleCreate>(dlsym(module, kCudaModuleEntry));  // NOLINT
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
