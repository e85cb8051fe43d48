// Fuse options, and the reports of a fuse.
#include "detail.h"

namespace blend_shim {

FuseOptions::FuseOptions() noexcept { show(*this, blendpp::FuseOptions()); }
void FuseOptions::set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] {
    chunk_prefix_.assign(tokens, tokens + n_tokens);
    has_chunk_prefix_ = true;
  });
}
void FuseOptions::set_check_layers(const CheckLayers& layers) noexcept {
  keep([&] {
    require_complete(layers);
    check_layers_ = layers;
  });
}
void FuseOptions::add_term(uint32_t kind, double share) noexcept {
  keep([&] {
    term_policies_.push_back(kind);
    term_shares_.push_back(share);
  });
}
void FuseOptions::set_machine(const Machine& machine, Outcome& out) noexcept {
  guarded(out, [&] { machine_ = machine.slot().get(); });
}
void GenerateOptions::set_grammar(const Grammar& grammar, Outcome& out) noexcept {
  guarded(out, [&] { grammar_ = grammar.slot().get(); });
}
void FuseOptions::set_profile(const Profile& profile, Outcome& out) noexcept {
  guarded(out, [&] {
    const auto opened = profile.slot().get();
    blendpp::FuseOptions c;
    give(c, *this);
    opened->apply(c);
    std::vector<int32_t> prefix(c.chunk_prefix, c.chunk_prefix + c.n_chunk_prefix);
    show(*this, c);
    chunk_prefix_.swap(prefix);
    has_chunk_prefix_ = true;
    profile_ = opened;
  });
}

FuseArguments::FuseArguments(const FuseOptions& options) : kept(options) {
  require_complete(options);
  const FuseOptions& s = kept;
  give(c, s);
  if (s.has_chunk_prefix_) {
    static constexpr int32_t kNothing = 0;  // an empty vector has no address, and NULL is the head
    c.chunk_prefix = s.chunk_prefix_.empty() ? &kNothing : s.chunk_prefix_.data();
    c.n_chunk_prefix = s.chunk_prefix_.size();
  }
  for (size_t i = 0; i < s.check_layers_.size(); ++i) {
    check_layers.push_back({s.check_layers_.layer(i), s.check_layers_.ratio(i)});
  }
  if (!check_layers.empty()) {
    c.selection.check_layers = check_layers.data();
    c.selection.n_check_layers = check_layers.size();
  }
  for (size_t i = 0; i < s.term_policies_.size(); ++i) {
    terms.push_back({s.term_policies_[i], s.term_shares_[i]});
  }
  if (!terms.empty()) {
    c.selection.terms = terms.data();
    c.selection.n_terms = terms.size();
  }
  if (s.machine_) c.machine = s.machine_->get();
  if (s.profile_) c.profile = s.profile_->get();
  c.cancel = raw(s.cancel_);
  c.on_progress = progress_of(s);
  if (Listener* listener = s.listener_) {
    c.on_score = [listener](uint32_t layer, blendpp::Span<const uint32_t> rows,
                            blendpp::Span<const float> deviation, blendpp::Span<float> scores) {
      return listener->score(
          Scoring(layer, rows.size(), rows.data(), deviation.data(), scores.data()));
    };
  }
}

GenerateOptions::GenerateOptions() noexcept { show(*this, blendpp::GenerateOptions()); }
void GenerateOptions::add_stop_token(int32_t token) noexcept {
  keep([&] { stop_tokens_.push_back(token); });
}
void GenerateOptions::add_stop_text(const std::string& stop) noexcept {
  keep([&] { stop_texts_.push_back(stop); });
}
void GenerateOptions::add_logit_bias(int32_t token, float bias) noexcept {
  keep([&] {
    bias_tokens_.push_back(token);
    biases_.push_back(bias);
  });
}

}  // namespace blend_shim
