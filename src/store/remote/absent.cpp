// In place of all other sources here in a build without the remote tier (BLEND_REMOTE).
#include "store/remote/options.h"
#include "store/remote/tiered_store.h"

namespace blend {

Status check_remote_built() {
  return {BLEND_E_UNSUPPORTED,
          "this build has no remote tier: configure with -DBLEND_REMOTE=ON, or open the store "
          "without `remote`"};
}

Result<RemoteUrl> parse_remote_url(const std::string&) { return check_remote_built(); }

Result<std::shared_ptr<Store>> open_tiered_store(const std::string&, const StoreOptions&,
                                                 const RemoteOptions&, EventSink) {
  return check_remote_built();
}

}  // namespace blend
