"""Writes families.json: what transformers and llama.cpp make of the random models of every family.

    python3 tests/conformance/golden/families.py --random-model build/release/tests/random_model \
        > tests/conformance/golden/families.json

needs torch, transformers, gguf and llama_cpp. With --check nothing is written: the numbers are
computed again and compared with the committed ones; without those packages that is skipped (exit
status 77), and it says why. CTest does that where BLEND_REFERENCE_PYTHON names an interpreter that has them.

The weights come from the GGUF that random_model writes, by gguf-py, and go into transformers'
modules by the rules of llama.cpp's converter, backwards; transformers runs in float64. The prompt
is one whose greedy continuation is not a matter of rounding: no two best logits lie closer than
MARGIN on the way.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

MARGIN = 4e-3
N_PROMPT = 48
N_GREEDY = 64
HERE = pathlib.Path(__file__).resolve().parent


class Gguf:
    """Keys and tensors of a file."""

    def __init__(self, path):
        import gguf
        reader = gguf.GGUFReader(path)
        self.keys = {name: field.contents() for name, field in reader.fields.items()}
        self.architecture = self.keys["general.architecture"]
        self.tensors = {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(
            [int(n) for n in reversed(t.shape)]) for t in reader.tensors}

    def __call__(self, name, otherwise=None):
        return self.keys.get(f"{self.architecture}.{name}", otherwise)


def halves(w, n_heads):
    """Rows of Q or K whose pairs are neighbours -> rows whose pairs are the halves of a head."""
    shape = w.shape
    return w.reshape(n_heads, -1, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def rope_parameters(g):
    theta = g("rope.freq_base")
    partial = 1.0 if g("attention.kv_lora_rank") else g("rope.dimension_count") / g("attention.key_length")
    if g.architecture == "gemma4":
        return {"full_attention": {"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": 0.25},
                "sliding_attention": {"rope_type": "default", "rope_theta": g("rope.freq_base_swa")}}
    kind = g("rope.scaling.type")
    out = {"rope_theta": theta, "rope_type": "default", "partial_rotary_factor": partial}
    if kind == "linear":
        out |= {"rope_type": "linear", "factor": g("rope.scaling.factor")}
    if "rope_factors_long.weight" in g.tensors:
        out |= {"rope_type": "longrope", "attention_factor": g("rope.scaling.attn_factor", 1.0),
                "original_max_position_embeddings": g("rope.scaling.original_context_length")}
        for name in ("long", "short"):
            out[f"{name}_factor"] = g.tensors[f"rope_factors_{name}.weight"].tolist()
    if kind == "yarn":
        out |= {"rope_type": "yarn", "factor": g("rope.scaling.factor"),
                "original_max_position_embeddings": g("rope.scaling.original_context_length")}
    if g.architecture == "deepseek2" and (multiplier := g("rope.scaling.yarn_log_multiplier")):
        out |= dict.fromkeys(("mscale", "mscale_all_dim"), 10 * multiplier)
    if kind == "yarn" and g.architecture == "gpt-oss":
        out["truncate"] = False
    if g.architecture == "mistral3":
        out |= {"mscale": 1.0, "mscale_all_dim": g("rope.scaling.yarn_log_multiplier"),
                "llama_4_scaling_beta": g("attention.temperature_scale")}
    return out


def windows_but(every, n_layers):
    return ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(n_layers)]


def deltas_but(every, n_layers):
    return ["linear_attention" if (i + 1) % every else "full_attention" for i in range(n_layers)]


def config_of(g, family):
    import transformers as t
    n_layers, window = g("block_count"), g("attention.sliding_window")
    kv_heads = g("attention.head_count_kv")  # a list where some layers have none: they convolve, or layers differ
    widths = g("feed_forward_length")
    common = dict(
        vocab_size=len(g.keys["tokenizer.ggml.tokens"]), hidden_size=g("embedding_length"),
        intermediate_size=widths[0] if isinstance(widths, list) else widths, num_hidden_layers=n_layers,
        num_attention_heads=g("attention.head_count"),
        num_key_value_heads=max(kv_heads) if isinstance(kv_heads, list) else kv_heads, head_dim=g("attention.key_length"),
        rms_norm_eps=g("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=g("context_length"), rope_parameters=rope_parameters(g),
        tie_word_embeddings="output.weight" not in g.tensors, attn_implementation="eager")
    biased = "blk.0.ffn_gate.bias" in g.tensors
    used = dict(num_experts_per_tok=g("expert_used_count"))
    match g.architecture:
        case "lfm2":
            return t.Lfm2Config(**common, norm_eps=common["rms_norm_eps"], conv_L_cache=g("shortconv.l_cache"),
                                block_auto_adjust_ff_dim=False,
                                layer_types=["full_attention" if n else "conv" for n in kv_heads])
        case "lfm2moe":
            return t.Lfm2MoeConfig(**common, **used, norm_eps=common["rms_norm_eps"], conv_L_cache=g("shortconv.l_cache"),
                                   num_experts=g("expert_count"), moe_intermediate_size=g("expert_feed_forward_length"),
                                   num_dense_layers=g("leading_dense_block_count"),
                                   layer_types=["full_attention" if n else "conv" for n in kv_heads])
        case "qwen35":
            return t.Qwen3_5TextConfig(
                **common, linear_conv_kernel_dim=g("ssm.conv_kernel"), linear_key_head_dim=g("ssm.state_size"),
                linear_value_head_dim=g("ssm.state_size"), linear_num_key_heads=g("ssm.group_count"),
                linear_num_value_heads=g("ssm.time_step_rank"),
                layer_types=deltas_but(g("full_attention_interval"), n_layers))
        case "qwen35moe" | "qwen3next" | "qwen2moe":
            routing = dict(num_experts=g("expert_count"), moe_intermediate_size=g("expert_feed_forward_length"),
                           shared_expert_intermediate_size=g("expert_shared_feed_forward_length"))
            if g.architecture == "qwen2moe":
                return t.Qwen2MoeConfig(**common, **used, **routing)
            deltas = dict(
                linear_conv_kernel_dim=g("ssm.conv_kernel"), linear_key_head_dim=g("ssm.state_size"),
                linear_value_head_dim=g("ssm.state_size"), linear_num_key_heads=g("ssm.group_count"),
                linear_num_value_heads=g("ssm.time_step_rank"), layer_types=deltas_but(g("full_attention_interval"), n_layers))
            if g.architecture == "qwen3next":
                return t.Qwen3NextConfig(**common, **used, **routing, **deltas)
            common.pop("intermediate_size")
            return t.Qwen3_5MoeTextConfig(**common, **used, **routing, **deltas)
        case "qwen3moe":
            return t.Qwen3MoeConfig(**common, **used, num_experts=g("expert_count"), norm_topk_prob=True,
                                    moe_intermediate_size=g("expert_feed_forward_length"))
        case "olmoe":
            return t.OlmoeConfig(**common, **used, pad_token_id=0, num_experts=g("expert_count"))
        case "gpt-oss":
            return t.GptOssConfig(**common, **used, num_local_experts=g("expert_count"), sliding_window=window,
                                  layer_types=windows_but(2, n_layers), pad_token_id=0)
        case "llama" if g("expert_count"):
            return t.MixtralConfig(**common, **used, num_local_experts=g("expert_count"))
        case "granitehybrid":
            inner, heads = g("ssm.inner_size"), g("ssm.time_step_rank")
            experts = used | dict(num_local_experts=g("expert_count")) if g("expert_count") else dict(num_local_experts=0)
            return t.GraniteMoeHybridConfig(
                **common, **experts, embedding_multiplier=g("embedding_scale"), residual_multiplier=g("residual_scale"),
                attention_multiplier=g("attention.scale"), logits_scaling=g("logit_scale"),
                shared_intermediate_size=g("expert_shared_feed_forward_length") or common["intermediate_size"],
                layer_types=["full_attention" if n else "linear_attention" for n in kv_heads],
                mamba_n_heads=heads, mamba_d_head=inner // heads, mamba_n_groups=g("ssm.group_count"),
                mamba_d_state=g("ssm.state_size"), mamba_d_conv=g("ssm.conv_kernel"),
                mamba_expand=inner // common["hidden_size"])
        case "falcon-h1":
            inner, heads = g("ssm.inner_size"), g("ssm.time_step_rank")
            return t.FalconH1Config(
                **common, mamba_d_ssm=inner, mamba_n_heads=heads, mamba_d_head=inner // heads, mamba_n_groups=g("ssm.group_count"),
                mamba_d_state=g("ssm.state_size"), mamba_d_conv=g("ssm.conv_kernel"),
                mamba_rms_norm="blk.0.ssm_norm.weight" in g.tensors, mamba_norm_before_gate=False)
        case "nemotron_h" | "nemotron_h_moe":
            names = {(True, False): "full_attention", (False, True): "moe" if g("expert_count") else "mlp",
                     (False, False): "linear_attention"}
            common |= dict(intermediate_size=max(widths), layer_norm_epsilon=common["rms_norm_eps"])
            del common["num_hidden_layers"]
            if g("expert_count"):
                common |= used | dict(
                    n_routed_experts=g("expert_count"), moe_intermediate_size=g("expert_feed_forward_length"),
                    moe_shared_expert_intermediate_size=g("expert_shared_feed_forward_length"),
                    moe_latent_size=g("moe_latent_size"), n_group=g("expert_group_count"), topk_group=g("expert_group_count"),
                    norm_topk_prob=g("expert_weights_norm"), routed_scaling_factor=g("expert_weights_scale"))
            return t.NemotronHConfig(
                **common, layers_block_type=[names[n != 0, w != 0] for n, w in zip(kv_heads, widths)],
                mamba_num_heads=g("ssm.time_step_rank"), mamba_head_dim=g("ssm.inner_size") // g("ssm.time_step_rank"),
                n_groups=g("ssm.group_count"), ssm_state_size=g("ssm.state_size"), conv_kernel=g("ssm.conv_kernel"),
                time_step_min=1e-9)
        case "granitemoe":
            scales = dict(embedding_multiplier=g("embedding_scale"), residual_multiplier=g("residual_scale"),
                          attention_multiplier=g("attention.scale"), logits_scaling=g("logit_scale"),
                          num_local_experts=g("expert_count"))
            shared = g("expert_shared_feed_forward_length")
            if shared:
                return t.GraniteMoeSharedConfig(**common, **used, **scales, shared_intermediate_size=shared)
            return t.GraniteMoeConfig(**common, **used, **scales)
        case "ernie4_5-moe":
            width = g("expert_feed_forward_length")
            return t.Ernie4_5_MoeConfig(**common, moe_num_experts=g("expert_count"), moe_k=g("expert_used_count"),
                                        moe_intermediate_size=width,
                                        moe_num_shared_experts=g("expert_shared_feed_forward_length") // width,
                                        moe_layer_start_index=g("leading_dense_block_count"))
        case "glm4moe" | "dots1":
            routing = dict(n_routed_experts=g("expert_count"), moe_intermediate_size=g("expert_feed_forward_length"),
                           n_shared_experts=g("expert_shared_count"), n_group=g("expert_group_count") or 1,
                           topk_group=g("expert_group_used_count") or 1, norm_topk_prob=g("expert_weights_norm"),
                           routed_scaling_factor=g("expert_weights_scale"),
                           first_k_dense_replace=g("leading_dense_block_count"))
            if g.architecture == "dots1":
                return t.Dots1Config(**common, **used, **routing, sliding_window=None)
            return t.Glm4MoeConfig(**common, **used, **routing, attention_bias=True, use_qk_norm=True)
        case "deepseek2":
            del common["head_dim"]
            low, rotates = g("attention.q_lora_rank"), g("rope.dimension_count")
            dense = g("leading_dense_block_count")
            common |= dict(
                num_key_value_heads=common["num_attention_heads"], q_lora_rank=low or None,
                kv_lora_rank=g("attention.kv_lora_rank"), qk_rope_head_dim=rotates,
                qk_nope_head_dim=g("attention.key_length_mla", g("attention.key_length")) - rotates,
                v_head_dim=g("attention.value_length_mla", g("attention.value_length")),
                n_routed_experts=g("expert_count"), moe_intermediate_size=g("expert_feed_forward_length"),
                n_shared_experts=g("expert_shared_count"), n_group=g("expert_group_count") or 1,
                topk_group=g("expert_group_used_count") or 1, routed_scaling_factor=g("expert_weights_scale"))
            if not low:
                return t.DeepseekV2Config(**common, **used, first_k_dense_replace=dense)
            if family == "glm4_7_flash":
                return t.Glm4MoeLiteConfig(**common, **used, norm_topk_prob=g("expert_weights_norm"),
                                           mlp_layer_types=["dense"] * dense + ["sparse"] * (n_layers - dense))
            return t.DeepseekV3Config(**common, **used, norm_topk_prob=g("expert_weights_norm"),
                                      first_k_dense_replace=dense, num_mtp_layers=0)
        case "llama" if window:
            return t.MistralConfig(**common, sliding_window=window)
        case "llama":
            return t.LlamaConfig(**common, attention_bias=biased, mlp_bias=biased)
        case "qwen2":
            return t.Qwen2Config(**common)
        case "qwen3":
            return t.Qwen3Config(**common)
        case "phi3":
            return t.Phi3Config(**common, pad_token_id=0, sliding_window=window,
                                original_max_position_embeddings=g("rope.scaling.original_context_length"))
        case "smollm3":
            return t.SmolLM3Config(**common, pad_token_id=0,
                                   no_rope_layers=[int((i + 1) % 4 != 0) for i in range(n_layers)])
        case "granite":
            scales = dict(embedding_multiplier=g("embedding_scale"), residual_multiplier=g("residual_scale"),
                          attention_multiplier=g("attention.scale"), logits_scaling=g("logit_scale"))
            if family == "granite4":
                return t.GraniteMoeHybridConfig(**common, **scales, num_local_experts=0, mamba_n_heads=2,
                                                shared_intermediate_size=g("feed_forward_length"),
                                                layer_types=["full_attention"] * n_layers,
                                                position_embedding_type="rope")
            return t.GraniteConfig(**common, **scales)
        case "seed_oss":
            return t.SeedOssConfig(**common)
        case "ernie4_5":
            return t.Ernie4_5Config(**common)
        case "exaone4":
            return t.Exaone4Config(**common, sliding_window=window,
                                   layer_types=windows_but(4, n_layers) if window else ["full_attention"] * n_layers)
        case "olmo2" if window:
            full = common.pop("rope_parameters")
            local = {"rope_type": "default", "rope_theta": full["rope_theta"]}
            return t.Olmo3Config(**common, pad_token_id=0, sliding_window=window,
                                 layer_types=windows_but(4, n_layers),
                                 rope_parameters={"full_attention": full, "sliding_attention": local})
        case "olmo2":
            return t.Olmo2Config(**common, pad_token_id=0)
        case "mistral3":
            return t.Ministral3Config(**common, pad_token_id=0)
        case "hunyuan-dense":
            return t.HunYuanDenseV1Config(**common)
        case "gemma2":
            return t.Gemma2Config(**common, sliding_window=window,
                                  query_pre_attn_scalar=g("attention.key_length"),
                                  attn_logit_softcapping=g("attn_logit_softcapping"),
                                  final_logit_softcapping=g("final_logit_softcapping"))
        case "gemma4":
            local, sharing = g("attention.sliding_window_pattern"), g("attention.shared_kv_layers")
            common |= dict(head_dim=g("attention.key_length_swa"), num_key_value_heads=kv_heads[0])
            if g("expert_count"):
                common |= dict(enable_moe_block=True, num_experts=g("expert_count"), top_k_experts=g("expert_used_count"),
                               moe_intermediate_size=g("expert_feed_forward_length"))
            return t.Gemma4TextConfig(
                **common, sliding_window=window, pad_token_id=0, final_logit_softcapping=g("final_logit_softcapping"),
                layer_types=["sliding_attention" if is_local else "full_attention" for is_local in local],
                global_head_dim=g("attention.key_length"), num_global_key_value_heads=kv_heads[local.index(False)],
                attention_k_eq_v="blk.2.attn_v.weight" not in g.tensors, num_kv_shared_layers=sharing,
                use_double_wide_mlp=widths[-1] != widths[0], vocab_size_per_layer_input=common["vocab_size"],
                hidden_size_per_layer_input=g("embedding_length_per_layer_input"))
        case "gemma3n":
            full = common.pop("rope_parameters")
            local = {"rope_type": "default", "rope_theta": g("rope.freq_base_swa")}
            return t.Gemma3nTextConfig(
                **common, sliding_window=window, pad_token_id=0, final_logit_softcapping=g("final_logit_softcapping"),
                rope_parameters={"full_attention": full, "sliding_attention": local},
                layer_types=["sliding_attention" if is_local else "full_attention"
                             for is_local in g("attention.sliding_window_pattern")],
                num_kv_shared_layers=g("attention.shared_kv_layers"), vocab_size_per_layer_input=common["vocab_size"],
                hidden_size_per_layer_input=g("embedding_length_per_layer_input"), altup_num_inputs=g("altup.num_inputs"),
                laurel_rank=len(g.tensors["blk.0.laurel_l.weight"]),
                activation_sparsity_pattern=[0.95 if scale > 0 else 0.0 for scale in g("activation_sparsity_scale")])
        case "gemma3":
            full = common.pop("rope_parameters")
            local = {"rope_type": "default", "rope_theta": 10000.0}
            return t.Gemma3TextConfig(**common, sliding_window=window,
                                      query_pre_attn_scalar=g("attention.key_length"),
                                      rope_parameters={"full_attention": full,
                                                       "sliding_attention": local})
    raise SystemExit(f"no transformers model for {g.architecture}")


SINKS = "attn_sinks.weight"


def add_sinks(model):
    """Attention sinks in modules that have none: the attention of gpt-oss, whose modules have them."""
    import torch
    import transformers
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward
    transformers.AttentionInterface.register("sinks", eager_attention_forward)
    transformers.AttentionMaskInterface.register("sinks", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    model.set_attn_implementation("sinks")
    for layer in model.model.layers:
        layer.self_attn.sinks = torch.nn.Parameter(torch.zeros(model.config.num_attention_heads))


NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
# Architectures whose Q and K a converter turns.
HALVED = ("llama", "smollm3", "granite", "mistral3", "granitemoe", "granitehybrid")
PHI3_NAMES = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
HUNYUAN_NAMES = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
LFM2_NAMES = {"attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
              "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
              "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
              "shortconv.in_proj": "conv.in_proj", "shortconv.conv": "conv.conv",
              "shortconv.out_proj": "conv.out_proj"}
QWEN35_NAMES = {"post_attention_norm": "post_attention_layernorm", "attn_qkv": "linear_attn.in_proj_qkv",
                "attn_gate": "linear_attn.in_proj_z", "ssm_beta": "linear_attn.in_proj_b",
                "ssm_alpha": "linear_attn.in_proj_a", "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm",
                "ssm_out": "linear_attn.out_proj"}
DELTAS = ("qwen35", "qwen35moe", "qwen3next")
MAMBA_NAMES = {"ssm_in": "mamba.in_proj", "ssm_conv1d": "mamba.conv1d", "ssm_norm": "mamba.norm", "ssm_out": "mamba.out_proj"}
NEMOTRON_NAMES = {"attn_norm": "norm"} | {
    ours: "mixer." + theirs for ours, theirs in dict(
        attn_q="q_proj", attn_k="k_proj", attn_v="v_proj", attn_output="o_proj", ffn_up="up_proj", ffn_down="down_proj",
        ssm_in="in_proj", ssm_conv1d="conv1d", ssm_norm="norm", ssm_out="out_proj").items()}
FALCON_H1_NAMES = MAMBA_NAMES | {"ffn_norm": "pre_ff_layernorm", "ffn_gate": "feed_forward.gate_proj",
                                 "ffn_up": "feed_forward.up_proj", "ffn_down": "feed_forward.down_proj"}
# Those that are no weight of a module.
MAMBA_VECTORS = {"ssm_a": "A_log", "ssm_d": "D", "ssm_dt.bias": "dt_bias"}
LATENT_NAMES = {"attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
                "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
                "attn_q_b": "self_attn.q_b_proj", "attn_kv_b": "self_attn.kv_b_proj"}
GPT_OSS_NAMES = {"post_attention_norm": "post_attention_layernorm"}
# Where results are normalised and nothing else is, and where the norm after attention is the next one's.
POST_NAMES = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
GRANITE4_NAMES = {"ffn_down": "shared_mlp.output_linear"}
GEMMA_NAMES = {"post_attention_norm": "post_attention_layernorm",
               "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
               "inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm",
               "pre_ffw_norm_2": "pre_feedforward_layernorm_2", "post_ffw_norm_1": "post_feedforward_layernorm_1",
               "post_ffw_norm_2": "post_feedforward_layernorm_2",
               "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right",
               "laurel_post_norm": "laurel.post_laurel_norm", "altup_router": "altup.modality_router",
               "altup_router_norm": "altup.router_norm", "altup_predict_coef": "altup.prediction_coefs",
               "altup_correct_coef": "altup.correction_coefs"}
STREAM_NAMES = {"altup_proj": "altup_projections", "altup_unembd_proj": "altup_unembed_projections"}
GEMMA4_NAMES = {"per_layer_token_embd": "embed_tokens_per_layer", "per_layer_model_proj": "per_layer_model_projection",
                "per_layer_proj_norm": "per_layer_projection_norm"}


def gpt_oss_experts_of(take, at):
    """Rows of gate and up alternate, and matrices are transposed."""
    import numpy as np
    pairs = lambda kind: np.stack([take(f"ffn_gate_exps.{kind}"), take(f"ffn_up_exps.{kind}")], axis=2)
    both, biases = pairs("weight"), pairs("bias")
    return {at + "router.weight": take("ffn_gate_inp.weight"), at + "router.bias": take("ffn_gate_inp.bias"),
            at + "experts.gate_up_proj": both.reshape(both.shape[0], -1, both.shape[3]).swapaxes(1, 2),
            at + "experts.gate_up_proj_bias": biases.reshape(biases.shape[0], -1),
            at + "experts.down_proj": take("ffn_down_exps.weight").swapaxes(1, 2),
            at + "experts.down_proj_bias": take("ffn_down_exps.bias")}


def experts_of(g):
    """Their tensors under the names of the modules, taken out of g."""
    import numpy as np
    import torch
    granite = g.architecture in ("granitemoe", "granitehybrid")
    block = "block_sparse_moe" if granite else "feed_forward" if g.architecture == "lfm2moe" else "mlp"
    state = {}
    for layer in range(g("block_count")):
        take = lambda name: g.tensors.pop(f"blk.{layer}.{name}", None)
        at = f"model.layers.{layer}."
        if g.architecture == "gpt-oss":
            state |= gpt_oss_experts_of(take, at + "mlp.")
            continue
        if (router := take("ffn_gate_inp.weight")) is None:
            continue
        if g.architecture == "nemotron_h_moe":
            at += "mixer."
            state |= {at + "gate.weight": router, at + "gate.e_score_correction_bias": take("exp_probs_b.bias"),
                      at + "experts.up_proj": take("ffn_up_exps.weight"), at + "experts.down_proj": take("ffn_down_exps.weight"),
                      at + "shared_experts.up_proj.weight": take("ffn_up_shexp.weight"),
                      at + "shared_experts.down_proj.weight": take("ffn_down_shexp.weight")}
            if (latent := take("ffn_latent_down.weight")) is not None:
                state |= {at + "fc1_latent_proj.weight": latent, at + "fc2_latent_proj.weight": take("ffn_latent_up.weight")}
            continue
        if g.architecture == "gemma4":
            state |= {at + "router.proj.weight": router, at + "router.scale": take("ffn_gate_inp.scale"),
                      at + "router.per_expert_scale": take("ffn_down_exps.scale"),
                      at + "experts.gate_up_proj": take("ffn_gate_up_exps.weight"),
                      at + "experts.down_proj": take("ffn_down_exps.weight")}
            continue
        state[at + block + (".router.weight" if granite else ".gate.weight")] = router
        both = [take("ffn_gate_exps.weight"), take("ffn_up_exps.weight")]
        state[at + block + ".experts.gate_up_proj"] = np.concatenate(both, axis=1)
        state[at + block + ".experts.down_proj"] = take("ffn_down_exps.weight")
        if (bias := take("exp_probs_b.bias")) is not None:
            if g.architecture == "lfm2moe":
                state[at + "feed_forward.expert_bias"] = bias
            elif g.architecture == "ernie4_5-moe":
                state[at + "mlp.gate.moe_statics.e_score_correction_bias"] = bias.reshape(1, -1)
            else:
                state[at + "mlp.gate.e_score_correction_bias"] = bias
        if (gate := take("ffn_gate_shexp.weight")) is None:
            continue
        up, down = take("ffn_up_shexp.weight"), take("ffn_down_shexp.weight")
        if granite:
            state[at + "shared_mlp.input_linear.weight"] = np.concatenate([gate, up])
            state[at + "shared_mlp.output_linear.weight"] = down
        else:
            weight = take("ffn_gate_inp_shexp.weight")
            shared = "mlp.shared_experts" if weight is None else "mlp.shared_expert"
            for name, w in ("gate", gate), ("up", up), ("down", down):
                state[at + f"{shared}.{name}_proj.weight"] = w
            if weight is not None:
                state[at + "mlp.shared_expert_gate.weight"] = weight.reshape(1, -1)
    return {name: torch.tensor(np.ascontiguousarray(w)) for name, w in state.items()}


def grouped(w, before, n_keys, n_values, axis=0):
    """Value heads of a Gated DeltaNet in the order of their key heads, after `before` other rows."""
    import numpy as np
    first, heads = np.split(w, [before], axis=axis)
    shape = heads.shape[:axis] + (n_values // n_keys, n_keys, -1) + heads.shape[axis + 1:]
    return np.concatenate([first, heads.reshape(shape).swapaxes(axis, axis + 1).reshape(heads.shape)], axis=axis)


def key_heads_of(g):
    """A Qwen3-Next's projections of Gated DeltaNets, rows of each key head together, taken out of g."""
    import numpy as np
    import torch
    keys, dim, state = g("ssm.group_count"), g("ssm.state_size"), {}
    for layer in range(g("block_count")):
        at = f"blk.{layer}."
        if at + "ssm_ba.weight" not in g.tensors:
            continue
        qkv, z = g.tensors.pop(at + "attn_qkv.weight"), g.tensors.pop(at + "attn_gate.weight")
        parts = [*np.split(qkv, [keys * dim, 2 * keys * dim]), z]
        qkvz = np.concatenate([p.reshape(keys, -1, p.shape[1]) for p in parts], axis=1).reshape(-1, qkv.shape[1])
        to = f"model.layers.{layer}.linear_attn."
        state[to + "in_proj_qkvz.weight"] = torch.tensor(np.ascontiguousarray(qkvz))
        state[to + "in_proj_ba.weight"] = torch.tensor(np.ascontiguousarray(g.tensors.pop(at + "ssm_ba.weight")))
    return state


def delta_state(g, name, w):
    """A tensor of a Gated DeltaNet, and of the norms of such a model, as transformers has it."""
    import numpy as np
    stem = name.split(".", 2)[2] if name.startswith("blk.") else name
    heads = g("ssm.group_count"), g("ssm.time_step_rank")
    if g.architecture == "qwen3next":  # value heads are by key head already
        heads = heads[1], heads[1]
    if stem in ("attn_qkv.weight", "ssm_conv1d.weight") and (qk := 2 * g("ssm.group_count") * g("ssm.state_size")) < len(w):
        w = grouped(w, qk, *heads)
        return w[:, None] if stem.startswith("ssm_conv1d") else w
    if stem in ("attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias"):
        return grouped(w, 0, *heads)
    if stem == "ssm_a":
        return np.log(-grouped(w, 0, *heads))
    if stem == "ssm_out.weight":
        return grouped(w, 0, *heads, axis=1)
    return w - 1 if stem.endswith("norm.weight") and stem != "ssm_norm.weight" else w


def state_of(g, family):
    import numpy as np
    import torch
    gemma = g.architecture.startswith("gemma")
    own = {"phi3": PHI3_NAMES, "hunyuan-dense": HUNYUAN_NAMES, "exaone4": POST_NAMES, "olmo2": POST_NAMES,
           "seed_oss": POST_NAMES, "gpt-oss": GPT_OSS_NAMES, "glm4moe": GPT_OSS_NAMES,
           "lfm2": LFM2_NAMES, "lfm2moe": LFM2_NAMES, "granitehybrid": MAMBA_NAMES,
           "nemotron_h": NEMOTRON_NAMES, "nemotron_h_moe": NEMOTRON_NAMES, "falcon-h1": FALCON_H1_NAMES,
           "deepseek2": LATENT_NAMES} | dict.fromkeys(DELTAS, QWEN35_NAMES)
    names = NAMES | (GEMMA_NAMES if gemma else own.get(g.architecture, {}))
    nemotron = g.architecture.startswith("nemotron_h")
    mamba = nemotron or g.architecture in ("granitehybrid", "falcon-h1")
    state = experts_of(g)
    if g.architecture == "qwen3next":
        state |= key_heads_of(g)
    for layer in range(g("block_count") if "blk.0.attn_k_b.weight" in g.tensors else 0):
        a, b = (g.tensors.pop(f"blk.{layer}.attn_{part}_b.weight") for part in "kv")
        both = np.concatenate([a.swapaxes(1, 2), b], axis=1).reshape(-1, b.shape[2])
        state[f"model.layers.{layer}.self_attn.kv_b_proj.weight"] = torch.tensor(np.ascontiguousarray(both))
    if family in ("granite4", "granite4_h"):
        names |= GRANITE4_NAMES
        for layer in range(g("block_count")):
            both = [g.tensors.pop(f"blk.{layer}.ffn_{part}.weight") for part in ("gate", "up")]
            state[f"model.layers.{layer}.shared_mlp.input_linear.weight"] = torch.tensor(np.concatenate(both))
    own_kv = g("block_count") - (g("attention.shared_kv_layers") or 0)
    for name, w in g.tensors.items():
        if name.startswith("rope_"):
            continue
        if name.endswith((".attn_k.weight", ".attn_v.weight", ".attn_k_norm.weight")) and int(name.split(".")[1]) >= own_kv:
            continue  # of layers that do not use them
        if gemma and g.architecture not in ("gemma3n", "gemma4") and name.removesuffix(".weight").endswith("norm"):
            w = w - 1
        if g.architecture in DELTAS:
            w = delta_state(g, name, w)
            layer = name.split(".")[1]
            if name.endswith((".ssm_a", ".ssm_dt.bias")):
                own = "A_log" if name.endswith("_a") else "dt_bias"
                state[f"model.layers.{layer}.linear_attn.{own}"] = torch.tensor(np.ascontiguousarray(w))
                continue
        if (vector := MAMBA_VECTORS.get(name.split(".", 2)[-1])) and mamba:
            w = np.log(-w) if vector == "A_log" else w
            module = "mixer" if nemotron else "mamba"
            state[f"model.layers.{name.split('.')[1]}.{module}.{vector}"] = torch.tensor(w.reshape(-1))
            continue
        # A converter calls one norm of a falcon-h1 so.
        stem, kind = (name, "weight") if name.endswith(".ffn_norm") else name.rsplit(".", 1)
        if stem in STREAM_NAMES:
            for i, one in enumerate(w):
                state[f"model.{STREAM_NAMES[stem]}.{i}.weight"] = torch.tensor(np.ascontiguousarray(one))
            continue
        if name == "token_embd.weight":
            to = f"model.{'embeddings' if nemotron else 'embed_tokens'}.weight"
        elif name == "token_embd_norm.weight":
            to = "model.embedding_norm.weight"
        elif name == "output_norm.weight":
            to = f"model.{'norm_f' if nemotron else 'final_layernorm' if g.architecture == 'falcon-h1' else 'norm'}.weight"
        elif name == "output.weight":
            to = "lm_head.weight"
        elif stem in GEMMA4_NAMES:
            to = f"model.{GEMMA4_NAMES[stem]}.weight"
        else:
            _, layer, role = stem.split(".", 2)
            if role == "shortconv.conv" or role == "ssm_conv1d" and kind == "weight" and mamba:
                w = w[:, None]
            if role == "ssm_norm":  # cut by key heads
                w = w.reshape(-1)
            if g.architecture in HALVED and role in ("attn_q", "attn_k"):
                heads = g("attention.head_count" + ("_kv" if role == "attn_k" else ""))
                w = halves(w, max(heads) if isinstance(heads, list) else heads)
            to = f"model.layers.{layer}.layer_scalar" if role == "layer_output_scale" else \
                f"model.layers.{layer}.altup.correct_output_scale" if role == "altup_correct_scale" else \
                f"model.layers.{layer}.self_attn.sinks" if role == "attn_sinks" else \
                f"model.layers.{layer}.{names[role]}.{kind}"
        state[to] = torch.tensor(np.ascontiguousarray(w))
    return state


def computes_as(g):
    """What transformers is told: plain products, which are there in float64."""
    return {"attn_implementation": "eager"} | ({"experts_implementation": "eager"} if g("expert_count") else {})


def transformers_model(g, family):
    import torch
    import transformers
    config = config_of(g, family)
    model = transformers.AutoModelForCausalLM.from_config(config, **computes_as(g))
    if f"blk.0.{SINKS}" in g.tensors and not hasattr(model.model.layers[0].self_attn, "sinks"):
        add_sinks(model)
    state = state_of(g, family)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    model = model.double().eval()
    if "rope_freqs.weight" in g.tensors and g.architecture != "gemma4":
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.inv_freq / torch.tensor(g.tensors["rope_freqs.weight"])
    return model


def tokens_of(n_vocab, seed):
    import numpy as np
    return [int(x) for x in np.random.default_rng(seed).integers(3, n_vocab, N_PROMPT)]


def transformers_numbers(model, n_vocab, seed):
    """Logits after a prompt of ordinary tokens and the greedy continuation; None if it is close."""
    import torch
    tokens = tokens_of(n_vocab, seed)
    greedy, first, cache = [], None, None
    with torch.no_grad():
        for _ in range(N_GREEDY):
            feed = torch.tensor([greedy[-1:] or tokens])
            out = model(feed, past_key_values=cache, use_cache=True)
            logits, cache = out.logits[0, -1], out.past_key_values
            if first is None:
                first = logits.tolist()
            top = torch.topk(logits, 2)
            if top.values[0] - top.values[1] < MARGIN:
                return None
            greedy.append(int(top.indices[0]))
    return tokens, first, greedy


def rotates_in_part(g):
    """A part of a head, in an architecture of which neither transformers nor llama.cpp does so."""
    return g.architecture not in ("phi3", "glm4moe", "deepseek2", *DELTAS) and g("rope.dimension_count") != g("attention.key_length")


def llama_cpp_logits(path, g, prompt):
    """Empty where llama.cpp does not do what the file says: it has no windows in a `llama`, and in an
    `exaone4` only with 64 layers, it rounds the ends of a gpt-oss's ramp of YaRN, and it knows a gemma3n
    of one shape."""
    if g.architecture == "gemma3n" and g("embedding_length_per_layer_input") != 256:
        return []
    if g.architecture == "gpt-oss" and g("rope.scaling.type") == "yarn":
        return []
    if g.architecture in ("llama", "exaone4") and g("attention.sliding_window") or rotates_in_part(g):
        return []
    import llama_cpp
    import numpy as np
    model = llama_cpp.Llama(model_path=path, n_ctx=512, n_threads=2, logits_all=True, verbose=False,
                            type_k=0, type_v=0, flash_attn=False)
    model.eval(prompt)
    return np.array(model.scores[len(prompt) - 1], dtype=np.float64)


def check_directory(tool, family, folder, prompt, logits, how):
    """The same model as a Hugging Face directory: transformers reads it by itself and gets the same."""
    import torch
    import transformers
    path = os.path.join(folder, "hf")
    subprocess.run([tool, "--family", family, "--format", "hf", path], check=True)
    if family == "gpt_oss_mxfp4":  # of which transformers has kernels for GPUs alone
        how = how | {"quantization_config": transformers.Mxfp4Config(dequantize=True)}
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, **how).eval()
    with torch.no_grad():
        now = model(torch.tensor([prompt])).logits[0, -1]
    worst = (now - torch.tensor(logits)).abs().max().item()
    assert worst < 1e-4, (family, "as a directory", worst)


def numbers_of(tool, family):
    import numpy as np
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        subprocess.run([tool, "--family", family, path], check=True)
        g = Gguf(path)
        n_vocab = len(g.keys["tokenizer.ggml.tokens"])
        if rotates_in_part(g):
            seed, prompt, logits, greedy = 0, tokens_of(n_vocab, 0), [], []
        else:
            model = transformers_model(g, family)
            for seed in range(100):
                found = transformers_numbers(model, n_vocab, seed)
                if found is not None:
                    break
            prompt, logits, greedy = found
            if family != "llama_sinks":  # no directory describes such a model
                check_directory(tool, family, folder, prompt, logits, computes_as(g))
        other = llama_cpp_logits(path, g, prompt)
        both = len(other) and len(logits)
        difference = np.abs(other - np.array(logits)).max() if both else np.nan
        print(f"{family}: prompt {seed}, llama.cpp differs by {difference:.2e}", file=sys.stderr)
    rounded = lambda values: [round(float(v), 5) for v in values]
    return {"family": family, "prompt": prompt, "greedy": greedy,
            "transformers": rounded(logits), "llama_cpp": rounded(other)}


def skip(why):
    print(f"skipped: {why}")
    raise SystemExit(77)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--random-model", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", help="the cases of these families alone, separated by commas")
    args = parser.parse_args()
    if args.check:
        try:
            import gguf, llama_cpp, torch, transformers  # noqa: F401, E401
        except ImportError as e:
            skip(e)
    families = subprocess.run([args.random_model, "--list"], check=True, capture_output=True,
                              text=True).stdout.split()
    if args.only:
        families = [f for f in families if f in args.only.split(",")]
    if not args.check:
        cases = [json.dumps(numbers_of(args.random_model, f)) for f in families]
        print("[\n" + ",\n".join(cases) + "\n]")
        return
    golden = {c["family"]: c for c in json.loads((HERE / "families.json").read_text())}
    assert sorted(golden) == sorted(families), "families.json has other families"
    for family in families:
        now = numbers_of(args.random_model, family)
        was = golden[family]
        assert now["prompt"] == was["prompt"] and now["greedy"] == was["greedy"], family
        for name in ("transformers", "llama_cpp"):
            worst = max((abs(a - b) for a, b in zip(now[name], was[name])), default=0)
            assert worst < 1e-3, (family, name, worst)


if __name__ == "__main__":
    main()
