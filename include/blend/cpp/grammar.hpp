// What a generated text must be: JSON, a JSON schema, a regular expression, a grammar, a call.
#ifndef BLEND_CPP_GRAMMAR_HPP
#define BLEND_CPP_GRAMMAR_HPP

#include <cstdint>
#include <string>

#include "blend/cpp/model.hpp"
#include "blend/grammar.h"

namespace blendpp {

using GrammarOptions = detail::Initialised<blend_grammar_options, blend_grammar_options_init>;

// A compiled grammar, for GenerateOptions::grammar. Immutable, thread-safe.
class Grammar {
 public:
  Grammar(const Model& model, const GrammarOptions& options) {
    detail::Outcome outcome;
    blend_grammar* raw = nullptr;
    outcome.check(blend_grammar_open(&raw, model.get(), &options, outcome.out()));
    handle_ = {raw, {model.log()}};
  }
  // language: BLEND_GRAMMAR_*.
  Grammar(const Model& model, uint32_t language, const std::string& text = {})
      : Grammar(model, options_of(language, text)) {}
  const blend_grammar* get() const noexcept { return handle_.get(); }

 private:
  static GrammarOptions options_of(uint32_t language, const std::string& text) {
    GrammarOptions options;
    options.language = language;
    options.text = detail::c_string(text, "the grammar");
    return options;
  }
  detail::Handle<blend_grammar, blend_grammar_close> handle_;
};

}  // namespace blendpp

#endif
