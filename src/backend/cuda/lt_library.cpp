#include "backend/cuda/lt_library.h"

#include <dlfcn.h>

namespace blend::cuda {
namespace {

// Resolves its functions in an open library; else returns the name of the first missing one.
const char* resolve(void* library, LtLibrary& found) {
#define BLEND_LT_RESOLVE(name)                                                           \
  found.name = reinterpret_cast<decltype(found.name)>(dlsym(library, "cublasLt" #name)); \
  if (found.name == nullptr) return "cublasLt" #name;
  BLEND_LT_FUNCTIONS(BLEND_LT_RESOLVE)  // NOLINT
#undef BLEND_LT_RESOLVE
  return nullptr;
}

std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&resolve), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

}  // namespace

std::vector<std::string> lt_candidates(const std::string& folder) {
  std::vector<std::string> all{"libcublasLt.so.13"};
  if (!folder.empty()) all.push_back(folder + "/../nvidia/cu13/lib/libcublasLt.so.13");
  all.emplace_back("libcublasLt.so.12");
  if (!folder.empty()) all.push_back(folder + "/../nvidia/cublas/lib/libcublasLt.so.12");
  return all;
}

Result<LtLibrary> open_lt_library(std::span<const std::string> candidates) {
  std::string reasons;
  for (const std::string& file : candidates) {
    // Never closed: CUDA's libraries register functions that are called at the process's end.
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char* const why = library == nullptr ? dlerror() : nullptr;
    if (!reasons.empty()) reasons += "; ";
    if (library == nullptr) {
      reasons += why == nullptr ? file : std::string(why);
      continue;
    }
    LtLibrary found;
    const char* const missing = resolve(library, found);
    if (missing == nullptr) return found;
    reasons += file + " has no " + missing;
  }
  return make_error(BLEND_E_NO_DEVICE,
                    "cuBLASLt cannot be opened: install the libraries of CUDA 13 or 12 where the "
                    "loader finds them, or Python's nvidia-cublas beside this package (%s)",
                    reasons.c_str());
}

Result<LtLibrary> open_lt_library() {
  const std::vector<std::string> candidates = lt_candidates(own_folder());
  return open_lt_library(candidates);
}

}  // namespace blend::cuda
