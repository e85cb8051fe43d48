#!/usr/bin/env python3
"""Writes a small random EmbeddingGemma, as sentence-transformers saves one and as a GGUF file, with the vectors
that transformers computes with it in F32.

    make_embedding.py [--check] [--llama]

needs torch, transformers and gguf (2.15, 5.24 and 0.17 wrote the files here). --check computes with the committed
weights again and compares with the committed vectors; --llama compares llama.cpp's (the package xllamacpp) too.

Files: embeddinggemma/ (the model, 1_Pooling, 2_Dense, 3_Dense, modules.json), embeddinggemma.gguf; golden.json: a
list of "tokens" and their "vector".
"""
import argparse
import json
import pathlib
import sys

try:
    import gguf
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError:
    print("skipped: the Python packages torch, transformers, safetensors and gguf are not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "embeddinggemma"
VOCAB, WIDTH, INNER = 483, 32, 48
# The file's window is of both sides: a row sees 4 rows before it and 4 after it.
WINDOW = 9
LENGTHS = (1, 2, 5, 6, 23, 60, 700)


def build():
    torch.manual_seed(11)
    config = transformers.Gemma3TextConfig(
        vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=7, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=1024, query_pre_attn_scalar=16, sliding_window=WINDOW,
        use_bidirectional_attention=True, bos_token_id=1, eos_token_id=2, pad_token_id=None, initializer_range=0.25)
    model = transformers.Gemma3TextModel(config).eval()
    for name, weight in model.named_parameters():
        if "norm" in name:
            with torch.no_grad():
                weight.normal_(0, 0.2)
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    # As the file of the real model: transformers may write the halved window back as another number.
    path = FOLDER / "config.json"
    saved = json.loads(path.read_text())
    saved["sliding_window"] = WINDOW
    path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
    (FOLDER / "model.safetensors").chmod(0o644)
    models = "sentence_transformers.models."
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize")]
    (FOLDER / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": place, "type": models + kind} for i, (place, kind) in enumerate(modules)], indent=1) + "\n")
    (FOLDER / "1_Pooling").mkdir(exist_ok=True)
    (FOLDER / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}) + "\n")
    for place, of, to in (("2_Dense", WIDTH, INNER), ("3_Dense", INNER, WIDTH)):
        (FOLDER / place).mkdir(exist_ok=True)
        (FOLDER / place / "config.json").write_text(json.dumps(
            {"in_features": of, "out_features": to, "bias": False,
             "activation_function": "torch.nn.modules.linear.Identity"}) + "\n")
        save_file({"linear.weight": torch.randn(to, of) * of ** -0.5}, FOLDER / place / "model.safetensors")
        (FOLDER / place / "model.safetensors").chmod(0o644)


def write_gguf(path):
    """What llama.cpp's converter makes of it, with --sentence-transformers-dense-modules."""
    config = json.loads((FOLDER / "config.json").read_text())
    w = gguf.GGUFWriter(path, "gemma-embedding")
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(WIDTH)
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_rope_freq_base(1000000.0)
    w.add_sliding_window(WINDOW)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    for key, value in (("dense_2_feat_in", WIDTH), ("dense_2_feat_out", INNER), ("dense_3_feat_in", INNER), ("dense_3_feat_out", WIDTH)):
        w.add_uint32("gemma-embedding." + key, value)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tokens += [f"t{i}" for i in range(VOCAB - len(tokens))]
    T = gguf.TokenType
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([-float(i) for i in range(VOCAB)])
    w.add_token_types([T.UNKNOWN, T.CONTROL, T.CONTROL] + [T.BYTE] * 256 + [T.NORMAL] * (VOCAB - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_eos_token(True)
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
             "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    for name, weight in load_file(FOLDER / "model.safetensors").items():
        parts = name.removesuffix(".weight").split(".")
        if parts[0] == "layers":
            made = f"blk.{parts[1]}.{names['.'.join(parts[2:])]}.weight"
        else:
            made = {"embed_tokens": "token_embd.weight", "norm": "output_norm.weight"}[parts[0]]
        values = weight.float().numpy()
        if "norm" in name:
            values = values + 1
        if values.ndim == 1:
            w.add_tensor(made, values)
        else:
            kind = gguf.GGMLQuantizationType.BF16  # as in the directory: no bit is lost
            w.add_tensor(made, gguf.quants.quantize(values, kind), raw_dtype=kind)
    for place, made in (("2_Dense", "dense_2"), ("3_Dense", "dense_3")):
        w.add_tensor(made + ".weight", load_file(FOLDER / place / "model.safetensors")["linear.weight"].numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def texts():
    rng = torch.Generator().manual_seed(6)
    return [torch.randint(3, VOCAB, (n,), generator=rng).tolist() for n in LENGTHS]


def vectors():
    model = transformers.Gemma3TextModel.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
    dense = [load_file(FOLDER / place / "model.safetensors")["linear.weight"] for place in ("2_Dense", "3_Dense")]
    for tokens in texts():
        with torch.no_grad():
            vector = model(torch.tensor([tokens])).last_hidden_state[0].mean(0)
            for matrix in dense:
                vector = matrix @ vector
            yield (vector / vector.norm()).tolist()


def llama_vectors():
    import xllamacpp as x
    p = x.CommonParams()
    p.model.path = str(HERE / "embeddinggemma.gguf")
    p.n_ctx = p.n_batch = p.n_ubatch = 1024
    p.n_parallel, p.warmup, p.embedding, p.cpuparams.n_threads = 1, False, True, 1
    p.flash_attn_type = x.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = x.Server(p)
    for tokens in texts():
        got = server.handle_embeddings({"input": tokens})
        got = json.loads(got) if isinstance(got, str) else got
        yield got["data"][0]["embedding"] if "data" in got else got[0]["embedding"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--llama", action="store_true")
    args = parser.parse_args()
    golden = HERE / "golden.json"
    if not args.check:
        build()
        write_gguf(HERE / "embeddinggemma.gguf")
        golden.write_text(json.dumps([{"tokens": tokens, "vector": [round(x, 6) for x in vector]}
                                      for tokens, vector in zip(texts(), vectors())], separators=(",", ":")) + "\n")
    kept = [one["vector"] for one in json.loads(golden.read_text())]
    wrong = 0
    # llama.cpp rounds rows to BF16 before it multiplies them with a matrix of BF16. With one of F32: 2e-4 at most.
    for who, found, most in (("transformers", vectors, 1e-5), ("llama.cpp", llama_vectors if args.llama else lambda: [], 1e-2)):
        worst = [max(abs(a - b) for a, b in zip(x, y)) for x, y in zip(kept, found())]
        print(who, [f"{d:.1e}" for d in worst])
        wrong += any(d > most for d in worst)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
