#include "chat/template.h"

#include <algorithm>

#include "chat/parser.h"
#include "chat/renderer.h"

namespace blend::chat {

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSource) {
    return make_error(BLEND_E_UNSUPPORTED, "a chat template of %zu bytes; up to %zu are read",
                      source.size(), kMaxSource);
  }
  BLEND_ASSIGN(Syntax syntax, chat::parse(source));
  return Template(source, std::make_shared<const Syntax>(std::move(syntax)));
}

Result<Template> Template::parse_given(std::string_view source) {
  if (!source.empty()) return parse(source);
  return Status{BLEND_E_NOT_FOUND,
                "the model has no chat template: give one (template_source), or make the prompt of "
                "its segments"};
}

bool Template::reads(std::string_view variable) const {
  const auto found = std::find(kAsked.begin(), kAsked.end(), variable);
  return found != kAsked.end() && syntax_->reads[static_cast<size_t>(found - kAsked.begin())];
}

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
