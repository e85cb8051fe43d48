"""Hugging Face transformers on CPU, unpatched, with KV caches fused by libblend.

    python transformers_step.py [--model DIR] [--gguf FILE] [--library libblend.so] ...

The model is transformers' own: its modules are called layer by layer, and its cache is a Cache whose
update() puts the fresh rows among the ones that libblend brings from the store. The chunks are
prefilled by transformers too, once, and stored with blend_chunk_put.

Three answers to one prompt are compared:
  full       full prefill by transformers
  step       fused, computed by transformers (the step API)
  built-in   fused, computed by libblend's own engine (blend_fuse) on a GGUF of the same weights
"""

import argparse
import ctypes as c
import hashlib
import inspect
import pathlib
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import Cache, DynamicCache

import blend_step
from blend_step import CHUNK, PREFIX, QUESTION, Blend, Layerwise
from to_hugging_face import example_model

ROOT = pathlib.Path(__file__).resolve().parent.parent


def cached(model, cache):
    """The cache as an argument: transformers 5.24 calls it "cache", those before "past_key_values"."""
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    return {name: cache, "use_cache": True}


def describe(blend, ctx, model, directory):
    """A blend_model without weights: shapes, RoPE, and the hash of the weight files."""
    config, rotary = model.config, model.model.rotary_emb
    d = blend.options(blend_step.ModelDescription, "blend_model_description_init")
    d.n_layers, d.n_heads = config.num_hidden_layers, config.num_attention_heads
    d.n_kv_heads, d.head_dim = config.num_key_value_heads, model.model.layers[0].self_attn.head_dim
    d.n_vocab, d.context_length = config.vocab_size, config.max_position_embeddings
    d.rope_layout = blend_step.ROPE_HALF_SPLIT
    # Whatever kind of RoPE it is, its frequencies are those of the default one over some factors.
    if rotary.attention_scaling != 1.0:
        raise SystemExit("this model's RoPE also scales the keys (YaRN), which libblend does not do")
    inv_freq = rotary.inv_freq.double()
    d.rotary_dim, d.rope_theta = 2 * len(inv_freq), config.rope_parameters["rope_theta"]
    default = d.rope_theta ** (-torch.arange(len(inv_freq)).double() / len(inv_freq))
    factors = (default / inv_freq).float()
    if (factors - 1).abs().max() > 1e-6:
        d.rope_freq_factors = (c.c_float * len(factors))(*factors.tolist())
        d.n_rope_freq_factors = len(factors)
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.safetensors")) + [directory / "config.json"]:
        digest.update(path.read_bytes())
    d.name, d.fingerprint[:] = directory.name.encode(), digest.digest()
    return blend.open("blend_model_create_from_description", ctx, c.byref(d))


class FusedCache(Cache):
    """K and V of the whole prompt, [1, n_kv_heads, n_rows, head_dim] a layer. The rows that the
    model computes come through update(), all others from the layerwise fuse."""

    def __init__(self, layerwise, model, n_rows):
        super().__init__(layers=[])
        config, head_dim = model.config, model.model.layers[0].self_attn.head_dim
        shape = (1, config.num_key_value_heads, n_rows, head_dim)
        self.layerwise = layerwise
        self.kv = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(config.num_hidden_layers)]
        for layer, (k, v) in enumerate(self.kv):  # the memory is there: load as far ahead as it goes
            layerwise.fetch_kv(layer, k, v)
        self.rows = torch.tensor(layerwise.rows())  # computed at this layer
        self.kept = self.rows  # those of them that go on after it

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        k, v = self.kv[layer_idx]
        k[:, :, self.rows], v[:, :, self.rows] = key_states, value_states
        self.layerwise.synchronize(layer_idx)
        self.kept = torch.tensor(self.layerwise.select(layer_idx, key_states, value_states))
        return k, v


def fused_prefill(model, layerwise):
    """Logits of the prompt's last row, and the cache to go on with."""
    tokens = torch.tensor(layerwise.tokens())
    cache = FusedCache(layerwise, model, len(tokens))
    inner, columns = model.model, torch.arange(len(tokens))
    hidden = inner.embed_tokens(tokens[cache.rows][None])
    for index, layer in enumerate(inner.layers):
        rows = cache.rows
        # Row i sees the rows j <= i of the prompt, whichever of them are computed.
        mask = torch.zeros(1, 1, len(rows), len(tokens))
        mask.masked_fill_(columns[None] > rows[:, None], torch.finfo(mask.dtype).min)
        hidden = layer(
            hidden,
            attention_mask=mask,
            position_ids=rows[None],
            position_embeddings=inner.rotary_emb(hidden, position_ids=rows[None]),
            **cached(model, cache),
        )
        hidden = hidden[:, torch.isin(rows, cache.kept)]
        cache.rows = cache.kept
        layerwise.commit(index)
    past = DynamicCache()
    for index, (k, v) in enumerate(cache.kv):
        past.update(k, v, index)
    return model.lm_head(inner.norm(hidden))[0, -1], past


def greedy(model, logits, past, eos, n_tokens):
    out = []
    while len(out) < n_tokens:
        token = int(logits.argmax())
        if token == eos:
            break
        out.append(token)
        logits = model(torch.tensor([[token]]), **cached(model, past)).logits[0, -1]
    return out


def store_chunk(blend, described, store, model, tokens, prefix):
    """Prefills one chunk by itself, after the chunk prefix, unless it is stored already."""
    if blend.find_chunk(described, store, tokens, prefix):
        return False
    past = DynamicCache()
    model(torch.tensor([prefix + tokens]), **cached(model, past))
    layers = [(l.keys[:, :, len(prefix):], l.values[:, :, len(prefix):]) for l in past.layers]
    blend.put_chunk(described, store, tokens, prefix, layers)
    return True


def built_in(blend, ctx, gguf, store, segments, ratio, chunk_prefix, n_tokens):
    """blend_fuse with libblend's own engine: logits, selected rows and the text it generates."""
    model = blend.open("blend_model_open", ctx, str(gguf).encode(), None)
    prompt, n = blend.prompt(segments)
    options = blend.fuse_options(ratio, chunk_prefix, blend_step.MISS_PRECOMPUTE)
    fusion = blend.open("blend_fuse", model, store, prompt, n, c.byref(options))
    logits = torch.tensor(blend.array("blend_fusion_get_logits", fusion, c.c_float))
    selected = blend.array("blend_fusion_get_selected", fusion, c.c_uint32)
    tokens = []
    on_token = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_void_p, c.c_size_t)(
        lambda user, token, text, size: tokens.append(token) or int(len(tokens) >= n_tokens)
    )
    try:
        blend.call("blend_fusion_generate", fusion, None, on_token, None, None)
    except blend_step.BlendError:
        if len(tokens) < n_tokens:  # otherwise the callback asked to stop
            raise
    blend.close("blend_fusion_close", fusion)
    blend.close("blend_model_close", model)
    return logits, selected, tokens


def arguments():
    models, data = ROOT / "models", ROOT / "data"
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path,
                        help="directory of a Hugging Face Llama; default: the example model")
    parser.add_argument("--gguf", type=pathlib.Path, default=models / "blend-qa.gguf",
                        help="the same weights for libblend's own engine; '' leaves it out")
    parser.add_argument("--documents", type=pathlib.Path, default=data / "documents")
    parser.add_argument("--question", default=(data / "question.txt").read_text().strip())
    parser.add_argument("--ratio", type=float, default=0.15)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--kv-dtype", choices=["f32", "f16", "bf16"], default="f32",
                        help="f32 shows the engines alone, the others round what is stored")
    parser.add_argument("--store", help="directory to keep the chunks in; default: a temporary one")
    parser.add_argument("--library", help="path of libblend.so; default: where the system finds it")
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are")
    return parser.parse_args()


@torch.inference_mode()
def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.model = args.model or example_model()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    blend = Blend(args.library)
    ctx = blend.open("blend_ctx_create", None)
    described = describe(blend, ctx, model, args.model)
    options = blend.options(blend_step.StoreOptions, "blend_store_options_init")
    options.kv_dtype = {"f32": blend_step.DTYPE_F32, "f16": blend_step.DTYPE_F16,
                        "bf16": blend_step.DTYPE_BF16}[args.kv_dtype]
    scratch = tempfile.TemporaryDirectory()
    store = blend.open("blend_store_open", ctx, (args.store or scratch.name).encode(),
                       c.byref(options))

    # Each text by itself: a chunk's tokens must not depend on what stands before it.
    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    bos = [tokenizer.bos_token_id] if tokenizer.bos_token_id is not None else []
    chunks = [ids(p.read_text()) for p in sorted(args.documents.glob("*.txt"))]
    question = ids(f"Question: {args.question}\nAnswer:")
    segments = [(PREFIX, bos)] * bool(bos) + [(CHUNK, t) for t in chunks] + [(QUESTION, question)]

    new = sum(store_chunk(blend, described, store, model, t, bos) for t in chunks)
    if bos:
        store_chunk(blend, described, store, model, bos, [])
    prompt = [t for _, tokens in segments for t in tokens]
    print(f"{len(prompt)} tokens: {len(chunks)} chunks ({new} stored now), "
          f"{len(question)} of the question")

    begin = time.perf_counter()
    full_past = DynamicCache()
    full = model(torch.tensor([prompt]), **cached(model, full_past))
    full_ms = (time.perf_counter() - begin) * 1e3
    full_logits = full.logits[0, -1]
    eos = tokenizer.eos_token_id
    results = [("full", full_logits, greedy(model, full_logits, full_past, eos, args.max_tokens))]

    begin = time.perf_counter()
    layerwise = Layerwise(blend, described, store, segments, args.ratio, bos)
    logits, past = fused_prefill(model, layerwise)
    step_ms = (time.perf_counter() - begin) * 1e3
    selected = layerwise.selected()
    results.append(("step", logits, greedy(model, logits, past, eos, args.max_tokens)))

    if str(args.gguf) not in ("", "."):
        own, own_selected, tokens = built_in(blend, ctx, args.gguf, store, segments, args.ratio, bos,
                                             args.max_tokens)
        results.append(("built-in", own, tokens))

    print(f"first token: full {full_ms:.1f} ms, step {step_ms:.1f} ms, "
          f"{len(selected)} rows selected\n")
    for name, _, tokens in results:
        print(f"  {name:9} {tokenizer.decode(tokens)!r}")
    print(f"\nmax |logit difference|  step - full      {(logits - full_logits).abs().max():.2e}")
    if len(results) == 3:
        print(f"                        step - built-in  {(logits - own).abs().max():.2e}")
        print(f"selected rows equal: {'yes' if selected == own_selected else 'no'}")
    layerwise.close()
    blend.close("blend_store_close", store)
    blend.close("blend_model_close", described)
    blend.close("blend_ctx_close", ctx)
    scratch.cleanup()


if __name__ == "__main__":
    main()
