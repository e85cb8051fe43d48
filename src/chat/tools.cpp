#include "chat/tools.h"

#include "chat/print.h"
#include "chat/roles.h"

namespace blend::chat {
namespace {

constexpr std::string_view kBefore =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kAfter =
    "\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

Status append_json(const Value& value, Text& out, Meter& meter) {
  BLEND_ASSIGN(const Value json, to_json(value, JsonForm(), meter));
  out.append(*json.text());
  return Status::ok();
}

const Value* member(const Dict& members, std::string_view name) {
  for (const auto& [key, value] : members) {
    if (key.text() != nullptr && key.text()->bytes() == name) return &value;
  }
  return nullptr;
}

Json* member(Json& json, std::string_view name) {
  if (json.object() == nullptr) return nullptr;
  for (auto& [key, value] : *json.object()) {
    if (key == name) return &value;
  }
  return nullptr;
}

void read_arguments(Json& calls) {
  if (calls.array() == nullptr) return;  // null
  for (Json& call : *calls.array()) {
    Json* const function = member(call, "function");
    Json* const arguments = function == nullptr ? nullptr : member(*function, "arguments");
    if (arguments == nullptr || arguments->string() == nullptr) continue;
    // A model may have written what is no JSON: then it stays a text.
    Result<Json> read = Json::parse(*arguments->string());
    if (read.is_ok() && read->object() != nullptr) *arguments = std::move(*read);
  }
}

Status append_call(const Value& call, Text& out, Meter& meter) {
  const Value* function = &call;
  if (call.dict() != nullptr) {
    if (const Value* const inner = member(*call.dict(), "function")) function = inner;
  }
  const Dict* const members = function->dict();
  const Value* const name = members == nullptr ? nullptr : member(*members, "name");
  const Value* const arguments = members == nullptr ? nullptr : member(*members, "arguments");
  if (name == nullptr || name->text() == nullptr) {
    return Status{BLEND_E_INVALID_ARGUMENT, "a tool call has no function with a name"};
  }
  if (!out.empty()) out.append("\n", kTemplate);
  out.append("<tool_call>\n{\"name\": ", kTemplate);
  BLEND_RETURN_IF_ERROR(append_json(*name, out, meter));
  out.append(", \"arguments\": ", kTemplate);
  if (arguments == nullptr) {
    out.append("{}", kTemplate);
  } else {
    BLEND_RETURN_IF_ERROR(append_json(*arguments, out, meter));
  }
  out.append("}\n</tool_call>", kTemplate);
  return Status::ok();
}

}  // namespace

Result<Value> read_tools(std::string_view json) {
  if (json.empty()) return Value::none();
  Result<Json> list = Json::parse(json);
  bool right = list.is_ok() && list->array() != nullptr;
  for (size_t i = 0; right && i < list->array()->size(); ++i) {
    right = (*list->array())[i].object() != nullptr;
  }
  if (!right) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the tools are not a JSON list of objects%s%s",
                      list.is_ok() ? "" : ": ", list.status().message().c_str());
  }
  if (list->array()->empty()) return Value::none();
  Result<Value> value = Value::from_json(*list, kStable);
  if (!value.is_ok()) return value.status().with_context("tools");
  return value;
}

Result<Dict> read_members(std::string_view json) {
  Dict out;
  if (json.empty()) return out;
  Result<Json> read = Json::parse(json);
  if (!read.is_ok() || read->object() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "its members are not a JSON object%s%s",
                      read.is_ok() ? "" : ": ", read.status().message().c_str());
  }
  for (auto& [name, value] : *read->object()) {
    if (name == "role" || name == "content") {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "'%s' is among its further members: it has a place of its own",
                        name.c_str());
    }
    if (name == "tool_calls") {
      if (!value.is_null() && value.array() == nullptr) {
        return Status{BLEND_E_INVALID_ARGUMENT, "its 'tool_calls' are not a JSON list"};
      }
      read_arguments(value);
    }
    BLEND_ASSIGN(Value made, Value::from_json(value, kMessage));
    out.emplace_back(Value::text(name, kMessage), std::move(made));
  }
  return out;
}

Status tell_tools(const Value& tools, std::vector<Turn>& turns, Meter& meter) {
  if (turns.empty() || !is_system(turns.front().role))
    turns.insert(turns.begin(), {"system", {}, {}});
  Text& text = turns.front().content;
  if (!text.empty()) text.append("\n\n", kTemplate);
  text.append(kBefore, kTemplate);
  for (const Value& tool : *tools.list()) {
    text.append("\n", kTemplate);
    BLEND_RETURN_IF_ERROR(append_json(tool, text, meter));
  }
  text.append(kAfter, kTemplate);
  return Status::ok();
}

bool tells_tools(std::string_view prompt) { return prompt.find(kBefore) != prompt.npos; }

Status tell_calls(std::vector<Turn>& turns, Meter& meter) {
  std::vector<Turn> out;
  bool results = false;  // whether the last message is made of some
  for (Turn& turn : turns) {
    const bool is_result = turn.role == "tool";
    if (is_result) {
      if (!results) out.push_back({"user", {}, {}});
      Text& text = out.back().content;
      if (!text.empty()) text.append("\n", kTemplate);
      text.append("<tool_response>\n", kTemplate);
      text.append(turn.content);
      text.append("\n</tool_response>", kTemplate);
    } else {
      const Value* const calls = member(turn.members, "tool_calls");
      if (calls != nullptr && calls->list() != nullptr) {
        for (const Value& call : *calls->list()) {
          BLEND_RETURN_IF_ERROR(append_call(call, turn.content, meter));
        }
      }
      out.push_back(std::move(turn));
    }
    results = is_result;
  }
  turns = std::move(out);
  return Status::ok();
}

}  // namespace blend::chat
