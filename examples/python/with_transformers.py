"""Hugging Face transformers with fused caches: the model computes, libblend stores and selects.

    python with_transformers.py [--model DIR_OR_NAME] [--store DIR] [--ratio R] [--device cpu]
"""

import argparse
import pathlib
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from libblend.transformers import Blender
from to_hugging_face import example_model

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", help="default: the example model")
    parser.add_argument("--documents", type=pathlib.Path, default=EXAMPLES / "data" / "documents")
    parser.add_argument("--question", default=(EXAMPLES / "data" / "question.txt").read_text().strip())
    parser.add_argument("--store", help="directory to keep the chunks in; default: a temporary one")
    parser.add_argument("--ratio", type=float, default=0.15)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    name = args.model or example_model()
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = AutoModelForCausalLM.from_pretrained(name).to(args.device).eval()
    with tempfile.TemporaryDirectory() as scratch:
        blender = Blender(model, tokenizer, store=args.store or scratch)
        documents = [path.read_text() for path in sorted(args.documents.glob("*.txt"))]
        prompt = blender.prompt(documents, f"Question: {args.question}\nAnswer:")
        blender.fuse(prompt, ratio=args.ratio)  # prefills and stores what is new

        begin = time.perf_counter()
        fused = blender.fuse(prompt, ratio=args.ratio)
        fused_ms = (time.perf_counter() - begin) * 1e3
        begin = time.perf_counter()
        with torch.inference_mode():
            full = model(fused.input_ids, use_cache=True, logits_to_keep=1).logits[0, -1]
        full_ms = (time.perf_counter() - begin) * 1e3
        tokens = model.generate(**fused.inputs, max_new_tokens=16, do_sample=False)
        answer = tokenizer.decode(tokens[0, fused.input_ids.shape[1]:], skip_special_tokens=True)
        print(f"first token: full {full_ms:.1f} ms, fused {fused_ms:.1f} ms, {len(fused.selected)} of "
              f"{fused.input_ids.shape[1]} rows recomputed")
        print(f"max |logit difference| {(full - fused.logits).abs().max():.2e}")
        print(answer.strip())


if __name__ == "__main__":
    main()
