#include "counters.h"

#include <sstream>

namespace blend_cli::serve {

void Counters::request(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
}

void Counters::answer(const Account& account, size_t n_generated) {
  const std::lock_guard lock(mutex_);
  ++answers_;
  prompt_tokens_ += account.rows;
  reused_ += account.cached + account.recomputed;
  recomputed_ += account.recomputed;
  generated_ += n_generated;
  ttft_s_ += static_cast<double>(account.ttft_ns) / 1e9;
}

void Counters::embed(uint64_t n_tokens) {
  const std::lock_guard lock(mutex_);
  embedded_ += n_tokens;
}

void Counters::hang_up() {
  const std::lock_guard lock(mutex_);
  ++hang_ups_;
}

std::string Counters::text(size_t connections, size_t running, size_t waiting) const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  const auto figure = [&](const char* name, const char* type, const char* help, double value) {
    out << "# HELP " << name << ' ' << help << "\n# TYPE " << name << ' ' << type << '\n'
        << name << ' ' << value << '\n';
  };
  out.precision(15);
  out << "# HELP blend_http_requests_total Requests by path and status.\n"
         "# TYPE blend_http_requests_total counter\n";
  for (const auto& [key, n] : requests_) {
    out << "blend_http_requests_total{path=\"" << key.first << "\",code=\"" << key.second << "\"} "
        << n << '\n';
  }
  const auto count = [](uint64_t n) { return static_cast<double>(n); };
  figure("blend_http_connections", "gauge", "Clients that are connected.", count(connections));
  figure("blend_http_running", "gauge", "Requests that compute now.", count(running));
  figure("blend_http_waiting", "gauge", "Requests that wait to compute.", count(waiting));
  figure("blend_http_hang_ups_total", "counter", "Clients that left before the answer's end.",
         count(hang_ups_));
  figure("blend_prompt_tokens_total", "counter", "Tokens of all prompts.", count(prompt_tokens_));
  figure("blend_reused_tokens_total", "counter", "Prompt tokens taken from stored chunks.",
         count(reused_));
  figure("blend_recomputed_tokens_total", "counter", "Reused tokens that the policy recomputed.",
         count(recomputed_));
  figure("blend_generated_tokens_total", "counter", "Tokens of all answers.", count(generated_));
  figure("blend_embedded_tokens_total", "counter", "Tokens of all texts that were embedded.",
         count(embedded_));
  out << "# HELP blend_ttft_seconds From the begin of computing to the first token.\n"
         "# TYPE blend_ttft_seconds summary\nblend_ttft_seconds_sum "
      << ttft_s_ << "\nblend_ttft_seconds_count " << answers_ << '\n';
  return out.str();
}

}  // namespace blend_cli::serve
