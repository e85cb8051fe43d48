// Counters: what the server has done, as Prometheus reads it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "answer.h"

namespace blend_cli::serve {

// Thread-safe.
class Counters {
 public:
  void request(const std::string& path, int status);
  void answer(const Account& account, size_t n_generated);
  void embed(uint64_t n_tokens);
  // A client that went away before its answer was complete.
  void hang_up();
  std::string text(size_t connections, size_t running, size_t waiting) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  uint64_t hang_ups_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t reused_ = 0;
  uint64_t recomputed_ = 0;
  uint64_t generated_ = 0;
  uint64_t embedded_ = 0;
  uint64_t answers_ = 0;
  double ttft_s_ = 0;
};

}  // namespace blend_cli::serve
