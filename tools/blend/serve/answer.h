// Answer: one request fused and generated, as OpenAI's objects.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "blend/blend.hpp"
#include "request.h"

namespace blend_cli::serve {

// What all requests share. Its parts are thread-safe.
struct Engine {
  const blendpp::Model* model = nullptr;
  const blendpp::Store* store = nullptr;
  std::string name;  // of the model, as clients know it
  blendpp::FuseOptions fuse;
  std::string template_source;  // "": the model's own
  const blend_cancel* cancel = nullptr;
};

// Not thread-safe.
class Answer {
 public:
  // Fuses the prompt. Throws HttpError and blendpp::Error.
  Answer(const Engine& engine, Request request);

  // False: nobody listens any more.
  using Send = std::function<bool(const std::string& event)>;
  // Generates; of a stream each piece is sent as it comes. `alive` is asked before every token.
  // Throws blendpp::Error. False: the client has gone.
  bool run(const Send& send, const std::function<bool()>& alive);

  Json whole();  // the complete answer, once it has run
  Json usage() const;
  blendpp::FusionInfo info() const { return info_; }
  size_t n_generated() const { return done_.n_tokens; }

 private:
  Json chunk(const Json& delta, const Json& finish, const Json& logprobs) const;
  Json logprobs_json(const Json& tokens);
  Json head(const char* object) const;
  std::string finish() const { return done_.by_stop_token ? "stop" : "length"; }

  const Engine& engine_;
  Request request_;
  std::unique_ptr<blendpp::Fusion> fusion_;
  blendpp::FusionInfo info_;
  std::string id_;
  int64_t created_ = 0;
  std::string text_;
  Json logprobs_ = Json::array();
  size_t n_told_ = 0;  // characters of the tokens whose logprobs were told, of a completion
  blendpp::Generated done_;
};

std::string dump(const Json& value);

}  // namespace blend_cli::serve
