"""Hugging Face transformers, unpatched, with KV caches fused by libblend.

    from libblend.transformers import Blender

    blender = Blender(model, tokenizer, store="chunks")      # any AutoModelForCausalLM, on any device
    fused = blender.fuse(blender.prompt(passages, "Question: ...\\nAnswer:"))
    tokens = model.generate(**fused.inputs, max_new_tokens=64)

The model computes everything, with its own weights, modules and attention: it prefills the passages,
once, and of a prompt the rows that libblend chooses (blend.h, "Step API"). K is stored without
position and turned by the model's own rotary embedding; how a layer applies it is found out by trying.

What this relies on: a model gives the K and V of each layer to ``Cache.update`` with the layer's number and
attends over what that returns; a mask [1, 1, rows, columns] is taken as it is; a layer is called with the
rows, the cache, `attention_mask` and `position_embeddings`. The order of the calls and the name of the
cache's parameter are not relied on.
`pip install libblend[transformers]`.
"""

import hashlib
import json
import threading
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicCache

from ._context import Context
from ._enums import Miss, SegmentKind, choice
from ._hf_chat import chat_prompt
from ._hf_rotation import Rotation, among, cache_name, unknown_call
from ._infos import FusionInfo
from ._model import Model
from ._layerwise import Layerwise
from ._prompt import Prompt
from ._store import Store
from ._types import Array, Path
from .errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fusion import FuseKeywords

__all__ = ["Blender", "Fused"]

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
# What else a configuration may say of a model does not change its K and V.
_NO_WEIGHTS = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache",
               "_attn_implementation", "attn_implementation")


class Fused(NamedTuple):
    """A prompt whose cache was fused."""

    input_ids: torch.Tensor
    """int64 [1, n_rows], the prompt"""
    past_key_values: DynamicCache
    """of all rows but the last, which :meth:`generate` of the model begins with"""
    logits: torch.Tensor
    """[n_vocab], of the last row"""
    info: FusionInfo
    """the account of the fuse"""
    selected: Array
    """uint32 [n], rows that the policy selected"""
    cache_name: str = "past_key_values"
    """what this release of transformers calls the cache in ``model.generate``"""

    @property
    def inputs(self) -> Dict[str, Any]:
        """What ``model.generate(**fused.inputs, ...)`` goes on from, once: it appends to the cache."""
        return {"input_ids": self.input_ids, "attention_mask": torch.ones_like(self.input_ids),
                self.cache_name: self.past_key_values}


class Blender:
    """A causal language model of Hugging Face whose prompts are fused from stored chunks.

    model: on one device, in float32, float16 or bfloat16, attention "sdpa" or "eager"
    tokenizer: for texts; None: prompts are tokens
    store: a :class:`Store`, or the directory of one
    name: names the weights ("org/model@revision"). None: their SHA-256, which reads all of them. Chunks
        of another name or other weights are never used.

    What the model computes in while fusing is the model's business. One fuse or prefill at a time;
    others wait. Raises ValueError for a model that cannot be computed row by row.
    """

    def __init__(self, model: Any, tokenizer: Any = None, *, store: Union[Store, Path], name: Optional[str] = None,
                 context: Optional[Context] = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self._inner = model.get_decoder()
        config = self._config = self._inner.config
        _check(config, self._inner)
        self._cache_name = cache_name(model.forward)
        self._rotation = Rotation(model, self._inner)
        attention = self._inner.layers[0].self_attn
        head_dim = int(attention.head_dim)
        said: Dict[str, Any] = {"name": name} if name else {"fingerprint": fingerprint(model, config)}
        self.context = context or Context()
        self.described = Model.create_from_description(
            self.context, n_layers=config.num_hidden_layers, n_heads=config.num_attention_heads,
            n_kv_heads=config.num_key_value_heads, head_dim=head_dim, n_vocab=config.vocab_size,
            context_length=config.max_position_embeddings, weight_dtype=_DTYPES[model.dtype], **said)
        self.store = store if isinstance(store, Store) else Store(self.context, store)
        self._lock = threading.Lock()  # the hooks of a fuse are on the modules
        bos = getattr(tokenizer, "bos_token_id", None)
        #: What every prompt begins with: BOS where the tokenizer has it.
        self.bos: List[int] = []
        if bos is not None and tokenizer("a")["input_ids"][:1] == [bos]:
            self.bos.append(int(bos))

    # ---- Prompts

    def prompt(self, chunks: Iterable[Union[str, Array, List[int]]],
               question: Union[str, Array, List[int]]) -> Prompt:
        """BOS, the chunks, the question. Each is tokenized by itself, control tokens as text."""
        prompt = Prompt()
        if self.bos:
            prompt.prefix(self.bos)
        for chunk in chunks:
            prompt.chunk(self.tokenize(chunk))
        return prompt.question(self.tokenize(question))

    def chat(self, messages: Iterable[Mapping[str, Any]], *, documents: Iterable[Union[str, Mapping[str, str]]] = (),
             roles: Iterable[str] = (), **variables: Any) -> Prompt:
        """A conversation as the tokenizer's chat template puts it. documents: each a chunk, a str or
        {"text", "title"}; they stand before the last message of the user. variables: of the template.
        Control tokens are recognized in what the template writes, not in texts of messages and documents.
        Variables that have one are refused, and so are roles that neither templates nor `roles` name."""
        return chat_prompt(self.tokenizer, list(messages), list(documents), variables, self.bos, roles)

    def tokenize(self, text: Union[str, Array, List[int]]) -> List[int]:
        """Tokens as they are, and those of a text without special ones."""
        if not isinstance(text, str):
            return [int(token) for token in text]
        if self.tokenizer is None:
            raise TypeError("a str needs Blender(model, tokenizer)")
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    # ---- Chunks

    def add(self, chunk: Union[str, Array, List[int]], *,
            chunk_prefix: Union[Array, List[int], None] = None) -> bool:
        """Prefills a chunk and stores it. Whether it was there already. chunk_prefix: what it is prefilled
        after, the head of the prompts that will hold it (:meth:`libblend.Prompt.head`); default: BOS."""
        head = self.bos if chunk_prefix is None else [int(token) for token in chunk_prefix]
        return self._add(self.tokenize(chunk), head)

    def _add(self, tokens: List[int], head: List[int]) -> bool:
        if self.described.find_chunk(self.store, tokens, chunk_prefix=head).existed:
            return True
        ids = torch.tensor([head + tokens], device=self.model.device)
        past: Any = DynamicCache()  # without a configuration, so that windows leave all rows
        with self._lock, torch.inference_mode():
            self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **{self._cache_name: past})
            positions = torch.arange(len(head), ids.shape[1], device=ids.device)
            layers = []
            for index, layer in enumerate(past.layers):
                k, v = (x[:, :, len(head):] for x in (layer.keys, layer.values))
                layers.append(torch.stack((self._rotation.turn(index, k, positions, back=True), v)).cpu())
        self.described.put_chunk(self.store, tokens, [(_array(k), _array(v)) for k, v in layers],
                              unrotated=True, dtype=_DTYPES[self.model.dtype], chunk_prefix=head)
        return False

    # ---- Fusing

    def fuse(self, prompt: Prompt, **options: "Unpack[FuseKeywords]") -> Fused:
        """Fuses a prompt; chunks that are not stored are prefilled after the prompt's head and stored first,
        unless on_miss is "compute" or "fail". Options are those of :meth:`libblend.Model.fuse`; ratio 1 is full prefill.
        Raises what :class:`libblend.Layerwise` raises."""
        if choice(Miss, options.get("on_miss") or Miss.PRECOMPUTE) == Miss.PRECOMPUTE:
            options["on_miss"] = Miss.COMPUTE
            given = options.get("chunk_prefix")
            head = [int(token) for token in (prompt.head() if given is None else given)]
            for segment in prompt.segments:
                if segment.kind == SegmentKind.CHUNK and not segment.id:
                    self._add([int(token) for token in segment.tokens], head)
        layerwise = Layerwise(self.described, self.store, prompt, **options)
        try:
            with self._lock, torch.inference_mode():
                return self._run(layerwise)
        finally:
            layerwise.close()

    def generate(self, prompt: Prompt, *, fuse: Optional["FuseKeywords"] = None, **options: Any) -> torch.Tensor:
        """Tokens that follow the prompt, int64 [n]. fuse: options of :meth:`fuse`; the others are those
        of the model's own generate()."""
        inputs = self.fuse(prompt, **(fuse or {})).inputs
        done = self.model.generate(**inputs, **options)
        done = getattr(done, "sequences", done)
        return torch.as_tensor(done[0, inputs["input_ids"].shape[1]:])

    def _run(self, layerwise: Layerwise) -> Fused:
        tokens = torch.as_tensor(layerwise.tokens.astype(np.int64), device=self.model.device)
        cache = _FusedCache(self, layerwise, len(tokens))
        layers = self._inner.layers
        hooks = [layer.register_forward_pre_hook(cache.enter(index), with_kwargs=True)
                 for index, layer in enumerate(layers)]
        try:
            out = self.model(input_ids=tokens[cache.rows][None], position_ids=cache.rows[None],
                             attention_mask=cache.mask(0), use_cache=True, logits_to_keep=1, **{self._cache_name: cache})
        finally:
            for hook in hooks:
                hook.remove()
        layerwise.commit(len(layers) - 1)
        past = DynamicCache()
        for index, (k, v) in enumerate(cache.kv):
            past.update(k[:, :, :-1], v[:, :, :-1], index)
        return Fused(tokens[None], past, out.logits[0, -1], layerwise.info, layerwise.selected,
                     self._cache_name)


class _FusedCache(Cache):
    """K and V of the whole prompt, [1, n_kv_heads, n_rows, head_dim] a layer. The rows that the model
    computes come through update(), all others from the layerwise fuse."""

    def __init__(self, blender: Blender, layerwise: Layerwise, n_rows: int) -> None:
        super().__init__(layers=[])
        model, config = blender.model, blender._config
        self._blender, self._layerwise = blender, layerwise
        self._device, self._dtype = model.device, _DTYPES[model.dtype]
        head_dim = int(blender._inner.layers[0].self_attn.head_dim)
        shape = (1, config.num_key_value_heads, n_rows, head_dim)
        # Where the layerwise fuse writes: the cache itself, or memory that a device reads without a copy.
        pin = self._device.type == "cuda"
        self.kv = [tuple(torch.zeros(shape, dtype=model.dtype, pin_memory=pin) for _ in range(2))
                   for _ in range(config.num_hidden_layers)]
        for layer, (k, v) in enumerate(self.kv):  # the memory is there: load as far ahead as it goes
            layerwise.fetch_kv(layer, _array(k), _array(v), dtype=self._dtype, unrotated=True)
        self.columns = torch.arange(n_rows, device=self._device)
        self.rows = self._tensor(layerwise.rows)  # that are computed at this layer
        self._begun = self.rows  # at the first
        self._entered = -1  # the layer that was called last
        self._window = [_window(config, layer) for layer in range(config.num_hidden_layers)]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def _tensor(self, rows: Array) -> torch.Tensor:
        return torch.as_tensor(rows.astype(np.int64), device=self._device)

    def mask(self, layer: int) -> torch.Tensor:
        """Row i sees the rows j <= i of the prompt, whichever of them are computed, as far as the
        layer's window goes. [1, 1, rows, n_rows], to be added."""
        rows, columns = self.rows[:, None], self.columns[None]
        hidden = columns > rows
        window = self._window[layer]
        if window is not None:
            hidden = hidden | (columns <= rows - window)
        dtype = self._blender.model.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self._device)
        return mask.masked_fill_(hidden, torch.finfo(dtype).min)[None, None]

    def enter(self, layer: int) -> Any:
        """A hook before the layer: the rows that go on, and what they see."""
        def hook(_module: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
            if not among((*args, *kwargs.values()), self):
                return None  # another call of the same model
            if "position_embeddings" not in kwargs or "attention_mask" not in kwargs:
                raise unknown_call("calls layers without position_embeddings and attention_mask")
            if layer > 0:
                self._layerwise.commit(layer - 1)
                kept = self._tensor(self._layerwise.rows)
                stay = torch.isin(self.rows, kept)
                if args:
                    args = (args[0][:, stay], *args[1:])
                else:
                    kwargs = {**kwargs, "hidden_states": kwargs["hidden_states"][:, stay]}
                self.rows = kept
            turned = kwargs["position_embeddings"]  # None: the layer does not turn
            if turned is not None:
                places = torch.searchsorted(self._begun, self.rows)
                turned = tuple(x[:, places] for x in turned)
            self._entered = layer
            return args, {**kwargs, "position_embeddings": turned, "attention_mask": self.mask(layer),
                          "position_ids": self.rows[None]}
        return hook

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: Any,
               **__: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        if self._entered != layer_idx:
            raise unknown_call("does not hand the cache to the model's layers")
        self._layerwise.synchronize(layer_idx)
        k, v = (x.to(self._device, non_blocking=True) for x in self.kv[layer_idx])
        rotation = self._blender._rotation
        k = rotation.turn(layer_idx, k, self.columns)
        k[:, :, self.rows], v[:, :, self.rows] = key_states, value_states
        self.kv[layer_idx] = (k, v)
        try:
            self._layerwise.select(layer_idx)
        except InvalidArgumentError:  # it measures here
            fresh = torch.stack((rotation.turn(layer_idx, key_states, self.rows, back=True), value_states)).cpu()
            self._layerwise.select(layer_idx, _array(fresh[0]), _array(fresh[1]), dtype=self._dtype, unrotated=True)
        return k, v


def _array(x: torch.Tensor) -> Array:
    """[n, n_kv_heads, head_dim] over the memory of [1, n_kv_heads, n, head_dim]; bf16 as uint16."""
    x = x[0].transpose(0, 1)
    if x.dtype != torch.bfloat16:
        return np.asarray(x.numpy())
    return np.asarray(x.view(torch.int16).numpy()).view(np.uint16)


def _window(config: Any, layer: int) -> Optional[int]:
    """Rows that a row of the layer sees, itself included; None: all before it."""
    types = getattr(config, "layer_types", None)
    if types:
        return int(config.sliding_window) if types[layer] == "sliding_attention" else None
    window = getattr(config, "sliding_window", None)
    return int(window) if window else None


def _check(config: Any, inner: Any) -> None:
    """Refuses by name what a fuse would compute wrongly."""
    kind = config.model_type
    if not hasattr(inner, "layers") or not hasattr(inner.layers[0], "self_attn"):
        raise ValueError(f"a {kind} model is not a stack of layers with attention, which fusing needs")
    types = set(getattr(config, "layer_types", None) or ())
    if types - {"full_attention", "sliding_attention"}:
        raise ValueError(f"a {kind} model has layers of {', '.join(sorted(types))}: only full and sliding attention are fused")
    if getattr(config, "num_kv_shared_layers", 0):
        raise ValueError(f"layers of this {kind} model share K and V: only layers with their own are fused")
    sizes = {getattr(getattr(layer, "self_attn", None), "head_dim", None) for layer in inner.layers}
    if len(sizes) > 1:
        raise ValueError(f"layers of this {kind} model have heads of different sizes: only layers that are alike are fused")
    if getattr(config, "kv_lora_rank", None):
        raise ValueError(f"a row of this {kind} model is a latent one that heads share: only K and V of heads are fused")
    if getattr(config, "use_bidirectional_attention", False):
        raise ValueError(f"this {kind} model's rows see rows after them: its chunks cannot be stored")
    attention = getattr(config, "_attn_implementation", "eager")
    if attention not in ("sdpa", "eager"):
        raise ValueError(f'attention "{attention}" takes no mask of our own: load the model with attn_implementation="sdpa"')
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "dynamic":
        raise ValueError("dynamic RoPE changes with the prompt's length: chunks would not fit into prompts of another")
    dtype = next(inner.parameters()).dtype
    if dtype not in _DTYPES:
        raise ValueError(f"the model computes in {dtype}: float32, float16 and bfloat16 are taken")


def fingerprint(model: Any, config: Any) -> str:
    """SHA-256 of a model's weights and configuration."""
    said = {key: value for key, value in config.to_dict().items() if key not in _NO_WEIGHTS}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if tensor.is_meta:
            raise ValueError(f"the weights of {name} are not loaded: name them with `name`")
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
