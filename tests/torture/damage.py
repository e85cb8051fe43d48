"""Damaged stores: bytes flipped, blocks overwritten, files cut, while the store is closed or between two calls.
Every call gives an error or what an undamaged store gives."""

import ctypes as c
import os

from abi import CALLBACKS, STRUCTS, Wrong
from world import COMPUTE, COMPUTE_STORE, FAIL, PRECOMPUTE, Expected, World, random_tokens

SECONDS = 40
PAGE = 4096


def garbage(rng, n):
    kind = rng.randrange(4)
    return (rng.randbytes(n) if kind == 0 else bytes(n) if kind == 1 else b"\xff" * n if kind == 2
            else rng.randbytes(8) * (n // 8 + 1))[:n]


def write_at(path, at, data):
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, data, at)
    os.close(fd)


def spoil(r, path):
    """Changes a file by one of the ways that disks and people have; says how."""
    rng, size = r.rng, os.path.getsize(path)
    how = rng.choice(("flip", "flip", "block", "page", "cut")) if size else "append"
    if how == "flip":
        n = rng.choice((1, 1, 2, 20))
        top = rng.choice((size, size, min(size, 2 * PAGE), min(size, 400)))
        for at in (rng.randrange(top) for _ in range(n)):
            with open(path, "rb") as file:
                file.seek(at)
                byte = file.read(1)[0]
            write_at(path, at, bytes([byte ^ 1 << rng.randrange(8)]))
    elif how == "block":
        n = rng.choice((8, 96, 512, PAGE, 16 * PAGE))
        write_at(path, rng.randrange(size), garbage(rng, n))
    elif how == "page":  # one page over another: sound in itself, in the wrong place
        with open(path, "rb") as file:
            file.seek(rng.randrange((size + PAGE - 1) // PAGE) * PAGE)
            page = file.read(PAGE)
        write_at(path, rng.randrange((size + PAGE - 1) // PAGE) * PAGE, page)
    elif how == "cut":
        n = rng.choice((rng.randrange(size), rng.randrange(size), size - 1, size // PAGE * PAGE))
        os.truncate(path, n)
    else:
        write_at(path, 0, garbage(rng, rng.randrange(1, 3 * PAGE)))
    return f"{how} of {os.path.basename(path)} ({size} bytes)"


def cut_or_overwrite(r, path):
    """What must never kill an open store: the meta pages are gone or are nothing of LMDB's."""
    if r.rng.random() < 0.5:
        n = r.rng.choice((0, 0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, r.rng.randrange(2 * PAGE)))
        os.truncate(path, n)
        return f"data.mdb cut to {n} bytes"
    write_at(path, 0, garbage(r.rng, 2 * PAGE))
    return "the first two pages of data.mdb overwritten"


class Use:
    """The calls of a round. Each gives a Code, or None."""

    def __init__(self, r, world, expected, saved):
        self.r, self.w, self.expected, self.lib = r, world, expected, r.lib
        self.saved_id, self.saved_bits = saved
        self.extra = 0
        self.calls = [self.list, self.fuse, self.fuse, self.put, self.put_again, self.remove, self.repair, self.evict,
                      self.stat, self.export, self.copy, self.reopen, self.compact, self.restore, self.flush]

    def list(self):
        return self.w.list(1)

    def fuse(self):
        if self.w.options["codec"] > 2:  # lossy: what waits to be written is fused as it was computed
            self.lib.call("store_flush", self.w.store)
        on_miss = self.r.rng.choice((PRECOMPUTE, COMPUTE, FAIL, COMPUTE_STORE))
        code, fusion = self.w.fuse(on_miss=on_miss)
        self.expected.judge("a fuse from the damaged store", on_miss, code, fusion)
        return code

    def put(self):
        tokens = random_tokens(self.r.rng, self.r.rng.randrange(5, 200))
        return self.w.precompute(tokens, codec=self.r.rng.randrange(1, 5))

    def put_again(self):
        return self.w.precompute(self.r.rng.choice(self.w.chunks))

    def remove(self):
        return self.lib.call("store_remove", self.w.store, self.r.rng.choice(self.w.ids), None)

    def repair(self):
        return self.lib.call("store_repair", self.w.store, CALLBACKS["chunk_fn"](lambda *_: 0), None, None)

    def evict(self):
        return self.lib.call("store_evict", self.w.store, self.r.rng.choice((0, 1 << 20, 1 << 40)), None)

    def stat(self):
        return self.lib.call("store_get_stat", self.w.store, self.lib.struct("store_stat"))

    def flush(self):
        return self.lib.call("store_flush", self.w.store)

    def path(self, name):
        self.extra += 1
        return str(self.r.dir / f"{name}-{self.extra}").encode()

    def export(self):
        return self.lib.call("store_export", self.w.store, self.path("export"), None, None)

    def copy(self):
        return self.lib.call("store_copy", self.w.store, self.path("copy"))

    def restore(self):
        fusion = c.c_void_p()
        w = self.w
        code = self.lib.call("fusion_restore", c.byref(fusion), w.model, w.store, self.saved_id, None, 8, None)
        if code >= 0 and self.w.bits(fusion) != self.saved_bits:
            raise Wrong("a saved fusion came back with other logits")
        return code

    def reopen(self):
        self.w.close_store()
        return self.w.try_open_store()

    def compact(self):
        self.w.close_store()
        sizes = c.c_uint64(), c.c_uint64()
        code = self.lib.call("store_compact", self.w.store_path.encode(), c.byref(sizes[0]), c.byref(sizes[1]))
        self.w.try_open_store()
        return code

    def some(self, n):
        for _ in range(n):
            call = self.r.rng.choice(self.calls)
            self.r.step(f"{self.where}; then {call.__name__}")
            if not self.w.store and call.__name__ not in ("reopen", "compact"):
                continue
            code = call()
            print(f"{call.__name__}: {code.name} {code.message}", flush=True)
            self.r.count("errors" if code < 0 else "done")


def run(r):
    mode = r.rng.choice(("closed", "closed", "closed", "open", "cut"))
    codec, reading = r.rng.randrange(1, 5), r.rng.choice((0, 0, 1, 2, 3))
    w = World(r, n_chunks=r.rng.randrange(2, 5), codec=codec, ram_bytes=r.rng.choice((0, 8 << 20)))
    expected = Expected(w)
    w.precompute_all()
    fusion, saved_id = w.fused(), STRUCTS["chunk_id"]()
    r.lib.done("fusion_save", fusion, w.store, None, None, saved_id)
    r.lib.call("fusion_close", fusion)
    r.lib.done("store_flush", w.store)
    restored = r.lib.opened("fusion_restore", w.model, w.store, saved_id, None, 8, None)
    use = Use(r, w, expected, (saved_id, w.bits(restored)))
    print(f"codec {codec}, read_mode {reading}, {w.options}", flush=True)
    w.close_store()
    data, lock = w.store_path + "/data.mdb", w.store_path + "/lock.mdb"
    w.options["read_mode"] = reading
    if mode == "closed":
        use.where = "closed: " + ", ".join(spoil(r, lock if r.rng.random() < 0.15 else data)
                                           for _ in range(r.rng.choice((1, 1, 3))))
        use.some(0)
        code = w.try_open_store()
        r.count("refused at open" if code < 0 else "opened")
        use.some(12)
    else:
        if w.try_open_store() < 0:  # a read_mode that does not work here
            w.options["read_mode"] = 0
            w.open_store()
        use.where = "not yet damaged"
        use.some(r.rng.randrange(3))
        if not w.store:
            return
        r.lib.call("store_flush", w.store)
        if mode == "cut":
            use.where = "between two calls: " + cut_or_overwrite(r, data)
        else:
            r.excuse("changed while open")
            use.where = "between two calls: " + spoil(r, lock if r.rng.random() < 0.15 else data)
        r.count(mode)
        use.some(8)
    r.step(use.where + "; then closing")
    w.close()
