"""The model: a plain Llama (RMSNorm, RoPE, grouped-query attention, SwiGLU, an output matrix of its own).

Weights are laid out as in Hugging Face's Llama: RoPE turns the two halves of a
head against each other, and every matrix is [out, in].
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """Shape of the model."""

    vocab: int = 1536
    width: int = 128
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 256
    theta: float = 10000.0
    eps: float = 1e-5
    context: int = 1024

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    def as_dict(self) -> dict[str, float]:
        """For checkpoints and cards."""
        return asdict(self)


class RMSNorm(nn.Module):
    """x / rms(x) · weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:  # [..., width]
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_table(positions: Tensor, head: int, theta: float, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the RoPE angles, [..., head], angles in float64."""
    rates = theta ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
    angles = positions.to(torch.float64)[..., None] * rates
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply RoPE; the tables broadcast against x over its last axis."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


class Layer(nn.Module):
    """One Transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        c = config
        self.input_norm = RMSNorm(c.width, c.eps)
        self.q = nn.Linear(c.width, c.heads * c.head, bias=False)
        self.k = nn.Linear(c.width, c.kv_heads * c.head, bias=False)
        self.v = nn.Linear(c.width, c.kv_heads * c.head, bias=False)
        self.o = nn.Linear(c.heads * c.head, c.width, bias=False)
        self.mlp_norm = RMSNorm(c.width, c.eps)
        self.gate = nn.Linear(c.width, c.hidden, bias=False)
        self.up = nn.Linear(c.width, c.hidden, bias=False)
        self.down = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # x [batch, tokens, width]
        c = self.config
        batch, tokens, _ = x.shape
        h = self.input_norm(x)
        q = self.q(h).view(batch, tokens, c.heads, c.head).transpose(1, 2)
        k = self.k(h).view(batch, tokens, c.kv_heads, c.head).transpose(1, 2)
        v = self.v(h).view(batch, tokens, c.kv_heads, c.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = c.heads // c.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, c.heads * c.head))
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Ids to final hidden states; `logits` makes them scores over the vocabulary."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.eps)
        self.output = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """ids, positions [batch, tokens], mask [batch, 1, tokens, tokens] (may attend) → [batch, tokens, width]."""
        cos, sin = rope_table(positions, self.config.head, self.config.theta)
        cos, sin = cos[:, None], sin[:, None]
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask, cos, sin)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:  # [..., width] → [..., vocab]
        """Scores over the vocabulary."""
        return self.output(hidden)
