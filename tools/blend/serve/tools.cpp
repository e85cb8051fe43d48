#include "tools.h"

#include <algorithm>

#include "base/raw_json.h"
#include "members.h"

namespace blend_cli::serve {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr size_t kMostTools = 128;
constexpr size_t kMostCalls = 128;
constexpr size_t kMostToolBytes = size_t{256} << 10;
constexpr size_t kMostName = 64;

bool is_name(const Json* value) {
  if (value == nullptr || !value->is_string()) return false;
  const auto& text = value->get_ref<const std::string&>();
  return !text.empty() && text.size() <= kMostName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

// The object of a function, in a list's element that has the type.
const Json& function_of(const Json& item, const std::string& where) {
  if (!item.is_object()) wrong(where, "must be an object");
  const Json* const type = given(item, "type");
  if (type != nullptr && *type != "function") {
    wrong(where + ".type", "must be \"function\": there are no other tools");
  }
  const Json* const function = given(item, "function");
  if (function == nullptr || !function->is_object()) {
    wrong(where + ".function", "must be an object with the name of a function");
  }
  if (!is_name(given(*function, "name"))) {
    wrong(where + ".function.name",
          "must be of 1 to " + std::to_string(kMostName) + " letters, digits, '_' and '-'");
  }
  return *function;
}

void check_function(const Json& function, const std::string& where) {
  const Json* const description = given(function, "description");
  if (description != nullptr && !description->is_string()) {
    wrong(where + ".description", "must be a string");
  }
  const Json* const parameters = given(function, "parameters");
  if (parameters == nullptr) return;
  if (!parameters->is_object()) wrong(where + ".parameters", "must be an object, a JSON schema");
  const Json* const type = given(*parameters, "type");
  if (type != nullptr && *type != "object") {
    wrong(where + ".parameters", "must be a schema of the type \"object\"");
  }
}

void read_list(const Json& list, std::string text, Tools& out) {
  if (!list.is_array() || list.size() > kMostTools) {
    wrong("tools", "must be a list of at most " + std::to_string(kMostTools) + " functions");
  }
  // Written with escapes in its name, it is not found as text.
  out.json = text.empty() ? list.dump() : std::move(text);
  if (out.json.size() > kMostToolBytes) {
    wrong("tools", "has more than " + std::to_string(kMostToolBytes >> 10) + " KiB");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    const Json& function = function_of(list[i], where);
    check_function(function, where + ".function");
    auto name = function["name"].get<std::string>();
    if (std::find(out.names.begin(), out.names.end(), name) != out.names.end()) {
      wrong(where + ".function.name", "is '" + name + "' twice");
    }
    out.names.push_back(std::move(name));
  }
}

void read_choice(const Json* choice, Tools& out) {
  out.choice = out.names.empty() ? Tools::Choice::none : Tools::Choice::automatic;
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    out.choice = Tools::Choice::none;
    return;
  }
  const bool is_named = choice->is_object() && choice->value("type", Json()) == "function" &&
                        choice->contains("function") && (*choice)["function"].is_object() &&
                        (*choice)["function"].value("name", Json()).is_string();
  if (*choice != "required" && !is_named) {
    wrong("tool_choice",
          "must be \"none\", \"auto\", \"required\", or {\"type\": \"function\", "
          "\"function\": {\"name\": ...}}");
  }
  if (out.names.empty()) wrong("tool_choice", "needs 'tools'");
  out.choice = Tools::Choice::required;
  if (!is_named) return;
  out.only = (*choice)["function"]["name"].get<std::string>();
  if (std::find(out.names.begin(), out.names.end(), out.only) == out.names.end()) {
    wrong("tool_choice", "names the function '" + out.only.substr(0, kMostName) +
                             "', which 'tools' does not have");
  }
}

}  // namespace

ToolTexts tool_texts(std::string_view body) {
  if (body.find("\"tools\"") == body.npos) return {};
  return {std::string(blend::raw_member(body, "tools"))};
}

Tools read_tools(const Json& body, ToolTexts texts) {
  Tools out;
  if (const Json* const list = given(body, "tools")) {
    read_list(*list, std::move(texts.tools), out);
  }
  read_choice(given(body, "tool_choice"), out);
  if (out.choice == Tools::Choice::none) out.json.clear();
  if (const Json* const parallel = given(body, "parallel_tool_calls")) {
    if (!parallel->is_boolean()) wrong("parallel_tool_calls", "must be true or false");
    out.parallel = parallel->get<bool>();
  }
  return out;
}

std::string tool_members(const Json& message, const std::string& where,
                         std::map<std::string, std::string>& calls) {
  Ordered out = Ordered::object();
  const auto string = [&](const Json& object, const char* name, const std::string& in) {
    const Json* const value = given(object, name);
    if (value != nullptr && !value->is_string()) wrong(in + "." + name, "must be a string");
    return value == nullptr ? std::string() : value->get<std::string>();
  };
  const Json* const list = given(message, "tool_calls");
  if (list != nullptr && (!list->is_array() || list->size() > kMostCalls)) {
    wrong(where + ".tool_calls",
          "must be a list of at most " + std::to_string(kMostCalls) + " calls");
  }
  if (list != nullptr && !list->empty() && message["role"] != "assistant") {
    wrong(where + ".tool_calls", "belongs to a message of the role \"assistant\"");
  }
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string in = where + ".tool_calls[" + std::to_string(i) + "]";
    const Json& function = function_of((*list)[i], in);
    const std::string id = string((*list)[i], "id", in);
    const auto name = function["name"].get<std::string>();
    out["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", string(function, "arguments", in + ".function")}}}});
    if (!id.empty()) calls.insert_or_assign(id, name);
  }
  if (message["role"] == "tool") {
    const std::string id = string(message, "tool_call_id", where);
    std::string name = string(message, "name", where);
    // Templates that write the function's name expect it here, and OpenAI's clients leave it out.
    const auto made = calls.find(id);
    if (name.empty() && made != calls.end()) name = made->second;
    if (!id.empty()) out["tool_call_id"] = id;
    if (!name.empty()) out["name"] = name;
  }
  return out.empty() ? std::string() : out.dump();
}

}  // namespace blend_cli::serve
