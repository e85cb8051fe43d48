#include "store/lmdb/store_common.h"

namespace blend {

Status StoreCommon::check_writable() const {
  BLEND_RETURN_IF_ERROR(env->check_fork());
  if (!read_only) return Status::ok();
  return make_error(BLEND_E_READ_ONLY,
                    "store '%s' is open read-only: open it without read_only to change it",
                    env->path().c_str());
}

}  // namespace blend
