// In place of all other sources here in a build without the remote tier (BLEND_REMOTE).
#include "store/remote/options.h"
#include "store/remote/remote_link.h"

namespace blend {

Status check_remote_built() {
  return {BLEND_E_UNSUPPORTED,
          "this build has no remote tier: configure with -DBLEND_REMOTE=ON, or open the store "
          "without `remote`"};
}

Result<RemoteUrl> parse_remote_url(const std::string&) { return check_remote_built(); }

Result<std::unique_ptr<RemoteLink>> RemoteLink::create(const RemoteOptions&, bool, Log) {
  return check_remote_built();
}

}  // namespace blend
