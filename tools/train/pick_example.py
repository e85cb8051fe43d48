"""Looks for a small prompt that shows the point, and writes it as documents and a question.

    python pick_example.py --model work/run/checkpoint.pt --tokenizer work/tokenizer/tokenizer.model --out ../../examples/data

The example is picked, not typical: among held-out prompts of four or five
chunks it is the first whose answer spans two chunks, that full prefill and
recomputing 15 % get right and plain reuse gets wrong, whether chunks are
prefilled alone or after a BOS that is dropped.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch

from fusion_reference import answers, load_model
from generate import record
from prompts import Mix, make_prompt
from tokenizer import Coder


def main() -> None:
    """Read the options, search, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--kinds", nargs="+", default=["carry", "price", "keeper"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, coder = load_model(options.model, torch.float32), Coder(options.tokenizer)
    rng = random.Random(f"example:{options.seed}")
    tried = 0
    while True:
        prompt = make_prompt(rng, True, Mix(4, 5))
        for fact in prompt.facts:
            if fact.passages != 2 or fact.kind not in options.kinds:
                continue
            tried += 1
            case = record(prompt, fact, "held-out")
            said = [answers(model, coder, case, [0.0, 0.15], prefix) for prefix in ("none", "bos")]
            texts = [{policy: text for policy, (text, _) in one.items()} for one in said]
            if all(t["full"] == t["hkvd 15 %"] == fact.answer != t["reuse"] for t in texts):
                folder = options.out / "documents"
                folder.mkdir(parents=True, exist_ok=True)
                for number, chunk in enumerate(prompt.chunks, start=1):
                    (folder / f"{number}.txt").write_text(chunk, encoding="utf-8")
                (options.out / "question.txt").write_text(fact.question + "\n", encoding="utf-8")
                print("".join(prompt.chunks) + fact.question)
                print(f"question {tried} tried; alone: {texts[0]}; after BOS: {texts[1]}")
                return


if __name__ == "__main__":
    main()
