#include "store/remote/client/host_look_up.h"

#include <netdb.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/files/module_file.h"
#include "base/threads/guarded.h"
#include "base/threads/start_thread.h"
#include "store/remote/client/stream.h"

namespace blend {
namespace {

Result<std::vector<SocketAddress>> resolve(const RemoteAddress& address, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int rc =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (rc != 0) {
    return make_error(BLEND_E_IO, "cannot look up '%s': %s", address.host.c_str(),
                      gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress& one = out.emplace_back();
    one.bytes = a->ai_addrlen;
    std::memcpy(&one.at, a->ai_addr, a->ai_addrlen);
  }
  if (out.empty()) {
    return make_error(BLEND_E_IO, "'%s' has no address", address.host.c_str());
  }
  return out;
}

}  // namespace

struct HostLookUp::State {
  Mutex mutex;
  CondVar answered;
  bool under_way BLEND_GUARDED_BY(mutex) = false;
  uint64_t n_answers BLEND_GUARDED_BY(mutex) = 0;
  std::optional<Result<std::vector<SocketAddress>>> answer BLEND_GUARDED_BY(mutex);
  std::thread thread BLEND_GUARDED_BY(mutex);
};

HostLookUp::HostLookUp(RemoteAddress address)
    : address_(std::move(address)), state_(std::make_shared<State>()) {}

HostLookUp::~HostLookUp() {
  const MutexLock lock(state_->mutex);
  if (!state_->thread.joinable()) return;
  if (!state_->under_way) {
    state_->thread.join();
    return;
  }
  stay_loaded();  // its code must be there when the resolver answers
  state_->thread.detach();
}

Result<std::vector<SocketAddress>> HostLookUp::get(SteadyTime deadline) {
  if (auto numeric = resolve(address_, AI_NUMERICHOST); numeric.is_ok()) return numeric;
  MutexLock lock(state_->mutex);
  const uint64_t seen = state_->n_answers;
  if (!state_->under_way) {
    if (state_->thread.joinable()) state_->thread.join();
    try {
      state_->thread = start_thread([state = state_, address = address_] {
        Result<std::vector<SocketAddress>> answer{Status::out_of_memory()};
        try {
          answer = resolve(address, 0);
        } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): said already
        }
        const MutexLock told(state->mutex);
        state->answer = std::move(answer);
        state->under_way = false;
        ++state->n_answers;
        state->answered.notify_all();
      });
    } catch (const std::system_error& e) {
      return make_error(BLEND_E_OUT_OF_MEMORY, "cannot start a thread to look up '%s': %s",
                        address_.host.c_str(), e.what());
    }
    state_->under_way = true;
  }
  if (!state_->answered.wait_until(lock, deadline, [&]() BLEND_REQUIRES(state_->mutex) {
        return state_->n_answers != seen;
      })) {
    return make_errno(BLEND_E_IO, ETIMEDOUT, "cannot look up '%s'", address_.host.c_str());
  }
  return *state_->answer;
}

}  // namespace blend
