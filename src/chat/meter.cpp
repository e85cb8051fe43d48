#include "chat/meter.h"

namespace blend::chat {

Status Meter::refuse(size_t n) {
  if (n <= fuel_) return {BLEND_E_CANCELLED, "the call was cancelled"};
  fuel_ = 0;
  return make_error(BLEND_E_UNSUPPORTED,
                    "the chat template needs more work or memory than libblend allows; give "
                    "another template");
}

Status Meter::Depth::refuse() {
  return make_error(BLEND_E_UNSUPPORTED, "the chat template nests more than %d deep", kMaxDepth);
}

}  // namespace blend::chat
