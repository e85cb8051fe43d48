#include "base/files/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace blend {
namespace {

// The directory of the library (or program) that holds this function, with a slash; "" if unknown.
std::string own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&open_module_file), &info) == 0) return {};
  const std::string_view path = info.dli_fname == nullptr ? "" : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(path.substr(0, slash + 1));
}

}  // namespace

Result<void*> open_module_file(const char* file, const char* variable) {
  // A program that runs with another's rights must not load what its caller names.
  const char* const named = secure_getenv(variable);
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
    const std::string beside = own_directory() + file;
    if (void* const handle = open(beside)) return handle;
    // A module that is there but does not load says more than one that is not found elsewhere.
    if (why.find("cannot open shared object file") != std::string::npos && why.find(beside) == 0) {
      why.clear();
    }
    if (void* const handle = open(file)) return handle;
  }
  return Status{BLEND_E_UNSUPPORTED, why};
}

void stay_loaded() noexcept {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&stay_loaded), &info) == 0) return;
  // For a program this fails, as it is not a library; a program is never unloaded anyway.
  (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace blend
