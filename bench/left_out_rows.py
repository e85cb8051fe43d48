#!/usr/bin/env python3
"""The worth of records that lack rows: KL and exact match, in float64.

    PYTHONPATH=build/release/bindings/python bench/left_out_rows.py --model model.gguf --data q.jsonl

The rows of a chunk are ranked by its own text's need of them, before any question exists:

  kvzip    the chunk is prefilled again after itself; the most attention that a row gets there (after KVzip,
           arXiv 2505.23416)
  h2o      the mean attention of the later rows of its chunk (after H2O, arXiv 2306.14048)
  snapkv   that of the last 16 rows (after SnapKV, arXiv 2404.14469)
  random   nothing

A share of them is kept, the same in all layers or, `by layer`, each layer's own; the others are absent from
attention. Rows are then recomputed as `hkvd` does, weighed, with its first layer and the K, V of its check layer
for all rows, the absent ones too. `int4` keeps all rows in 4 bits, to compare. Intervals are paired, 95 %.
Written from the ideas, not from the authors' code. Needs numpy; `field_methods.py` has the forward pass.
"""
import argparse
import json
import math

import libblend
import numpy as np

import field_methods as fm


class Absent(fm.Llama):
    """A forward pass that does not see some rows of a layer."""

    absent, layer = None, 0  # [layers, rows] or None

    def project(self, layer, x):
        self.layer = layer
        return super().project(layer, x)

    def attention(self, q, at, keys):
        group = self.heads // self.kv_heads
        k = np.repeat(self.turn(keys, np.arange(len(keys))), group, 1)
        scores = np.einsum("ihd,jhd->hij", self.turn(q, at), k, optimize=True) / math.sqrt(self.head)
        hidden = np.arange(len(keys))[None, None] > at[None, :, None]
        if self.absent is not None:
            gone = np.zeros(len(keys), bool)
            gone[:self.absent.shape[1]] = self.absent[self.layer]
            hidden = hidden | gone[None, None]
        scores = np.where(hidden, -np.inf, scores)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)

    def probabilities(self, ids, at, cache):
        x, out = self.t["token_embd.weight"][ids[at]], []
        for layer in range(self.layers):
            q, k, v = self.project(layer, x)
            cache[layer][0][at], cache[layer][1][at] = k, v
            out.append(self.attention(q, at, cache[layer][0]))
            x = self.finish(layer, x, out[-1], cache[layer][1])
        return out


def rank(llama, chunk):
    """[layers, rows] by method, and the mean attention inside the chunk, [rows]."""
    n, cache = len(chunk), llama.empty(2 * len(chunk))
    twice = np.concatenate([chunk, chunk])
    own = [p[:, :, :n] for p in llama.probabilities(twice, np.arange(n), cache)]
    again = [p[:, :, :n] for p in llama.probabilities(twice, np.arange(n, 2 * n), cache)]
    later = np.tril(np.ones((n, n)), -1)
    rng = np.random.default_rng(len(chunk) * 7919 + int(chunk.sum()))
    return {"kvzip": np.stack([p.max((0, 1)) for p in again]),
            "h2o": np.stack([(p * later).sum((0, 1)) / np.maximum(1, later.sum(0)) for p in own]),
            "snapkv": np.stack([p[:, -16:].mean((0, 1)) for p in own]),
            "random": np.repeat(rng.random(n)[None], llama.layers, 0),
            "inside": np.mean([p.mean((0, 1)) for p in own], 0)}


def leave_out(scores, share, by_layer):
    """[layers, rows]: 1 is absent."""
    if not by_layer:  # by the largest share that the row has of any layer's largest score
        scores = np.repeat((scores / scores.max(1, keepdims=True)).max(0)[None], len(scores), 0)
    gone = np.ones(scores.shape, bool)
    for layer, row in enumerate(scores):
        gone[layer, np.argsort(-row, kind="stable")[:max(1, math.ceil(share * len(row)))]] = False
    return gone


def in_4_bits(rows, axis):
    """Groups of 32 of [tokens, channels], along tokens (0) or channels (1)."""
    x = rows.reshape(len(rows), -1).copy()
    for b in range(0, x.shape[axis], 32):
        part = x[b:b + 32] if axis == 0 else x[:, b:b + 32]
        low = part.min(axis, keepdims=True)
        step = (part.max(axis, keepdims=True) - low) / 15
        step = np.where(step == 0, 1, step)
        part[...] = np.round((part - low) / step) * step + low
    return x.reshape(rows.shape)


def hkvd(llama, p, ratio):
    at = np.arange(len(p.ids))
    x = llama.t["token_embd.weight"][p.ids]
    q, k, v = llama.project(0, x)
    x = llama.finish(0, x, llama.attention(q, at, k), v)
    fresh = llama.project(1, x)[2]
    deviation = np.sqrt(((fresh - p.stored[1][1]) ** 2).sum((1, 2))) * p.inside
    return sorted(sorted(p.candidates, key=lambda r: -deviation[r])[:fm.budget_of(ratio, p.n_reused)])


def fuse(llama, p, gone, rows, most):
    cache, at = p.fresh_cache(), np.concatenate((rows, p.question)).astype(int)
    gone = gone.copy()
    if rows:
        for layer in (0, 1):
            cache[layer] = [c.copy() for c in p.full_cache[layer]]
        gone[:2] = False
    gone[:, at] = False
    llama.absent = gone
    logits, _ = llama.run(p.ids, at, cache)
    answer = llama.answer(p.ids, cache, logits, most) if most else []
    llama.absent = None
    return logits, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="records as `blend eval` reads them")
    parser.add_argument("--question-template", default="Question: {question}\\nAnswer:")
    parser.add_argument("--first", type=int, default=0, help="records that are passed over")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--ratios", default="0,0.05,0.15")
    parser.add_argument("--keep", default="0.5,0.25,0.01")
    parser.add_argument("--max-tokens", type=int, default=12, help="0: no answers, KL alone")
    args = parser.parse_args()
    llama = Absent(args.model)
    model = libblend.Model(libblend.Context(threads=1), args.model)
    cached, ranks, prompts = {}, {}, []
    with open(args.data, encoding="utf-8") as file:
        records = file.read().splitlines()[args.first:args.first + args.limit]
    for record in map(json.loads, records):
        template = args.question_template.replace("\\n", "\n")
        p = fm.Prompt(llama, model.tokenize, record, template, 1, False, cached)
        p.accepted, p.inside = fm.flat(record["answers"]), np.zeros(len(p.ids))
        p.full_cache, p.full = llama.prefill(p.ids)
        for (a, b), chunk in zip(p.spans, p.chunks):
            key = tuple(chunk)
            if key not in ranks:
                ranks[key] = rank(llama, chunk)
            p.inside[a:b] = ranks[key]["inside"]
        prompts.append(p)

    def right(p, answer):
        text = model.detokenize(np.array(answer, np.int32)).split("\n", 1)[0].strip()
        return fm.scores(text, p.accepted)[0]

    rng, base = np.random.default_rng(1), None

    def measure(name, ratio, method="random", share=1.0, by_layer=False):
        kls, ems = [], []
        for p in prompts:
            gone = np.zeros((llama.layers, len(p.ids)), bool)
            for (a, b), chunk in zip(p.spans, p.chunks):
                if share < 1:
                    gone[:, a:b] = leave_out(ranks[tuple(chunk)][method], share, by_layer)
            rows = hkvd(llama, p, ratio) if ratio > 0 else []
            logits, answer = fuse(llama, p, gone, rows, args.max_tokens)
            kls.append(max(0.0, fm.kl(p.full, logits)))
            ems.append(right(p, answer) if args.max_tokens else 0)
        more = np.array(kls) - (np.array(kls) if base is None else base)
        means = [more[rng.integers(0, len(more), len(more))].mean() for _ in range(4000)]
        low, high = np.percentile(means, (2.5, 97.5))
        print(f"{name:32s} KL {np.mean(kls):.2e} [{low:+.1e}, {high:+.1e}]" +
              f"  EM {100 * np.mean(ems):.0f} %" * bool(args.max_tokens), flush=True)
        return np.array(kls)

    for ratio in map(float, args.ratios.split(",")):
        base = None
        print(f"{100 * ratio:g} % recomputed; intervals: more than all rows")
        base = measure("all rows", ratio)
        for share in map(float, args.keep.split(",")):
            for method in ("kvzip", "h2o", "snapkv", "random"):
                measure(f"{100 * share:g} % {method}", ratio, method, share)
            measure(f"{100 * share:g} % kvzip by layer", ratio, "kvzip", share, True)
        stored = [[[c.copy() for c in kv] for kv in p.stored] for p in prompts]
        for p in prompts:
            for a, b in p.spans:
                for k, v in p.stored:
                    k[a:b], v[a:b] = in_4_bits(k[a:b], 0), in_4_bits(v[a:b], 1)
        measure("int4", ratio)
        for p, kept in zip(prompts, stored):
            p.stored = kept


if __name__ == "__main__":
    main()
