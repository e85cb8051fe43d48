// Grammars: what a generated text must be.
#ifndef BLEND_SHIM_GRAMMAR_H
#define BLEND_SHIM_GRAMMAR_H

#include "model.h"

namespace blendpp {
class Grammar;
}

namespace blend_shim {

class GrammarOptions : public Call {
 public:
  GrammarOptions() noexcept;
  BLEND_GRAMMAR_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

// Every function may be called on any thread at any time; options that were given it keep it open.
class Grammar {
 public:
  // Null on failure.
  static Grammar* open(const Model& model, const GrammarOptions& options, Outcome& out) noexcept;
  ~Grammar();
  void close() noexcept;
#ifndef SWIG
  const Slot<blendpp::Grammar>& slot() const noexcept { return *slot_; }
#endif

 private:
#ifndef SWIG
  explicit Grammar(std::shared_ptr<Slot<blendpp::Grammar>> slot) noexcept;
  std::shared_ptr<Slot<blendpp::Grammar>> slot_;
#else
  Grammar();
#endif
};

}  // namespace blend_shim

#endif
