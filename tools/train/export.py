"""Writes a checkpoint as one GGUF file and as a Hugging Face directory, the same weights.

    python export.py --model work/run/checkpoint.pt --tokenizer work/tokenizer/tokenizer.model \
        --gguf ../../examples/models/blend-qa.gguf --hf ../../examples/models/blend-qa-hf
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from fusion_reference import load_model
from model import Config, Llama
from tokenizer import BOS, EOS, UNK, Coder, to_hugging_face

NAME = "blend-qa"

# Our name of a layer's tensor, Hugging Face's, and GGUF's.
_LAYER_NAMES: tuple[tuple[str, str, str], ...] = (
    ("input_norm", "input_layernorm", "attn_norm"),
    ("q", "self_attn.q_proj", "attn_q"),
    ("k", "self_attn.k_proj", "attn_k"),
    ("v", "self_attn.v_proj", "attn_v"),
    ("o", "self_attn.o_proj", "attn_output"),
    ("mlp_norm", "post_attention_layernorm", "ffn_norm"),
    ("gate", "mlp.gate_proj", "ffn_gate"),
    ("up", "mlp.up_proj", "ffn_up"),
    ("down", "mlp.down_proj", "ffn_down"),
)


def half(weight: Tensor) -> Tensor:
    """A matrix in 16 bits; refuses values that do not fit."""
    result = weight.to(torch.float16)
    if not bool(torch.isfinite(result).all()):
        raise SystemExit("a weight does not fit in 16 bits")
    return result


def interleave(weight: Tensor, heads: int) -> Tensor:
    """Reorder a Q or K matrix's rows from half-split RoPE to GGUF's neighbouring pairs."""
    rows, width = weight.shape
    return weight.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width).contiguous()


def write_gguf(model: Llama, coder: Coder, path: Path) -> None:
    """GGUF v3, architecture llama: F16 matrices, F32 norms, the SentencePiece tokenizer."""
    c = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_license("apache-2.0")
    writer.add_context_length(c.context)
    writer.add_embedding_length(c.width)
    writer.add_block_count(c.layers)
    writer.add_feed_forward_length(c.hidden)
    writer.add_head_count(c.heads)
    writer.add_head_count_kv(c.kv_heads)
    writer.add_rope_dimension_count(c.head)
    writer.add_rope_freq_base(c.theta)
    writer.add_layer_norm_rms_eps(c.eps)
    writer.add_vocab_size(c.vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

    sp = coder.processor
    kinds: list[int] = []
    for i in range(len(coder)):
        kind = gguf.TokenType.NORMAL
        if sp.is_unknown(i):
            kind = gguf.TokenType.UNKNOWN
        elif sp.is_control(i):
            kind = gguf.TokenType.CONTROL
        elif sp.is_byte(i):
            kind = gguf.TokenType.BYTE
        kinds.append(int(kind))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([sp.id_to_piece(i).encode() for i in range(len(coder))])
    writer.add_token_scores([sp.get_score(i) for i in range(len(coder))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(UNK)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)

    writer.add_tensor("token_embd.weight", half(model.embed.weight).numpy())
    writer.add_tensor("output.weight", half(model.output.weight).numpy())
    writer.add_tensor("output_norm.weight", model.norm.weight.numpy().astype(np.float32))
    for n, layer in enumerate(model.layers):
        for ours, _, theirs in _LAYER_NAMES:
            weight = getattr(layer, ours).weight
            if ours in ("q", "k"):
                weight = interleave(weight, c.heads if ours == "q" else c.kv_heads)
            data = half(weight).numpy() if weight.ndim == 2 else weight.numpy().astype(np.float32)
            writer.add_tensor(f"blk.{n}.{theirs}.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_config(c: Config) -> dict[str, object]:
    """config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": c.vocab,
        "hidden_size": c.width,
        "intermediate_size": c.hidden,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head,
        "hidden_act": "silu",
        "max_position_embeddings": c.context,
        "rms_norm_eps": c.eps,
        "rope_theta": c.theta,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": None,
        "pretraining_tp": 1,
        "use_cache": True,
        "torch_dtype": "float16",
    }


def write_hf(model: Llama, coder: Coder, tokenizer_model: Path, folder: Path) -> None:
    """config.json, model.safetensors, tokenizer.json, tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        "model.embed_tokens.weight": half(model.embed.weight),
        "model.norm.weight": model.norm.weight.float(),
        "lm_head.weight": half(model.output.weight),
    }
    for n, layer in enumerate(model.layers):
        for ours, theirs, _ in _LAYER_NAMES:
            weight = getattr(layer, ours).weight
            tensors[f"model.layers.{n}.{theirs}.weight"] = half(weight) if weight.ndim == 2 else weight.float()
    save_file({name: t.detach().contiguous() for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(hf_config(model.config), indent=2) + "\n")
    to_hugging_face(tokenizer_model).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.config.context,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def main() -> None:
    """Read the options and write both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--hf", type=Path, required=True)
    options = parser.parse_args()
    coder = Coder(options.tokenizer)
    with torch.no_grad():
        model = load_model(options.model, torch.float32)
        options.gguf.parent.mkdir(parents=True, exist_ok=True)
        write_gguf(model, coder, options.gguf)
        write_hf(model, coder, options.tokenizer, options.hf)
    size = options.gguf.stat().st_size + sum(file.stat().st_size for file in options.hf.iterdir())
    print(f"{options.gguf} and {options.hf}: {size / 1e6:.1f} MB in all")


if __name__ == "__main__":
    main()
