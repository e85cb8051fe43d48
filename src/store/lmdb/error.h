// What LMDB's return codes mean to a caller of the store.
#pragma once

#include <string>

#include "base/status.h"

namespace blend {

// Code and sentence for an LMDB or errno code; the detail is `rc`.
Status lmdb_error(int rc, const std::string& what);

}  // namespace blend
