#!/usr/bin/env python3
"""Fuses prompts of stored chunks with a model of `train.py`: right answers, and KL of the answer from full prefill.

    python evaluate.py hybrid.pt                       # chunks prefilled after the head
    python evaluate.py hybrid.pt --record similar:4    # after the head and a similar passage, the mean of four such

Records: `head`, `random:M`, `similar:M` (passages of other documents; similar: about the same entities). The first chunk
is always exact. A recomputed row replaces the stored one in both kinds of layers, and a linear layer scans all rows in
prompt order from the head on. Only for the question alone can another state be given ("none recomputed").

  zero, own, last     the question starts from nothing; the last chunk's own rows; the state that its record ends with
  sum, mean           of the records' states (sum: what each adds to the head's)
  composed            each chunk's transition A and state B from zero, S = A S + B: the scan of all stored rows
  exact ...           states, or K and V, of a full prefill, to see which kind of layer loses what
  random, first, last rows of each chunk; attention: the rows that the question attends to over the stored rows, mean over
  the attending layers; read: the same with what it reads of a row in the linear layers. `Convolved again`: a stored row's
  k and v are convolved in the prompt, which changes the first three rows of a chunk and those after recomputed rows

Intervals are 95 %, by bootstrap over prompts. Needs torch and numpy.
"""
import argparse
import json
import math

import numpy as np
import torch

import train
from train import CHUNK, HEAD, gated_delta

N_CHUNKS, N_PROMPTS, KINDS = 4, 64, ("one", "new", "two")
FIRST = len(HEAD) + CHUNK  # the rows before are exact
END = len(HEAD) + N_CHUNKS * CHUNK


class Batch:
    """Prompts of one kind of question, and what is stored of their chunks."""

    def __init__(self, model, kind, seed, record):
        rng = np.random.default_rng([seed, KINDS.index(kind), 7])
        prompts, answers, documents = [], [], []
        while len(prompts) < N_PROMPTS:
            document = train.Document(rng, N_CHUNKS)
            questions = document.questions(kind)
            if questions:
                question, answer = questions[rng.integers(len(questions))]
                prompts.append(HEAD + [t for c in document.chunks for t in c] + question)
                answers.append(answer)
                documents.append(document)
        self.tokens, self.answers = torch.tensor(prompts), torch.tensor(answers)
        logits, self.exact = model(self.tokens)
        self.full = logits[:, -1].log_softmax(-1)
        self.n = self.tokens.shape[1]
        self.places = [self.place(row.tolist()) if kind != "two" else "two hops" for row in self.tokens]
        self.question = torch.arange(END, self.n).expand(N_PROMPTS, -1)
        befores = passages_of(rng, documents, record)
        self.stored = [[t.clone() for t in rows] for rows in self.exact]
        self.ends = []  # by chunk and linear layer
        for i in range(N_CHUNKS):
            at = len(HEAD) + i * CHUNK
            chunk = self.tokens[:, at:at + CHUNK]
            passes, ends = [], []
            for passage in befores[i] if i else [None]:
                before = [torch.tensor(HEAD).expand(N_PROMPTS, -1)] + ([] if passage is None else [passage])
                kept = model(torch.cat(before + [chunk], 1))[1]
                passes.append([[t[:, -CHUNK:] for t in rows] for rows in kept])
                ends.append([last_state(block.mix, rows) for block, rows in linear(model, kept)])
            self.ends.append([sum(states) / len(ends) for states in zip(*ends)])
            for layer, rows in enumerate(self.stored):
                for plane, rows_of in enumerate(rows):
                    rows_of[:, at:at + CHUNK] = sum(p[layer][plane] for p in passes) / len(passes)
        for rows in self.stored:  # the question has no record
            for plane in rows:
                plane[:, END:] = 0

    @staticmethod
    def place(row):
        """Where the fact that is asked for stands."""
        value = 2 + max(t for t in range(END - 2) if row[t:t + 2] == row[-2:])
        chunk, at = divmod(value - len(HEAD), CHUNK)
        if chunk == N_CHUNKS - 1:
            return "in the last chunk"
        left = CHUNK - 1 - at
        return "ends its chunk" if left == 0 else "1 to 3 rows before its end" if left < 4 else "earlier in its chunk"


def passages_of(rng, documents, record):
    """For each chunk the passages that its record is prefilled after; None: nothing but the head."""
    kind, _, n = record.partition(":")
    if kind == "head":
        return [[None]] * N_CHUNKS
    return [[torch.tensor([train.Document(rng, 1, d.entities if kind == "similar" else None).chunks[0] for d in documents])
             for _ in range(int(n))] for _ in range(N_CHUNKS)]


def linear(model, kept):
    return [(block, rows) for block, rows in zip(model.blocks, kept) if block.kind == "L"]


def cut(rows, begin, end):
    return [t[:, begin:end] for t in rows]


def last_state(mix, rows):
    """B of a run of rows: their state from zero."""
    _, c, beta, g = rows
    _, k, v, beta, g = mix.heads_of(c, beta, g)
    return gated_delta(None, k, v, beta, g)[1]


def transition(mix, rows):
    """A and B of a run of rows: it takes a state S to A S + B."""
    _, c, beta, g = rows
    _, k, _, beta, g = mix.heads_of(c, beta, g)
    eye = torch.eye(k.shape[-1], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
    return gated_delta(None, k, torch.zeros_like(k), beta, g, eye)[1], last_state(mix, rows)


def starts(model, batch, name):
    """The state that the question starts from in each linear layer."""
    out = []
    for i, (block, rows) in enumerate(linear(model, batch.stored)):
        head = last_state(block.mix, cut(rows, 0, len(HEAD)))
        ends = [e[i] for e in batch.ends]
        if name == "zero":
            s = torch.zeros_like(head)
        elif name == "own":
            s = last_state(block.mix, cut(rows, END - CHUNK, END))
        elif name == "last":
            s = ends[-1]
        elif name == "sum":
            s = head + sum(e - head for e in ends)
        elif name == "mean":
            s = sum(ends) / N_CHUNKS
        elif name == "exact":
            s = last_state(block.mix, cut(linear(model, batch.exact)[i][1], 0, END))
        else:
            s = head
            for at in range(len(HEAD), END, CHUNK):
                a, b = transition(block.mix, cut(rows, at, at + CHUNK))
                s = a @ s + b
        out.append(s)
    return out


def put(rows, at, new):
    return rows.scatter(1, at[..., None].expand_as(new), new)


def take(rows, at):
    """Rows of [batch, rows, width] or [batch, heads, rows, width]."""
    if rows.ndim == 3:
        return rows.gather(1, at[..., None].expand(-1, -1, rows.shape[-1]))
    return rows.gather(2, at[:, None, :, None].expand(-1, rows.shape[1], -1, rows.shape[-1]))


def shares(q, k, v, beta, g, at):
    """Of what rows `at` read in a linear layer, the share that each row's value has."""
    eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
    w = take(gated_delta(q, k, eye, beta, g)[0], at).abs() * v.norm(dim=-1)[:, :, None]
    return w / w.sum(-1, keepdim=True).clamp_min(1e-9)


def fuse(model, batch, at, stored=None, start=None, reconvolve=False, replace=True, reads=None):
    """Log-probabilities of the answer with rows `at` computed, the question's last, over the stored ones.

    replace: recomputed rows of chunks replace the stored ones in what linear layers scan. reconvolve: stored rows are
    convolved again in the prompt. reads: filled with (kind, [batch, heads, rows at, all rows]), what rows `at` read.
    """
    stored = batch.stored if stored is None else stored
    x, all_at, layer = model.embed(batch.tokens.gather(1, at)), torch.arange(batch.n)[None], 0
    for block, rows in zip(model.blocks, stored):
        h, mix = block.normed(x), block.mix
        if block.kind == "A":
            k, v = (put(old, at, new) for old, new in zip(rows, mix.rows(h)))
            mixed, weights = mix.read(h, at, k, v, all_at, True)
        elif block.kind == "C":
            c = mix.convolve(put(rows[0], at, *mix.rows(h)))
            c = c if reconvolve else put(rows[1], at, take(c, at))
            mixed, weights = mix.read(h, at, take(c, at), c, all_at, True)
        else:
            u, beta, g = (put(old, at, new) for old, new in zip((rows[0], *rows[2:]), mix.rows(h)))
            c = mix.convolve(u)
            c = c if reconvolve else put(rows[1], at, take(c, at))
            if start is None:
                planes = mix.heads_of(c, beta, g)
                if not replace:
                    planes = [planes[0]] + [torch.cat((a[:, :, :END], b[:, :, END:]), 2)
                                            for a, b in zip(mix.heads_of(*rows[1:])[1:], planes[1:])]
                o = take(gated_delta(*planes)[0], at)
                weights = shares(*planes, at) if reads is not None else None
            else:
                o = gated_delta(*mix.heads_of(*(take(t, at) for t in (c, beta, g))), start[layer])[0]
            layer += 1
            mixed = mix.finish(o, h)
        if reads is not None:
            reads.append((block.kind, weights))
        x = block.after(x, mixed)
    return model.logits(x[:, -1]).log_softmax(-1)


def chosen(model, batch, policy, share, rng):
    """The rows of a policy, and the question's, in order."""
    n = math.ceil(share * (END - FIRST))
    per_chunk = round(share * CHUNK)
    starts_at = torch.arange(FIRST, END, CHUNK)
    if policy == "random":
        rows = torch.from_numpy(np.stack([rng.permutation(END - FIRST)[:n] for _ in range(N_PROMPTS)])) + FIRST
    elif policy == "first":
        rows = (starts_at[:, None] + torch.arange(per_chunk)).flatten().expand(N_PROMPTS, -1)
    elif policy == "last":
        rows = (starts_at[:, None] + CHUNK - per_chunk + torch.arange(per_chunk)).flatten().expand(N_PROMPTS, -1)
    else:
        reads = []
        fuse(model, batch, batch.question, reads=reads)
        kinds = "ACL" if policy == "read" else "AC"
        score = sum(w.mean((1, 2)) for kind, w in reads if kind in kinds)
        rows = score[:, FIRST:END].topk(n).indices + FIRST
    return torch.cat((rows.sort(1).values, batch.question), 1)


def flops(model, n, computed, asked=0, composed=False):
    """Of a pass over n rows with some computed; `asked`: rows taken through the stored rows before, to choose.

    composed: transitions are applied to states instead of scanning the stored rows.
    """
    d, h, total = model.embed.embedding_dim, train.Linear.heads, 0
    for block in model.blocks:
        weights = sum(p.numel() for p in block.parameters() if p.ndim == 2)
        for rows in (computed, asked):
            if block.kind == "L":
                width = d // h
                total += rows * (2 * weights + 2 * width * width * h)
                if rows:
                    total += h * (6 * rows * width ** 2 + 2 * N_CHUNKS * width ** 3 if composed else 6 * n * width ** 2)
            else:
                total += rows * (2 * weights + 4 * d * (n if rows < n else n / 2))
    return total


def interval(values):
    values = np.asarray(values, float)
    means = values[np.random.default_rng(0).integers(len(values), size=(1000, len(values)))].mean(1)
    return values.mean(), *np.percentile(means, (2.5, 97.5))


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--record", default="head")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--brief", action="store_true", help="fewer ways to fuse")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    saved = torch.load(args.model)
    model = train.Model(saved["layers"]).eval()
    model.load_state_dict(saved["weights"])
    hybrid = "L" in model.layers
    found = {}

    def note(name, kind, batch, log_p, cost):
        kl = (batch.full.exp() * (batch.full - log_p)).sum(-1)
        right, same = log_p.argmax(-1) == batch.answers, log_p.argmax(-1) == batch.full.argmax(-1)
        entry = found.setdefault(name, {"flops": [], **{k: [] for k in KINDS}})
        entry["flops"].append(cost / flops(model, batch.n, batch.n))
        entry[kind] += list(zip(right.tolist(), same.tolist(), kl.tolist(), batch.places))

    for seed in range(args.seeds):
        for kind in KINDS:
            batch = Batch(model, kind, seed, args.record)
            rng = np.random.default_rng(seed)
            n_q = batch.question.shape[1]
            note("full prefill", kind, batch, batch.full, flops(model, batch.n, batch.n))
            everything = torch.arange(batch.n).expand(N_PROMPTS, -1)
            error = (fuse(model, batch, everything) - batch.full).abs().max()
            assert error < 1e-3, error
            reuse = flops(model, batch.n, n_q, composed=True)
            if hybrid:
                for name in ("zero", "own", "last", "sum", "mean", "composed"):
                    log_p = fuse(model, batch, batch.question, start=starts(model, batch, name))
                    note(f"none recomputed, {name}", kind, batch, log_p, reuse)
                assert (log_p - fuse(model, batch, batch.question)).abs().max() < 1e-3  # composing is scanning
                mixed = [e if b.kind == "A" else s for b, e, s in zip(model.blocks, batch.exact, batch.stored)]
                note("exact states, stored K and V", kind, batch,
                     fuse(model, batch, batch.question, start=starts(model, batch, "exact")), reuse)
                bare = [[0 * t for t in s] if b.kind == "A" else s for b, s in zip(model.blocks, batch.stored)]
                note("exact states, no K and V of chunks", kind, batch,
                     fuse(model, batch, batch.question, bare, start=starts(model, batch, "exact")), reuse)
                note("exact K and V, composed", kind, batch, fuse(model, batch, batch.question, mixed), reuse)
                note("exact K and V, own", kind, batch,
                     fuse(model, batch, batch.question, mixed, start=starts(model, batch, "own")), reuse)
                note("exact K and V, last", kind, batch,
                     fuse(model, batch, batch.question, mixed, start=starts(model, batch, "last")), reuse)
                note("none recomputed, composed, convolved again", kind, batch,
                     fuse(model, batch, batch.question, reconvolve=True), reuse)
            else:
                note("none recomputed", kind, batch, fuse(model, batch, batch.question), reuse)
                if "C" in model.layers:
                    note("none recomputed, convolved again", kind, batch,
                         fuse(model, batch, batch.question, reconvolve=True), reuse)
            for policy in ("random", "attention") + (("read",) if hybrid else ()) + ("first", "last"):
                for share in (0.15, 0.3) + ((0.05, 0.1, 0.5, 0.75) if policy == "first" and not args.brief else ()):
                    at = chosen(model, batch, policy, share, rng)
                    cost = flops(model, batch.n, at.shape[1], n_q if policy in ("attention", "read") else 0)
                    note(f"{policy} {share:.0%}", kind, batch, fuse(model, batch, at), cost)
                    if hybrid and share == 0.3 and not args.brief:
                        log_p = fuse(model, batch, at, replace=False)
                        note(f"{policy} {share:.0%}, fresh K and V only", kind, batch, log_p, cost)
                        note(f"{policy} {share:.0%}, convolved again", kind, batch, fuse(model, batch, at, reconvolve=True), cost)
    print(f"{args.model}, {args.record}, {args.seeds * N_PROMPTS} prompts of each kind\n")
    print("| | right %: one | new | two | all [95 %] | same as full % | KL [95 %] | FLOPs % |\n|---|---|---|---|---|---|---|---|")
    for name, entry in found.items():
        every = np.array([v[:3] for k in KINDS for v in entry[k]], float)
        kinds = " | ".join(f"{100 * np.mean([v[0] for v in entry[k]]):.1f}" for k in KINDS)
        right, low, high = (100 * v for v in interval(every[:, 0]))
        kl, kl_low, kl_high = interval(every[:, 2])
        print(f"| {name} | {kinds} | {right:.1f} [{low:.1f}, {high:.1f}] | {100 * every[:, 1].mean():.1f} | "
              f"{kl:.4f} [{kl_low:.4f}, {kl_high:.4f}] | {100 * np.mean(entry['flops']):.1f} |")
    places = sorted({v[3] for k in KINDS for v in found["full prefill"][k]})
    few = ("full prefill", "first 5%", *(f"none recomputed{s}{c}" for s in ("", ", composed") for c in ("", ", convolved again")))
    print("\n| right %, KL by the place of the fact | " + " | ".join(places) + " |\n|---|" + "---|" * len(places))
    for name in few:
        if name in found:
            cells = ([v for k in KINDS for v in found[name][k] if v[3] == p] for p in places)
            print(f"| {name} | " + " | ".join(f"{100 * np.mean([v[0] for v in c]):.1f}, {np.mean([v[2] for v in c]):.4f} "
                                              f"(of {len(c)})" for c in cells) + " |")
    for i, (block, rows) in enumerate(linear(model, batch.stored)):
        a = torch.stack([transition(block.mix, cut(rows, at, at + CHUNK))[0] for at in range(FIRST, END, CHUNK)])
        kept = a.square().mean((0, 1, 3, 4)).mul(a.shape[-1]).sqrt()
        print(f"linear layer {i}: of a state's size a chunk keeps, by head:", kept.numpy().round(3))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(found, f)


if __name__ == "__main__":
    main()
