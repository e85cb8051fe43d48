// Files that count layers in another way: what mixes rows and the feed-forward as layers of their
// own (Nemotron-H), or attention and a Mamba-2 beside it as one (Falcon-H1).
#pragma once

#include <span>

#include "base/status.h"
#include "model/config.h"

namespace blend {

enum class Block : uint8_t { mamba, attention, feed_forward, experts };

// Fills in what follows from such a list: n_layers, blocks, d_ffs (of config.d_ff), experts.dense,
// and the kind and layers of the mixer. A feed-forward, of experts or not, belongs to the layer
// before it. `name` is the list's, for messages. UNSUPPORTED: a feed-forward has no such layer, or
// one of the kinds of layers is missing.
Status fold_blocks(std::span<const Block> blocks, const char* name, ModelConfig& config);

// Makes a pair of each layer of a model in which all of them attend and are Mamba-2s at once
// (ModelConfig::paired). The heads of the mixer are known.
void pair_layers(ModelConfig& config);

}  // namespace blend
