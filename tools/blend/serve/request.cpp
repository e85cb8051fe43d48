#include "request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "../chunker.h"
#include "../command.h"
#include "base/raw_json.h"
#include "members.h"

namespace blend_cli::serve {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostBiases = 1024;
constexpr size_t kMostLogprobs = 20;
constexpr size_t kMostDocuments = 4096;
constexpr size_t kMostAnswers = 16;
constexpr size_t kMostPrompts = 128;
constexpr size_t kMostInputs = 2048;

double number(const Json& body, const char* name, double otherwise, double low, double high) {
  const Json* const v = given(body, name);
  if (v == nullptr) return otherwise;
  const double x = v->is_number() ? v->get<double>() : NAN;
  if (!(x >= low && x <= high)) {
    char range[96];
    std::snprintf(range, sizeof range, "must be a number from %g to %g", low, high);
    wrong(name, range);
  }
  return x;
}

// A whole number, exactly: 5.0 is one; numbers that a double cannot hold are read digit by digit.
int64_t integer(const Json& body, const char* name, int64_t otherwise, int64_t low, int64_t high) {
  const Json* const v = given(body, name);
  if (v == nullptr) return otherwise;
  constexpr double kExact = 9007199254740992;  // 2^53
  int64_t x = 0;
  bool is_whole = true;
  if (v->is_number_unsigned()) {
    const auto u = v->get<uint64_t>();
    is_whole = u <= INT64_MAX;
    x = static_cast<int64_t>(u);
  } else if (v->is_number_integer()) {
    x = v->get<int64_t>();
  } else {
    const double d = v->is_number_float() ? v->get<double>() : NAN;
    is_whole = std::trunc(d) == d && std::fabs(d) <= kExact;
    if (is_whole) x = static_cast<int64_t>(d);
  }
  if (!is_whole || x < low || x > high) {
    wrong(name,
          "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return x;
}

bool boolean(const Json& body, const char* name) {
  const Json* const v = given(body, name);
  if (v == nullptr) return false;
  if (!v->is_boolean()) wrong(name, "must be true or false");
  return v->get<bool>();
}

std::string take_text(Json& value) { return std::move(value.get_ref<std::string&>()); }

// A string, or a list of parts of which all are text.
std::string content_of(Json& message, const std::string& name) {
  Json* const v = given(message, "content");
  if (v == nullptr) return {};
  if (v->is_string()) return take_text(*v);
  if (!v->is_array()) wrong(name + ".content", "must be a string or a list of parts");
  std::string text;
  for (const Json& part : *v) {
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      wrong(name + ".content", "has a part that is not text, and this model reads nothing else");
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

void read_messages(Json& body, Request& out) {
  Json* const messages = given(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    wrong("messages", "must be a list of at least one message");
  }
  std::map<std::string, std::string> calls;
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& m = (*messages)[i];
    const std::string name = "messages[" + std::to_string(i) + "]";
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string()) {
      wrong(name, "must be an object with a role");
    }
    std::string members = tool_members(m, name, calls);
    out.messages.push_back({take_text(m["role"]), content_of(m, name), std::move(members)});
  }
}

bool is_token_list(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(),
                     [](const Json& v) { return v.is_number_integer(); });
}

std::vector<int32_t> tokens_of(const Json& list, const char* name) {
  std::vector<int32_t> tokens;
  for (const Json& token : list) {
    const bool fits = token.is_number_unsigned() && token.get<uint64_t>() <= INT32_MAX;
    if (!fits) wrong(name, "has a token outside the vocabulary");
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

// A text, tokens, or a list of either.
void read_inputs(Json& body, EmbeddingRequest& out) {
  static constexpr const char* kForms =
      "must be a string, a list of strings, a list of tokens, or a list of such";
  Json* const input = given(body, "input");
  if (input == nullptr) wrong("input", kForms);
  const auto add = [&](Json& one) {
    if (one.is_string()) {
      out.texts.push_back(take_text(one));
    } else if (is_token_list(one)) {
      out.tokens.push_back(tokens_of(one, "input"));
    } else {
      wrong("input", kForms);
    }
  };
  if (!input->is_array() || is_token_list(*input)) return add(*input);
  if (input->empty() || input->size() > kMostInputs) {
    wrong("input", "must be of 1 to " + std::to_string(kMostInputs) + " texts");
  }
  for (Json& one : *input) add(one);
  if (!out.texts.empty() && !out.tokens.empty()) {
    wrong("input", "has both strings and tokens: send them apart");
  }
}

// A text, tokens, or a list of such.
void read_prompts(Json& body, Request& out) {
  static constexpr const char* kForms = "must be a string, a list of tokens, or a list of such";
  Json* const prompt = given(body, "prompt");
  if (prompt == nullptr) wrong("prompt", kForms);
  const auto add = [&](Json& one) {
    CompletionPrompt& to = out.prompts.emplace_back();
    if (one.is_string()) {
      to.text = take_text(one);
      return;
    }
    if (!is_token_list(one)) wrong("prompt", kForms);
    to.tokens = tokens_of(one, "prompt");
  };
  if (!prompt->is_array() || is_token_list(*prompt)) return add(*prompt);
  if (prompt->empty() || prompt->size() > kMostPrompts) {
    wrong("prompt", "must be of 1 to " + std::to_string(kMostPrompts) + " prompts");
  }
  for (Json& one : *prompt) add(one);
}

void read_documents(Json& body, Request& out) {
  Json* const documents = given(body, "documents");
  if (documents == nullptr) return;
  if (!documents->is_array() || documents->size() > kMostDocuments) {
    wrong("documents", "must be a list of at most " + std::to_string(kMostDocuments));
  }
  for (size_t i = 0; i < documents->size(); ++i) {
    Json& d = (*documents)[i];
    const std::string name = "documents[" + std::to_string(i) + "]";
    const auto text = [&](const char* member) {
      return d.is_object() && d.contains(member) && d[member].is_string() ? take_text(d[member])
                                                                          : std::string();
    };
    // As blend_fuse_texts and `blend precompute` have it, so that a text is the same chunk however
    // a client read it.
    const auto passage = [&](const std::string& whole) {
      const std::string_view body_of = trimmed(whole, " \t\n\v\f\r");
      if (body_of.empty()) wrong(name, "has no text but white space");
      return std::string(body_of) + '\n';
    };
    if (d.is_string()) {
      out.documents.emplace_back(passage(take_text(d)));
      continue;
    }
    const std::string found = text("text");
    const std::string id = text("id");
    if (!found.empty()) {
      out.documents.emplace_back(passage(found), text("title"));
    } else if (!id.empty()) {
      try {
        out.documents.emplace_back(blendpp::ChunkId::from_hex(id));
      } catch (const blendpp::Error& error) {
        wrong(name + ".id", error.what());
      }
    } else {
      wrong(name, "must be a string, an object with a text, or one with the id of a stored chunk");
    }
  }
}

void read_stop(const Json& body, Request& out) {
  const Json* const stop = given(body, "stop");
  if (stop == nullptr) return;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMostStops) wrong("stop", "has more than " + std::to_string(kMostStops));
  for (const Json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      wrong("stop", "must be a string that is not empty, or a list of such");
    }
    out.stop.push_back(text.get<std::string>());
  }
}

void read_bias(const Json& body, Request& out) {
  const Json* const bias = given(body, "logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object() || bias->size() > kMostBiases) {
    wrong("logit_bias", "must be an object of at most " + std::to_string(kMostBiases) + " tokens");
  }
  for (const auto& [token, value] : bias->items()) {
    char* end = nullptr;
    errno = 0;
    const long id = std::strtol(token.c_str(), &end, 10);
    const bool is_digit = !token.empty() && token[0] >= '0' && token[0] <= '9';
    const bool is_id = is_digit && *end == '\0' && errno == 0 && id >= 0 && id <= INT32_MAX;
    if (!is_id || !value.is_number() || !(std::fabs(value.get<double>()) <= 100)) {
      wrong("logit_bias", "must give token ids a number from -100 to 100");
    }
    // OpenAI's -100 forbids a token.
    const float by = value.get<float>() <= -100 ? -INFINITY : value.get<float>();
    out.bias.push_back({static_cast<int32_t>(id), by});
  }
}

void read_logprobs(const Json& body, Request& out) {
  const Json* const wanted = given(body, "logprobs");
  if (out.chat) {
    out.logprobs = boolean(body, "logprobs");
    out.top_logprobs = static_cast<size_t>(integer(body, "top_logprobs", 0, 0, kMostLogprobs));
    if (out.top_logprobs > 0 && !out.logprobs) wrong("top_logprobs", "needs 'logprobs': true");
  } else if (wanted != nullptr) {
    out.logprobs = true;
    out.top_logprobs = static_cast<size_t>(integer(body, "logprobs", 0, 0, kMostLogprobs));
  }
}

// Refuses members that would change the answer and are not supported.
void refuse_unknown(const Json& body, bool chat) {
  for (const char* const name : {"tools", "functions", "tool_choice", "function_call", "audio",
                                 "suffix", "modalities", "prediction"}) {
    const Json* const v = given(body, name);
    if (chat && std::string_view(name).starts_with("tool")) continue;
    if (v != nullptr && *v != "none" && *v != Json::array() && *v != Json::array({"text"})) {
      wrong(name, "is not supported");
    }
  }
  // A request that asks for another way of fusing than it gets would be misled.
  for (const char* const name : {"agreement", "metric", "check_layer", "check_layers", "on_miss",
                                 "chunk_prefix", "tenant"}) {
    if (given(body, name) != nullptr) {
      wrong(name, "is set when the server starts; a request may set policy and ratio");
    }
  }
  const int64_t n = integer(body, "n", 1, 1, kMostAnswers);
  if (integer(body, "best_of", n, 1, kMostAnswers) != n) {
    wrong("best_of", "must be 'n': every answer is given");
  }
  if (!chat && boolean(body, "echo")) wrong("echo", "is not supported");
}

// What the answer must be.
void read_format(const Json& body, std::string schema, Request& out) {
  const Json* const format = given(body, "response_format");
  if (format == nullptr) return;
  const Json type = format->is_object() ? format->value("type", Json()) : Json();
  if (type == "text") return;
  if (type == "json_object") {
    out.grammar = BLEND_GRAMMAR_JSON;
  } else if (type == "json_schema") {
    const Json* const named = given(*format, "json_schema");
    const Json* const tree =
        named != nullptr && named->is_object() ? given(*named, "schema") : nullptr;
    if (tree == nullptr || !tree->is_object()) {
      wrong("response_format", "of the type 'json_schema' must have json_schema.schema, an object");
    }
    out.grammar = BLEND_GRAMMAR_JSON_SCHEMA;
    // Written with escapes in its names, it is not found as text.
    out.schema = schema.empty() ? tree->dump() : std::move(schema);
  } else {
    wrong("response_format", "must be of the type 'text', 'json_object' or 'json_schema'");
  }
  if (boolean(body, "ignore_eos")) wrong("ignore_eos", "does not go with 'response_format'");
}

// How this prompt is to be fused, where it is not to be as the server has it.
void read_fusing(const Json& body, Request& out) {
  if (const Json* const policy = given(body, "policy")) {
    if (!policy->is_string()) wrong("policy", "must be a string: " + policy_names());
    try {
      out.policy = parse_policy(policy->get<std::string>());
    } catch (const CommandError& error) {
      wrong("policy", std::string("is no policy: ") + error.what());
    }
  }
  const Json* const ratio = given(body, "ratio");
  if (ratio == nullptr) return;
  if (*ratio == "fidelity") {
    out.ratio = BLEND_RATIO_FIDELITY;
  } else if (ratio->is_number()) {
    out.ratio = number(body, "ratio", 0, 0, 1);
  } else {
    wrong("ratio", "must be a number from 0 to 1, or \"fidelity\"");
  }
}

void read_sampling(const Json& body, Request& out, uint32_t most_tokens) {
  blendpp::GenerateOptions& g = out.generate;
  g.temperature = static_cast<float>(number(body, "temperature", 1, 0, 100));
  g.top_p = static_cast<float>(number(body, "top_p", 1, 0, 1));
  g.min_p = static_cast<float>(number(body, "min_p", 0, 0, 1));
  // As top_p shrinks to 0, only the likeliest token is left.
  if (given(body, "top_p") != nullptr && g.top_p == 0) {
    g.top_p = 1;
    g.temperature = 0;
  }
  g.top_k = static_cast<uint32_t>(std::max<int64_t>(0, integer(body, "top_k", 0, -1, INT32_MAX)));
  g.frequency_penalty = static_cast<float>(number(body, "frequency_penalty", 0, -2, 2));
  g.presence_penalty = static_cast<float>(number(body, "presence_penalty", 0, -2, 2));
  g.repetition_penalty = static_cast<float>(number(body, "repetition_penalty", 1, 0.01, 100));
  if (given(body, "seed") != nullptr) {
    g.seed = static_cast<uint64_t>(integer(body, "seed", 0, INT64_MIN, INT64_MAX));
  } else {
    std::random_device device;
    g.seed = uint64_t{device()} << 32 | device();
  }
  // The newer name takes precedence.
  const char* const most =
      given(body, "max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
  const int64_t wanted = integer(body, most, most_tokens, 1, INT64_MAX);
  g.max_tokens = static_cast<uint32_t>(std::min<int64_t>(wanted, most_tokens));
  if (boolean(body, "ignore_eos")) g.ignore_eos = 1;
}

}  // namespace

Json error_json(const HttpError& error) {
  const int status = error.status();
  const auto text = [](const std::string& s) { return s.empty() ? Json() : Json(s); };
  const char* const type = status == 401   ? "authentication_error"
                           : status == 429 ? "rate_limit_error"
                           : status < 500 || status == 501 || status == 505
                               ? "invalid_request_error"
                               : "server_error";
  return {{"error",
           {{"message", error.what()},
            {"type", type},
            {"param", text(error.param())},
            {"code", text(error.code())}}}};
}

HttpError http_error(const blendpp::Error& error) {
  switch (error.code()) {
    case BLEND_E_CONTEXT_LENGTH:
      return {400, error.what(), "context_length_exceeded"};
    case BLEND_E_INVALID_ARGUMENT:
    case BLEND_E_MISMATCH:
      return {400, error.what()};
    case BLEND_E_NOT_FOUND:
      return {400, error.what(), "not_found"};
    case BLEND_E_UNSUPPORTED:
      return {501, error.what(), "not_supported"};
    case BLEND_E_CANCELLED:
      return {503, "the server is stopping"};
    case BLEND_E_OUT_OF_MEMORY:
      return {503, error.what()};
    default:
      return {500, std::string(error.what()) + " (" + error.name() + ")"};
  }
}

EmbeddingRequest read_embedding_request(Json json) {
  EmbeddingRequest out;
  if (const Json* const model = given(json, "model")) {
    if (!model->is_string()) wrong("model", "must be a string");
    out.model = model->get<std::string>();
  }
  read_inputs(json, out);
  out.n_dimensions = static_cast<uint32_t>(integer(json, "dimensions", 0, 1, INT32_MAX));
  if (const Json* const encoding = given(json, "encoding_format")) {
    if (*encoding != "float" && *encoding != "base64") {
      wrong("encoding_format", "must be \"float\" or \"base64\"");
    }
    out.base64 = *encoding == "base64";
  }
  return out;
}

BodyTexts body_texts(std::string_view body) {
  BodyTexts texts;
  texts.tools = tool_texts(body);
  if (body.find("json_schema") == body.npos) return texts;
  const std::string_view format = blend::raw_member(body, "response_format");
  texts.schema = blend::raw_member(blend::raw_member(format, "json_schema"), "schema");
  return texts;
}

Request read_request(Json json, BodyTexts texts, bool chat, uint32_t most_tokens) {
  Request out;
  out.chat = chat;
  if (const Json* const model = given(json, "model")) {
    if (!model->is_string()) wrong("model", "must be a string");
    out.model = model->get<std::string>();
  }
  refuse_unknown(json, chat);
  chat ? read_messages(json, out) : read_prompts(json, out);
  read_documents(json, out);
  if (const Json* const variables = given(json, "chat_template_kwargs")) {
    if (!variables->is_object()) wrong("chat_template_kwargs", "must be an object");
    out.variables = variables->dump();
  }
  out.n = static_cast<size_t>(integer(json, "n", 1, 1, kMostAnswers));
  out.stream = boolean(json, "stream");
  if (const Json* const options = given(json, "stream_options")) {
    if (!options->is_object()) wrong("stream_options", "must be an object");
    out.usage_in_stream = boolean(*options, "include_usage");
  }
  read_stop(json, out);
  read_bias(json, out);
  read_logprobs(json, out);
  read_fusing(json, out);
  read_sampling(json, out, most_tokens);
  read_format(json, std::move(texts.schema), out);
  if (chat) out.tools = read_tools(json, std::move(texts.tools));
  if (out.tools.choice == Tools::Choice::none) return out;
  if (out.grammar) {
    wrong("response_format",
          "does not go with 'tools', unless 'tool_choice' is \"none\": an answer that must be JSON "
          "cannot be a call");
  }
  const bool is_call = out.tools.choice == Tools::Choice::required;
  if (is_call && boolean(json, "ignore_eos")) {
    wrong("ignore_eos", "does not go with a 'tool_choice' that demands a call");
  }
  return out;
}

}  // namespace blend_cli::serve
