"""Where a context's threads run and what they are called."""

import os
import time
import unittest

import numpy as np

import libblend
from support import MODEL, Case


class Threads(Case):
    """`threads` of a call, seen from outside: the context's threads sleep through calls of one."""

    @staticmethod
    def tasks():
        return set(os.listdir("/proc/self/task"))

    @staticmethod
    def status(task, name):
        with open(f"/proc/self/task/{task}/status") as lines:
            return next(line for line in lines if line.startswith(name + ":")).split()[1:]

    def sleeps(self, tasks):
        """How often each went to sleep, when all do."""
        last = None
        while True:
            now = [self.status(task, "voluntary_ctxt_switches") for task in tasks]
            if now == last and all(self.status(task, "State")[0] == "S" for task in tasks):
                return now
            last = now
            time.sleep(0.002)

    def test_calls_keep_their_number(self):
        before = self.tasks()
        with libblend.Context(2) as ctx:
            workers = self.tasks() - before
            self.assertEqual(len(workers), 1)
            with libblend.Model(ctx, MODEL) as model:
                prompt, fused = self.prompt(), {}
                samples = [model.prompt().chunk("One. " * 30).question("Two?")] * 2
                calls = {
                    "fuse": lambda n: fused.update({n: model.fuse(self.store, prompt, threads=n, on_miss="precompute")}),
                    "decode": lambda n: fused[n].decode([5, 6, 7]),
                    "generate": lambda n: fused[0].generate(
                        2, threads=n, ignore_eos=True).text(),
                    "precompute": lambda n: model.precompute(
                        self.store, list(range(5 + n, 200)), threads=n),
                    "machine": lambda n: self.assertEqual(
                        libblend.Machine(model, max_tokens=64, threads=n).info.n_threads, n or 2),
                    "calibrate": lambda n: model.calibrate(samples, self.folder / "threads", ratios=[1.0], correction="off",
                        score_tokens=1, threads=n),
                    "verify": lambda n: model.verify(libblend.Profile(model, self.folder / "threads"), samples, ratios=[1.0], score_tokens=1, threads=n),
                }
                self.fuse()  # the chunks are there
                for name, call in calls.items():
                    with self.subTest(name):
                        slept = self.sleeps(workers)
                        call(1)
                        self.assertEqual(self.sleeps(workers), slept, "others were woken")
                        call(0)
                        self.assertNotEqual(self.sleeps(workers), slept, "nobody was woken")
                one = model.fuse(self.store, prompt, threads=1, on_miss="precompute")
                all_of_them = model.fuse(self.store, prompt, on_miss="precompute")
                np.testing.assert_array_equal(one.logits, all_of_them.logits)

    def test_pinned(self):
        before = self.tasks()
        mine = os.sched_getaffinity(0)
        with libblend.Context(pin_threads=True, device_bytes=1 << 20):
            cpus = [os.sched_getaffinity(int(task)) for task in self.tasks() - before]
        self.assertEqual(sorted(cpus, key=min), [{cpu} for cpu in sorted(mine)[1:]])
        self.assertEqual(os.sched_getaffinity(0), mine)
        with self.assertRaises(libblend.InvalidArgumentError):
            libblend.Context(len(mine) + 1, pin_threads=True)

    def test_cache_dtype(self):
        prompt = self.prompt()
        wanted = self.model.fuse(self.store, prompt, policy="full").logits
        with libblend.Context(1, cache_dtype="f16") as ctx, libblend.Model(ctx, MODEL) as model:
            self.assertEqual(2 * model.info.kv_bytes_per_token, self.model.info.kv_bytes_per_token)
            logits = model.fuse(None, prompt, policy="full").logits
        self.assertFalse(np.array_equal(logits, wanted))
        np.testing.assert_allclose(logits, wanted, atol=0.05)
        with self.assertRaises(ValueError):
            libblend.Context(cache_dtype="f8")


if __name__ == "__main__":
    unittest.main()
