#include "grammar/grammar.h"

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

using blend::Status;

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
    if (o.language > BLEND_GRAMMAR_EBNF) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "language %u: no BLEND_GRAMMAR_ value of this version", o.language);
    }
    const std::string_view text = o.text != nullptr ? o.text : "";
    if (o.language == BLEND_GRAMMAR_JSON && !text.empty()) {
      return Status{
          BLEND_E_INVALID_ARGUMENT,
          "a text, and the language is any JSON object: set language to that of the text"};
    }
    BLEND_ASSIGN(const auto loaded, model->loaded());
    BLEND_ASSIGN(auto vocabulary, loaded->grammar_vocabulary());
    blend::GrammarOptions how;
    how.kind = static_cast<blend::GrammarKind>(o.language);
    how.text = text;
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
