// Which backend a context asks for, by name, and how it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace blend {

struct BackendSpec {
  enum class Kind : uint8_t { cpu, cuda, automatic };
  Kind kind = Kind::cpu;
  int32_t device = 0;  // of cuda
  // Type that K and V of prompts are kept as; none: the backend's own choice.
  std::optional<DType> cache = {};
};

// For the context's log.
struct BackendNote {
  int32_t code = 0;
  std::string message;
};

// "cpu", "cuda", "cuda:N" or "auto"; null is "cpu". INVALID_ARGUMENT names what is possible.
Result<BackendSpec> parse_backend(const char* name);

// NO_DEVICE says what is missing for a cuda backend: the library, the driver or the device.
// UNSUPPORTED: cuda keeps caches in bf16 only (automatic: `cache` is the CPU's).
// automatic: cuda where it can be had, else cpu. `notes` (may be null) get what the host should
// know: NO_DEVICE, why the CPU was taken; UNSUPPORTED, that this CPU lacks instructions for speed.
Result<std::unique_ptr<Backend>> make_backend(const BackendSpec& spec, ThreadPool& pool,
                                              std::vector<BackendNote>* notes);

}  // namespace blend
