#include "chat/tool_list.h"

#include "model/utf8.h"

namespace blend::chat {

Result<std::vector<ListedFunction>> listed_functions(std::string_view tools) {
  Result<Json> list = Json::parse(tools);
  if (!list.is_ok() || list->array() == nullptr) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the tools are not a JSON list of objects%s%s",
                      list.is_ok() ? "" : ": ", list.status().message().c_str());
  }
  std::vector<ListedFunction> functions;
  for (size_t i = 0; i < list->array()->size(); ++i) {
    Json& tool = (*list->array())[i];
    Json* const inner = tool.find("function");
    Json& function = inner == nullptr ? tool : *inner;
    const Json* const name = function.find("name");
    if (name == nullptr || name->string() == nullptr) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "tool %zu: it is no function with a name", i);
    }
    if (name->string()->empty() || name->string()->find('\0') != std::string::npos) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "tool %zu: its name %s", i,
                        name->string()->empty() ? "is empty" : "has a NUL");
    }
    ListedFunction& made = functions.emplace_back();
    made.name = *name->string();
    if (Json* const parameters = function.find("parameters")) {
      made.parameters = std::move(*parameters);
    }
  }
  return functions;
}

std::string shown_name(std::string_view name) { return std::string(utf8_begin(name, 64)); }

}  // namespace blend::chat
