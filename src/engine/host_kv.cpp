#include "engine/host_kv.h"

namespace blend {

Status check_host_kv(const ModelConfig& config) {
  const char* const kind = config.architecture.c_str();
  if (config.mixer.any()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "%u of the %u layers of this %s do not attend and keep no K and V, so a "
                      "host's cannot be used: let libblend's own engine run the model",
                      config.n_layers - config.n_attending(), config.n_layers, kind);
  }
  if (config.latent.any()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "a row of this %s is a latent one, which all heads share, without a V, so a "
                      "host's K and V cannot be used: let libblend's own engine run the model",
                      kind);
  }
  if (config.attends_unlike()) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "layers of this %s have K and V of different widths, or share those of "
                      "others, so a host's cannot be used: let libblend's own engine run the model",
                      kind);
  }
  return Status::ok();
}

}  // namespace blend
