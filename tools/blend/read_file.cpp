#include "read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "blend/blend.hpp"
#include "command.h"
#include "interrupt.h"
#include "progress.h"

namespace blend_cli {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

// Shared with a thread that may never come back.
struct Work {
  std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr failure;
};

}  // namespace

void interruptibly(const std::function<void()>& work, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto state = std::make_shared<Work>();
  std::thread worker([state, &work] {
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(state->mutex);
    state->failure = failure;
    state->done = true;
    state->finished.notify_all();
  });
  std::optional<Clock::time_point> last;
  {
    std::unique_lock lock(state->mutex);
    while (!state->finished.wait_for(lock, kLook, [&] { return state->done; })) {
      if (!interrupted()) continue;
      if (!last) last = Clock::now() + patience;
      if (Clock::now() < *last) continue;
      print_error(std::string("cancelled (") + blend_code_name(BLEND_E_CANCELLED) + ")");
      std::_Exit(kExitCancelled);
    }
  }
  worker.join();
  if (state->failure) std::rethrow_exception(state->failure);
}

FileBytes read_file(const std::string& path, size_t most_bytes) {
  constexpr size_t kBlock = size_t{1} << 16;
  FileBytes out;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    out.error = errno;
    return out;
  }
  std::string block(kBlock, '\0');
  while (true) {
    const ssize_t n = ::read(file, block.data(), block.size());
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) out.error = errno;
    if (n > 0 && static_cast<size_t>(n) > most_bytes - out.bytes.size()) out.error = EFBIG;
    if (out.error != 0) break;
    out.bytes.append(block, 0, static_cast<size_t>(n));
  }
  ::close(file);
  return out;
}

}  // namespace blend_cli
