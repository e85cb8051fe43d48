#pragma once

#include <cerrno>

namespace blend {

// A system call's result; the call is repeated as long as a signal interrupts it. On files of a
// local disk that does not happen; over a network or FUSE it does.
template <typename Call>
auto retry_interrupted(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace blend
