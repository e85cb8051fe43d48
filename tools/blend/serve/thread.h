// A thread with a stack of known size: the system's default may be 128 KiB (musl), or what
// `ulimit -s` says.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <system_error>

namespace blend_cli::serve {

class Thread {
 public:
  // Throws std::system_error.
  explicit Thread(std::function<void()> body) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    auto owned = std::make_unique<std::function<void()>>(std::move(body));
    const int error = pthread_create(&id_, &attributes, &run, owned.get());
    pthread_attr_destroy(&attributes);
    if (error != 0)
      throw std::system_error(error, std::generic_category(), "cannot start a thread");
    owned.release();
  }
  ~Thread() { pthread_join(id_, nullptr); }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

 private:
  static constexpr size_t kStackBytes = size_t{8} << 20;  // touched only as far as it is used
  static void* run(void* body) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(body));
    (*owned)();
    return nullptr;
  }
  pthread_t id_{};
};

}  // namespace blend_cli::serve
