"""Random arguments for every function of the headers. Pointers are NULL or valid, handles are of the right type
and open, counts never exceed their buffers but where the library compares them with the context's length
first. Whatever comes, nothing dies."""

import ctypes as c
import os
import shutil

from abi import CALLBACKS, FUNCTIONS, HANDLES, HEADERS, PLAIN, STRUCTS
from world import MODEL, World, random_tokens

SECONDS = 30
CALLS = 150
MOST = 4  # elements of an array: a calibration tries all pairs of what it is given
ROOM = 1 << 17  # of one struct: more than any struct_size that is accepted
KV_BYTES = 8 << 20
ABSURD = (2**33, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
CLOSES = {"ctx": "ctx_close", "model": "model_close", "store": "store_close", "fusion": "fusion_close",
          "layerwise": "layerwise_close", "machine": "machine_close", "profile": "profile_close", "cancel": "cancel_free",
          "error": "error_free", "chat": "chat_close", "grammar": "grammar_close"}
INDEX = ("segment", "index", "layer", "point")  # any number may be asked for
# Tokens that are refused by their number alone: (struct or function, count).
CHECKED = {("segment", "n_tokens"), ("precompute_options", "n_chunk_prefix"), ("fuse_options", "n_chunk_prefix"),
           ("blend_precompute", "n_tokens")}


class Arguments:
    """Makes them, and keeps what is given away until the round is over."""

    def __init__(self, r, w):
        self.r, self.rng, self.w, self.kept = r, r.rng, w, []
        self.pool = {kind: [] for kind in HANDLES}
        for kind in ("ctx", "model", "store"):
            self.pool[kind].append(getattr(w, kind).value)
        self.kv = c.create_string_buffer(KV_BYTES)
        self.paths = self.make_paths()

    def make_paths(self):
        """Only below the round's directory: some functions write where they are told."""
        folder = self.r.dir / "paths"
        folder.mkdir()
        shutil.copy(MODEL, folder / "model.gguf")
        (folder / "empty").touch()
        (folder / "garbage").write_bytes(self.rng.randbytes(5000))
        (folder / "cut.gguf").write_bytes(MODEL.read_bytes()[:self.rng.randrange(1 << 20)])
        (folder / "link").symlink_to(folder / "garbage")
        (folder / "dangling").symlink_to(folder / "nothing")
        os.mkfifo(folder / "fifo")
        names = ("model.gguf", "empty", "garbage", "cut.gguf", "link", "dangling", "fifo", "", "new", "new/er",
                 "garbage/x", "x" * 300, "\udcff\udc80")
        return [os.fsencode(f"{folder}/{name}") for name in names] + [self.w.store_path.encode(), b""]

    def keep(self, thing):
        self.kept.append(thing)
        return thing

    def at(self, thing):
        return c.addressof(self.keep(thing))

    def scalar(self, kind):
        rng = self.rng
        if kind in ("double", "float"):
            return rng.choice((0.0, 1.0, -1.0, 0.15, 0.5, 1e300, float("inf"), float("nan"), rng.uniform(0, 1)))
        bits = 8 * c.sizeof(PLAIN[kind])
        return rng.choice((0, 0, 0, 1, 1, 2, 3, 4, 8, -1, 1 << rng.randrange(bits), 2**31 - 1, 2**31,
                           rng.getrandbits(bits)))

    def count(self, owner, name):
        if (owner, name) in CHECKED and self.rng.random() < 0.15:
            return self.rng.choice(ABSURD)
        return self.rng.randrange(MOST + 1)

    def callback(self, kind):
        value = self.rng.choice((0, 0, 0, 0, 1, -1))
        return c.cast(self.keep(CALLBACKS[kind](lambda *_: value)), c.c_void_p).value

    def text(self, name):
        rng = self.rng
        if name == "path":
            value = rng.choice(self.paths)
        elif name == "backend":
            value = rng.choice((b"cpu", b"cuda", b"cuda:0", b"cuda:99999999999999999999", b"auto", b"", b"\xff"))
        elif name == "hex":
            value = rng.choice((bytes(65), b"0" * 64, b"g" * 64, rng.randbytes(32).hex().encode()))
        else:
            noise = rng.randbytes(rng.randrange(70)).replace(b"\0", b"x")
            value = rng.choice((b"", b"a", b"tenant", noise, b"x" * 5000))
        return self.at(c.create_string_buffer(value, len(value) + 66))

    def numbers(self, kind):
        """MOST of them, and room for what the function writes."""
        made = (PLAIN[kind] * 64)()
        for i in range(MOST):
            token = kind == "int32_t" and self.rng.random() < 0.97
            made[i] = self.rng.randrange(3, 1500) if token else self.scalar(kind)
        if kind == "size_t":
            made[0] = self.rng.randrange(MOST + 1)
        return self.at(made)

    def handle(self, kind):
        return self.rng.choice(self.pool[kind]) if self.pool[kind] else None

    def pointer(self, owner, kind, name, stars=1):
        """NULL, or what a pointer of this type may point to."""
        if self.rng.random() < 0.12 + 0.4 * (owner in STRUCTS):
            return None
        if kind.endswith("_fn"):
            return self.callback(kind)
        if kind == "char *const" or kind == "char" and stars == 2:  # texts; or room for one
            some = self.rng.random() < 0.2
            return self.at((c.c_void_p * MOST)(*(None if some and self.rng.random() < 0.5 else self.text(name)
                                                 for _ in range(MOST))))
        if stars == 2:
            return self.at((c.c_void_p * MOST)())
        if kind in HANDLES:
            return self.handle(kind)
        if kind == "char":
            return self.text(name)
        if kind == "void":
            return self.at(self.kv) if name in ("k", "v") else self.at((c.c_byte * 64)())
        return self.structs(kind) if kind in STRUCTS else self.numbers(kind)

    def structs(self, kind):
        """An array whose elements lie struct_size apart, followed by zeros."""
        size = c.sizeof(STRUCTS[kind])
        stride = self.rng.choice((size,) * 16 + (0, 1, size - 1, size + 8, 1000, 65536, 65537, 2**31, 2**32 - 1))
        room = self.keep((c.c_byte * (MOST * ROOM))())
        if not HEADERS.declared[kind].versioned:
            stride = size
        for i in range(MOST if size <= stride <= ROOM else 1):
            self.fill(STRUCTS[kind].from_buffer(room, i * stride), kind, stride)
        return c.addressof(room)

    def fill(self, made, kind, stride):
        init = f"blend_{kind}_init"
        plain = self.rng.random() < 0.5  # close to what is accepted
        if init in FUNCTIONS:
            self.r.lib.functions[init](c.byref(made), c.sizeof(made))
        for member in HEADERS.declared[kind].members:
            if member.name == "struct_size":
                made.struct_size = stride
            elif self.rng.random() < (0.85 if plain else 0.4):
                self.set_plain(made, kind, member)
            elif member.length or not (member.pointer or member.type in PLAIN or member.type.endswith("_fn")):
                c.memmove(c.addressof(made) + getattr(STRUCTS[kind], member.name).offset,
                          self.rng.randbytes(32), min(32, getattr(STRUCTS[kind], member.name).size))
            elif member.pointer or member.type.endswith("_fn"):
                setattr(made, member.name, self.pointer(kind, member.type.removeprefix("blend_"), member.name))
            elif member.name.startswith("n_") and member.type == "size_t":
                setattr(made, member.name, self.count(kind, member.name))
            elif member.name.endswith("_stride"):
                setattr(made, member.name, self.rng.choice((0, 1, 32, 64, 4096)))
            else:
                setattr(made, member.name, self.scalar(member.type))

    def set_plain(self, made, kind, member):
        """What segments and samples need to be accepted; others keep what they have."""
        if member.name in ("tokens", "segments"):
            setattr(made, member.name, self.pointer("", member.type.removeprefix("blend_"), member.name))
        elif member.name in ("n_tokens", "n_segments"):
            setattr(made, member.name, self.rng.randrange(1, MOST + 1) if getattr(made, member.name[2:], None) else 0)
        elif (kind, member.name) == ("segment", "kind"):
            made.kind = self.rng.choice((2, 2, 3, 4, 4))
        elif member.name in ("k", "v"):
            setattr(made, member.name, self.at(self.kv))

    def of(self, function):
        made = []
        for p in function.parameters:
            kind = p.type
            if p.stars:
                made.append(self.pointer(function.name, kind, p.name, p.stars))
            elif kind.endswith("_fn"):
                made.append(self.pointer(function.name, kind, p.name))
            elif p.name == "struct_size":
                made.append(self.rng.choice((0, 1, 8, 64, 192, 500, ROOM, 2**32, 2**64 - 1)))
            elif kind == "size_t" and p.name not in INDEX:
                made.append(self.count(function.name, p.name))
            else:
                made.append(PLAIN[kind](self.scalar(kind)).value)
        return made

    # ---- What comes back.

    def take(self, function, made):
        """Handles that it gave are used later."""
        for p, value in zip(function.parameters, made):
            if p.stars == 2 and p.type in HANDLES and value:
                for handle in (c.c_void_p * MOST).from_address(value):
                    if handle and handle not in self.pool[p.type]:
                        self.pool[p.type].append(handle)

    def close_some(self, most):
        """Closes what there is too much of; cancel tokens stay, a layerwise fuse may hold them."""
        for kind, handles in self.pool.items():
            while len(handles) > (most if most == 0 or kind != "cancel" else 1000):
                handle = handles.pop(0 if most == 0 else self.rng.randrange(len(handles)))
                self.r.lib.functions["blend_" + CLOSES[kind]](handle)


def run(r):
    shutil.copy(MODEL, r.dir / "own.gguf")  # calibrations write beside it
    w = World(r, path=r.dir / "own.gguf")
    w.precompute(random_tokens(r.rng, 12))
    a = Arguments(r, w)
    names = [name for name in FUNCTIONS if name.removeprefix("blend_") not in CLOSES.values()]
    description = w.lib.struct("model_description", n_layers=2, n_heads=4, n_kv_heads=2, head_dim=32, n_vocab=1536,
                               context_length=256, name=c.create_string_buffer(b"host"))
    a.pool["model"].append(w.lib.opened("model_create_from_description", w.ctx, description).value)
    a.pool["cancel"].append(w.lib.opened("cancel_create").value)
    a.pool["fusion"].append(w.fused().value)
    a.pool["layerwise"].append(w.lib.opened("layerwise_create", w.model, w.store, w.prompt, len(w.prompt), None).value)
    for _ in range(CALLS):
        function = FUNCTIONS[r.rng.choice(names)]
        if function.name == "blend_model_create_from_description":
            continue  # of random shapes: K and V would outgrow the buffers
        made = a.of(function)
        if function.name in ("blend_store_wait", "blend_calibrate"):
            made[2] = min(made[2], 2)  # neither waits nor measures for long
        r.step(f"{function.name}{tuple(made)}")
        code = r.lib.functions[function.name](*made)
        if function.parameters and function.parameters[-1].name == "err":
            slot = made[-1] and c.c_void_p.from_address(made[-1])
            if slot:
                r.lib.judged(function.name, code, c.c_void_p(slot.value))
                slot.value = None
            r.count("done" if code >= 0 else "refused")
        a.take(function, made)
        for token in a.pool["cancel"]:
            r.lib.functions["blend_cancel_reset"](token)
        a.close_some(4)
    r.step("closing everything")
    a.close_some(0)
