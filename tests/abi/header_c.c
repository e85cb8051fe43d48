/* The headers stand alone, in C and twice included; so do their macros, and the way to make a
 * struct. */
#define BLEND_EXPERIMENTAL
#include "blend/blend.h"
/* Those that blend.h leaves out. */
#include "blend/admin.h"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/step.h"
/* Again. */
#include "blend/blend.h"
#include "blend/report.h"

int main(void) {
  static blend_model_info info;
  blend_store_options options;
  blend_selection_options selection;
  info.struct_size = sizeof info;
  if (blend_selection_options_init(&selection, sizeof selection) != BLEND_OK) return 1;
  return blend_store_options_init(&options, sizeof options) == BLEND_OK && info.weights == 0 ? 0
                                                                                             : 1;
}
