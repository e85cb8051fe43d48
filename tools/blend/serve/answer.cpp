#include "answer.h"

#include <algorithm>
#include <ctime>

#include "../printable.h"
#include "trace_context.h"

namespace blend_cli::serve {
namespace {

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    char32_t c = 0;
    const size_t n = utf8_character(text, c);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

// Part of a character as OpenAI writes it; else all parts would have one name.
std::string name_of_token(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string name = "bytes:";
  for (const char c : text) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<uint8_t>(c));
    name += hex;
  }
  return name;
}

std::string new_id(const char* prefix) { return std::string(prefix) + '-' + random_hex(); }

}  // namespace

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void require_model(const Engine& engine, const std::string& name) {
  if (name.empty() || name == engine.name) return;
  throw HttpError(404, "there is no model '" + name + "'; there is '" + engine.name + "'",
                  "model_not_found");
}

Answer::Answer(const Engine& engine, Request request, const std::string& tenant,
               const std::function<bool()>& alive)
    : engine_(engine),
      request_(std::move(request)),
      tenant_(tenant),
      id_(new_id(request_.chat ? "chatcmpl" : "cmpl")),
      created_(std::time(nullptr)) {
  require_model(engine_, request_.model);
  // Checked before the status is sent, as generate would fail only after it.
  for (const blend_token_bias& bias : request_.bias) {
    if (static_cast<uint32_t>(bias.token) >= engine_.model->info().n_vocab) {
      throw HttpError(400, "'logit_bias' names token " + std::to_string(bias.token) +
                               ", outside the vocabulary");
    }
  }
  tokenize(alive);
  if (request_.grammar) {
    grammar_ = engine_.grammars->get({*request_.grammar, request_.schema, {}, {}},
                                     "response_format", engine_.cancel);
  }
  if (must_call()) {
    grammar_ = engine_.grammars->get(
        {BLEND_GRAMMAR_CALL, request_.tools.json, engine_.template_source, request_.tools.only},
        "tools", engine_.cancel);
  }
  for (const std::string& text : request_.stop) stop_.push_back({text.data(), text.size()});
  choices_.resize(std::max<size_t>(1, request_.prompts.size()) * request_.n);
  if (request_.tools.choice != Tools::Choice::none) {
    for (Choice& choice : choices_)
      choice.tools.emplace(call_reader(*engine_.model, engine_.template_source, request_.tools));
  }
  fuse(0);
}

void Answer::tokenize(const std::function<bool()>& alive) {
  const blendpp::Model& model = *engine_.model;
  const blendpp::ModelInfo info = model.info();
  const auto check = [&](size_t n) {
    if (n + 1 <= info.context_length) return;
    throw HttpError(400,
                    "the prompt has " + std::to_string(n) +
                        " tokens, and the model's context holds " +
                        std::to_string(info.context_length) + " with the answer",
                    "context_length_exceeded");
  };
  const auto go_on = [&] {
    if (!alive()) throw HttpError(kGone, "the client has gone");
    if (engine_.cancelled()) throw HttpError(503, "the server is stopping");
  };
  if (request_.chat) {
    if (engine_.template_source.empty() && *info.chat_template == '\0') {
      throw HttpError(400,
                      "the model '" + engine_.name +
                          "' has no chat template: POST to /v1/completions, or have the server "
                          "started with --chat-template FILE",
                      "no_chat_template");
    }
    blendpp::ChatOptions options;
    options.template_source = engine_.template_source.c_str();
    options.variables = request_.variables.c_str();
    options.cancel = engine_.cancel;
    options.tools = request_.tools.json.c_str();
    if (must_call()) options.flags |= BLEND_CHAT_MUST_CALL;
    chat_ = blendpp::render_chat(model, request_.messages, request_.documents, options).prompt;
    return check(chat_.n_tokens());
  }
  size_t n = 0;
  for (const blendpp::ChatDocument& d : request_.documents) {
    go_on();
    documents_.push_back(d.by_id ? blendpp::Tokens() : model.tokenize(d.text));
    check(n += documents_.back().size());
  }
  for (const CompletionPrompt& given : request_.prompts) {
    go_on();
    for (const int32_t token : given.tokens) {
      if (static_cast<uint32_t>(token) >= info.n_vocab) {
        throw HttpError(400,
                        "'prompt' has token " + std::to_string(token) + ", outside the vocabulary",
                        {}, "prompt");
      }
    }
    asked_.push_back(given.tokens.empty() ? model.tokenize(given.text)
                                          : blendpp::Tokens(given.tokens));
    const size_t n_all = n + asked_.back().size() + (begins_with_bos(given) ? 1 : 0);
    if (n_all == 0 && request_.documents.empty()) {
      throw HttpError(400, "'prompt' is empty", {}, "prompt");
    }
    check(n_all);
  }
}

// A client that sends tokens has put BOS before them, where it belongs there.
bool Answer::begins_with_bos(const CompletionPrompt& prompt) const {
  return engine_.model->info().add_bos != 0 && prompt.tokens.empty();
}

blendpp::Prompt Answer::prompt_of(size_t index) const {
  if (request_.chat) return chat_;
  blendpp::Prompt prompt;
  if (begins_with_bos(request_.prompts[index])) prompt.prefix({engine_.model->info().bos_token});
  for (size_t i = 0; i < documents_.size(); ++i) {
    const blendpp::ChatDocument& d = request_.documents[i];
    d.by_id ? prompt.chunk(d.id) : prompt.chunk(documents_[i]);
  }
  if (!asked_[index].empty()) prompt.question(asked_[index]);
  return prompt;
}

void Answer::fuse(size_t index) {
  const blendpp::Prompt asked = prompt_of(index);
  blendpp::FuseOptions fuse = engine_.fuse;
  fuse.cancel = engine_.cancel;
  fuse.tenant = tenant_.c_str();
  if (request_.policy) {
    fuse.policy = request_.policy->policy;
    fuse.selection.terms = request_.policy->terms.data();
    fuse.selection.n_terms = request_.policy->terms.size();
  }
  if (request_.ratio) fuse.ratio = *request_.ratio;
  fuse.reserve_tokens = static_cast<uint32_t>(std::min<size_t>(
      request_.generate.max_tokens, engine_.model->info().context_length - asked.n_tokens()));
  const size_t begin = index * request_.n;
  blendpp::Fusion& first = *(choices_[begin].fusion = std::make_unique<blendpp::Fusion>(
                                 *engine_.model, engine_.store, asked, fuse));
  for (size_t i = begin + 1; i < begin + request_.n; ++i) {
    choices_[i].fusion = std::make_unique<blendpp::Fusion>(first.fork());
  }
  const blendpp::FusionReport info = first.report();
  account_.rows += info.n_rows;
  account_.hits += info.n_hits;
  account_.misses += info.n_misses;
  if (index == 0) account_.ttft_ns = info.ttft_ns;
  for (size_t i = 0; i < info.n_segments; ++i) {
    const blendpp::SegmentInfo segment = first.segment(i);
    if (segment.source != BLEND_SOURCE_STORE) continue;
    account_.cached += segment.n_rows - segment.n_rows_selected;
    account_.recomputed += segment.n_rows_selected;
  }
}

// A token's and the likeliest ones' log probabilities.
Json Answer::token_json(blendpp::Span<const blend_logprob> found) const {
  const auto one = [&](const blend_logprob& p) {
    const std::string text =
        engine_.model->detokenize({p.token}, BLEND_TOKENIZE_RAW | BLEND_TOKENIZE_SPECIAL);
    Json bytes = Json::array();
    for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
    return Json{{"token", name_of_token(text)}, {"logprob", p.logprob}, {"bytes", bytes}};
  };
  Json token = one(found[0]);
  token["top_logprobs"] = Json::array();
  for (size_t i = 1; i < found.size() && i <= request_.top_logprobs; ++i) {
    token["top_logprobs"].push_back(one(found[i]));
  }
  return token;
}

blendpp::GenerateOptions Answer::options_of(Choice& choice, size_t index) const {
  blendpp::GenerateOptions g = request_.generate;
  g.seed += index;  // else all would be the same
  g.stop_texts = stop_.data();
  g.n_stop_texts = stop_.size();
  g.logit_bias = request_.bias.data();
  g.n_logit_bias = request_.bias.size();
  if (grammar_ != nullptr) g.grammar = grammar_->get();
  g.cancel = engine_.cancel;
  if (request_.logprobs) {
    g.top_logprobs = static_cast<uint32_t>(std::max<size_t>(request_.top_logprobs, 1));
    g.on_logprobs = [this, &choice](blendpp::Span<const blend_logprob> found) {
      choice.token = token_json(found);
      return true;
    };
  }
  return g;
}

bool Answer::run(const Send& send, const std::function<bool()>& alive) {
  for (size_t i = 0; i * request_.n < choices_.size(); ++i) {
    if (i > 0) {
      if (!alive()) return false;
      fuse(i);
    }
    if (!generate(i, send, alive)) return false;
  }
  if (!request_.stream) return true;
  if (request_.usage_in_stream) {
    Json last = head(request_.chat ? "chat.completion.chunk" : "text_completion");
    last["choices"] = Json::array();
    last["usage"] = usage();
    if (!send("data: " + dump(last) + "\n\n")) return false;
  }
  return send("data: [DONE]\n\n");
}

bool Answer::generate(size_t prompt, const Send& send, const std::function<bool()>& alive) {
  const auto event = [&](const Json& value) { return send("data: " + dump(value) + "\n\n"); };
  const size_t begin = prompt * request_.n;
  const size_t end = begin + request_.n;
  bool listening = true;
  std::vector<blendpp::Fusion::Request> requests;
  for (size_t i = begin; i < end; ++i) {
    Choice& choice = choices_[i];
    if (request_.stream && request_.chat &&
        !event(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr))) {
      return false;
    }
    const auto told = [&, i](int32_t id, std::string_view given) {
      if (!listening) return false;  // another answer found that the client left
      const std::string piece(choice.tools ? choice.tools->add(id, given) : given);
      Json tokens = Json::array();
      if (request_.logprobs && id >= 0) tokens.push_back(choice.token);
      if (request_.stream) {
        const bool silent = piece.empty() && tokens.empty();
        if (!tell_calls(choice, i, event)) return listening = false;
        listening =
            silent
                ? alive()
                : event(chunk(i, {{"content", piece}}, nullptr,
                              request_.logprobs ? logprobs_json(tokens, choice.n_told) : Json()));
      } else {
        choice.text += piece;
        for (Json& t : tokens) choice.logprobs.push_back(std::move(t));
        listening = alive();
      }
      // The answer ends with its first call where more are not wanted.
      return listening && (request_.tools.parallel || n_calls(choice) == 0);
    };
    requests.push_back({choice.fusion.get(), options_of(choice, i - begin), told});
  }
  const auto outcomes = blendpp::Fusion::generate_batch(requests);
  for (size_t i = begin; i < end; ++i) {
    choices_[i].fusion.reset();
    choices_[i].done = outcomes[i - begin].generated;
  }
  for (const auto& outcome : outcomes) {
    if (outcome.error) throw blendpp::Error(*outcome.error);
  }
  if (!listening) return false;
  for (size_t i = begin; i < end; ++i) {
    Choice& choice = choices_[i];
    if (!choice.tools) continue;
    const std::string rest(choice.tools->end(!is_complete(choice)));
    if (!request_.stream) {
      choice.text += rest;
    } else if (!tell_calls(choice, i, event) ||
               (!rest.empty() && !event(chunk(i, {{"content", rest}}, nullptr, nullptr)))) {
      return false;
    }
  }
  if (!request_.stream) return true;
  for (size_t i = begin; i < end; ++i) {
    if (!event(chunk(i, Json::object(), finish(choices_[i]), nullptr))) return false;
  }
  return true;
}

// Ended by the model, or after its only call.
bool Answer::is_complete(const Choice& choice) {
  return choice.done.by_stop_token || choice.done.by_callback;
}

size_t Answer::n_calls(const Choice& choice) const {
  const size_t n = choice.tools ? choice.tools->n_calls() : 0;
  return request_.tools.parallel ? n : std::min<size_t>(n, 1);
}

bool Answer::tell_calls(Choice& choice, size_t index, const Tell& tell) const {
  if (choice.n_calls == n_calls(choice)) return true;
  const Json calls = calls_json(choice, choice.n_calls, true);
  choice.n_calls = n_calls(choice);
  return tell(chunk(index, {{"tool_calls", calls}}, nullptr, nullptr));
}

Json Answer::calls_json(const Choice& choice, size_t first, bool streams) const {
  Json out = Json::array();
  for (size_t i = first; i < n_calls(choice); ++i) {
    const blendpp::CallInfo call = choice.tools->call(i);
    const std::string digits = random_hex();
    const uint32_t n_digits = engine_.call_id_length;
    Json one = {{"id", n_digits > 0 ? digits.substr(0, n_digits) : "call_" + digits},
                {"type", "function"},
                {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    if (streams) one["index"] = i;
    out.push_back(std::move(one));
  }
  return out;
}

std::string Answer::finish(const Choice& choice) const {
  if (!is_complete(choice)) return "length";
  return n_calls(choice) > 0 ? "tool_calls" : "stop";
}

Json Answer::head(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", engine_.name}};
}

Json Answer::chunk(size_t index, const Json& delta, const Json& finish,
                   const Json& logprobs) const {
  Json out = head(request_.chat ? "chat.completion.chunk" : "text_completion");
  Json choice = {{"index", index}, {"finish_reason", finish}, {"logprobs", logprobs}};
  if (request_.chat) {
    choice["delta"] = delta;
  } else {
    choice["text"] = delta.value("content", "");
  }
  out["choices"] = Json::array({std::move(choice)});
  if (request_.usage_in_stream) out["usage"] = nullptr;  // it comes after them
  return out;
}

// Chats have a list of objects, completions have lists side by side.
Json Answer::logprobs_json(const Json& tokens, size_t& n_told) const {
  if (request_.chat) return {{"content", tokens}};
  Json out = {{"text_offset", Json::array()},
              {"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()}};
  for (const Json& t : tokens) {
    const auto& text = t["token"].get_ref<const std::string&>();
    out["tokens"].push_back(text);
    out["text_offset"].push_back(n_told);
    const Json& bytes = t["bytes"];
    n_told += static_cast<size_t>(std::count_if(
        bytes.begin(), bytes.end(), [](const Json& b) { return (b.get<int>() & 0xC0) != 0x80; }));
    out["token_logprobs"].push_back(t["logprob"]);
    Json top = Json::object();
    for (const Json& other : t["top_logprobs"]) {
      // If two tokens have one text, the likelier comes first and stays.
      top.emplace(other["token"].get_ref<const std::string&>(), other["logprob"]);
    }
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

size_t Answer::n_generated() const {
  size_t n = 0;
  for (const Choice& choice : choices_) n += choice.done.n_tokens;
  return n;
}

Json Answer::usage() const {
  Json out = {{"prompt_tokens", account_.rows},
              {"completion_tokens", n_generated()},
              {"total_tokens", account_.rows + n_generated()}};
  if (!engine_.account) return out;
  out["prompt_tokens_details"] = {{"cached_tokens", account_.cached}};
  out["blend"] = {{"reused_tokens", account_.cached + account_.recomputed},
                  {"recomputed_tokens", account_.recomputed},
                  {"computed_tokens", account_.rows - account_.cached - account_.recomputed},
                  {"hits", account_.hits},
                  {"misses", account_.misses},
                  {"ttft_ms", static_cast<double>(account_.ttft_ns) / 1e6}};
  return out;
}

Json Answer::whole() const {
  Json out = head(request_.chat ? "chat.completion" : "text_completion");
  out["choices"] = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& one = choices_[i];
    size_t n_told = 0;
    Json choice = {{"index", i},
                   {"finish_reason", finish(one)},
                   {"logprobs", request_.logprobs ? logprobs_json(one.logprobs, n_told) : Json()}};
    if (request_.chat) {
      choice["message"] = {{"role", "assistant"}, {"content", one.text}};
      if (n_calls(one) > 0) {
        choice["message"]["tool_calls"] = calls_json(one, 0, false);
        if (one.text.empty()) choice["message"]["content"] = nullptr;
      }
    } else {
      choice["text"] = one.text;
    }
    out["choices"].push_back(std::move(choice));
  }
  out["usage"] = usage();
  return out;
}

}  // namespace blend_cli::serve
