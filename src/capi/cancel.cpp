#include "capi/error.h"
#include "capi/handles.h"

extern "C" {

int32_t blend_cancel_create(blend_cancel** out, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> blend::Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    *out = new blend_cancel();
    return blend::Status::ok();
  });
}

// The token is made of one lock-free atomic: raising it is not a change that needs exclusive use.
void blend_cancel_request(const blend_cancel* cancel) {
  if (cancel != nullptr) const_cast<blend_cancel*>(cancel)->token.request();
}

void blend_cancel_reset(const blend_cancel* cancel) {
  if (cancel != nullptr) const_cast<blend_cancel*>(cancel)->token.reset();
}

void blend_cancel_free(blend_cancel* cancel) { delete cancel; }

}  // extern "C"
