#include "model/shared_kv.h"

namespace blend {

Status share_kv(ModelConfig& c, const std::vector<bool>& local) {
  for (uint32_t i = c.n_kept(); i < c.n_layers; ++i) {
    uint32_t of = c.n_kept();
    while (of > 0 && local[of - 1] != local[i]) --of;
    if (of == 0) {
      return make_error(BLEND_E_FORMAT,
                        "layer %u shares the K and V of an earlier layer %s a window, and none of "
                        "the first %u layers is of that kind",
                        i, local[i] ? "with" : "without", c.n_kept());
    }
    c.layers[i] = c.layers[of - 1];
  }
  return Status::ok();
}

}  // namespace blend
