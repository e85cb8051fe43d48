"""Starting weights: random, except for one pair of heads that every language model grows anyway.

In layer 0 the first key head looks one token back; in layer 1 the first key
head looks for a row whose predecessor is the token at hand. Together they are
an induction head ("... red ledger ... red" -> "ledger"). Grown from noise it
costs a small model most of its training time on a CPU; everything else is
left to training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model import Llama

_SHARED = 0.5  # size of the direction that all embeddings share, so that position alone can be attended to
_LOOK_BACK = (5.0, 4.5, 3.9, 3.2)  # sizes of the four fastest RoPE pairs in the head that looks back
_WRITE = 2.5  # gain of what that head writes
_NEARBY = (3.2, 3.2, 3.2)  # sizes of the RoPE pairs 3, 4, 5 in the head that gathers the last few tokens
_GATHER = 4.0  # gain of what that head writes
_MATCH = 2.0  # gain of the head that looks for it


@torch.no_grad()
def start(model: Llama) -> None:
    """Fill in the weights."""
    c = model.config
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        std = 1.0 if name.startswith("embed") else weight.shape[1] ** -0.5
        if name.endswith(("o.weight", "down.weight", "output.weight")):
            std *= 0.3
        nn.init.normal_(weight, std=std)
    shared = torch.randn(c.width).sign()
    model.embed.weight += _SHARED * shared
    _look_back(model, shared)
    _match(model)
    _gather(model, shared)


def _pairs(at: Tensor, sizes: Tensor, turn: float, c_head: int, theta: float) -> Tensor:
    """A head vector with given sizes in the RoPE pairs `at`, turned by `turn` positions."""
    angle = turn * theta ** (-2.0 * at / c_head)
    vector = torch.zeros(c_head)
    vector[at], vector[at + c_head // 2] = sizes * angle.cos(), sizes * angle.sin()
    return vector


def _look_back(model: Llama, shared: Tensor) -> None:
    """Layer 0, key head 0: its query heads see the token one (and the second of them two) places back."""
    c, layer = model.config, model.layers[0]
    share = _SHARED / (1 + _SHARED**2) ** 0.5  # of a normed row along `shared`
    reader = shared / (c.width * share)
    at, sizes = torch.arange(4), torch.tensor(_LOOK_BACK)
    rows = slice(0, c.head)
    layer.k.weight[rows] *= 0.3
    layer.k.weight[rows] += torch.outer(_pairs(at, sizes, 0.0, c.head, c.theta), reader)
    for head, back in ((0, 1.0), (1, 2.0)):
        rows = slice(head * c.head, (head + 1) * c.head)
        layer.q.weight[rows] *= 0.3
        layer.q.weight[rows] += torch.outer(_pairs(at, sizes, -back, c.head, c.theta), reader)
    written, _ = torch.linalg.qr(torch.randn(c.width, c.head))
    layer.o.weight[:, : c.head] = _WRITE * written


def _match(model: Llama) -> None:
    """Layer 1, key head 0: queries by the token, keys by what head 0 of layer 0 wrote, slow RoPE pairs only."""
    c, first, layer = model.config, model.layers[0], model.layers[1]
    slow = torch.cat((torch.arange(c.head // 4, c.head // 2), torch.arange(3 * c.head // 4, c.head)))
    values = first.v.weight[: len(slow)]  # [pairs of 2, width]
    written = first.o.weight[:, : len(slow)].T / _WRITE
    layer.k.weight[: c.head] *= 0.3
    layer.k.weight[slow] = written
    for head in (0, 1):
        layer.q.weight[head * c.head : (head + 1) * c.head] *= 0.3
        layer.q.weight[head * c.head + slow] = _MATCH * values


def _gather(model: Llama, shared: Tensor) -> None:
    """Layer 0, key head 1 gathers the last few tokens; key head 1 of layers 1 and 2 matches rows by what was gathered."""
    c, first = model.config, model.layers[0]
    group, rows = c.heads // c.kv_heads, slice(c.head, 2 * c.head)
    reader = shared / (c.width * _SHARED / (1 + _SHARED**2) ** 0.5)
    near = _pairs(torch.arange(3, 6), torch.tensor(_NEARBY), 0.0, c.head, c.theta)
    first.k.weight[rows] += torch.outer(near, reader)
    written, _ = torch.linalg.qr(torch.randn(c.width, c.head))
    rows = slice(group * c.head, (group + 1) * c.head)  # of one query head: the others stay free
    first.q.weight[rows] += torch.outer(near, reader)
    first.o.weight[:, rows] = _GATHER * written
    rows = slice(c.head, 2 * c.head)
    slow = torch.cat((torch.arange(c.head // 4, c.head // 2), torch.arange(3 * c.head // 4, c.head)))
    read = written[:, : len(slow)].T
    for layer in (model.layers[1], model.layers[2]):
        layer.k.weight[rows] *= 0.3
        layer.k.weight[c.head + slow] = read
        for head in (group, group + 1):
            layer.q.weight[head * c.head : (head + 1) * c.head] *= 0.3
            layer.q.weight[head * c.head + slow] = read
