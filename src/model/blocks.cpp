#include "model/blocks.h"

#include <algorithm>

namespace blend {

Status fold_blocks(std::span<const Block> blocks, const char* name, ModelConfig& config) {
  RowMixer m;
  m.kind = RowMixer::Kind::ssm;
  config.blocks.clear();
  config.d_ffs.clear();
  std::vector<bool>& dense = config.experts.dense;
  dense.clear();
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == Block::mamba || blocks[i] == Block::attention) {
      config.blocks.push_back(i);
      config.d_ffs.push_back(0);
      dense.push_back(true);
      m.layers.push_back(blocks[i] == Block::mamba);
      continue;
    }
    if (dense.empty() || config.d_ffs.back() != 0 || !dense.back()) {
      return make_error(BLEND_E_UNSUPPORTED,
                        "%s: layer %u is a feed-forward that follows no layer which mixes rows",
                        name, i);
    }
    if (blocks[i] == Block::experts) {
      dense.back() = false;
    } else {
      config.d_ffs.back() = config.d_ff;
    }
  }
  if (std::count(dense.begin(), dense.end(), false) == 0) dense.clear();
  config.n_layers = static_cast<uint32_t>(config.blocks.size());
  const auto n = std::count(m.layers.begin(), m.layers.end(), true);
  if (n == 0 || n == static_cast<int64_t>(m.layers.size())) {
    return make_error(BLEND_E_UNSUPPORTED, "%s: a model in which no layer %s", name,
                      n == 0 ? "is a Mamba-2" : "attends");
  }
  config.mixer = std::move(m);
  return Status::ok();
}

void pair_layers(ModelConfig& config) {
  const uint32_t n = config.n_layers;
  config.paired = true;
  config.n_layers = 2 * n;
  config.d_ffs.clear();
  config.mixer.layers.clear();
  for (uint32_t i = 0; i < n; ++i) {
    for (const bool mixes : {false, true}) {
      config.mixer.layers.push_back(mixes);
      config.d_ffs.push_back(mixes ? config.d_ff : 0);
    }
  }
}

}  // namespace blend
