#include "interrupt.h"

#include <csignal>

#include "blend/blend.hpp"

namespace blend_cli {
namespace {

// A handler can reach nothing but globals. The token is never freed: a signal may come at any time
// until the process is gone.
const blendpp::CancelToken* g_token = nullptr;
volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) {
  g_interrupted = 1;
  g_token->request();
}

}  // namespace

void install_interrupt_handler() {
  g_token = new blendpp::CancelToken();
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void request_interrupt() { on_signal(0); }

const blend_cancel* interrupt_token() { return g_token->get(); }

bool interrupted() { return g_interrupted != 0; }

void throw_if_interrupted() {
  if (interrupted()) throw blendpp::Error(BLEND_E_CANCELLED, 0, "cancelled");
}

}  // namespace blend_cli
