/* blend.h stands alone, in C and twice included; so do its macros. */
#include "blend/blend.h"

int main(void) {
  blend_ctx_options options;
  return (int)blend_ctx_options_init(&options, sizeof options) == BLEND_OK ? 0 : 1;
}
