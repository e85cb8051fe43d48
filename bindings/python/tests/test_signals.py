"""A host's signals and the library: results are the same bits, and Ctrl-C is the main thread's."""

import os
import signal
import threading
import unittest

import numpy as np

import libblend
from support import MODEL, Case


class Storm:
    """A timer whose Python handler does some work, as often as the interpreter lets it run."""

    def __init__(self):
        self.handled = 0
        self.threads = set()

    def handler(self, number, frame):
        self.handled += 1
        self.threads.add(threading.get_ident())
        sum(i * i for i in range(200))

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        return self

    def __exit__(self, *error):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


class UnderSignals(Case):
    def work(self, folder, weights, read_mode):
        """Everything from opening a model to its answer; what came out."""
        out = []
        with libblend.Context(2) as ctx, libblend.Model(ctx, MODEL, weights=weights) as model, \
                libblend.Store(ctx, folder, read_mode=read_mode) as store:
            for options in ({"ratio": 0.0}, {"ratio": 0.15}, {"ratio": 1.0}, {"policy": "full"}):
                fusion = model.fuse(store, self.prompt(), reserve_tokens=16, **options)
                store.flush()
                out.append(np.array(fusion.logits).tobytes())
                out.append([token.id for token in fusion.generate(6)])
        return out

    def test_results_are_the_same_bits(self):
        for weights, read_mode in (("packed", "threads"), ("int8", "mapped"), ("mapped", "auto")):
            with self.subTest(weights=weights):
                calm = self.work(self.folder / f"{weights}-calm", weights, read_mode)
                with Storm() as storm:
                    n = 0
                    while storm.handled < 60:
                        n += 1
                        self.assertEqual(
                            self.work(self.folder / f"{weights}-{n}", weights, read_mode), calm)
                self.assertEqual(storm.threads, {threading.main_thread().ident})

    def test_a_handler_that_raises_stops_the_call(self):
        class Enough(Exception):
            pass

        def handler(number, frame):
            raise Enough

        before = signal.signal(signal.SIGALRM, handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(Enough):
                for _ in range(10000):
                    self.fuse(policy="full")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.fuse()  # nothing is left behind

    def test_a_signal_that_python_blocks_waits_for_it(self):
        """sigwait() gets it: no thread of the library takes it, which would end the process."""
        prompt = libblend.Prompt().question(list(range(5, 205)))
        with libblend.Context(4) as ctx, libblend.Model(ctx, MODEL) as model:
            fusion = model.fuse(None, prompt, policy="full", reserve_tokens=64)
            tokens = fusion.generate(32, ignore_eos=True)
            next(tokens)  # its thread is there
            # After the start of all of them, so that none has inherited it.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            try:
                for _ in range(5):
                    os.kill(os.getpid(), signal.SIGUSR1)
                    next(tokens)
                    model.fuse(None, prompt, policy="full")
                    self.assertEqual(signal.sigwait({signal.SIGUSR1}), signal.SIGUSR1)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


if __name__ == "__main__":
    unittest.main()
