#!/usr/bin/env python3
"""Methods of others that the library does not have, beside its own in one `blend eval` result.

    PYTHONPATH=build/release/bindings/python bench/field_methods.py --model model.gguf \
        --data questions.jsonl --eval result.json --flops 0.2,0.4 --out others.json
    bench/paired.py result.json others.json --against 'cascade v' --flops 0.2,0.4

A forward pass in numpy, float64, over the questions, template and chunk prefix of `result.json`:

  prophet_kv       ProphetKV (arXiv 2602.02579), two passes: the question through all layers over the stored
                   rows; then the rows to which it attends most, mean over layers, heads and the question's
                   rows, are computed from layer 0 on, and the question again. Both passes are counted; with
                   `first pass free` only the second, as in prompts much longer than their question.
  prophet_kv+mean  the same rows; the others take the mean, a chunk and layer, of what the chosen rows of
                   their chunk gained in K (before RoPE) and V (after AgentKVShift, arXiv 2607.21604).
  spaced+mean      the same offset from rows evenly spaced in each chunk: chosen by nothing.

These are written from the ideas alone, as published in abstracts, not from the authors' code. The pass is
checked first: against the library's logits of full prefill and reuse, and its reuse and first_k against the
KL and FLOPs in `result.json`. Llama in GGUF, f32 or f16, with RoPE over neighbouring pairs. Needs numpy.
"""
import argparse
import json
import math
import re
import string
import struct
import tempfile
from collections import Counter

import libblend
import numpy as np


class Weights:
    """The numbers and tensors of a GGUF file."""

    def __init__(self, path):
        data = np.memmap(path, np.uint8, "r")
        self._data, self._at = data, 8
        n_tensors, n_keys = self._unpack("<QQ")
        self.keys = {}
        for _ in range(n_keys):
            key = self._text()
            self.keys[key] = self._value(*self._unpack("<I"))
        infos = [self._info() for _ in range(n_tensors)]
        align = self.keys.get("general.alignment", 32)
        begin = -(-self._at // align) * align
        self.tensors = {}
        for name, dims, kind, offset in infos:
            dtype = {0: np.float32, 1: np.float16}[kind]
            size = math.prod(dims) * np.dtype(dtype).itemsize
            raw = np.frombuffer(data[begin + offset:begin + offset + size].tobytes(), dtype)
            self.tensors[name] = raw.reshape(dims[::-1]).astype(np.float64)

    def _unpack(self, form):
        size = struct.calcsize(form)
        self._at += size
        return struct.unpack(form, self._data[self._at - size:self._at].tobytes())

    def _text(self):
        (n,) = self._unpack("<Q")
        return self._unpack(f"<{n}s")[0].decode(errors="replace")

    def _value(self, kind):
        if kind == 8:
            return self._text()
        if kind == 9:
            of, n = self._unpack("<IQ")
            return [self._value(of) for _ in range(n)]
        form = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind]
        return self._unpack("<" + form)[0]

    def _info(self):
        name = self._text()
        (n,) = self._unpack("<I")
        return name, self._unpack(f"<{n}Q"), *self._unpack("<IQ")


class Llama:
    def __init__(self, path):
        w = Weights(path)
        get = lambda key: w.keys["llama." + key]  # noqa: E731
        self.t, self.layers, self.d = w.tensors, get("block_count"), get("embedding_length")
        self.heads, self.kv_heads = get("attention.head_count"), get("attention.head_count_kv")
        self.head, self.d_ff = self.d // self.heads, get("feed_forward_length")
        self.eps, self.theta = get("attention.layer_norm_rms_epsilon"), get("rope.freq_base")
        self.vocab, self.eos = len(w.keys["tokenizer.ggml.tokens"]), w.keys["tokenizer.ggml.eos_token_id"]
        self.out = self.t.get("output.weight", self.t["token_embd.weight"])

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.t[name]

    def turn(self, x, places):
        angle = places[:, None] * self.theta ** (-np.arange(0, self.head, 2) / self.head)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(x.shape)

    def project(self, layer, x):
        h = self.norm(x, f"blk.{layer}.attn_norm.weight")
        q, k, v = (h @ self.t[f"blk.{layer}.attn_{n}.weight"].T for n in "qkv")
        k, v = (a.reshape(len(x), self.kv_heads, -1) for a in (k, v))
        return q.reshape(len(x), self.heads, -1), k, v

    def attention(self, q, at, keys):
        """Probabilities [heads, rows, keys]; a row sees the rows at or before it."""
        group = self.heads // self.kv_heads
        k = np.repeat(self.turn(keys, np.arange(len(keys))), group, 1)
        scores = np.einsum("ihd,jhd->hij", self.turn(q, at), k, optimize=True) / math.sqrt(self.head)
        scores = np.where(np.arange(len(keys))[None, None] > at[None, :, None], -np.inf, scores)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True)

    def finish(self, layer, x, p, values):
        v = np.repeat(values, self.heads // self.kv_heads, 1)
        mixed = np.einsum("hij,jhd->ihd", p, v, optimize=True).reshape(len(x), -1)
        x = x + mixed @ self.t[f"blk.{layer}.attn_output.weight"].T
        h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
        gate, up = h @ self.t[f"blk.{layer}.ffn_gate.weight"].T, h @ self.t[f"blk.{layer}.ffn_up.weight"].T
        return x + (gate / (1 + np.exp(-gate)) * up) @ self.t[f"blk.{layer}.ffn_down.weight"].T

    def logits(self, x):
        return self.norm(x, "output_norm.weight") @ self.out.T

    def run(self, ids, at, cache, place=None):
        """Rows `at` of ids through all layers over cache (a list of [K, V], changed in place): the last row's
        logits, and what the rows attend to, mean over layers, heads and rows. `place(layer, at, k, v)` may
        change the other rows of a layer once the fresh ones are known."""
        x, seen = self.t["token_embd.weight"][ids[at]], 0
        for layer in range(self.layers):
            q, k, v = self.project(layer, x)
            if place is not None:
                place(layer, at, k, v)
            cache[layer][0][at], cache[layer][1][at] = k, v
            p = self.attention(q, at, cache[layer][0])
            seen = seen + p.mean((0, 1)) / self.layers
            x = self.finish(layer, x, p, cache[layer][1])
        return self.logits(x[-1]), seen

    def empty(self, n):
        return [[np.zeros((n, self.kv_heads, self.head)) for _ in "kv"] for _ in range(self.layers)]

    def prefill(self, ids):
        cache = self.empty(len(ids))
        return cache, self.run(ids, np.arange(len(ids)), cache)[0]

    def answer(self, ids, cache, logits, most):
        """Greedy, without EOS."""
        out = []
        while len(out) < most and (token := int(logits.argmax())) != self.eos:
            out.append(token)
            ids = np.append(ids, token)
            cache = [[np.append(c, np.zeros((1, *c.shape[1:])), 0) for c in kv] for kv in cache]
            logits, _ = self.run(ids, np.array([len(ids) - 1]), cache)
        return out

    # The library's count (src/fusion/correct/work.h), rows being positions.
    def _layers(self, rows):
        """K and V of all layers, and all but the last finished."""
        pairs = sum(r + 1 for r in rows)
        full = len(rows) * self._row() + pairs * 4 * self.d
        return self.layers * len(rows) * 4 * self.d * self.kv_heads * self.head + (self.layers - 1) * full

    def _row(self):
        return 2 * (2 * self.d * self.d + 3 * self.d * self.d_ff)

    def flops(self, rows):
        """A pass up to the logits: the last layer finishes the last row only."""
        return self._layers(rows) + self._row() + (rows[-1] + 1) * 4 * self.d + 2 * self.d * self.vocab

    def probe_flops(self, rows):
        """A pass that only asks for attention: of the last layer Q and scores."""
        return self._layers(rows) + len(rows) * 2 * self.d * self.d + sum(r + 1 for r in rows) * 2 * self.d


class Prompt:
    """BOS, chunks and question of one record, as `blend eval` puts them, and their stored K and V."""

    def __init__(self, llama, tokenize, record, template, bos, after_bos, cached):
        titled = [c["title"] + "\n" * ("title" in c) + c["text"] + "\n" for c in record.get("ctxs", [])]
        chunks = [np.array(tokenize(c)) for c in record.get("chunks") or titled]
        asked = np.array(tokenize(template.replace("{question}", record["question"])))
        self.chunks, self.asked = chunks, asked
        self.ids = np.concatenate([[bos], *chunks, asked]).astype(int)
        self.spans, begin = [], 1
        for chunk in chunks:
            self.spans.append((begin, begin + len(chunk)))
            begin += len(chunk)
        self.question = np.arange(begin, len(self.ids))
        self.stored = llama.empty(len(self.ids))
        all_spans = self.spans
        if after_bos:  # the first chunk is where it was prefilled: a prefix hit, and not a candidate
            self.spans = self.spans[1:]
        self.candidates = [r for a, b in self.spans for r in range(a, b)]
        self.n_reused = sum(map(len, chunks))  # what ratios are of
        parts = [((0, 1), llama.prefill(np.array([bos]))[0], 0)]
        for span, chunk in zip(all_spans, chunks):
            key = tuple(chunk)
            if key not in cached:
                cached[key] = llama.prefill(np.append([bos], chunk) if after_bos else chunk)[0]
            parts.append((span, cached[key], int(after_bos)))
        for (a, b), cache, skip in parts:
            for mine, theirs in zip(self.stored, cache):
                for i in range(2):  # chunks are stored in 16 bits
                    kept = theirs[i][skip:]
                    mine[i][a:b] = kept if a == 0 else kept.astype(np.float16).astype(np.float64)

    def fresh_cache(self):
        return [[c.copy() for c in kv] for kv in self.stored]


def budget_of(ratio, n):
    return min(n, math.ceil(ratio * n - 1e-9))


def spaced(prompt, ratio):
    """A share of each chunk's rows, evenly spaced."""
    rows = []
    for a, b in prompt.spans:
        n = budget_of(ratio, b - a)
        rows += [a + int((i + 0.5) * (b - a) / n) for i in range(n)]
    return sorted(set(rows))


def first_rows(prompt, ratio):
    """The library's first_k: by index over the chunk's length, of equal ones the earlier."""
    order = sorted(((r - a) / (b - a), r) for a, b in prompt.spans for r in range(a, b))
    return sorted(r for _, r in order[:budget_of(ratio, prompt.n_reused)])


def most_attended(prompt, ratio):
    order = sorted(prompt.candidates, key=lambda r: -prompt.seen[r])
    return sorted(order[:budget_of(ratio, prompt.n_reused)])


def fuse(llama, prompt, rows, shifted=False):
    cache = prompt.fresh_cache()
    at = np.concatenate((rows, prompt.question)).astype(int)

    def shift(layer, at, k, v):
        for a, b in prompt.spans:
            here = (at >= a) & (at < b)
            if not here.any():
                continue
            for kept, fresh in zip(cache[layer], (k, v)):
                kept[a:b] += (fresh[here] - kept[at[here]]).mean(0)

    logits, _ = llama.run(prompt.ids, at, cache, shift if shifted else None)
    return cache, logits, llama.flops([int(r) for r in at])


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def kl(full, other):
    p, q = log_softmax(full), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum())


def words_of(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return [w for w in text.split() if w not in ("a", "an", "the")]


def scores(answer, accepted):
    given, best = words_of(answer), 0.0
    for one in map(words_of, accepted):
        shared = sum((Counter(given) & Counter(one)).values())
        best = max(best, 2 * shared / (len(given) + len(one)) if given or one else 1.0)
    return any(given == words_of(a) for a in accepted), best


def flat(answers):
    return [a for x in answers for a in flat(x)] if isinstance(answers, list) else [answers]


# How rows are chosen, whether a first pass of the question is counted, whether the others are shifted.
METHODS = {
    "prophet_kv": (most_attended, True, False),
    "prophet_kv, first pass free": (most_attended, False, False),
    "prophet_kv+mean": (most_attended, True, True),
    "spaced+mean": (spaced, False, True),
}


def ratio_for(llama, prompts, method, budget):
    choose, probes, _ = METHODS[method]
    full = sum(llama.flops(range(len(p.ids))) for p in prompts)

    def cost(ratio):
        return sum(llama.flops([*choose(p, ratio), *map(int, p.question)]) +
                   (llama.probe_flops([int(r) for r in p.question]) if probes else 0) for p in prompts) / full
    if cost(0) > budget:
        return None
    low, high = 0.0, 1.0
    for _ in range(11):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low


def check_logits(model, context, llama, prompts, after_bos, bos):
    """The largest difference of the logits from the library's, of full prefill and of reuse."""
    worst = {"full": 0.0, "reuse": 0.0}
    with tempfile.TemporaryDirectory() as directory, libblend.Store(context, directory) as store:
        for p in prompts:
            asked = model.prompt().prefix([bos])
            for chunk in p.chunks:
                model.precompute(store, chunk.astype(np.int32), **({"prefix": [bos]} if after_bos else {}))
                asked.chunk(chunk.astype(np.int32))
            asked.question(p.asked.astype(np.int32))
            mine = {"full": p.full, "reuse": fuse(llama, p, [])[1]}
            for policy, logits in mine.items():
                options = {"chunk_prefix": [bos]} if after_bos else {}
                with model.fuse(store, asked, policy=policy, **options) as fusion:
                    worst[policy] = max(worst[policy], float(np.abs(np.array(fusion.logits) - logits).max()))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--eval", required=True, help="what `blend eval --json` wrote of this model and data, with reuse")
    parser.add_argument("--flops", default="0.2,0.4", help="budgets, shares of full prefill's FLOPs")
    parser.add_argument("--check", type=int, default=20, help="prompts whose logits are compared with the library's")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.eval, encoding="utf-8") as file:
        theirs = json.load(file)
    with open(args.data, encoding="utf-8") as file:
        records = file.read().splitlines()
    settings, bos = theirs["settings"], 1
    template = settings["question_template"].replace("\\n", "\n")
    stop = settings["answer_stop"].replace("\\n", "\n")
    records_kind = next(c["records"] for c in theirs["configs"] if c["name"] == "reuse")
    after_bos = records_kind in ("bos", "head")  # without a system text BOS is all of the head
    llama, cached = Llama(args.model), {}
    context = libblend.Context(threads=1)
    model = libblend.Model(context, args.model)
    prompts = []
    for question in theirs["questions"]:
        record = json.loads(records[question["line"] - 1])
        p = Prompt(llama, model.tokenize, record, template, bos, after_bos, cached)
        p.accepted, p.line = flat(record["answers"]), question["line"]
        p.full_cache, p.full = llama.prefill(p.ids)
        p.seen = llama.run(p.ids, p.question, p.fresh_cache())[1]
        prompts.append(p)

    def outcome(p, cache, logits, flops):
        text = model.detokenize(np.array(llama.answer(p.ids, cache, logits, settings["max_tokens"]), np.int32))
        answer = re.split(re.escape(stop), text, maxsplit=1)[0].strip() if stop else text.strip()
        em, f1 = scores(answer, p.accepted)
        return {"answer": answer, "exact_match": em, "f1": f1, "kl": max(0.0, kl(p.full, logits)), "flops": flops,
                "top1_agrees": bool(logits.argmax() == p.full.argmax()), "same_answer": answer == p.truth["answer"]}

    for p in prompts:
        p.truth = {"answer": ""}
        p.truth = outcome(p, p.full_cache, p.full, llama.flops(range(len(p.ids))))
    full_flops = sum(p.truth["flops"] for p in prompts)

    worst = check_logits(model, context, llama, prompts[:args.check], after_bos, bos)
    alike = sum(p.truth["answer"] == q["full"]["answer"] for p, q in zip(prompts, theirs["questions"]))
    check = {"logits": worst, "answers_of_full_alike": alike / len(prompts)}
    for i, config in enumerate(theirs["configs"]):
        if config["name"] in ("reuse", "first_k") and config["records"] == records_kind:
            given = [q["configs"][i] for q in theirs["questions"]]
            runs = [fuse(llama, p, first_rows(p, config.get("ratio") or 0)) for p in prompts]
            check[f"{config['name']} {config.get('ratio') or 0:.3f}"] = {
                "kl": max(abs(kl(p.full, r[1]) - g["kl"]) for p, r, g in zip(prompts, runs, given)),
                "flops": max(abs(r[2] / g["flops"] - 1) for r, g in zip(runs, given))}
    print(json.dumps({"greatest differences from the library": check}, indent=1))

    configs, outcomes = [], [[] for _ in prompts]
    for name, (choose, probes, shifted) in METHODS.items():
        for budget in map(float, args.flops.split(",")):
            ratio = ratio_for(llama, prompts, name, budget)
            if ratio is None:
                print(f"{name} costs more than {100 * budget:g} % at ratio 0")
                continue
            total = 0
            for p, mine in zip(prompts, outcomes):
                cache, logits, flops = fuse(llama, p, choose(p, ratio), shifted)
                flops += llama.probe_flops([int(r) for r in p.question]) if probes else 0
                mine.append(outcome(p, cache, logits, flops))
                total += flops
            configs.append({"name": name, "ratio": ratio, "records": records_kind,
                            "flops_relative": total / full_flops})
            values = [m[-1]["kl"] for m in outcomes]
            print(f"{name}, {100 * ratio:.1f} % of the rows, {100 * total / full_flops:.1f} % of the FLOPs: "
                  f"KL {sum(values) / len(values):.2e}", flush=True)
    with open(args.out, "w", encoding="utf-8") as out:
        json.dump({"configs": configs, "check": check, "questions": [
            {"line": p.line, "full": p.truth, "configs": mine} for p, mine in zip(prompts, outcomes)]}, out)


if __name__ == "__main__":
    main()
