#include "grammar.h"

#include "detail.h"

namespace blend_shim {

GrammarOptions::GrammarOptions() noexcept { show(*this, blendpp::GrammarOptions()); }

Grammar::Grammar(std::shared_ptr<Slot<blendpp::Grammar>> slot) noexcept : slot_(std::move(slot)) {}
Grammar::~Grammar() = default;

Grammar* Grammar::open(const Model& model, const GrammarOptions& options, Outcome& out) noexcept {
  return guarded(out, [&] {
    const GrammarOptions& s = options;
    require_complete(s);
    // C's text ends at a NUL.
    (void)blendpp::detail::c_string(s.text, "the grammar");
    (void)blendpp::detail::c_string(s.template_source, "the template");
    (void)blendpp::detail::c_string(s.function, "the function");
    blendpp::GrammarOptions c;
    give(c, s);
    c.cancel = raw(s.cancel_);
    const auto opened = model.slot().get();
    return new Grammar(make_slot("grammar", std::make_shared<blendpp::Grammar>(*opened, c)));
  });
}

void Grammar::close() noexcept { slot_->take(); }

}  // namespace blend_shim
