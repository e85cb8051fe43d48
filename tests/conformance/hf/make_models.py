#!/usr/bin/env python3
"""Writes small random models of each family as Hugging Face directories, saved by transformers, with
the logits and the greedy continuation that transformers computes with them in F32.

    make_models.py [--check] [--only MODEL]

needs torch and transformers (2.15 and 5.23 wrote the files here). --check computes with the committed
weights again and compares with the committed numbers; and it makes each model again and says in what
it differs from the committed files, byte by byte. Other versions of the packages may draw other weights
or write other members, which is reported and does not fail: the committed files are tested.

Files: <model>/config.json and *.safetensors; <model>/golden.json: "prompt", its last row's
"logits", the "greedy" continuation. The test adds a tokenizer.json of tests/conformance/tokenizers.
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError:
    print("skipped: the Python packages torch and transformers are not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 483  # of tokenizers/qwen2.tokenizer.json without the last two, which a model of these rows cannot use
SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
             initializer_range=0.25, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
GRANITE = dict(embedding_multiplier=6.0, residual_multiplier=0.6, attention_multiplier=0.5, logits_scaling=1.5)
GRANITE_H = dict(GRANITE, layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=4, mamba_d_state=10)
FALCON_H1 = dict(mamba_d_ssm=40, mamba_n_heads=4, mamba_d_head=10, mamba_n_groups=1, mamba_d_state=10,
                 rope_parameters=dict(rope_type="default", rope_theta=1e11), embedding_multiplier=5.6, lm_head_multiplier=0.6,
                 key_multiplier=0.8, attention_in_multiplier=1.3, attention_out_multiplier=0.7, ssm_in_multiplier=1.2,
                 ssm_out_multiplier=0.6, mlp_multipliers=[0.9, 0.4], ssm_multipliers=[0.8, 0.7, 1.3, 0.9, 0.6])
EXPERTS = dict(num_experts_per_tok=2)
LATENT = dict(EXPERTS, num_key_value_heads=4, kv_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=20,
              n_routed_experts=6, moe_intermediate_size=24, rope_parameters=dict(
                  YARN, rope_theta=10000.0, mscale=1.0, mscale_all_dim=0.6))
GEMMA = dict(query_pre_attn_scalar=12, sliding_window=9, head_dim=16)

# model: (config class, what it adds to the shape, weights' type, bytes a shard or None)
MODELS = {
    "llama": ("LlamaConfig", dict(tie_word_embeddings=False), "bfloat16", None),
    "llama3-sharded": ("LlamaConfig", dict(rope_parameters=dict(LLAMA3, rope_theta=500000.0), tie_word_embeddings=True,
                                           attention_bias=True, mlp_bias=True), "float16", 20000),
    "llama-linear": ("LlamaConfig", dict(rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=10000.0),
                                         tie_word_embeddings=True, num_key_value_heads=1), "float32", None),
    "mistral": ("MistralConfig", dict(sliding_window=7, head_dim=12), "bfloat16", None),
    "qwen2": ("Qwen2Config", dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=6, max_window_layers=1),
              "bfloat16", None),
    "qwen2-yarn": ("Qwen2Config", dict(rope_parameters=dict(YARN, rope_theta=1000000.0), tie_word_embeddings=True), "bfloat16", None),
    "qwen3": ("Qwen3Config", dict(head_dim=16, tie_word_embeddings=True), "bfloat16", None),
    "smollm3": ("SmolLM3Config", dict(no_rope_layers=[1, 0, 1], rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
                "bfloat16", None),
    "phi3": ("Phi3Config", dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                                                                partial_rotary_factor=0.75), head_dim=None), "bfloat16", None),
    "phi3-longrope": ("Phi3Config", dict(tie_word_embeddings=True, original_max_position_embeddings=16, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.3, 1.9], long_factor=[1.0, 2.0, 4.5, 9.0],
        original_max_position_embeddings=16)), "bfloat16", None),
    "gemma2": ("Gemma2Config", dict(GEMMA, attn_logit_softcapping=3.0, final_logit_softcapping=4.0), "bfloat16", None),
    "gemma3": ("Gemma3TextConfig", dict(GEMMA, num_hidden_layers=7, rope_parameters={
        "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
        "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}), "bfloat16", None),
    "gemma4": ("Gemma4TextConfig", dict(
        num_hidden_layers=7, head_dim=16, sliding_window=9, global_head_dim=24, num_kv_shared_layers=3, use_double_wide_mlp=True,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB, final_logit_softcapping=4.0, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention",
                     "sliding_attention", "full_attention"]), "bfloat16", None),
    # Tokens from 300 on are beyond the table of layers' embeddings.
    "gemma3n": ("Gemma3nTextConfig", dict(
        num_hidden_layers=7, head_dim=16, sliding_window=9, num_kv_shared_layers=3, intermediate_size=[48, 48, 56, 48, 48, 64, 48],
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=300, final_logit_softcapping=4.0, pad_token_id=0, laurel_rank=5,
        activation_sparsity_pattern=[0.95, 0.8, 0.0, 0.3, 0.0, 0.0, 0.0],
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention",
                     "sliding_attention", "full_attention"]), "bfloat16", None),
    # Heads as large as the real ones.
    "gemma4-31b": ("Gemma4TextConfig", dict(
        tie_word_embeddings=False,
        num_hidden_layers=2, num_attention_heads=2, head_dim=256, sliding_window=9, global_head_dim=512, attention_k_eq_v=True,
        num_global_key_value_heads=1, hidden_size_per_layer_input=0, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"]), "bfloat16", None),
    "granite": ("GraniteConfig", dict(GRANITE, attention_bias=True), "bfloat16", None),
    "granite4": ("GraniteMoeHybridConfig", dict(GRANITE, num_local_experts=0, shared_intermediate_size=40, mamba_n_heads=2,
                                                layer_types=["full_attention"] * 3, position_embedding_type="rope"), "bfloat16", None),
    "granite4-nope": ("GraniteMoeHybridConfig", dict(GRANITE, num_local_experts=0, shared_intermediate_size=40, mamba_n_heads=2,
                                                     layer_types=["full_attention"] * 3), "bfloat16", None),
    "seed_oss": ("SeedOssConfig", dict(head_dim=12, mlp_bias=True), "bfloat16", None),
    "ernie4_5": ("Ernie4_5Config", dict(head_dim=12, use_bias=True), "bfloat16", None),
    "lfm2": ("Lfm2Config", dict(num_hidden_layers=6, block_multiple_of=16, rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
                                layer_types=["conv", "conv", "full_attention", "conv", "full_attention", "conv"]), "bfloat16", None),
    "exaone4": ("Exaone4Config", dict(sliding_window=None, tie_word_embeddings=True, layer_types=["full_attention"] * 3,
                                      rope_parameters=dict(LLAMA3, rope_theta=1000000.0)), "bfloat16", None),
    "exaone4-hybrid": ("Exaone4Config", dict(sliding_window=7, num_hidden_layers=5, head_dim=12), "bfloat16", None),
    "olmo2": ("Olmo2Config", dict(rope_parameters=dict(rope_type="default", rope_theta=50000.0)), "bfloat16", None),
    "olmo3": ("Olmo3Config", dict(sliding_window=7, num_hidden_layers=5, rope_parameters={
        "full_attention": dict(YARN, rope_theta=50000.0, attention_factor=1.3),
        "sliding_attention": dict(rope_type="default", rope_theta=50000.0)}), "bfloat16", None),
    "ministral3": ("Ministral3Config", dict(head_dim=12, tie_word_embeddings=True, rope_parameters=dict(
        YARN, rope_theta=10000.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.5, llama_4_scaling_beta=0.5)),
        "bfloat16", None),
    "hunyuan": ("HunYuanDenseV1Config", dict(head_dim=16, tie_word_embeddings=True, rope_parameters=dict(
        rope_type="dynamic", alpha=50.0, factor=1.0, rope_theta=10000.0)), "bfloat16", None),
    "qwen3moe": ("Qwen3MoeConfig", dict(EXPERTS, head_dim=12, num_experts=4, moe_intermediate_size=24, norm_topk_prob=True,
                                        mlp_only_layers=[1]), "bfloat16", None),
    "qwen3moe-fused": ("Qwen3MoeConfig", dict(EXPERTS, head_dim=12, num_experts=4, moe_intermediate_size=24), "bfloat16", None),
    "olmoe": ("OlmoeConfig", dict(EXPERTS, num_experts=4, intermediate_size=24), "bfloat16", None),
    "mixtral": ("MixtralConfig", dict(EXPERTS, num_local_experts=4, intermediate_size=24, sliding_window=7), "bfloat16", None),
    "granitemoe": ("GraniteMoeConfig", dict(GRANITE, **EXPERTS, num_local_experts=4, intermediate_size=24), "bfloat16", None),
    "granitemoe-shared": ("GraniteMoeSharedConfig", dict(GRANITE, **EXPERTS, num_local_experts=4, intermediate_size=24,
                                                         shared_intermediate_size=16), "bfloat16", None),
    "gpt_oss": ("GptOssConfig", dict(EXPERTS, head_dim=16, num_local_experts=4, intermediate_size=24, sliding_window=9,
                                     rope_parameters=dict(YARN, rope_theta=10000.0, truncate=False)), "bfloat16", None),
    "qwen3-fp8": ("Qwen3Config", dict(head_dim=16, tie_word_embeddings=False), "bfloat16", None),
    "llama-int4": ("LlamaConfig", dict(tie_word_embeddings=False, intermediate_size=64), "bfloat16", None),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(moe_k=2, moe_num_experts=4, moe_num_shared_experts=2, moe_intermediate_size=16,
                                                moe_layer_start_index=1), "bfloat16", None),
    "glm4_moe": ("Glm4MoeConfig", dict(EXPERTS, head_dim=16, n_routed_experts=6, moe_intermediate_size=24, n_group=3, topk_group=2,
                                       routed_scaling_factor=1.5, attention_bias=True, use_qk_norm=True), "bfloat16", None),
    "lfm2_moe": ("Lfm2MoeConfig", dict(EXPERTS, num_hidden_layers=5, num_dense_layers=1, num_experts=6, moe_intermediate_size=24,
                                       rope_parameters=dict(rope_type="default", rope_theta=1000000.0), routed_scaling_factor=1.5,
                                       layer_types=["conv", "full_attention", "conv", "full_attention", "conv"]), "bfloat16", None),
    "qwen3_5": ("Qwen3_5TextConfig", dict(num_hidden_layers=5, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                                          linear_key_head_dim=12, linear_value_head_dim=20, tie_word_embeddings=True), "bfloat16", None),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", dict(
        EXPERTS, intermediate_size=None, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=12, linear_value_head_dim=20, num_experts=6, moe_intermediate_size=24,
        shared_expert_intermediate_size=16, tie_word_embeddings=True), "bfloat16", None),
    "qwen3_next": ("Qwen3NextConfig", dict(
        EXPERTS, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12,
        linear_value_head_dim=20, num_experts=6, moe_intermediate_size=24, shared_expert_intermediate_size=16,
        mlp_only_layers=[1]), "bfloat16", None),
    "qwen2_moe": ("Qwen2MoeConfig", dict(EXPERTS, num_experts=6, moe_intermediate_size=24, shared_expert_intermediate_size=40,
                                         use_sliding_window=True, sliding_window=7, decoder_sparse_step=2,
                                         num_hidden_layers=4, norm_topk_prob=False), "bfloat16", None),
    "qwen2_moe-unbiased": ("Qwen2MoeConfig", dict(EXPERTS, num_experts=4, moe_intermediate_size=16, num_hidden_layers=2,
                                                  shared_expert_intermediate_size=24, qkv_bias=False), "bfloat16", None),
    "gemma4-26b": ("Gemma4TextConfig", dict(
        num_hidden_layers=3, head_dim=16, sliding_window=9, global_head_dim=24, attention_k_eq_v=True,
        num_global_key_value_heads=1, hidden_size_per_layer_input=0, pad_token_id=0, enable_moe_block=True, num_experts=6,
        top_k_experts=2, moe_intermediate_size=24, tie_word_embeddings=False,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"]), "bfloat16", None),
    "granite4-h": ("GraniteMoeHybridConfig", dict(GRANITE_H, num_local_experts=0, shared_intermediate_size=40, mamba_n_groups=2),
                   "bfloat16", None),
    "granite4-h-moe": ("GraniteMoeHybridConfig", dict(GRANITE_H, **EXPERTS, num_local_experts=4, intermediate_size=24,
                                                      shared_intermediate_size=16, mamba_conv_bias=False), "bfloat16", None),
    "nemotron_h": ("NemotronHConfig", dict(layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
                                           head_dim=12, mamba_num_heads=4, mamba_head_dim=10, n_groups=2, ssm_state_size=10,
                                           time_step_min=1e-9), "bfloat16", None),
    "nemotron_3": ("NemotronHConfig", dict(
        EXPERTS, layers_block_type=["linear_attention", "moe", "linear_attention", "full_attention", "moe", "linear_attention", "mlp"],
        head_dim=12, mamba_num_heads=4, mamba_head_dim=10, n_groups=2, ssm_state_size=10, time_step_min=1e-9, n_routed_experts=6,
        moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, n_group=3, topk_group=2, routed_scaling_factor=1.5,
        use_conv_bias=False), "bfloat16", None),
    "nemotron_3-latent": ("NemotronHConfig", dict(
        EXPERTS, layers_block_type=["linear_attention", "moe", "full_attention", "moe"], head_dim=12, mamba_num_heads=4,
        mamba_head_dim=10, n_groups=2, ssm_state_size=10, time_step_min=1e-9, n_routed_experts=6, moe_intermediate_size=24,
        moe_shared_expert_intermediate_size=40, moe_latent_size=20), "bfloat16", None),
    "falcon_h1": ("FalconH1Config", dict(FALCON_H1, mamba_n_groups=2), "bfloat16", None),
    "falcon_h1-normed": ("FalconH1Config", dict(FALCON_H1, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_d_ssm=None,
                                                mamba_n_groups=2, mamba_d_head="auto",
                                                mamba_conv_bias=False), "bfloat16", None),
    "falcon_h1-first": ("FalconH1Config", dict(FALCON_H1, mamba_rms_norm=True, num_hidden_layers=2), "bfloat16", None),
    "deepseek_v2": ("DeepseekV2Config", dict(
        LATENT, q_lora_rank=20, n_shared_experts=2, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=3, topk_group=1,
        routed_scaling_factor=3.0), "bfloat16", None),
    "deepseek_v2-lite": ("DeepseekV2Config", dict(LATENT, q_lora_rank=None, n_shared_experts=1, n_group=1, topk_group=1,
                                                  tie_word_embeddings=True), "bfloat16", None),
    "deepseek_v3": ("DeepseekV3Config", dict(
        LATENT, q_lora_rank=20, n_shared_experts=1, first_k_dense_replace=2, n_group=3, topk_group=2, routed_scaling_factor=2.5,
        rope_interleave=False, num_mtp_layers=0), "bfloat16", None),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", dict(
        LATENT, q_lora_rank=20, n_shared_experts=1, mlp_layer_types=["sparse", "dense", "sparse"], routed_scaling_factor=1.8,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), "bfloat16", None),
    "dots1": ("Dots1Config", dict(EXPERTS, n_routed_experts=4, moe_intermediate_size=24, n_shared_experts=2,
                                  first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5), "bfloat16", None),
}
# Written as transformers holds them, with all experts in one tensor.
FUSED = ("qwen3moe-fused",)


# Encoded as others publish such models: the codes of a matrix, and how config.json describes them.
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [16, 24]}
INT4 = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "kv_cache_scheme": None, "quantization_status": "compressed", "config_groups": {"group_0": {
            "targets": ["Linear"], "input_activations": None, "output_activations": None, "weights": {
                "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32,
                "actorder": None, "dynamic": False}}}}
QUANTIZED = {"qwen3-fp8": FP8, "llama-int4": INT4}


def fp8(name, w):
    """The tensors of a matrix of e4m3 with a scale for each block, and the values they stand for."""
    rows, cols = FP8["weight_block_size"]
    scales = torch.zeros(-(-w.shape[0] // rows), -(-w.shape[1] // cols))
    codes, values = torch.empty(w.shape, dtype=torch.float8_e4m3fn), torch.empty_like(w)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * rows, (i + 1) * rows), slice(j * cols, (j + 1) * cols))
            scales[i, j] = w[at].float().abs().max() / 448
            codes[at] = (w[at].float() / scales[i, j]).to(torch.float8_e4m3fn)
            values[at] = (codes[at].float() * scales[i, j]).to(w.dtype)
    return {name: codes, name + "_scale_inv": scales}, values


def int4(name, w):
    """The tensors of a matrix of eight integers a word with a scale for 32, and the values they stand for."""
    groups = w.float().reshape(w.shape[0], -1, 32)
    scales = (groups.abs().amax(-1) / 7).to(torch.float16)
    codes = (groups / scales[..., None].float()).round().clamp(-8, 7)
    values = (codes * scales[..., None].float()).reshape(w.shape)
    words = ((codes.to(torch.int64) + 8).reshape(w.shape[0], -1, 8) << torch.arange(0, 32, 4)).sum(-1)
    stem = name.removesuffix("weight")
    return {stem + "weight_packed": (words - (words >> 31 << 32)).to(torch.int32), stem + "weight_scale": scales,
            stem + "weight_shape": torch.tensor(w.shape)}, values


def encode(name, folder, plain):
    """Quantizes the matrices of a directory; plain: replaces them by the values of their codes instead."""
    from safetensors.torch import load_file, save_file
    tensors, out = load_file(folder / "model.safetensors"), {}
    for key, w in tensors.items():
        if not key.endswith("_proj.weight"):
            out[key] = w
            continue
        codes, values = (fp8 if name.endswith("fp8") else int4)(key, w)
        out |= {key: values} if plain else codes
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    if not plain:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": QUANTIZED[name]}, indent=2) + "\n")


def build(name, folder, plain=False):
    config_class, extra, dtype, shard = MODELS[name]
    # A seed of the name's own, the same in every process.
    torch.manual_seed(sum(ord(c) * 31 ** i for i, c in enumerate(name)) % 2**31)
    kept = {k: v for k, v in dict(SHAPE, **extra).items() if not (k in ("head_dim", "intermediate_size") and v is None)}
    config = getattr(transformers, config_class)(**kept)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():  # norms and biases are 1 and 0 at first, which would hide what is done with them
        for key, p in model.named_parameters():
            if p.dim() == 1 or key.endswith(("e_score_correction_bias", "_proj_bias")):
                p.add_(torch.randn_like(p) * 0.2)
        for key, p in model.named_buffers():
            if key.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar")):
                p.add_(torch.randn_like(p) * 0.2)
    shutil.rmtree(folder, ignore_errors=True)
    how = {"max_shard_size": shard} if shard else {}
    if name in FUSED:
        how["save_original_format"] = False
    model.to(getattr(torch, dtype)).save_pretrained(folder, **how)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in QUANTIZED:
        encode(name, folder, plain)


def tensors_of(folder):
    from safetensors.torch import load_file
    return {k: v for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(f).items()}


def differences(name):
    """Sentences: what making the model again gives otherwise than the files here."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / name
        build(name, folder)
        names = lambda path: {f.name for f in path.iterdir()} - {"golden.json"}
        here, now = names(HERE / name), names(folder)
        out = [f"{f}: only {'here' if f in here else 'in what was made now'}" for f in sorted(here ^ now)]
        changed = [f for f in sorted(here & now) if (HERE / name / f).read_bytes() != (folder / f).read_bytes()]
        for f in changed:
            if f.endswith(".json"):
                old, new = (json.loads((path / f).read_text()) for path in (HERE / name, folder))
                members = [k for k in sorted(old.keys() | new.keys()) if old.get(k) != new.get(k)]
                out += [f"{f}: {k} is {new.get(k)!r}, here {old.get(k)!r}" for k in members]
                if not members:
                    out.append(f"{f}: the same members, written otherwise")
        if any(f.endswith(".safetensors") for f in changed):
            old, new = tensors_of(HERE / name), tensors_of(folder)
            out += [f"tensor {k} is other" for k in sorted(old.keys() | new.keys())
                    if k not in old or k not in new or not torch.equal(old[k], new[k])] or ["the same tensors, written otherwise"]
        return out


def reference(name):
    with tempfile.TemporaryDirectory() as temporary:
        folder = HERE / name
        if name in QUANTIZED:  # transformers has it only with what such a model needs on a GPU
            folder = pathlib.Path(temporary) / name
            build(name, folder, plain=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    rng = torch.Generator().manual_seed(5)
    prompt = torch.randint(3, VOCAB, (1, 29), generator=rng)
    ids = prompt
    with torch.no_grad():
        first = model(prompt).logits[0, -1]
        for _ in range(48):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return {"prompt": prompt[0].tolist(), "logits": [round(x, 5) for x in first.tolist()],
            "greedy": ids[0, prompt.shape[1]:].tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=MODELS, help="one of them")
    args = parser.parse_args()
    wrong = 0
    for name in [args.only] if args.only else MODELS:
        if not args.check:
            build(name, HERE / name)
        golden = reference(name)
        path = HERE / name / "golden.json"
        if not args.check:
            path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
            print(name, "std of logits", float(torch.tensor(golden["logits"]).std()), "different greedy tokens", len(set(golden["greedy"])))
            continue
        kept = json.loads(path.read_text())
        worst = max(abs(a - b) for a, b in zip(kept["logits"], golden["logits"]))
        if worst > 1e-3 or kept["greedy"] != golden["greedy"] or kept["prompt"] != golden["prompt"]:
            print(f"{name}: logits differ by {worst}")
            wrong += 1
        for line in differences(name):
            print(f"{name}, made again: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
