// Answer: one request fused and generated, as OpenAI's objects. Several answers to it (`n`) go on
// from forks of one fusion, together; several prompts are answered in turn.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "grammar_cache.h"
#include "request.h"
#include "tool_calls.h"

namespace blend_cli::serve {

// What all requests share. Its parts are thread-safe.
struct Engine {
  const blendpp::Model* model = nullptr;
  const blendpp::Store* store = nullptr;
  std::string name;  // of the model, as clients know it
  blendpp::FuseOptions fuse;
  std::string template_source;  // "": the model's own
  uint32_t call_id_length = 0;  // by that template; 0: any
  GrammarCache* grammars = nullptr;
  const blend_cancel* cancel = nullptr;
  bool (*cancelled)() = nullptr;  // whether `cancel` has been raised
  bool account = true;            // clients are told how much was in the store
  std::optional<bool> trusted;    // whether the profile trusts a ratio; none: there is no profile
};

// Throws HttpError (404) where a request names another model. "": it names none.
void require_model(const Engine& engine, const std::string& name);

// Cost of a request's prompts, all together.
struct Account {
  uint64_t rows = 0;        // of the prompts
  uint64_t cached = 0;      // came from the store and were taken as they are
  uint64_t recomputed = 0;  // came from the store, and the policy had them computed again
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t ttft_ns = 0;  // of the first
};

// Not thread-safe.
class Answer {
 public:
  // Fuses the first prompt, and checks all. `tenant`: whose chunks it may use; must outlive this.
  // `alive`: whether the client is still there. Throws HttpError and blendpp::Error.
  Answer(const Engine& engine, Request request, const std::string& tenant,
         const std::function<bool()>& alive);

  // False: the client has gone.
  using Send = std::function<bool(const std::string& event)>;
  // Generates; each piece of a stream is sent as it comes. `alive` is asked before every token.
  // Throws HttpError and blendpp::Error. False: the client has gone.
  bool run(const Send& send, const std::function<bool()>& alive);

  Json whole() const;  // the complete answer, once it has run
  Json usage() const;
  const Account& account() const { return account_; }
  size_t n_generated() const;  // by all choices

 private:
  struct Choice {
    std::unique_ptr<blendpp::Fusion> fusion;
    std::string text;
    std::optional<blendpp::CallReader> tools;  // none: the request has no functions
    size_t n_calls = 0;                        // told to the reader of a stream
    Json logprobs = Json::array();
    Json token;         // the log probabilities of the one that is reported next
    size_t n_told = 0;  // characters of the tokens whose logprobs were told, of a completion
    blendpp::Generated done;
  };
  // A text is tokenized in one go; between two of them the client may turn out to be gone.
  void tokenize(const std::function<bool()>& alive);
  bool begins_with_bos(const CompletionPrompt& prompt) const;
  blendpp::Prompt prompt_of(size_t index) const;
  void fuse(size_t index);
  // The answers to one prompt. False: the client has gone.
  bool generate(size_t prompt, const Send& send, const std::function<bool()>& alive);
  blendpp::GenerateOptions options_of(Choice& choice, size_t index) const;
  Json token_json(blendpp::Span<const blend_logprob> found) const;
  Json chunk(size_t index, const Json& delta, const Json& finish, const Json& logprobs) const;
  Json logprobs_json(const Json& tokens, size_t& n_told) const;
  Json head(const char* object) const;
  using Tell = std::function<bool(const Json&)>;
  // Sends the calls that are new. False: the client has gone.
  bool tell_calls(Choice& choice, size_t index, const Tell& tell) const;
  // Of an answer, from the call `first` on. `streams`: as a stream has them.
  Json calls_json(const Choice& choice, size_t first, bool streams) const;
  static bool is_complete(const Choice& choice);
  size_t n_calls(const Choice& choice) const;
  std::string finish(const Choice& choice) const;
  bool must_call() const { return request_.tools.choice == Tools::Choice::required; }

  const Engine& engine_;
  Request request_;
  std::vector<blend_text> stop_;                     // of request_
  std::shared_ptr<const blendpp::Grammar> grammar_;  // null: any text
  const std::string& tenant_;
  blendpp::Prompt chat_;
  std::vector<blendpp::Tokens> documents_;  // of completions; empty: one given by its id
  std::vector<blendpp::Tokens> asked_;      // of completions, one for each prompt
  std::vector<Choice> choices_;             // n of the first prompt, n of the second, ...
  Account account_;
  std::string id_;
  int64_t created_ = 0;
};

std::string dump(const Json& value);

}  // namespace blend_cli::serve
