"""Trains the model on ordinary full prompts; nothing of fusion is in here.

    python train.py --tokenizer work/tokenizer/tokenizer.model --out work/run

Run it again to go on from the last checkpoint. Seeds are fixed: a step's batch
depends on the seed and the step alone.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn import functional as F

from batches import Batch, Stage, batches, make_row, stack
from model import Config, Llama
from prompts import Mix, contested, make_prompt
from start import start
from stories import BUILDERS, Builder, carry, cleaning, pair, role
from tokenizer import Coder


class Validation:
    """Held-out prompts with every question; a question counts if all its answer tokens do."""

    def __init__(self, coder: Coder, count: int, mix: Mix) -> None:
        rng = random.Random("validation")
        prompts = [make_prompt(rng, True, mix) for _ in range(count)]
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
                    names = ["all", f"hops {fact.passages}", fact.kind]
                    for name in names + ["contested"] * contested(fact, prompt.facts):
                        right.setdefault(name, []).append(all(hits[i] for i in places))
        return {name: sum(values) / len(values) for name, values in sorted(right.items())}


def loss_of(model: Llama, batch: Batch, question_weight: float, text_weight: float) -> tuple[torch.Tensor, float]:
    """Cross entropy of answers plus shares of that of the questions and of the chunks; and the first alone."""
    hidden = model(batch.ids, batch.positions, batch.mask)
    loss, answer_loss = hidden.new_zeros(()), 0.0
    parts = ((batch.answer_targets, 1.0), (batch.question_targets, question_weight), (batch.text_targets, text_weight))
    for targets, weight in parts:
        picked = targets >= 0
        if weight > 0:
            part = F.cross_entropy(model.logits(hidden[picked]).float(), targets[picked])
            loss = loss + weight * part
            answer_loss = answer_loss or part.item()
    return loss, answer_loss


def rate(step: int, steps: int, warmup: int, settle: int, cooldown: int) -> float:
    """Rise, stay until `settle`, fall to less than half soon after, and to nothing over the last `cooldown` steps."""
    settled = 1.0 - 0.6 * min(1.0, max(0.0, (step - settle) / 300))
    return settled * max(0.0, min(1.0, (step + 1) / warmup, (steps - step) / cooldown))


# Kinds that take longest, more often towards the end.
_LATE: tuple[tuple[Builder, float], ...] = tuple(
    (builder, {pair: 3.0, role: 2.5, carry: 2.5}.get(builder, 1.0)) for builder, _ in BUILDERS
)


def stages(
    ask_from: int, refer_from: int, many_from: int, grow_from: int, grow_to: int, late_from: int
) -> Callable[[int], Stage]:
    """The curriculum, from looking a fact up to finding out whom a passage means.

    First statements to be completed about passages of one kind, four to a prompt: from these the model learns to
    look a fact up by whom it is told of, in a few hundred steps, where from questions it takes a multiple. Then
    questions too, about threads of every kind whose sentences name what they are about; references take the place
    of these names by and by. Then up to eight chunks, which then gain fillers;
    towards the end the kinds that take longest come more often. Nearly all is contested all along:
    a model that can tell the answer by the verb unlearns to look it up.
    """

    def stage_at(step: int) -> Stage:
        if step < ask_from:
            return Stage(Mix(4, 4, 8, 10, kinds=((cleaning, 1.0),)), 1.0)
        named = 1.0 - 0.9 * min(1.0, max(0.0, (step - refer_from) / (many_from - refer_from)))
        if step < many_from:
            return Stage(Mix(4, 6, 8, 10, one_kind=0.8, named=named), 0.3)
        grown = min(1.0, max(0.0, (step - grow_from) / (grow_to - grow_from)))
        kinds = BUILDERS if step < late_from else _LATE
        size = round(8 + 16 * grown), round(10 + 80 * grown)
        return Stage(Mix(2, 8, *size, kinds=kinds, one_kind=0.6, named=named), 0.2)

    return stage_at


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


def average_gradients(model: Llama, workers: int) -> None:
    """Give every worker the mean of all workers' gradients."""
    gradients = [weight.grad for weight in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= workers
    at = 0
    for g in gradients:
        g.copy_(flat[at : at + g.numel()].view_as(g))
        at += g.numel()


def work(rank: int, options: argparse.Namespace) -> None:
    """Train as one of `--workers` equal processes; the first one logs and saves."""
    if options.workers > 1:
        dist.init_process_group("gloo", init_method=f"file://{options.meeting}", rank=rank, world_size=options.workers)
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    coder = Coder(options.tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = Config(
        vocab=len(coder), width=options.width, layers=options.layers, heads=options.heads,
        kv_heads=options.kv_heads, hidden=options.hidden,
    )
    model = Llama(config)
    start(model)
    model.to(device)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and not n.startswith(("embed", "output"))]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or n.startswith(("embed", "output"))]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=options.rate, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=options.other_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    checkpoint, step, seconds = options.out / "checkpoint.pt", 0, 0.0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        step, seconds = state["step"], state["seconds"]
    if rank == 0:
        print(f"{sum(p.numel() for p in model.parameters()):,} weights on {device}, from step {step}", flush=True)
        validations = {
            "bare": Validation(coder, options.validation, Mix(4, 8, 8, 10)),
            "held_out": Validation(coder, options.validation, Mix()),
        }
        log = (options.out / "log.jsonl").open("a", encoding="utf-8")
    if options.compile:
        for layer in model.layers:
            layer.compile(dynamic=True)

    o = options
    stage_at = stages(o.ask_from, o.refer_from, o.many_from, o.grow_from, o.grow_to, o.late_from)
    source = batches(coder, f"{o.seed}.{rank}", step, stage_at, o.tokens)
    began, seen, total = time.monotonic() - seconds, 0, 0.0
    end = min(options.steps, options.stop_at or options.steps)
    while step < end:
        batch = Batch(*(tensor.to(device) for tensor in vars(next(source)).values()))
        factor = rate(step, options.steps, options.warmup, options.refer_from, options.cooldown)
        for optimizer, highest in zip(optimizers, (options.rate, options.other_rate)):
            for group in optimizer.param_groups:
                group["lr"] = highest * factor
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            loss, answer_loss = loss_of(model, batch, options.question_weight, options.text_weight)
        loss.backward()
        if options.workers > 1:
            average_gradients(model, options.workers)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, seen, total = step + 1, seen + batch.ids.numel() * options.workers, total + answer_loss
        if rank == 0 and (step % options.every == 0 or step == end):
            seconds = time.monotonic() - began
            line: dict[str, object] = {"step": step, "seconds": round(seconds), "loss": round(total / options.every, 4), "tokens": seen}
            if step % (5 * options.every) == 0 or step == end:
                model.eval()
                for name, validation in validations.items():
                    line[name] = {k: round(v, 3) for k, v in validation.run(model).items()}
                model.train()
                save(checkpoint, model, optimizers, step, seconds)
            print(json.dumps(line), flush=True)
            log.write(json.dumps(line) + "\n")
            log.flush()
            total = 0.0


def main() -> None:
    """Read the options and start the workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6500)
    parser.add_argument("--workers", type=int, default=1, help="processes that share a step; they stand busy neighbours better than threads")
    parser.add_argument("--threads", type=int, default=1, help="threads of a worker")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a worker's batch")
    parser.add_argument("--width", type=int, default=Config.width)
    parser.add_argument("--layers", type=int, default=Config.layers)
    parser.add_argument("--heads", type=int, default=Config.heads)
    parser.add_argument("--kv-heads", type=int, default=Config.kv_heads)
    parser.add_argument("--hidden", type=int, default=Config.hidden)
    parser.add_argument("--rate", type=float, default=6e-3, help="of the layers' matrices (Muon)")
    parser.add_argument("--other-rate", type=float, default=3e-3, help="of embeddings, output and norms (AdamW)")
    parser.add_argument("--question-weight", type=float, default=0.3)
    parser.add_argument("--text-weight", type=float, default=0.0)
    parser.add_argument("--warmup", type=int, default=50, help="steps of rising rate")
    parser.add_argument("--cooldown", type=int, default=2500, help="steps of falling rate, at the end")
    parser.add_argument("--ask-from", type=int, default=350, help="step from which questions are asked")
    parser.add_argument("--refer-from", type=int, default=1000, help="step from which passages refer to earlier ones, and the rates begin to fall")
    parser.add_argument("--many-from", type=int, default=2200, help="step from which prompts have up to eight chunks")
    parser.add_argument("--grow-from", type=int, default=2400, help="step from which chunks gain fillers")
    parser.add_argument("--grow-to", type=int, default=3600, help="step at which they have their full size")
    parser.add_argument("--late-from", type=int, default=6500, help="step from which the kinds that take longest come more often")
    parser.add_argument("--validation", type=int, default=48, help="held-out prompts asked at each checkpoint")
    parser.add_argument("--bf16", action="store_true", help="compute matrix products in bfloat16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--every", type=int, default=50, help="steps between log lines; five times as many between checkpoints")
    parser.add_argument("--stop-at", type=int, help="leave after this step, the schedule unchanged")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.workers == 1:
        work(0, options)
        return
    with tempfile.TemporaryDirectory() as folder:
        options.meeting = f"{folder}/meeting"
        torch.multiprocessing.spawn(work, (options,), nprocs=options.workers)


if __name__ == "__main__":
    main()
