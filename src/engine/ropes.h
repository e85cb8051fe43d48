// Ropes: the RoPE tables of a model, by layer and use.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "backend/backend.h"

namespace blend {

// Immutable; safe for concurrent use.
class Ropes {
 public:
  // Tables of `config` that cover n_positions.
  static Result<std::shared_ptr<const Ropes>> create(Backend& backend, const ModelConfig& config,
                                                     uint32_t n_positions);

  uint32_t n_positions() const { return n_positions_; }

  // For K into a cache, out of it and inside it. An attention factor f (YaRN), by which a
  // model multiplies rotated Q and K, is not in these: the cache holds K without it, so that moving
  // K is a plain rotation; Q has it twice.
  const RopeTable& keys(uint32_t layer) const { return *of(layer).keys; }
  const RopeTable& queries(uint32_t layer) const { return *of(layer).queries; }
  // K of a host that runs the model itself is as the model makes it: with f once. The second is for
  // rotating back, which multiplies too.
  const RopeTable& to_host(uint32_t layer) const { return *of(layer).to_host; }
  const RopeTable& from_host(uint32_t layer) const { return *of(layer).from_host; }

 private:
  struct Tables {
    std::shared_ptr<const RopeTable> keys, queries, to_host, from_host;
  };
  Ropes() = default;
  const Tables& of(uint32_t layer) const {
    return tables_[layers_.empty() ? 0 : static_cast<size_t>(layers_[layer].rope)];
  }

  uint32_t n_positions_ = 0;
  std::vector<LayerAttention> layers_;
  std::array<Tables, 3> tables_;  // by LayerAttention::Rope; null where no layer uses it
};

}  // namespace blend
