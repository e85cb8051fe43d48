"""Trains the model on ordinary full prompts; nothing of fusion is in here.

    python train.py --tokenizer work/tokenizer/tokenizer.model --out work/run

Run it again to go on from the last checkpoint. Seeds are fixed: a step's batch
depends on the seed and the step alone.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from batches import Batch, batches, make_row, stack
from model import Config, Llama
from prompts import Shape, make_prompt
from tokenizer import Coder


class Validation:
    """Held-out prompts with every question; a question counts if all its answer tokens do."""

    def __init__(self, coder: Coder, count: int) -> None:
        rng = random.Random("validation")
        prompts = [make_prompt(rng, held_out=True) for _ in range(count)]
        prompts.sort(key=lambda prompt: sum(map(len, prompt.chunks)))
        self.prompts = [prompts[i : i + 16] for i in range(0, count, 16)]
        self.batches = [stack([make_row(prompt, coder, 99) for prompt in group]) for group in self.prompts]

    @torch.no_grad()
    def run(self, model: Llama) -> dict[str, float]:
        """Exact match in all, by passages needed and by kind."""
        right: dict[str, list[bool]] = {}
        for group, batch in zip(self.prompts, self.batches):
            best = model.logits(model(batch.ids, batch.positions, batch.mask)).argmax(-1)
            for prompt, target, guess in zip(group, batch.answer_targets, best):
                at = (target >= 0).nonzero().flatten().tolist()
                hits = (guess == target).tolist()
                answers: list[list[int]] = []
                for i in at:
                    if not answers or i != answers[-1][-1] + 1:
                        answers.append([])
                    answers[-1].append(i)
                for fact, places in zip(prompt.facts, answers):
                    for name in ("all", f"hops {fact.passages}", fact.kind):
                        right.setdefault(name, []).append(all(hits[i] for i in places))
        return {name: sum(values) / len(values) for name, values in sorted(right.items())}


def loss_of(model: Llama, batch: Batch, text_weight: float) -> tuple[torch.Tensor, float]:
    """Cross entropy of answers plus a share of that of the chunks' text; and the former alone."""
    hidden = model(batch.ids, batch.positions, batch.mask)
    picked = batch.answer_targets >= 0
    answer = F.cross_entropy(model.logits(hidden[picked]).float(), batch.answer_targets[picked])
    loss = answer
    if text_weight > 0:
        picked = batch.text_targets >= 0
        loss = loss + text_weight * F.cross_entropy(model.logits(hidden[picked]).float(), batch.text_targets[picked])
    return loss, answer.item()


def rate(step: int, steps: int, warmup: int) -> float:
    """Rise, stay, and fall over the last 40 %."""
    if step < warmup:
        return (step + 1) / warmup
    left = (steps - step) / (0.4 * steps)
    return max(0.0, min(1.0, left))


def shapes(steps: int, share: float):
    """A short curriculum: from two chunks to eight over the first `share` of the steps."""

    def shape_at(step: int) -> Shape:
        grown = min(1.0, step / max(1.0, share * steps))
        return Shape(2, round(2 + 6 * grown), 24, round(30 + 60 * grown))

    return shape_at


def save(path: Path, model: Llama, optimizers: list[torch.optim.Optimizer], step: int, seconds: float) -> None:
    """Write a checkpoint whole or not at all."""
    state = {
        "config": model.config.as_dict(),
        "model": model.state_dict(),
        "optimizers": [o.state_dict() for o in optimizers],
        "step": step,
        "seconds": seconds,
    }
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def main() -> None:
    """Read the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=8192, help="tokens of a step's batch")
    parser.add_argument("--width", type=int, default=Config.width)
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--heads", type=int, default=Config.heads)
    parser.add_argument("--kv-heads", type=int, default=Config.kv_heads)
    parser.add_argument("--hidden", type=int, default=Config.hidden)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--text-weight", type=float, default=0.2)
    parser.add_argument("--curriculum", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="compute matrix products in bfloat16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--every", type=int, default=100, help="steps between log lines; ten times as many between validations")
    parser.add_argument("--stop-at", type=int, help="leave after this step, the schedule unchanged")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    coder = Coder(options.tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = Config(
        vocab=len(coder), width=options.width, layers=options.layers, heads=options.heads,
        kv_heads=options.kv_heads, hidden=options.hidden,
    )
    model = Llama(config).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} weights on {device}", flush=True)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and not n.startswith("embed")]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or n.startswith("embed")]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=options.rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=options.rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    checkpoint, step, seconds = options.out / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        step, seconds = state["step"], state["seconds"]
        print(f"going on from step {step}", flush=True)
    if options.compile:
        for layer in model.layers:
            layer.compile(dynamic=True)

    validation = Validation(coder, 160)
    log = (options.out / "log.jsonl").open("a", encoding="utf-8")
    source = batches(coder, options.seed, step, shapes(options.steps, options.curriculum), options.tokens)
    began, seen, total = time.monotonic() - seconds, 0, 0.0
    end = min(options.steps, options.stop_at or options.steps)
    while step < end:
        batch = next(source)
        batch = Batch(*(tensor.to(device) for tensor in vars(batch).values()))
        factor = rate(step, options.steps, 100)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = options.rate * factor
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            loss, answer_loss = loss_of(model, batch, options.text_weight)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, seen, total = step + 1, seen + batch.ids.numel(), total + answer_loss
        if step % options.every == 0 or step == end:
            seconds = time.monotonic() - began
            line: dict[str, object] = {"step": step, "seconds": round(seconds), "loss": round(total / options.every, 4), "tokens": seen}
            if step % (10 * options.every) == 0 or step == end:
                model.eval()
                line["held_out"] = {k: round(v, 3) for k, v in validation.run(model).items()}
                model.train()
                save(checkpoint, model, optimizers, step, seconds)
            print(json.dumps(line), flush=True)
            log.write(json.dumps(line) + "\n")
            log.flush()
            total = 0.0


if __name__ == "__main__":
    main()
