"""A context, a model and a store, and short words for what the scenarios do with them."""

import ctypes as c
import pathlib
import random

from abi import CALLBACKS, CONSTANT, STRUCTS, Wrong, succeeded

MODEL = pathlib.Path(__file__).resolve().parents[2] / "examples" / "models" / "blend-qa.gguf"
VOCABULARY = 1536
CHUNK, QUESTION = CONSTANT["SEGMENT_CHUNK"], CONSTANT["SEGMENT_QUESTION"]
PRECOMPUTE, COMPUTE, FAIL, COMPUTE_STORE = (
    CONSTANT[f"MISS_{what}"] for what in ("PRECOMPUTE", "COMPUTE", "FAIL", "COMPUTE_STORE"))
STORED = CONSTANT["SOURCE_STORE"]


def ids(tokens):
    return (c.c_int32 * len(tokens))(*tokens)


def random_tokens(rng, n):
    return ids([rng.randrange(3, VOCABULARY) for _ in range(n)])


class World:
    """Closes what it opened. `prompt`: what the scenarios fuse, chunks and a question."""

    def __init__(self, r, n_chunks=3, chunk_tokens=90, chunks=None, n_threads=None, store="store", path=MODEL,
                 **options):
        self.r, self.lib, self.store_path, self.model_path = r, r.lib, str(r.dir / store), str(path)
        n_threads = r.rng.choice((1, 2, 3)) if n_threads is None else n_threads
        self.ctx = self.lib.opened("ctx_create", self.lib.struct("ctx_options", n_threads=n_threads))
        self.model = self.lib.opened("model_open", self.ctx, self.model_path.encode(), None)
        self.options = dict(quota_bytes=64 << 20, **options)
        self.store = c.c_void_p()
        self.open_store()
        self.chunks = chunks or [random_tokens(r.rng, r.rng.randrange(8, chunk_tokens)) for _ in range(n_chunks)]
        self.question = random_tokens(random.Random(1), 17)
        self.prompt = self.segments(self.chunks, self.question)

    def try_open_store(self, path=None):
        """The Code; the store is this world's from here on if it is open."""
        options = self.lib.struct("store_options", **self.options)
        path = (path or self.store_path).encode()
        return self.lib.call("store_open", c.byref(self.store), self.ctx, path, options)

    def open_store(self):
        succeeded("store_open", self.try_open_store())

    def close_store(self):
        store, self.store = self.store, c.c_void_p()
        self.lib.call("store_close", store)

    def close(self):
        self.close_store()
        self.lib.call("model_close", self.model)
        self.lib.call("ctx_close", self.ctx)

    def segments(self, chunks, question, kind=CHUNK):
        parts = [(kind, tokens) for tokens in chunks] + [(QUESTION, question)]
        return self.lib.array("segment", [self.lib.struct("segment", kind=kind, tokens=tokens, n_tokens=len(tokens))
                                          for kind, tokens in parts])

    # ---- Calls: each gives its Code.

    def precompute(self, tokens, store=None, **options):
        made = STRUCTS["chunk_id"]()
        code = self.lib.call("precompute", self.model, store or self.store, tokens, len(tokens),
                             self.lib.struct("precompute_options", **options), made)
        self.id = made  # of the last one that ended: they may lie in each other
        return code

    def precompute_all(self):
        self.ids = []
        for tokens in self.chunks:
            succeeded("precompute", self.precompute(tokens))
            self.ids.append(self.id)

    def fuse(self, prompt=None, store=None, **options):
        """The Code and the fusion."""
        prompt, fusion = prompt or self.prompt, c.c_void_p()
        options = self.lib.struct("fuse_options", **{
            "reserve_tokens": 64, "ratio": 0.15, "on_miss": PRECOMPUTE, **options})
        code = self.lib.call("fuse", c.byref(fusion), self.model, store or self.store, prompt, len(prompt), options)
        return code, fusion

    def fused(self, **options):
        code, fusion = self.fuse(**options)
        succeeded("fuse", code)
        return fusion

    def logits(self, fusion):
        return self.lib.bytes_of("fusion_get_logits", fusion, c.c_float)

    def bits(self, fusion, close=True):
        """Its logits; closes it."""
        bits = self.logits(fusion)
        if close:
            self.lib.call("fusion_close", fusion)
        return bits

    def sources(self, fusion, n):
        """Where the K and V of the first n segments came from."""
        found = []
        for at in range(n):
            info = self.lib.struct("segment_info")
            self.lib.done("fusion_get_segment", fusion, at, info)
            found.append(info.source)
        return tuple(found)

    def list(self, verify, fn=None, store=None):
        fn = fn or CALLBACKS["chunk_fn"](lambda *_: 0)
        return self.lib.call("store_list", store or self.store, None, None, verify, fn, None)


class Expected:
    """The logits of the world's prompt, chunks found or missed as in a fuse that is judged, by stores that
    nobody has damaged. Bits of the same sources are computed once."""

    def __init__(self, world):
        self.world, self.known = world, {}

    def of(self, on_miss, sources):
        stored = tuple(source == STORED for source in sources)
        key = (on_miss, stored)
        if key not in self.known:
            w = self.world
            path = str(w.r.dir / f"sound-{len(self.known)}")
            store = w.lib.opened("store_open", w.ctx, path.encode(), w.lib.struct("store_options", **w.options))
            for tokens in (t for t, there in zip(w.chunks, stored) if there):
                w.precompute(tokens, store=store)
            self.known[key] = w.bits(w.fused(store=store, on_miss=on_miss))
            w.lib.call("store_close", store)
        return self.known[key]

    def judge(self, what, on_miss, code, fusion):
        """An error code, or the bits that are expected."""
        if code < 0:
            return
        sources = self.world.sources(fusion, len(self.world.chunks))
        if self.world.bits(fusion) != self.of(on_miss, sources):
            raise Wrong(f"{what}: wrong logits (on_miss {on_miss}, sources {sources})")
