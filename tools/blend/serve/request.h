// Requests of OpenAI's API, read and judged: what a client sends is never trusted.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../policy_spec.h"
#include "blend/blend.hpp"
#include "json_body.h"
#include "tools.h"

namespace blend_cli::serve {

constexpr int kGone = 499;  // the status of a client that left, seen only in metrics

// An error that the client gets instead of an answer.
class HttpError : public std::runtime_error {
 public:
  HttpError(int status, const std::string& message, std::string code = {}, std::string param = {})
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& code() const { return code_; }
  const std::string& param() const { return param_; }  // the member that is wrong; "": none

 private:
  int status_;
  std::string code_;
  std::string param_;
};
// In OpenAI's form.
Json error_json(const HttpError& error);
// The status for an error of the library: 400 if the request caused it, else 500.
HttpError http_error(const blendpp::Error& error);

// The text or tokens that a completion goes on from.
struct CompletionPrompt {
  std::string text;
  std::vector<int32_t> tokens;  // where it was given as such
};

struct Request {
  bool chat = false;  // else a completion of `prompts`
  std::string model;  // "": whichever there is
  std::vector<blendpp::ChatMessage> messages;
  std::vector<CompletionPrompt> prompts;
  std::vector<blendpp::ChatDocument> documents;
  std::string variables;  // of the chat template, a JSON object; "": none
  size_t n = 1;           // answers, of each prompt
  bool stream = false;
  bool usage_in_stream = false;
  bool logprobs = false;
  size_t top_logprobs = 0;           // to be shown
  std::optional<PolicySpec> policy;  // else the server's
  std::optional<double> ratio;       // else the server's; may be BLEND_RATIO_FIDELITY
  std::vector<std::string> stop;
  std::vector<blend_token_bias> bias;
  std::optional<uint32_t> grammar;  // BLEND_GRAMMAR_*, of `response_format`; none: any text
  std::string schema;               // its text
  Tools tools;
  blendpp::GenerateOptions generate;  // without stop texts and bias: they point at the above
};

struct EmbeddingRequest {
  std::string model;  // "": whichever there is
  // One of both, in the order of the answer.
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> tokens;
  uint32_t n_dimensions = 0;  // 0: all
  bool base64 = false;

  size_t size() const { return texts.size() + tokens.size(); }
};
// Takes its texts out of `body`. Throws HttpError (400).
EmbeddingRequest read_embedding_request(Json body);

// Parts of a body as it has them, their members in their order.
struct BodyTexts {
  std::string schema;  // of `response_format`; "": it has none
  ToolTexts tools;
};
BodyTexts body_texts(std::string_view body);

// Takes its texts out of `body`. Throws HttpError (400). `texts`: of the same body. `most_tokens`:
// of an answer.
Request read_request(Json body, BodyTexts texts, bool chat, uint32_t most_tokens);

}  // namespace blend_cli::serve
