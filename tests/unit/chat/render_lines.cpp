// Renders what it reads, a line {"source": ..., "variables": {...}} each, for tests that compare:
// a line {"text": ...} or {"code": ..., "error": ...} for each.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/template.h"

namespace {

using namespace blend;

Result<chat::Text> render(const nlohmann::ordered_json& given) {
  BLEND_ASSIGN(const auto parsed,
               chat::Template::parse(given["source"].get_ref<const std::string&>()));
  BLEND_ASSIGN(const Json variables, Json::parse(given["variables"].dump()));
  chat::Variables all;
  for (const auto& [name, member] : *variables.object()) {
    BLEND_ASSIGN(chat::Value value, chat::Value::from_json(member, chat::kMessage));
    all.emplace(name, std::move(value));
  }
  return parsed.render(all, 0);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    auto text = render(nlohmann::ordered_json::parse(line));
    nlohmann::ordered_json out;
    if (text.is_ok()) {
      out["text"] = text->bytes();
    } else {
      out["code"] = text.status().code();
      out["error"] = text.status().message();
    }
    std::cout << out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n"
              << std::flush;
  }
  return 0;
}
