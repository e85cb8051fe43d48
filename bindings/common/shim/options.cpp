// Fuse options, and the accounts of a fuse.
#include "detail.h"

namespace blend_shim {

FuseOptions::FuseOptions() noexcept {
  const blendpp::FuseOptions c;
  FuseOptions& s = *this;
  BLEND_FUSE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
void FuseOptions::set_chunk_prefix(const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] { chunk_prefix_.assign(tokens, tokens + n_tokens); });
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
void FuseOptions::set_profile(const Profile& profile, Outcome& out) noexcept {
  guarded(out, [&] { profile_ = profile.slot().get(); });
}
void FuseOptions::apply(const Profile& profile, Outcome& out) noexcept {
  guarded(out, [&] {
    FuseOptions& s = *this;
    const auto opened = profile.slot().get();
    blendpp::FuseOptions c;
    BLEND_FUSE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
    opened->apply(c);
    std::vector<int32_t> prefix(c.chunk_prefix, c.chunk_prefix + c.n_chunk_prefix);
    BLEND_FUSE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
    chunk_prefix_.swap(prefix);
    profile_ = opened;
  });
}

FuseArguments::FuseArguments(const FuseOptions& options) : kept(options) {
  require_complete(options);
  const FuseOptions& s = kept;
  BLEND_FUSE_OPTIONS_FIELDS(BLEND_SHIM_TO_C)
  c.tenant = s.tenant.c_str();
  if (!s.chunk_prefix_.empty()) {
    c.chunk_prefix = s.chunk_prefix_.data();
    c.n_chunk_prefix = s.chunk_prefix_.size();
  }
  for (size_t i = 0; i < s.check_layers_.size(); ++i) {
    check_layers.push_back({s.check_layers_.layer(i), 0, s.check_layers_.ratio(i)});
  }
  if (!check_layers.empty()) {
    c.check_layers = check_layers.data();
    c.n_check_layers = check_layers.size();
  }
  for (size_t i = 0; i < s.term_policies_.size(); ++i) {
    terms.push_back({s.term_policies_[i], 0, s.term_shares_[i]});
  }
  if (!terms.empty()) {
    c.terms = terms.data();
    c.n_terms = terms.size();
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

FusionInfo::FusionInfo() noexcept {
  const blendpp::FusionInfo c;
  FusionInfo& s = *this;
  BLEND_FUSION_INFO_FIELDS(BLEND_SHIM_FROM_C)
}
LayerInfo::LayerInfo() noexcept {
  const blendpp::LayerInfo c;
  LayerInfo& s = *this;
  BLEND_LAYER_INFO_FIELDS(BLEND_SHIM_FROM_C)
}
SegmentInfo::SegmentInfo() noexcept {
  const blendpp::SegmentInfo c;
  SegmentInfo& s = *this;
  BLEND_SEGMENT_INFO_FIELDS(BLEND_SHIM_FROM_C)
}
GenerateOptions::GenerateOptions() noexcept {
  const blendpp::GenerateOptions c;
  GenerateOptions& s = *this;
  BLEND_GENERATE_OPTIONS_FIELDS(BLEND_SHIM_FROM_C)
}
void GenerateOptions::add_stop_token(int32_t token) noexcept {
  keep([&] { stop_tokens_.push_back(token); });
}

FusionInfo fusion_info(const blendpp::FusionInfo& c) {
  FusionInfo s;
  BLEND_FUSION_INFO_FIELDS(BLEND_SHIM_FROM_C)
  return s;
}
LayerInfo layer_info(const blendpp::LayerInfo& c) {
  LayerInfo s;
  BLEND_LAYER_INFO_FIELDS(BLEND_SHIM_FROM_C)
  return s;
}
SegmentInfo segment_info(const blendpp::SegmentInfo& c) {
  SegmentInfo s;
  BLEND_SEGMENT_INFO_FIELDS(BLEND_SHIM_FROM_C)
  const blendpp::ChunkId id(c.id);
  if (id != blendpp::ChunkId()) s.id = id.hex();
  return s;
}

}  // namespace blend_shim
