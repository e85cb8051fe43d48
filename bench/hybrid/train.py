#!/usr/bin/env python3
"""Trains a small hybrid of Gated DeltaNet and attention, or its control, to look up facts in chunks.

    python train.py --layers LLLALLLA --minutes 25 --questions 6 --chunks 5 --out short.pt  # as Qwen3.5: 1 of 4 attends
    python train.py --start short.pt --seed 2 --rate 0.015 --minutes 10 --out hybrid.pt
    python train.py --layers CCCCCCCC --minutes 11 --out control.pt

L: Gated DeltaNet; A: attention; C: attention whose q, k and v go through L's convolution, the control that learns fast.
The layers are those of Qwen3.5: short convolution, gated delta rule, gated norm; attention with normed Q and K,
partial RoPE and an output gate; SwiGLU. A prompt is a head, chunks of facts, and questions. A fact may be told
again in a later chunk, or get a new value there; the last one counts. Matrices are trained by Muon, the rest by
AdamW. Needs torch and numpy. `evaluate.py` fuses what this trains.
"""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

N_ENTITIES, N_VALUES, N_FILLERS, N_ATTRIBUTES = 40, 40, 20, 4
HEAD = [0, 1, 2, 3]
DOC, END, ASK, LINK = 4, 5, 6, 7
ATTRIBUTE = 8
FILLER = ATTRIBUTE + N_ATTRIBUTES
ENTITY = FILLER + N_FILLERS
VALUE = ENTITY + N_ENTITIES
VOCABULARY = VALUE + N_VALUES
CHUNK = 20  # DOC, five facts of three tokens, four fillers
FACTS, FILLERS = 5, 4


class Document:
    """Chunks of facts; what is known after them is in `facts` and `links`."""

    def __init__(self, rng, n_chunks, entities=None):
        self.entities = rng.choice(N_ENTITIES, 8, replace=False) if entities is None else entities
        self.facts, self.links, self.renewed, self.chunks = {}, {}, set(), []
        for _ in range(n_chunks):
            old = list(self.facts)
            lines = [[FILLER + f] for f in rng.integers(N_FILLERS, size=FILLERS)]
            told = set()
            for _ in range(FACTS):
                lines.append(self.fact(rng, old, told))
            order = rng.permutation(len(lines))
            self.chunks.append([DOC] + [t for i in order for t in lines[i]])

    def fact(self, rng, old, told):
        kind = rng.random()
        if kind < 0.4 and old:  # a fact of an earlier chunk: again, or with a new value
            entity, attribute = old[rng.integers(len(old))]
            if (entity, attribute) not in told:
                told.add((entity, attribute))
                if kind < 0.2:
                    self.facts[entity, attribute] = rng.integers(N_VALUES)
                    self.renewed.add((entity, attribute))
                return [ENTITY + entity, ATTRIBUTE + attribute, VALUE + self.facts[entity, attribute]]
        entity = self.entities[rng.integers(8)]
        if kind > 0.8 and entity not in self.links:
            other = self.entities[rng.integers(8)]
            self.links[entity] = other
            return [ENTITY + entity, LINK, ENTITY + other]
        free = [(e, a) for e in self.entities for a in range(N_ATTRIBUTES) if (e, a) not in self.facts]
        if not free:
            return [FILLER + f for f in rng.integers(N_FILLERS, size=3)]
        entity, attribute = free[rng.integers(len(free))]
        self.facts[entity, attribute] = rng.integers(N_VALUES)
        told.add((entity, attribute))
        return [ENTITY + entity, ATTRIBUTE + attribute, VALUE + self.facts[entity, attribute]]

    def questions(self, kind):
        """All (tokens, answer) of a kind: `one`, `new` (a value that replaced another) or `two` hops."""
        if kind == "two":
            return [([ASK, ENTITY + e, LINK, ATTRIBUTE + a], VALUE + self.facts[o, a])
                    for e, o in self.links.items() for a in range(N_ATTRIBUTES) if (o, a) in self.facts and o != e]
        return [([ASK, ENTITY + e, ATTRIBUTE + a], VALUE + v)
                for (e, a), v in self.facts.items() if ((e, a) in self.renewed) == (kind == "new")]


def training_batch(rng, n, n_chunks, n_questions):
    """Tokens, and where answers are predicted."""
    length = len(HEAD) + n_chunks * CHUNK + 5 * n_questions
    tokens, answers = np.full((n, length), END), np.zeros((n, length), bool)
    for i in range(n):
        document = Document(rng, n_chunks)
        row = HEAD + [t for c in document.chunks for t in c]
        pools = [p for p in map(document.questions, ("one", "new", "two", "two")) if p]
        for _ in range(n_questions):
            pool = pools[rng.integers(len(pools))]
            question, answer = pool[rng.integers(len(pool))]
            row = row + question
            answers[i, len(row) - 1] = True
            row = row + [answer]
        tokens[i, :len(row)] = row
    return torch.from_numpy(tokens), torch.from_numpy(answers)


def gated_delta(q, k, v, beta, g, start=None):
    """All rows of [batch, heads, rows, width] at once from the state `start`; outputs and the last state.

    S_t = e^g_t S_(t-1) + k_t u_t,  u_t = beta_t (v_t - k_t e^g_t S_(t-1)),  o_t = q_t S_t
    """
    n = k.shape[2]
    total = g.cumsum(-1)
    past = torch.full((n, n), -torch.inf, dtype=k.dtype).triu(1)
    decay = (total[..., :, None] - total[..., None, :] + past).exp()
    system = (beta[..., None] * k) @ k.mT * decay  # what stands on and above the diagonal is not read
    if start is not None:
        v = v - total.exp()[..., None] * (k @ start)
    u = torch.linalg.solve_triangular(system, beta[..., None] * v, upper=False, unitriangular=True)
    out = None if q is None else (q @ k.mT * decay) @ u
    state = (k * (total[..., -1:] - total).exp()[..., None]).mT @ u
    if start is not None:
        out = None if q is None else out + total.exp()[..., None] * (q @ start)
        state = state + total[..., -1:, None].exp() * start
    return out, state


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Linear(nn.Module):
    """A Gated DeltaNet layer. Its rows are (u, c, beta, g): before and after the convolution, write strength, decay."""

    heads, kernel = 2, 4

    def __init__(self, d):
        super().__init__()
        self.qkv, self.z, self.out = (nn.Linear(d, n, bias=False) for n in (3 * d, d, d))
        self.ba = nn.Linear(d, 2 * self.heads, bias=False)
        self.conv = nn.Parameter(torch.empty(3 * d, self.kernel).uniform_(-0.5, 0.5))
        self.a_log = nn.Parameter(torch.empty(self.heads).uniform_(1, 16).log())
        step = torch.empty(self.heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = nn.Parameter(torch.ones(d // self.heads))

    def convolve(self, u):
        n = u.shape[1]
        padded = F.pad(u, (0, 0, self.kernel - 1, 0))
        return F.silu(sum(padded[:, i:i + n] * self.conv[:, i] for i in range(self.kernel)))

    def rows(self, x):
        """u, beta, g of rows."""
        b, a = self.ba(x).chunk(2, -1)
        return self.qkv(x), b.sigmoid(), -self.a_log.exp() * F.softplus(a + self.dt)

    def heads_of(self, c, beta, g):
        q, k, v = (split(t, self.heads) for t in c.chunk(3, -1))
        q, k = F.normalize(q, dim=-1) / q.shape[-1] ** 0.5, F.normalize(k, dim=-1)
        return q, k, v, beta.transpose(1, 2), g.transpose(1, 2)

    def finish(self, o, x):
        o = F.rms_norm(o, o.shape[-1:], self.norm, 1e-6) * F.silu(split(self.z(x), self.heads))
        return self.out(o.transpose(1, 2).flatten(-2))

    def forward(self, x, at):
        u, beta, g = self.rows(x)
        c = self.convolve(u)
        o, _ = gated_delta(*self.heads_of(c, beta, g))
        return self.finish(o, x), (u, c, beta, g)


class Attention(nn.Module):
    """An attention layer. Its rows are (k, v), k before RoPE."""

    heads = 2

    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(d, n, bias=False) for n in (2 * d, d, d, d))
        self.q_norm, self.k_norm = (nn.Parameter(torch.ones(d // self.heads)) for _ in range(2))
        self.register_buffer("turns", 10000.0 ** (-torch.arange(8) / 8), persistent=False)  # half of a head's 32

    def turn(self, x, at):
        """x: [batch, heads, rows, width], at: [batch or 1, rows]."""
        angle = at[:, None, :, None] * self.turns
        a, b, rest = x[..., :8], x[..., 8:16], x[..., 16:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest), -1)

    def rows(self, x):
        k = F.rms_norm(self.k(x).unflatten(-1, (self.heads, -1)), (32,), self.k_norm, 1e-6).flatten(-2)
        return k, self.v(x)

    def read(self, x, at, k, v, all_at, weights=False):
        """Rows x at `at` attend to rows k, v at `all_at` up to their own."""
        q, gate = self.q(x).chunk(2, -1)
        q = self.turn(F.rms_norm(split(q, self.heads), (32,), self.q_norm, 1e-6), at)
        return self.finish(q, self.turn(split(k, self.heads), all_at), split(v, self.heads), gate, at, all_at, weights)

    def finish(self, q, k, v, gate, at, all_at, weights):
        seen = (at[:, None, :, None] >= all_at[:, None, None, :])
        w = (q @ k.mT * 32 ** -0.5).masked_fill(~seen, -torch.inf).softmax(-1)
        o = (w @ v).transpose(1, 2).flatten(-2) * gate.sigmoid()
        return (self.out(o), w) if weights else self.out(o)

    def forward(self, x, at):
        k, v = self.rows(x)
        return self.read(x, at, k, v, at), (k, v)


class Convolved(Attention):
    """Attention over what a short convolution of q, k, v gives, as in a linear layer. Its rows are (u, c)."""

    kernel, convolve = Linear.kernel, Linear.convolve

    def __init__(self, d):
        super().__init__(d)
        self.k = self.v = None
        self.q, self.gate = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.conv = nn.Parameter(torch.empty(3 * d, self.kernel).uniform_(-0.5, 0.5))

    def rows(self, x):
        return (self.q(x),)

    def read(self, x, at, c, all_c, all_at, weights=False):
        """Rows x, convolved c, attend to the rows all_c."""
        q, k, v = c.chunk(3, -1)[0], *all_c.chunk(3, -1)[1:]
        q = self.turn(F.rms_norm(split(q, self.heads), (32,), self.q_norm, 1e-6), at)
        k = self.turn(F.rms_norm(split(k, self.heads), (32,), self.k_norm, 1e-6), all_at)
        return self.finish(q, k, split(v, self.heads), self.gate(x), at, all_at, weights)

    def forward(self, x, at):
        u, = self.rows(x)
        c = self.convolve(u)
        return self.read(x, at, c, c, at), (u, c)


class Mlp(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.up = (nn.Linear(d, 2 * d, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, d, kind):
        super().__init__()
        self.kind = kind
        self.mix, self.mlp = {"L": Linear, "A": Attention, "C": Convolved}[kind](d), Mlp(d)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

    def normed(self, x):
        return F.rms_norm(x, x.shape[-1:], self.norm1, 1e-6)

    def after(self, x, mixed):
        x = x + mixed
        return x + self.mlp(F.rms_norm(x, x.shape[-1:], self.norm2, 1e-6))


class Model(nn.Module):
    def __init__(self, layers, d=64):
        super().__init__()
        self.layers = layers
        self.embed = nn.Embedding(VOCABULARY, d)
        nn.init.normal_(self.embed.weight, std=0.5)
        self.blocks = nn.ModuleList(Block(d, kind) for kind in layers)
        self.norm, self.head = nn.Parameter(torch.ones(d)), nn.Linear(d, VOCABULARY, bias=False)
        for block in self.blocks:
            nn.init.zeros_(block.mix.out.weight)
            nn.init.zeros_(block.mlp.down.weight)

    def logits(self, x):
        return self.head(F.rms_norm(x, x.shape[-1:], self.norm, 1e-6))

    def forward(self, tokens):
        """Logits, and the rows that each layer keeps."""
        x, at, kept = self.embed(tokens), torch.arange(tokens.shape[1])[None], []
        for block in self.blocks:
            mixed, rows = block.mix(block.normed(x), at)
            x = block.after(x, mixed)
            kept.append(rows)
        return self.logits(x), kept


class Muon:
    """Momentum, orthogonalised (Jordan et al. 2024). Matrices of one shape go together."""

    def __init__(self, matrices):
        self.groups = {}
        for m in matrices:
            self.groups.setdefault(m.shape, []).append(m)
        self.momentum = {s: torch.zeros(len(ms), *s) for s, ms in self.groups.items()}

    @torch.no_grad()
    def step(self, rate):
        for shape, matrices in self.groups.items():
            grad = torch.stack([m.grad for m in matrices])
            kept = self.momentum[shape].mul_(0.95).add_(grad)
            x = grad + 0.95 * kept
            tall = shape[0] > shape[1]
            x = x.mT if tall else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                s = x @ x.mT
                x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
            x = x.mT if tall else x
            scale = max(1, shape[0] / shape[1]) ** 0.5
            for m, update in zip(matrices, x):
                m.mul_(1 - 0.01 * rate).add_(update, alpha=-rate * scale)


def right(model, rng, n_chunks=5):
    with torch.no_grad():
        tokens, answers = training_batch(rng, 64, n_chunks, 6)
        logits, _ = model(tokens)
        return (logits.argmax(-1)[:, :-1] == tokens[:, 1:])[answers[:, :-1]].float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="LLLALLLA")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--questions", type=int, default=12, help="after each training document")
    parser.add_argument("--chunks", type=int, default=4, help="at most, 4 or more")
    parser.add_argument("--start", help="a trained model to go on from, without the short documents")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng, held_out = np.random.default_rng(args.seed), np.random.default_rng(10 ** 6)
    model = Model(args.layers)
    if args.start:
        model.load_state_dict(torch.load(args.start)["weights"])
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2 and min(p.shape) > 8]
    rest = [p for p in model.parameters() if all(p is not m for m in matrices)]
    muon, adam = Muon(matrices), torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    began, step, done = time.time(), 0, 0.0
    while done < 1:
        done = (time.time() - began) / (60 * args.minutes)
        rate = min(1, (step + 1) / 50, max(0.0, (1 - done) / 0.4))
        if args.start or done >= 0.3:
            n_chunks = int(rng.integers(4, args.chunks + 1))
        else:
            n_chunks = 2 if done < 0.1 else int(rng.integers(2, 5))
        tokens, answers = training_batch(rng, args.batch, n_chunks, args.questions)
        loss = F.cross_entropy(model(tokens)[0][:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
        asked = loss[answers[:, :-1]].mean()
        (asked + 0.3 * loss.mean()).backward()
        muon.step(args.rate * rate)
        for group in adam.param_groups:
            group["lr"] = 3e-3 * rate
        adam.step()
        model.zero_grad(set_to_none=True)
        step += 1
        if step % 50 == 0 or done >= 1:
            torch.save({"layers": args.layers, "weights": model.state_dict()}, args.out)
            print(f"step {step} {time.time() - began:.0f} s {n_chunks} chunks, loss of answers {asked.item():.3f}, of all "
                  f"{loss.mean().item():.3f}, right {right(model, held_out):.3f}", flush=True)
    print(f"{step} steps of {args.batch}, {time.time() - began:.0f} s, {time.process_time():.0f} s of CPU time")


if __name__ == "__main__":
    main()
