#include "grammar/grammar.h"

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "chat/call_schema.h"
#include "chat/describe.h"

using blend::Result;
using blend::Status;

namespace {

Status check_of_calls(const blend_grammar_options& o) {
  if (o.language == BLEND_GRAMMAR_CALL) return Status::ok();
  const std::pair<const char*, const char*> of_calls[] = {{"template_source", o.template_source},
                                                          {"function", o.function}};
  for (const auto& [name, value] : of_calls) {
    if (value == nullptr || value[0] == '\0') continue;
    return blend::make_error(
        BLEND_E_INVALID_ARGUMENT,
        "%s is given, which is of BLEND_GRAMMAR_CALL alone: set language to it", name);
  }
  return Status::ok();
}

// Bytes of the schema that is made of a list, which repeats the form of a call for each function.
constexpr size_t kMostOfCalls = size_t{1} << 20;

Result<std::string> schema_of_call(const blend::Model& model, const blend_grammar_options& o) {
  const std::string_view tools = o.text != nullptr ? o.text : "";
  // Before time is spent on it.
  BLEND_RETURN_IF_ERROR(blend::Grammar::check_size(tools));
  BLEND_ASSIGN(const blend::chat::CallForm form,
               blend::chat::call_form(blend::capi::template_of(model, o.template_source)));
  BLEND_ASSIGN(
      std::string schema,
      blend::chat::call_schema(tools, o.function != nullptr ? o.function : "", form.arguments));
  if (schema.size() <= kMostOfCalls) return schema;
  return blend::make_error(
      BLEND_E_UNSUPPORTED,
      "the schema of a call of these functions has %zu bytes, and more than %zu are not compiled: "
      "list fewer functions, or name the one that is called",
      schema.size(), kMostOfCalls);
}

blend::grammar::SchemaPlace whose_definition(std::string_view tools, const std::string& name) {
  auto [of, path] = blend::chat::place_of_definition(tools, name);
  return {std::move(of), std::move(path)};
}

}  // namespace

extern "C" {

int32_t blend_grammar_options_init(blend_grammar_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_grammar_open(blend_grammar** out, const blend_model* model,
                           const blend_grammar_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    BLEND_REQUIRE(model);
    blend_grammar_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if (o.language > BLEND_GRAMMAR_CALL) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "language %u: no BLEND_GRAMMAR_ value of this version", o.language);
    }
    const std::string_view text = o.text != nullptr ? o.text : "";
    if (o.language == BLEND_GRAMMAR_JSON && !text.empty()) {
      return Status{
          BLEND_E_INVALID_ARGUMENT,
          "a text, and the language is any JSON object: set language to that of the text"};
    }
    BLEND_RETURN_IF_ERROR(check_of_calls(o));
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(auto vocabulary, loaded->grammar_vocabulary());
    blend::GrammarOptions how;
    std::string schema;
    if (o.language == BLEND_GRAMMAR_CALL) {
      BLEND_ASSIGN(schema, schema_of_call(*loaded, o));
      how.kind = blend::GrammarKind::json_schema;
      how.text = schema;
      how.most_text = kMostOfCalls;
      how.whose = [text](const std::string& name) { return whose_definition(text, name); };
    } else {
      how.kind = static_cast<blend::GrammarKind>(o.language);
      how.text = text;
    }
    auto grammar = std::make_unique<blend_grammar>();
    BLEND_ASSIGN(grammar->grammar,
                 blend::Grammar::compile(std::move(vocabulary), how,
                                         o.cancel != nullptr ? &o.cancel->token : nullptr));
    *out = grammar.release();
    return Status::ok();
  });
}

void blend_grammar_close(blend_grammar* grammar) { delete grammar; }

}  // extern "C"
