/* blend.h stands alone, in C and twice included; so do its macros, and the way to make a struct. */
#include "blend/blend.h"

int main(void) {
  static blend_model_info info;
  blend_store_options options;
  info.struct_size = sizeof info;
  return blend_store_options_init(&options, sizeof options) == BLEND_OK && info.weights == 0 ? 0
                                                                                             : 1;
}
