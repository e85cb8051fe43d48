// Opens a library of ours on demand.
#pragma once

#include "base/status.h"

namespace blend {

// Opens `file`: the one that the environment's `variable` names, or the one beside the library (or
// program) that holds this function, or the one that the loader finds. Never closed again: threads
// may run its code. UNSUPPORTED, with the loader's reason.
Result<void*> open_module_file(const char* file, const char* variable);

// From now on the library that holds this code is never unloaded, whoever closes it: a thread left
// behind returns into it.
void stay_loaded() noexcept;

}  // namespace blend
