// A library of ours that is opened when it is asked for.
#pragma once

#include "base/status.h"

namespace blend {

// Opens `file`: what the environment's `variable` names, or the one beside the library (or program)
// that holds this function, or the one that the loader finds. Never closed again: threads may run
// its code. UNSUPPORTED, with the loader's reason.
Result<void*> open_module_file(const char* file, const char* variable);

// From now on the library that this code is in is never unloaded, whoever closes it: a thread that
// is left behind returns into it.
void stay_loaded() noexcept;

}  // namespace blend
