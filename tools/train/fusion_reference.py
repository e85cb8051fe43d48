"""Full prefill, plain reuse and selective recompute in plain torch, and how often each is right.

    python fusion_reference.py --model work/run/checkpoint.pt --tokenizer work/tokenizer/tokenizer.model --data held-out.jsonl

Written for reading, not for speed, and shares no code with the C++ library, so
that it can serve as its oracle. Row i of the prompt is at position i. BOS is a
segment of its own at position 0 and exact; each chunk's K (before RoPE) and V
come from a prefill of the chunk alone, or after a BOS whose row is dropped.

Selective recompute (CacheBlend, section 4): layer 0 runs for all rows; at the
check layer K and V are made for all rows, the deviation of a row is the sum of
squared differences of its V, and the ceil(ratio * context rows) rows with the
largest go on, together with the question. Fresh K, V are kept for all rows at
every layer up to the check layer; later layers use the stored K, V of the rows
not chosen. A row attends to exactly the rows at or before its position.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from model import Config, Layer, Llama, rope_table, rotate
from tokenizer import BOS, EOS, Coder, question_text


@dataclass
class Cache:
    """K before RoPE and V of every layer, each [rows, kv_heads, head]."""

    keys: list[Tensor]
    values: list[Tensor]


@dataclass
class Outcome:
    """A fused cache, the scores of the last row, and which context rows were recomputed."""

    cache: Cache
    logits: Tensor  # [vocab]
    chosen: Tensor  # [rows chosen], positions


def load_model(path: Path, dtype: torch.dtype) -> Llama:
    """Read a checkpoint of train.py."""
    state = torch.load(path, map_location="cpu")
    config = Config(**state["config"])
    model = Llama(config)
    model.load_state_dict(state["model"])
    return model.to(dtype).eval()


def project(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q, K (both before RoPE) and V of rows x [rows, width]."""
    c, h = layer.config, layer.input_norm(x)
    return (
        layer.q(h).view(-1, c.heads, c.head),
        layer.k(h).view(-1, c.kv_heads, c.head),
        layer.v(h).view(-1, c.kv_heads, c.head),
    )


def attend(layer: Layer, x: Tensor, q: Tensor, at: Tensor, keys: Tensor, values: Tensor, places: Tensor) -> Tensor:
    """Finish a layer for the rows at positions `at` over keys at positions `places`."""
    c = layer.config
    cos, sin = rope_table(at, c.head, c.theta, x.dtype)
    q = rotate(q, cos[:, None], sin[:, None])
    cos, sin = rope_table(places, c.head, c.theta, x.dtype)
    k = rotate(keys, cos[:, None], sin[:, None])
    group = c.heads // c.kv_heads
    k, v = k.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(c.head)
    scores = scores.masked_fill(places[None, None, :] > at[None, :, None], -math.inf)
    mixed = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v)
    x = x + layer.o(mixed.reshape(len(at), -1))
    h = layer.mlp_norm(x)
    return x + layer.down(F.silu(layer.gate(h)) * layer.up(h))


@torch.no_grad()
def prefill(model: Llama, ids: list[int]) -> tuple[Cache, Tensor]:
    """Full prefill of ids at positions 0, 1, ...: the cache and the last row's scores."""
    places = torch.arange(len(ids))
    x = model.embed(torch.tensor(ids))
    cache = Cache([], [])
    for layer in model.layers:
        q, k, v = project(layer, x)
        cache.keys.append(k)
        cache.values.append(v)
        x = attend(layer, x, q, places, k, v, places)
    return cache, model.logits(model.norm(x[-1]))


def stored(model: Llama, chunks: list[list[int]], after_bos: bool) -> Cache:
    """What a store would hold, in prompt order: BOS, then every chunk prefilled by itself."""
    parts = [prefill(model, [BOS])[0]]
    for ids in chunks:
        part = prefill(model, [BOS] + ids if after_bos else ids)[0]
        if after_bos:
            part = Cache([k[1:] for k in part.keys], [v[1:] for v in part.values])
        parts.append(part)
    layers = range(len(model.layers))
    return Cache([torch.cat([p.keys[n] for p in parts]) for n in layers], [torch.cat([p.values[n] for p in parts]) for n in layers])


@torch.no_grad()
def fuse(model: Llama, context: list[int], question: list[int], old: Cache, ratio: float, check: int = 1) -> Outcome:
    """Fuse the stored cache of the context and compute the question; ratio 0 is plain reuse."""
    rows = len(context)
    ids, places = torch.tensor(context + question), torch.arange(rows + len(question))
    budget = math.ceil(ratio * rows)
    at = places if budget else places[rows:]
    chosen = torch.empty(0, dtype=torch.long)
    x = model.embed(ids[at])
    cache = Cache([], [])
    for number, layer in enumerate(model.layers):
        q, k, v = project(layer, x)
        if budget and number == check:
            deviation = (v[:rows] - old.values[number]).square().sum((1, 2))
            chosen = deviation.topk(budget).indices.sort().values
            keys, values = k, v
            at = torch.cat((chosen, places[rows:]))
            x, q = x[at], q[at]
        else:
            empty = k.new_zeros(len(question), *k.shape[1:])
            keys, values = torch.cat((old.keys[number], empty)), torch.cat((old.values[number], empty))
            keys[at], values[at] = k, v
        cache.keys.append(keys)
        cache.values.append(values)
        x = attend(layer, x, q, at, keys, values, places)
    return Outcome(cache, model.logits(model.norm(x[-1])), chosen)


@torch.no_grad()
def generate(model: Llama, cache: Cache, logits: Tensor, most: int = 12) -> list[int]:
    """Greedy answer from a cache, without the EOS."""
    ids: list[int] = []
    keys, values = list(cache.keys), list(cache.values)
    while len(ids) < most:
        best = int(logits.argmax())
        if best == EOS:
            break
        ids.append(best)
        place = keys[0].shape[0]
        x = model.embed(torch.tensor([best]))
        for n, layer in enumerate(model.layers):
            q, k, v = project(layer, x)
            keys[n], values[n] = torch.cat((keys[n], k)), torch.cat((values[n], v))
            x = attend(layer, x, q, torch.tensor([place]), keys[n], values[n], torch.arange(place + 1))
        logits = model.logits(model.norm(x[-1]))
    return ids


def answers(
    model: Llama, coder: Coder, record: dict, ratios: list[float], prefix: str, check: int = 1
) -> dict[str, tuple[str, float]]:
    """Per policy: the answer to a record's question, and KL of the first token against full prefill."""
    chunks = [coder.segment(chunk) for chunk in record["chunks"]]
    context = [BOS] + [i for chunk in chunks for i in chunk]
    question = coder.segment(question_text(record["question"]))
    cache, logits = prefill(model, context + question)
    truth = logits.log_softmax(-1)
    result = {"full": (coder.text(generate(model, cache, logits)), 0.0)}
    old = stored(model, chunks, prefix == "bos")
    for ratio in ratios:
        out = fuse(model, context, question, old, ratio, check)
        name = "reuse" if ratio == 0 else f"hkvd {100 * ratio:g} %"
        kl = float((truth.exp() * (truth - out.logits.log_softmax(-1))).sum())
        result[name] = (coder.text(generate(model, out.cache, out.logits)), kl)
    return result


def check_ratio_one(model: Llama, coder: Coder, record: dict) -> float:
    """Largest difference of the scores between ratio 1 and full prefill."""
    chunks = [coder.segment(chunk) for chunk in record["chunks"]]
    context = [BOS] + [i for chunk in chunks for i in chunk]
    question = coder.segment(question_text(record["question"]))
    out = fuse(model, context, question, stored(model, chunks, False), 1.0)
    return float((out.logits - prefill(model, context + question)[1]).abs().max())


def main() -> None:
    """Read the options, answer every question every way, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.0, 0.05, 0.15, 0.3])
    parser.add_argument("--prefixes", nargs="+", choices=("none", "bos"), default=["none", "bos"])
    parser.add_argument("--check", type=int, default=1, help="the layer at which deviations are measured")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--out", type=Path, help="write the counts as JSON")
    options = parser.parse_args()
    torch.set_num_threads(2)
    model = load_model(options.model, torch.float64 if options.float64 else torch.float32)
    coder = Coder(options.tokenizer)
    with options.data.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines][: options.limit]
    print(f"ratio 1 against full prefill: max |difference of scores| {check_ratio_one(model, coder, records[0]):.2e}")
    report: dict[str, dict[str, dict[str, float]]] = {}
    for prefix in options.prefixes:
        table: dict[str, dict[str, list[float]]] = {}
        for record in records:
            for policy, (text, kl) in answers(model, coder, record, options.ratios, prefix, options.check).items():
                right = float(text in record["answers"])
                row = table.setdefault(policy, {})
                for group in ("all", f"hops {record['hops']}", record["kind"]):
                    row.setdefault(group, []).append(right)
                row.setdefault("KL", []).append(kl)
        groups = sorted({group for row in table.values() for group in row}, key=lambda g: (g != "all", g))
        print(f"\n{len(records)} questions, chunks prefilled {'after a BOS that is dropped' if prefix == 'bos' else 'alone'}")
        print("policy     " + " ".join(f"{group:>9}" for group in groups))
        report[prefix] = {}
        for policy, row in table.items():
            means = {group: sum(row[group]) / len(row[group]) for group in groups}
            report[prefix][policy] = {group: round(mean, 4) for group, mean in means.items()}
            print(f"{policy:<11}" + " ".join(f"{means[g]:9.4f}" if g == "KL" else f"{100 * means[g]:8.1f}%" for g in groups))
    if options.out:
        options.out.write_text(json.dumps({"questions": len(records), "prefixes": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()
