#include "model/fingerprint.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <new>

namespace blend {
namespace {

// 128 MiB: every thread of a large machine has work, and a cancel takes effect within about 0.1 s.
constexpr size_t kBatch = 16;

struct BytesBlock {
  const std::byte* data;
  size_t bytes;
};

}  // namespace

namespace {

void hash_rope(const RopeParams& r, Sha256Hasher& hasher) {
  hasher.field(uint64_t{r.rotary_dim}).field(static_cast<uint64_t>(r.layout));
  hasher.field(std::bit_cast<uint64_t>(r.theta)).field(std::bit_cast<uint64_t>(r.linear_scale));
  hasher.field(static_cast<uint64_t>(r.freq_factors.size()));
  for (const float f : r.freq_factors) hasher.field(uint64_t{std::bit_cast<uint32_t>(f)});
  hasher.field(std::bit_cast<uint64_t>(r.attention_factor));
}

void hash_experts(const Experts& e, Sha256Hasher& hasher) {
  hasher.field("experts");
  for (const uint32_t n : {e.count, e.used, e.d_ff, e.shared_d_ff}) hasher.field(uint64_t{n});
  hasher.field(uint64_t{(e.normalised ? 1u : 0u) | (e.choice_bias ? 2u : 0u) |
                        (e.router_bias ? 4u : 0u) | (e.biases ? 8u : 0u)});
  hasher.field(uint64_t{std::bit_cast<uint32_t>(e.scale)});
  hasher.field(static_cast<uint64_t>(e.dense.size()));
  for (const bool dense : e.dense) hasher.field(uint64_t{dense ? 1u : 0u});
  // Nothing for experts without these, whose fingerprint is older.
  if (e.sigmoid) hasher.field("sigmoid");
  if (e.shared_weighed) hasher.field("weighed");
  if (e.beside_dense) hasher.field("beside");
  if (e.latent != 0) hasher.field("latent").field(uint64_t{e.latent});
  if (e.groups > 1) hasher.field("groups").field(uint64_t{e.groups}).field(uint64_t{e.used_groups});
  if (e.groups_by_best) hasher.field("by best");
}

// What later families add; nothing for a model without it, whose fingerprint is older than this.
void hash_later(const ModelConfig& c, Sha256Hasher& hasher) {
  const auto hash_floats = [&](const char* name, std::span<const float> floats) {
    hasher.field(name);
    for (const float f : floats) hasher.field(uint64_t{std::bit_cast<uint32_t>(f)});
  };
  const ResultScales& scales = c.result_scales;
  if (scales.feed_forward != 1 || c.logit_scale != 1) {
    hash_floats("scales", std::array{scales.feed_forward, c.logit_scale});
  }
  if (scales.attention != scales.feed_forward || scales.mixer != scales.feed_forward) {
    hash_floats("scales of mixing", std::array{scales.attention, scales.mixer});
  }
  if (c.gate_scale != 1) hash_floats("scale of gates", std::array{c.gate_scale});
  if (c.paired) hasher.field("pairs");
  if (c.qk_norm > QkNorm::heads) hasher.field("norm").field(static_cast<uint64_t>(c.qk_norm));
  if (!c.pre_norms) hasher.field("no pre-norms");
  if (c.attn_sinks) hasher.field("sinks");
  if (c.attn_gate) hasher.field("gate");
  if (c.sees_ahead) hasher.field("sees ahead");
  if (c.rope.q_growth != 0) {
    hasher.field("growth").field(std::bit_cast<uint64_t>(c.rope.q_growth));
    hasher.field(uint64_t{c.rope.q_growth_rows});
  }
  if (c.experts.count != 0) hash_experts(c.experts, hasher);
  if (const Latent& l = c.latent; l.any()) {
    hasher.field("latent");
    for (const uint32_t n : {l.rank, l.rope, l.nope, l.value, l.q_rank}) hasher.field(uint64_t{n});
    hasher.field(uint64_t{std::bit_cast<uint32_t>(l.eps)});
  }
  if (const RowMixer& m = c.mixer; m.any()) {
    hasher.field(m.kind == RowMixer::Kind::delta ? "deltas"
                 : m.kind == RowMixer::Kind::ssm ? "Mamba-2"
                                                 : "convolutions");
    hasher.field(uint64_t{m.taps});
    for (const bool mixes : m.layers) hasher.field(uint64_t{mixes ? 1u : 0u});
    if (m.scans()) {
      for (const uint32_t n : {m.k_heads, m.v_heads, m.k_dim, m.v_dim}) hasher.field(uint64_t{n});
      hasher.field(
          uint64_t{(m.tiled ? 1u : 0u) | (m.decay_is_log ? 2u : 0u) | (m.taps_bias ? 4u : 0u)});
      if (m.norm != RowMixer::Norm::after_gate) {
        hasher.field("norm of states").field(static_cast<uint64_t>(m.norm));
      }
      if (m.scales != RowMixer().scales) hash_floats("scales of states", m.scales);
    }
  }
  if (c.attends_unlike()) {
    hasher.field("unlike").field(uint64_t{c.n_kept()});
    for (const LayerAttention& a : c.layers) {
      hasher.field(uint64_t{a.head_dim}).field(uint64_t{a.n_kv_heads});
      hasher.field(uint64_t{a.k_is_v ? 1u : 0u});
    }
  }
  if (!c.d_ffs.empty()) hasher.field("d_ff");
  for (const uint32_t n : c.d_ffs) hasher.field(uint64_t{n});
  if (c.v_norm) hasher.field("norm of V");
  if (c.input_dim != 0) hasher.field("inputs").field(uint64_t{c.input_dim});
  if (c.layer_scales) hasher.field("layer scales");
  if (c.input_vocab != 0) hasher.field("input vocabulary").field(uint64_t{c.input_vocab});
  if (c.n_streams > 1) hasher.field("streams").field(uint64_t{c.n_streams});
  if (c.laurel_rank != 0) hasher.field("Laurel").field(uint64_t{c.laurel_rank});
  if (!c.gate_cuts.empty()) hash_floats("gate cuts", c.gate_cuts);
}

// Hashes features of families; adds nothing for a plain Llama, whose fingerprint is older than
// this.
void hash_family(const ModelConfig& c, Sha256Hasher& hasher) {
  const ModelConfig plain;
  const auto flags = [](const ModelConfig& m) {
    return (m.qkv_bias ? 1u : 0u) | (m.attn_out_bias ? 2u : 0u) | (m.ffn_bias ? 4u : 0u) |
           (m.qk_norm != QkNorm::none ? 8u : 0u) | (m.post_norms ? 16u : 0u);
  };
  const auto numbers = [](const ModelConfig& m) {
    return std::array{m.norm_offset, m.embedding_scale, m.attn_scale, m.attn_softcap,
                      m.logit_softcap};
  };
  if (c.layers.empty() && c.rope.attention_factor == 1 && c.short_context == 0 &&
      flags(c) == flags(plain) && numbers(c) == numbers(plain) &&
      c.activation == plain.activation) {
    return;
  }
  hasher.field("family");
  hash_rope(c.rope, hasher);
  hash_rope(c.local_rope, hasher);
  if (c.short_context != 0) {
    hasher.field("long").field(uint64_t{c.short_context});
    hash_rope(c.long_rope, hasher);
  }
  hasher.field(static_cast<uint64_t>(c.layers.size()));
  for (const LayerAttention& l : c.layers) {
    hasher.field(uint64_t{l.window}).field(static_cast<uint64_t>(l.rope));
  }
  hasher.field(uint64_t{flags(c)}).field(static_cast<uint64_t>(c.activation));
  for (const float f : numbers(c)) hasher.field(uint64_t{std::bit_cast<uint32_t>(f)});
}

}  // namespace

void hash_config(const ModelConfig& c, Sha256Hasher& hasher) {
  hasher.field("blend model 1").field(c.architecture);
  for (const uint32_t n : {c.n_layers, c.d_model, c.n_heads, c.n_kv_heads, c.head_dim, c.d_ff,
                           c.n_vocab, c.rope.rotary_dim}) {
    hasher.field(uint64_t{n});
  }
  hasher.field(uint64_t{std::bit_cast<uint32_t>(c.rms_eps)});
  hasher.field(static_cast<uint64_t>(c.rope.layout));
  hasher.field(std::bit_cast<uint64_t>(c.rope.theta));
  hasher.field(std::bit_cast<uint64_t>(c.rope.linear_scale));
  hasher.field(static_cast<uint64_t>(c.rope.freq_factors.size()));
  for (const float f : c.rope.freq_factors) hasher.field(uint64_t{std::bit_cast<uint32_t>(f)});
  hasher.field(static_cast<uint64_t>(c.weight_dtype));
  hash_family(c, hasher);
  hash_later(c, hasher);
}

Status hash_tensors(std::span<const TensorView> tensors, const ModelSource::ParallelRun& parallel,
                    const Watch& watch, Sha256Hasher& hasher) {
  std::vector<BytesBlock> blocks;
  uint64_t total = 0;
  for (const TensorView& t : tensors) {
    for (size_t at = 0; at < t.bytes(); at += kFingerprintBlock) {
      blocks.push_back({t.data + at, std::min(kFingerprintBlock, t.bytes() - at)});
    }
    total += t.bytes();
  }

  std::vector<Sha256> digests(blocks.size());
  uint64_t done = 0;
  BLEND_RETURN_IF_ERROR(watch.report(0, total));
  for (size_t first = 0; first < blocks.size(); first += kBatch) {
    const size_t n = std::min(kBatch, blocks.size() - first);
    std::atomic<bool> out_of_memory{false};
    const auto task = [&](size_t i) {
      try {  // runs on threads that must not see an exception
        Sha256Hasher block_hasher;
        block_hasher.field(blocks[first + i].data, blocks[first + i].bytes);
        digests[first + i] = block_hasher.finish();
      } catch (const std::bad_alloc&) {
        out_of_memory = true;
      }
    };
    if (parallel) {
      parallel(n, task);
    } else {
      for (size_t i = 0; i < n; ++i) task(i);
    }
    if (out_of_memory) {
      return make_error(BLEND_E_OUT_OF_MEMORY, "no memory for hashing the model's weights");
    }
    for (size_t i = 0; i < n; ++i) done += blocks[first + i].bytes;
    BLEND_RETURN_IF_ERROR(watch.report(done, total));
  }

  size_t next = 0;
  hasher.field(static_cast<uint64_t>(tensors.size()));
  for (const TensorView& t : tensors) {
    hasher.field(t.name).field(static_cast<uint64_t>(t.dtype));
    if (t.blocks != BlockType::none) hasher.field(block_type_name(t.blocks));
    hasher.field(static_cast<uint64_t>(t.shape.size()));
    for (const int64_t s : t.shape) hasher.field(static_cast<uint64_t>(s));
    for (size_t at = 0; at < t.bytes(); at += kFingerprintBlock) {
      hasher.field(digests[next].data(), digests[next].size());
      ++next;
    }
  }
  return Status::ok();
}

}  // namespace blend
