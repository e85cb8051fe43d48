"""How a Hugging Face model turns K to the positions of its rows. It is found out by trying, once a model."""

import inspect
from typing import Any, Dict, List, Optional, Tuple

import torch
import transformers
from transformers.cache_utils import Cache

# How the two numbers of a pair lie in a head, and where the pair's cosine stands in what `rotary_emb` gives:
# (pairs are neighbours, cosines are repeated one by one).
_LAYOUTS = ((False, False), (True, False), (True, True))
_POSITIONS = (0, 1, 100)


def cache_name(forward: Any) -> str:
    """What a model calls the cache that it is given; its generate() calls it the same."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def among(values: Any, wanted: Any) -> bool:
    """Whether one of the values is this object itself."""
    return any(value is wanted for value in values)


def unknown_call(what: str) -> RuntimeError:
    """This release calls the layers in a way that was not known when the adapter was written."""
    return RuntimeError(f"transformers {transformers.__version__} {what}, which libblend.transformers does not know: "
                        "docs/adapters.md says which releases it was tested with")


class _Seen(Cache):
    """K of each layer as the model gives it to its cache."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: Dict[int, torch.Tensor] = {}

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any,
               **__: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        self.keys[layer_idx] = key_states.detach()
        return key_states, value_states


class Rotation:
    """Turns K of every layer, [1, n_kv_heads, n, head_dim], to its rows' positions and back, in float32."""

    def __init__(self, model: Any, inner: Any) -> None:
        self._inner = inner
        self._types = getattr(inner.config, "layer_types", None)
        self._layouts = self._tried(model)

    def turn(self, layer: int, k: torch.Tensor, positions: torch.Tensor, back: bool = False) -> torch.Tensor:
        """K at these positions [n]. cos and sin may be scaled (YaRN), which is undone on the way back."""
        layout = self._layouts[layer]
        return k.contiguous() if layout is None else _turned(k, self._angles(layer, positions), layout, back)

    def _angles(self, layer: int, positions: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of the layer at these positions, float32 [n, rotary_dim]."""
        rotary = self._inner.rotary_emb
        kind = self._types[layer] if self._types else None
        by_type = [kind] if kind and hasattr(rotary, f"{kind}_inv_freq") else []
        cos, sin = rotary(torch.zeros(1, device=positions.device), positions[None], *by_type)
        return cos[0], sin[0]

    @torch.inference_mode()
    def _tried(self, model: Any) -> List[Optional[Tuple[bool, bool]]]:
        """Of each layer how it turns K, None: not at all. Every row of its input is made the same, so that its
        rows of K differ by their positions alone."""
        layers, seen = self._inner.layers, _Seen()
        positions = torch.tensor(_POSITIONS, device=model.device)

        def same(_module: Any, args: Tuple[Any, ...], kwargs: Any) -> Any:
            if not among((*args, *kwargs.values()), seen):
                return None  # another call of the same model
            if args:
                return (args[0][:, :1].expand_as(args[0]), *args[1:]), kwargs
            rows = kwargs["hidden_states"]
            return args, {**kwargs, "hidden_states": rows[:, :1].expand_as(rows)}
        hooks = [layer.self_attn.register_forward_pre_hook(same, with_kwargs=True) for layer in layers]
        try:
            model(input_ids=torch.zeros_like(positions)[None], position_ids=positions[None], use_cache=True,
                  logits_to_keep=1, **{cache_name(model.forward): seen})
        finally:
            for hook in hooks:
                hook.remove()
        if sorted(seen.keys) != list(range(len(layers))):
            raise unknown_call("gives K to a cache for other layers than the model has")
        return [self._layout(layer, seen.keys[layer], positions) for layer in range(len(layers))]

    def _layout(self, layer: int, k: torch.Tensor, positions: torch.Tensor) -> Optional[Tuple[bool, bool]]:
        near = (1e-3 if k.dtype == torch.float32 else 5e-2) * float(k.abs().max())
        if torch.allclose(k[:, :, :1].float().expand_as(k), k.float(), rtol=0, atol=near):
            return None
        if getattr(self._inner, "rotary_emb", None) is not None:
            angles = self._angles(layer, positions)
            for layout in _LAYOUTS:
                first = _turned(k[:, :, :1].float(), (angles[0][:1], angles[1][:1]), layout, back=True)
                if torch.allclose(_turned(first.expand(*k.shape), angles, layout), k.float(), rtol=0, atol=near):
                    return layout
        raise ValueError(f"layer {layer} of this {self._inner.config.model_type} model changes K by its position in a "
                         "way that is no known RoPE: chunks could not be moved to other positions")


def _turned(k: torch.Tensor, angles: Tuple[torch.Tensor, torch.Tensor], layout: Tuple[bool, bool],
            back: bool = False) -> torch.Tensor:
    neighbours, one_by_one = layout
    n = angles[0].shape[-1]
    cos, sin = (x[:, ::2] if one_by_one else x[:, : n // 2] for x in angles)  # [rows, n / 2]
    if back:
        scale = cos * cos + sin * sin
        cos, sin = cos / scale, -sin / scale
    x = k[..., :n].float()
    a, b = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., : n // 2], x[..., n // 2:])
    turned = (a * cos - b * sin, b * cos + a * sin)
    x = torch.stack(turned, dim=-1).flatten(-2) if neighbours else torch.cat(turned, dim=-1)
    return torch.cat((x.to(k.dtype), k[..., n:]), dim=-1)
