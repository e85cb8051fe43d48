#include "chat/template.h"

#include "chat/parser.h"
#include "chat/renderer.h"

namespace blend::chat {

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSource) {
    return make_error(BLEND_E_UNSUPPORTED, "a chat template of %zu bytes; up to %zu are read",
                      source.size(), kMaxSource);
  }
  BLEND_ASSIGN(Syntax syntax, chat::parse(source));
  syntax.names_tool_calls = source.find("tool_calls") != source.npos;
  return Template(std::make_shared<const Syntax>(std::move(syntax)));
}

bool Template::names_documents() const { return syntax_->names_documents; }
bool Template::names_tools() const { return syntax_->names_tools; }
bool Template::names_tool_calls() const { return syntax_->names_tool_calls; }

Result<Text> Template::render(const Variables& variables, int64_t now, size_t fuel,
                              const CancelToken* cancel) const {
  size_t weight = 0;
  for (const auto& [name, value] : variables) {
    if (__builtin_add_overflow(weight, value.weight(), &weight)) return Status::out_of_memory();
  }
  size_t more = 0;
  if (__builtin_mul_overflow(weight, kFuelPerWeight, &more) ||
      __builtin_add_overflow(fuel, more, &fuel)) {
    return Status::out_of_memory();
  }
  BLEND_ASSIGN(Text text, Renderer(variables, now, fuel, cancel).run(syntax_->body));
  if (text.size() <= kText + weight * kTextPerWeight) return text;
  return make_error(BLEND_E_UNSUPPORTED,
                    "the chat template writes %zu bytes for this prompt, which is more than "
                    "libblend allows; give another template",
                    text.size());
}

}  // namespace blend::chat
