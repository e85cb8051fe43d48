// In place of all other sources here in a build without structured output (BLEND_GRAMMAR).
#include "grammar/grammar.h"

namespace blend {
namespace {

Status left_out() {
  return {BLEND_E_UNSUPPORTED,
          "this build has no grammars: run scripts/setup grammar, which brings xgrammar's sources, "
          "and configure with -DBLEND_GRAMMAR=ON"};
}

}  // namespace

struct GrammarRun::State {};
struct Grammar::Compiled {};

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::create(const Tokenizer&) {
  return left_out();
}
GrammarVocabulary::~GrammarVocabulary() = default;

Result<std::shared_ptr<const Grammar>> Grammar::compile(std::shared_ptr<const GrammarVocabulary>,
                                                        const GrammarOptions&, const CancelToken*) {
  return left_out();
}
Result<std::unique_ptr<GrammarRun>> Grammar::start(std::shared_ptr<const Grammar>) {
  return left_out();
}
Grammar::~Grammar() = default;

Result<bool> GrammarRun::prepare(const CancelToken*) { return left_out(); }
void GrammarRun::apply(std::span<float>) const {}
Status GrammarRun::accept(int32_t, const CancelToken*) { return left_out(); }
GrammarRun::~GrammarRun() = default;

}  // namespace blend
