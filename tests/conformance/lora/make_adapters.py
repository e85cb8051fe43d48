#!/usr/bin/env python3
"""Writes random LoRA adapters of models in ../hf, saved by PEFT, with the logits that PEFT computes
with them in F32.

    make_adapters.py [--check]

needs torch, transformers and peft (2.15, 5.24 and 0.21 wrote the files here). --check computes with the
committed adapters again and compares with the committed logits.

Files: <model>/adapter_config.json and adapter_model.safetensors; <model>/golden.json: "prompt" and its last
row's "logits".
"""
import argparse
import json
import pathlib
import sys

try:
    import peft
    import torch
    import transformers
except ImportError:
    print("skipped: the Python packages torch, transformers and peft are not installed")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 483  # of the models in ../hf
USUAL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# model, or model.what: what its LoraConfig has
ADAPTERS = {
    "llama": dict(r=4, lora_alpha=6, target_modules=USUAL + ["lm_head"],
                  rank_pattern={"layers.1.self_attn.q_proj": 2, "down_proj": 3}, alpha_pattern={"v_proj": 9}),
    "qwen3": dict(r=3, lora_alpha=5, target_modules=USUAL, use_rslora=True),
    "gemma3": dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj"]),
    "phi3": dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "smollm3": dict(r=2, lora_alpha=4, target_modules=USUAL, layers_to_transform=[0, 2]),
    # The output is the embedding in the first, which multiplies the embedding's rows besides, and in the second.
    "gemma3.embedding": dict(r=3, lora_alpha=5, target_modules=["embed_tokens", "q_proj"]),
    "qwen3.embedding": dict(r=4, lora_alpha=3, target_modules=["embed_tokens", "lm_head", "v_proj"],
                            rank_pattern={"embed_tokens": 2}),
    "llama.embedding": dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "lm_head"], use_rslora=True),
}


def base(name):
    return transformers.AutoModelForCausalLM.from_pretrained(
        HERE.parent / "hf" / name.partition(".")[0], dtype=torch.float32, attn_implementation="eager").eval()


def build(name):
    torch.manual_seed(sum(map(ord, name)))
    model = peft.get_peft_model(base(name), peft.LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name]))
    for key, weight in model.named_parameters():
        if "lora_" in key:  # B begins with zeros
            with torch.no_grad():
                weight.normal_(0, 0.3)
    model.peft_config["default"].base_model_name_or_path = "hf/" + name.partition(".")[0]
    # By itself it also saves the whole matrix beside an adapted output.
    model.save_pretrained(HERE / name, save_embedding_layers=False)
    (HERE / name / "README.md").unlink(missing_ok=True)


def reference(name):
    model = peft.PeftModel.from_pretrained(base(name), HERE / name).eval()
    prompt = torch.randint(3, VOCAB, (1, 29), generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        logits = model(prompt).logits[0, -1]
        with model.disable_adapter():
            change = (model(prompt).logits[0, -1] - logits).abs().max()
    return {"prompt": prompt[0].tolist(), "logits": [round(x, 5) for x in logits.tolist()]}, float(change)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    wrong = 0
    for name in ADAPTERS:
        path = HERE / name / "golden.json"
        if not args.check:
            build(name)
        golden, change = reference(name)
        if not args.check:
            path.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
            print(name, "changes logits by up to", change)
            continue
        kept = json.loads(path.read_text())
        worst = max(abs(a - b) for a, b in zip(kept["logits"], golden["logits"]))
        if worst > 1e-3 or kept["prompt"] != golden["prompt"]:
            print(f"{name}: logits differ by {worst}")
            wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
