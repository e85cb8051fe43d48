// The library pushes tokens, and a stream is pulled: a thread generates, and waits at every token
// until the next one is asked for.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <thread>
#include <vector>

#include "base/threads/start_thread.h"
#include "detail.h"

namespace blend_shim {

struct StreamState {
  enum class Phase {
    kIdle,    // nothing was asked for, or the last token was pulled
    kWanted,  // the generating thread is to bring the next
    kReady,   // it did
    kLogits,  // it waits for changes to the logits of the next
    kEnded,   // there are no more
  };

  std::shared_ptr<FusionState> fusion;
  GenerateOptions options;
  blendpp::CancelToken own_cancel;

  std::mutex mutex;
  std::condition_variable changed;
  Phase phase = Phase::kIdle;
  bool stop = false;
  bool by_stop_token = false;
  bool told = false;  // a caller of next() got the error
  int32_t next_token = -1;
  std::string next_text;
  std::vector<blend_logprob> next_logprobs;
  Outcome failure;
  std::thread thread;

  // Written for the puller.
  int32_t token = -1;
  std::string text;
  std::vector<blend_logprob> logprobs;
  std::vector<float> logits;  // sized once, so that a puller's array stays where it is
  size_t n_tokens = 0;

  ~StreamState() { close(); }

  void close() noexcept {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      stop = true;
      own_cancel.request();
      changed.notify_all();
    }
    const std::lock_guard<std::mutex> lock(joining);
    if (thread.joinable()) thread.join();
    const std::lock_guard<std::mutex> ended(mutex);
    phase = Phase::kEnded;
    fusion.reset();
  }

  void start() {
    fusion->gate.begin_changing();
    try {
      thread = blend::start_thread([this, held = fusion] { run(held); });
    } catch (...) {
      fusion->gate.end_changing();
      throw;
    }
  }

 private:
  std::mutex joining;

  // The generating thread.
  void run(const std::shared_ptr<FusionState>& held) noexcept {
    Outcome outcome;
    const bool stopped = guarded(outcome, [&] {
      const GenerateOptions& s = options;
      require_complete(s);
      blendpp::GenerateOptions c;
      give(c, s);
      c.stop_tokens = s.stop_tokens_.data();
      c.n_stop_tokens = s.stop_tokens_.size();
      std::vector<blend_text> stop_texts;
      for (const std::string& bytes : s.stop_texts_)
        stop_texts.push_back({bytes.data(), bytes.size()});
      c.stop_texts = stop_texts.data();
      c.n_stop_texts = stop_texts.size();
      std::vector<blend_token_bias> bias;
      for (size_t i = 0; i < s.biases_.size(); ++i) {
        bias.push_back({s.bias_tokens_[i], s.biases_[i]});
      }
      c.logit_bias = bias.data();
      c.n_logit_bias = bias.size();
      if (s.grammar_ != nullptr) c.grammar = s.grammar_->get();
      if (s.top_logprobs > 0) {
        c.on_logprobs = [this](blendpp::Span<const blend_logprob> found) {
          next_logprobs.assign(found.begin(), found.end());
          return true;
        };
      }
      if (s.shows_logits_) {
        c.on_logits = [this](blendpp::Span<float> found) { return show_logits(found); };
      }
      c.cancel = s.cancel_ ? s.cancel_->get() : own_cancel.get();
      return held->fusion
          .generate(c, [this](int32_t id, std::string_view piece) { return hand_over(id, piece); })
          .by_stop_token;
    });
    held->gate.end_changing();
    const std::lock_guard<std::mutex> lock(mutex);
    by_stop_token = stopped;
    // If close() ended the generation, no call has failed.
    if (outcome.code() < 0 && !stop) failure = outcome;
    phase = Phase::kEnded;
    changed.notify_all();
  }

  // Gives a token to the puller and waits until it wants more; false to stop.
  bool hand_over(int32_t id, std::string_view piece) {
    std::unique_lock<std::mutex> lock(mutex);
    next_token = id;
    next_text.assign(piece);
    phase = Phase::kReady;
    changed.notify_all();
    changed.wait(lock, [this] { return stop || phase == Phase::kWanted; });
    return !stop;
  }

  // Lets the puller change them; false to stop.
  bool show_logits(blendpp::Span<float> found) {
    std::unique_lock<std::mutex> lock(mutex);
    if (logits.empty()) logits.resize(found.size());
    std::copy(found.begin(), found.end(), logits.begin());
    phase = Phase::kLogits;
    changed.notify_all();
    changed.wait(lock, [this] { return stop || phase == Phase::kWanted; });
    if (!stop) std::copy(logits.begin(), logits.end(), found.begin());
    return !stop;
  }
};

TokenStream::TokenStream(std::shared_ptr<StreamState> state) noexcept : state_(std::move(state)) {}
TokenStream::~TokenStream() { state_->close(); }

int32_t TokenStream::next(int64_t timeout_ms, Outcome& out) noexcept {
  int32_t result = -1;
  guarded(out, [&] {
    StreamState& s = *state_;
    std::unique_lock<std::mutex> lock(s.mutex);
    if (s.stop) {
      throw blendpp::Error(BLEND_SHIM_E_CLOSED, 0, "the stream of tokens is closed");
    }
    if (s.phase == StreamState::Phase::kIdle) {
      s.phase = StreamState::Phase::kWanted;
      if (s.thread.joinable()) {
        s.changed.notify_all();
      } else {
        try {
          s.start();
        } catch (...) {
          s.phase = StreamState::Phase::kIdle;
          throw;
        }
      }
    }
    const auto ready = [&s] {
      return s.stop || s.phase == StreamState::Phase::kReady ||
             s.phase == StreamState::Phase::kLogits || s.phase == StreamState::Phase::kEnded;
    };
    if (timeout_ms < 0) {
      s.changed.wait(lock, ready);
    } else if (!s.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
      result = 2;
      return;
    }
    if (s.phase == StreamState::Phase::kReady) {
      s.phase = StreamState::Phase::kIdle;
      s.token = s.next_token;
      s.text.swap(s.next_text);
      s.logprobs.clear();
      if (s.token >= 0) {
        s.logprobs.swap(s.next_logprobs);
        ++s.n_tokens;
      }
      result = 1;
    } else if (s.phase == StreamState::Phase::kLogits) {
      s.phase = StreamState::Phase::kIdle;
      result = 3;
    } else if (s.failure.code() < 0 && !s.told) {
      s.told = true;
      throw blendpp::Error(s.failure.code(), s.failure.detail(), s.failure.message());
    } else {
      result = 0;
    }
  });
  return result;
}

int32_t TokenStream::token() const noexcept { return state_->token; }
std::string TokenStream::text() const noexcept {
  try {
    return state_->text;
  } catch (...) {
    return {};
  }
}
size_t TokenStream::n_tokens() const noexcept { return state_->n_tokens; }
size_t TokenStream::n_logprobs() const noexcept { return state_->logprobs.size(); }
int32_t TokenStream::logprob_token(size_t i) const noexcept {
  return i < n_logprobs() ? state_->logprobs[i].token : -1;
}
float TokenStream::logprob(size_t i) const noexcept {
  return i < n_logprobs() ? state_->logprobs[i].logprob : 0.0f;
}
void* TokenStream::logits() noexcept {
  return state_->logits.empty() ? nullptr : state_->logits.data();
}
size_t TokenStream::n_logits() const noexcept { return state_->logits.size(); }
bool TokenStream::by_stop_token() const noexcept {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->by_stop_token;
}
void TokenStream::close() noexcept { state_->close(); }

TokenStream* Fusion::generate(const GenerateOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    require_complete(options);
    auto state = std::make_shared<StreamState>();
    state->fusion = slot_->get();
    state->options = options;
    return new TokenStream(std::move(state));
  });
}

}  // namespace blend_shim
