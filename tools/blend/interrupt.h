// Ctrl-C: raises a cancel token, so that work stops cleanly and the store stays sound.
#pragma once

#include "blend/blend.h"

namespace blend_cli {

// Installs the handlers of SIGINT and SIGTERM. A second signal ends the process at once: the
// first restores the default action.
void install_interrupt_handler();
// Does what the signal would do.
void request_interrupt();

// For the `cancel` member of options; lives as long as the process.
const blend_cancel* interrupt_token();

bool interrupted();
// Throws what a cancelled library call throws, between calls.
void throw_if_interrupted();

}  // namespace blend_cli
