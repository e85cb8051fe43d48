"""Asks the written model by transformers and by llama.cpp what the torch model is asked.

    python check_export.py --model work/run/checkpoint.pt --tokenizer work/tokenizer/tokenizer.model \
        --gguf ../../examples/models/blend-qa.gguf --hf ../../examples/models/blend-qa-hf \
        --data ../../examples/data/held-out.jsonl

Token ids and greedy answers must be the same in all three; exits 1 otherwise.
llama.cpp is used through llama-cpp-python.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from fusion_reference import generate, load_model, prefill
from tokenizer import BOS, EOS, Coder, question_text

MOST = 12


def segments(record: dict) -> list[str]:
    """The texts of a prompt that are tokenized each on its own."""
    return [*record["chunks"], question_text(record["question"])]


def by_transformers(folder: Path, records: list[dict]) -> tuple[list[list[int]], list[str], list[np.ndarray]]:
    """Prompt ids, answers and last-row scores from the Hugging Face directory."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    prompts, texts, scores = [], [], []
    for record in records:
        ids = [BOS] + [i for s in segments(record) for i in tokenizer.encode(s, add_special_tokens=False)]
        with torch.no_grad():
            out = model(torch.tensor([ids])).logits[0, -1].numpy()
            new = model.generate(torch.tensor([ids]), max_new_tokens=MOST, do_sample=False, pad_token_id=EOS)
        answer = [i for i in new[0, len(ids) :].tolist() if i != EOS]
        prompts.append(ids)
        texts.append(tokenizer.decode(answer).strip())
        scores.append(out)
    return prompts, texts, scores


def by_llama_cpp(path: Path, records: list[dict]) -> tuple[list[list[int]], list[str], list[np.ndarray]]:
    """The same from the GGUF file."""
    model = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=1024, n_threads=2, logits_all=True, verbose=False)
    prompts, texts, scores = [], [], []
    for record in records:
        ids = [BOS]
        for segment in segments(record):
            ids += model.tokenize(segment.encode(), add_bos=False, special=False)
        model.reset()
        model.eval(ids)
        row = np.array(model.scores[len(ids) - 1])
        scores.append(row.copy())
        answer: list[int] = []
        while len(answer) < MOST and int(row.argmax()) != EOS:
            answer.append(int(row.argmax()))
            model.eval(answer[-1:])
            row = np.array(model.scores[len(ids) + len(answer) - 1])
        prompts.append(ids)
        texts.append(model.detokenize(answer).decode().strip())
    return prompts, texts, scores


def by_torch(model_path: Path, coder: Coder, records: list[dict]) -> tuple[list[list[int]], list[str], list[np.ndarray]]:
    """The same from the checkpoint."""
    model = load_model(model_path, torch.float32)
    prompts, texts, scores = [], [], []
    for record in records:
        ids = [BOS] + [i for s in segments(record) for i in coder.segment(s)]
        cache, logits = prefill(model, ids)
        prompts.append(ids)
        texts.append(coder.text(generate(model, cache, logits, MOST)))
        scores.append(logits.numpy())
    return prompts, texts, scores


def main() -> None:
    """Read the options, ask all three, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--hf", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(2)
    coder = Coder(options.tokenizer)
    with options.data.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines][: options.count]
    ours = by_torch(options.model, coder, records)
    right = sum(text in record["answers"] for text, record in zip(ours[1], records))
    print(f"torch: {right} of {len(records)} right")
    failed = False
    for name, theirs in (
        ("transformers", by_transformers(options.hf, records)),
        ("llama.cpp", by_llama_cpp(options.gguf, records)),
    ):
        same_ids = sum(a == b for a, b in zip(ours[0], theirs[0]))
        same_text = sum(a == b for a, b in zip(ours[1], theirs[1]))
        apart = max(float(np.abs(a - b).max()) for a, b in zip(ours[2], theirs[2]))
        print(f"{name}: token ids equal in {same_ids}, answers in {same_text}; max |difference of scores| {apart:.4f}")
        failed |= same_ids < len(records) or same_text < len(records)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
