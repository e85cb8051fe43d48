#include "exact_answer.h"

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace blend_cli {
namespace {

// Full prefill on a thread of its own; joined whatever happens.
class Beside {
 public:
  Beside(blendpp::Fusion& fusion, const blend_cancel* cancel)
      : thread_([this, &fusion, cancel] {
          try {
            fusion.make_exact({}, cancel);
          } catch (...) {
            failure_ = std::current_exception();
          }
          done_.store(true);
        }) {}
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  ~Beside() {
    if (thread_.joinable()) thread_.join();
  }

  bool done() const { return done_.load(); }
  // Throws what it failed with.
  void wait() {
    thread_.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::atomic<bool> done_{false};
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

ExactAnswer answer_exactly(blendpp::Fusion& fusion, const blendpp::GenerateOptions& options,
                           const ExactCalls& calls) {
  ExactAnswer answer;
  std::vector<int32_t> shown;
  std::vector<size_t> text_after;  // bytes of answer.text after each of them
  {
    blendpp::Fusion fork = fusion.fork();
    Beside beside(fusion, options.cancel);
    fork.generate(options, [&](int32_t token, std::string_view text) {
      calls.show(text);
      answer.text += text;
      if (token >= 0) {
        shown.push_back(token);
        text_after.push_back(answer.text.size());
      }
      return !beside.done();
    });
    beside.wait();
  }
  const size_t kept = fusion.make_exact(shown, options.cancel);
  answer.n_shown = shown.size();
  answer.n_taken_back = shown.size() - kept;
  if (kept < shown.size()) {
    answer.text.resize(kept == 0 ? 0 : text_after[kept - 1]);
    calls.correct(answer.text);
  }
  blendpp::GenerateOptions rest = options;
  rest.max_tokens -= static_cast<uint32_t>(kept);
  if (rest.max_tokens > 0) {
    answer.generated = fusion.generate(rest, [&](int32_t, std::string_view text) {
      calls.show(text);
      answer.text += text;
      return true;
    });
  }
  answer.generated.n_tokens += kept;
  return answer;
}

}  // namespace blend_cli
