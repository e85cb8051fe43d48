#!/usr/bin/env python3
"""Hours of mixed work in one process, and what it holds meanwhile.

    tests/torture/soak.py --build build/release [--minutes 120] [--threads 3] [--load 0.5] [--seed N]
                          [--json FIGURES.json] [--picture CURVE.svg]

Threads fuse, generate, put, remove, save, restore, cancel, list, evict, export and repair on one store whose
quota is a fraction of what they put; now and then the store is closed, compacted and opened again, and another
context comes and goes. Every fuse's logits are compared with the first ones to the bit. Twice a minute it is
written down what the process holds: resident memory, descriptors, threads, bytes of the store's directory.

The exit status is 1 if a call did what it must not; if one of these grew: the highest value of the last third
of the run is more than that of the third before it by over 5 % (descriptors and threads: at all); or if the
store's directory was ever larger than docs/store.md says (Room).
"""

import argparse
import collections
import contextlib
import ctypes as c
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time
import types

sys.dont_write_bytecode = True
import soak_picture  # noqa: E402
from abi import CALLBACKS, CODES, STRUCTS, Library, Wrong, succeeded  # noqa: E402
from world import World, ids, random_tokens  # noqa: E402

QUOTA = 12 << 20
N_TEXTS, N_PROMPTS = 90, 12
CANCELLED, NOT_FOUND, FULL = (CODES[f"BLEND_E_{name}"] for name in ("CANCELLED", "NOT_FOUND", "FULL"))
GROWS = {"memory": 1.05, "descriptors": 1.0, "threads": 1.0}
MOST_BYTES = 11 * QUOTA // 10 + 2 * QUOTA + (16 << 20)  # a transaction is the quota at most


class Soak:
    def __init__(self, args, folder):
        self.args, self.dir = args, folder
        self.rng = random.Random(args.seed)
        self.lib = Library(args.build.resolve() / "src" / "capi" / "libblend.so")
        self.round = types.SimpleNamespace(rng=self.rng, dir=folder, lib=self.lib)
        self.counts, self.wrong, self.stop = collections.Counter(), [], threading.Event()
        self.texts = [random_tokens(self.rng, self.rng.randrange(20, 180)) for _ in range(N_TEXTS)]
        self.world = World(self.round, chunks=self.texts[:3], n_threads=2, ram_bytes=2 << 20)
        self.reopen_small()
        self.prompts = [self.world.segments(self.rng.sample(self.texts, 4), self.world.question)
                        for _ in range(N_PROMPTS)]
        self.expected = [self.world.bits(self.fuse(prompt)) for prompt in self.prompts]
        self.calling = [threading.Lock() for _ in range(args.threads)]  # a thread's own while it calls
        self.go = threading.Event()
        self.go.set()

    def reopen_small(self):
        self.world.close_store()
        self.world.options["quota_bytes"] = QUOTA
        self.world.open_store()

    def fuse(self, prompt, **options):
        code, fusion = self.world.fuse(prompt=prompt, **options)
        succeeded("fuse", code)
        return fusion

    # ---- What threads do. Each is given its thread's random numbers and a name for files.

    def fused(self, rng, _):
        at = rng.randrange(N_PROMPTS)
        if self.world.bits(self.fuse(self.prompts[at])) != self.expected[at]:
            raise Wrong(f"prompt {at} gave other logits than at first")

    def generated(self, rng, _):
        fusion = self.fuse(rng.choice(self.prompts))
        fn = CALLBACKS["token_fn"](lambda *_: 0)
        options = self.lib.struct("generate_options", max_tokens=24, ignore_eos=1)
        self.lib.done("fusion_generate", fusion, options, fn, None, None)
        self.lib.call("fusion_close", fusion)

    def cancelled(self, rng, _):
        token, fusion = self.lib.opened("cancel_create"), c.c_void_p()
        timer = threading.Timer(rng.uniform(0, 0.03), lambda: self.lib.call("cancel_request", token))
        timer.start()
        prompt = self.world.segments(rng.sample(self.texts, 5), self.world.question)
        code, fusion = self.world.fuse(prompt=prompt, cancel=token)
        timer.join()
        self.lib.call("fusion_close", fusion)
        self.lib.call("cancel_free", token)
        self.allowed("fuse", code, CANCELLED)

    def put(self, rng, _):
        tokens = random_tokens(rng, rng.randrange(10, 400))
        self.allowed("precompute", self.precompute(tokens, codec=rng.randrange(1, 5))[0], FULL)

    def precompute(self, tokens, **options):
        made = STRUCTS["chunk_id"]()
        code = self.lib.call("precompute", self.world.model, self.world.store, tokens, len(tokens),
                             self.lib.struct("precompute_options", **options), made)
        return code, made

    def removed(self, rng, _):
        code, made = self.precompute(rng.choice(self.texts))
        self.allowed("precompute", code, FULL)
        if code >= 0:
            self.allowed("store_remove", self.lib.call("store_remove", self.world.store, made, None), NOT_FOUND)

    def saved(self, rng, _):
        fusion, made = self.fuse(rng.choice(self.prompts)), STRUCTS["chunk_id"]()
        code = self.lib.call("fusion_save", fusion, self.world.store, None, None, made)
        self.lib.call("fusion_close", fusion)
        self.allowed("fusion_save", code, FULL)
        bits = [self.restored(made) for _ in range(2)] if code >= 0 else [None, None]
        if None not in bits and bits[0] != bits[1]:
            raise Wrong("a saved fusion came back twice, with different logits")

    def restored(self, made):
        """Its logits; None where it was evicted since."""
        back = c.c_void_p()
        code = self.lib.call("fusion_restore", c.byref(back), self.world.model, self.world.store, made, None, 8, None)
        self.allowed("fusion_restore", code, NOT_FOUND)
        return self.world.bits(back) if code >= 0 else None

    def listed(self, rng, _):
        self.allowed("store_list", self.world.list(rng.randrange(2)))
        self.lib.done("store_get_stat", self.world.store, self.lib.struct("store_stat"))

    def evicted(self, rng, _):
        self.lib.done("store_evict", self.world.store, rng.randrange(QUOTA // 2, QUOTA), None)

    def exported(self, rng, name):
        path = str(self.dir / f"exported-{name}").encode()
        self.allowed("store_export", self.lib.call("store_export", self.world.store, path, None, None))
        options = self.lib.struct("transfer_options", flags=1)
        self.allowed("store_import", self.lib.call("store_import", self.world.store, path, options, None), FULL)
        os.unlink(path)

    def repaired(self, *_):
        removed = CALLBACKS["chunk_fn"](lambda *_: 0)
        self.allowed("store_repair", self.lib.call("store_repair", self.world.store, removed, None, None))

    def refused(self, *_):
        """What hosts do wrong."""
        if self.precompute(ids([1 << 30]))[0] >= 0:
            raise Wrong("a token that the model has not was taken")

    def allowed(self, name, code, *codes):
        if code < 0 and code not in codes:
            raise Wrong(f"{name}: {code.name}: {code.message}")
        if code < 0:
            self.counts[code.name] += 1

    WORK = (fused, fused, fused, fused, generated, cancelled, cancelled, put, put, put, removed, saved, listed, evicted,
            exported, repaired, refused)

    def worker(self, number):
        rng = random.Random(f"{self.args.seed}:{number}")
        while not self.stop.is_set():
            work = rng.choice(self.WORK)
            self.go.wait()
            began = time.monotonic()
            with self.calling[number]:
                try:
                    work(self, rng, number)
                    self.counts[work.__name__] += 1
                except Exception as wrong:  # all of them are findings
                    self.found(f"{work.__name__}: {wrong!r}")
            self.stop.wait((time.monotonic() - began) * (1 / self.args.load - 1))

    def found(self, what):
        self.counts["findings"] += 1
        if what not in self.wrong:
            self.wrong.append(what)
            print("FINDING", what, flush=True)

    # ---- What the main thread does.

    @contextlib.contextmanager
    def alone(self):
        """While no other thread calls."""
        self.go.clear()
        for one in self.calling:
            one.acquire()
        try:
            yield
        finally:
            for one in self.calling:
                one.release()
            self.go.set()

    def compacted(self):
        """The store closed, compacted and opened; and another context."""
        self.world.close_store()
        sizes = c.c_uint64(), c.c_uint64()
        self.lib.done("store_compact", self.world.store_path.encode(), c.byref(sizes[0]), c.byref(sizes[1]))
        self.world.open_store()
        other = World(self.round, store="other")
        self.lib.call("fusion_close", other.fused())
        other.close()
        self.counts["compacted"] += 1

    def held(self, began):
        status = dict(line.split(":", 1) for line in open("/proc/self/status", encoding="utf-8"))
        folder = pathlib.Path(self.world.store_path)
        return {"minute": (time.monotonic() - began) / 60, "memory": int(status["VmRSS"].split()[0]) << 10,
                "descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
                "file": sum(os.stat(file).st_blocks * 512 for file in folder.iterdir())}

    def run(self):
        threads = [threading.Thread(target=self.worker, args=(n,)) for n in range(self.args.threads)]
        for thread in threads:
            thread.start()
        began, samples, seconds = time.monotonic(), [], 60 * self.args.minutes
        every = min(30, seconds / 60)
        while time.monotonic() - began < seconds:
            time.sleep(every)
            with self.alone():  # between calls: otherwise what a call takes for itself is counted
                if len(samples) % 10 == 9:
                    self.compacted()
                samples.append(self.held(began))
        self.stop.set()
        for thread in threads:
            thread.join()
        self.world.close()
        return samples


def grown(samples):
    """What grew, as sentences."""
    third = len(samples) // 3
    for name, factor in GROWS.items():
        before, last = (max(s[name] for s in part) for part in (samples[third:2 * third], samples[2 * third:]))
        if last > before * factor:
            yield f"{name} grew from {before} to {last}"
    largest = max(s["file"] for s in samples)
    if largest > MOST_BYTES:
        yield f"the store took {largest} bytes, more than {MOST_BYTES}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--threads", type=int, default=3, help="of the host")
    parser.add_argument("--load", type=float, default=1.0, help="of a thread's time spent in calls; the rest it sleeps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="blend-soak-") as folder:
        soak = Soak(args, pathlib.Path(folder))
        samples = soak.run()
    findings = soak.wrong + list(grown(samples))
    figures = {"minutes": args.minutes, "threads": args.threads, "load": args.load, "seed": args.seed,
               "quota_bytes": QUOTA, "calls": dict(soak.counts), "findings": findings, "samples": samples}
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    if args.picture:
        args.picture.write_text(soak_picture.drawn(figures))
    print(", ".join(f"{name} {n}" for name, n in soak.counts.most_common()))
    for name in (*GROWS, "file"):
        values = [s[name] for s in samples]
        print(f"{name:<12} first {values[0]:>12,}  least {min(values):>12,}  most {max(values):>12,}  last {values[-1]:>12,}")
    print("\n".join(findings) or "nothing grew, nothing was wrong")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
