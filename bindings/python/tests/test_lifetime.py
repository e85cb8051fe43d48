"""Objects may be closed and collected in any order, under load, thousands of times."""

import array
import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time
import unittest
import weakref

import numpy as np

import libblend
from support import ANSWER, DOCUMENTS, MODEL, Case


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Closing(Case):
    def objects(self):
        ctx = libblend.Context(1)
        model = libblend.Model(ctx, MODEL)
        store = libblend.Store(ctx, self.folder / "any-order")
        prompt = model.prompt().bos()
        for document in DOCUMENTS:
            prompt.chunk(document)
        fusion = model.fuse(store, prompt.question("Question: Who?\nAnswer:"))
        return [ctx, model, store, fusion]

    def test_tokens_are_held_while_a_call_runs(self):
        tokens = array.array("i", self.model.tokenize(DOCUMENTS[0])[::-1].tolist())
        calls = []

        def progress(done, total):
            calls.append(done)
            with self.assertRaises(BufferError):  # what C++ reads must stay where it is
                tokens.append(5)

        stored = self.model.precompute(self.store, tokens, progress=progress)
        self.assertFalse(stored.existed)
        self.assertTrue(calls)
        tokens.append(5)  # and is let go of

    def test_a_layerwise_fuse_keeps_what_it_writes_to(self):
        host = libblend.Model.create_from_description(self.ctx, name="kept", n_layers=2, n_heads=1, n_kv_heads=1,
                                       head_dim=2, n_vocab=9, context_length=9)
        layerwise = libblend.Layerwise(host, None, libblend.Prompt().question([1, 2]), policy="full",
                             on_miss="compute")
        arrays = [np.zeros((2, 1, 2), np.float32) for _ in range(4)]
        kept = [weakref.ref(array) for array in arrays]
        layerwise.fetch_kv(0, arrays[0], arrays[1])
        layerwise.fetch_kv(1, arrays[2], arrays[3])
        del arrays
        gc.collect()
        self.assertTrue(all(ref() is not None for ref in kept), "the layerwise fuse may write to them")
        layerwise.synchronize(0)
        self.assertEqual([ref() is None for ref in kept], [True, True, False, False])
        layerwise.close()
        self.assertTrue(all(ref() is None for ref in kept), "nothing is written any more")

    def test_a_forgotten_layerwise_fuse_is_closed_before_its_arrays_go(self):
        host = libblend.Model.create_from_description(self.ctx, name="forgotten", n_layers=2, n_heads=1, n_kv_heads=1,
                                       head_dim=2, n_vocab=9, context_length=9)
        layerwise = libblend.Layerwise(host, None, libblend.Prompt().question([1, 2]), policy="full",
                             on_miss="compute")
        arrays = [np.zeros((2, 1, 2), np.float32) for _ in range(2)]
        layerwise.fetch_kv(0, *arrays)
        raw_layerwise, seen = layerwise._raw, []

        def gone(_):
            try:
                raw_layerwise.rows()
                seen.append("may be written to")
            except libblend.ClosedError:
                seen.append("closed")

        kept = [weakref.ref(array, gone) for array in arrays]
        del arrays, layerwise
        gc.collect()
        self.assertEqual([ref() for ref in kept], [None, None])
        self.assertEqual(seen, ["closed", "closed"])

    def test_any_order(self):
        for order in itertools.permutations(range(4)):
            objects = self.objects()
            for i in order:
                objects[i].close()
                objects[i].close()  # twice is fine

    def test_a_fusion_outlives_all(self):
        ctx, model, store, fusion = self.objects()
        for gone in (ctx, store, model):
            gone.close()
        del ctx, store, model, gone
        gc.collect()
        self.assertEqual(len(list(fusion.generate(3, ignore_eos=True))), 3)
        self.assertGreater(fusion.info.n_rows, 0)

    def test_use_after_close(self):
        ctx, model, store, fusion = self.objects()
        prompt = model.prompt().question([5])
        stream = fusion.generate(4)
        stream.close()
        self.assertEqual(list(stream), [])
        for thing in (fusion, store, model, ctx):
            thing.close()
        for use in (lambda: fusion.info, lambda: fusion.logits, lambda: fusion.generate(),
                    lambda: fusion.decode([1]), lambda: fusion.save(store), lambda: store.stat(),
                    lambda: store.list(), lambda: store.flush(), lambda: model.info,
                    lambda: model.tokenize("a"), lambda: model.fuse(None, prompt),
                    lambda: model.precompute(store, [5]), lambda: ctx.backend,
                    lambda: libblend.Model(ctx, MODEL),
                    lambda: libblend.Store(ctx, self.folder / "never")):
            with self.assertRaisesRegex(ValueError, "is closed") as caught:
                use()
            self.assertIs(type(caught.exception), libblend.ClosedError)
        # A closed store is not a missing store.
        with self.assertRaises(libblend.ClosedError):
            self.model.fuse(store, self.prompt(), policy="full")

    def test_with_closes(self):
        with libblend.Context(1) as ctx:
            pass
        with self.assertRaises(libblend.ClosedError):
            ctx.backend


class Views(Case):
    def test_a_view_keeps_what_it_shows(self):
        fusion = self.fuse()
        logits = fusion.logits
        want = logits.copy()
        fusion.close()
        del fusion
        gc.collect()
        for _ in range(3):
            self.fuse()  # would take freed memory
        np.testing.assert_array_equal(logits, want)
        self.assertFalse(logits.flags.writeable)
        self.assertFalse(logits.flags.owndata)

    def test_no_copy_is_made(self):
        fusion = self.fuse()
        self.assertEqual(fusion.logits.ctypes.data, fusion.logits.ctypes.data)
        self.assertEqual(fusion.tokens.ctypes.data, fusion.tokens.ctypes.data)

    def test_what_would_change_a_view_is_refused(self):
        fusion = self.fuse()
        for take in (lambda: fusion.logits, lambda: fusion.tokens[2:4], lambda: fusion.deviation,
                     lambda: fusion.selected):
            view = take()
            for change in (lambda: fusion.decode([5]), lambda: fusion.erase(1, 1),
                           lambda: fusion.replace(1, 1, [5]), lambda: next(fusion.generate()),
                           lambda: fusion.extend(self.store, self.model.prompt().question([5]))):
                with self.assertRaises(BufferError) as caught:
                    change()
                self.assertIs(type(caught.exception), libblend.ViewHeldError)
            del view
        fusion.decode([5])

    def test_an_interrupted_generation_is_closed(self):
        fusion = self.fuse()
        generation = fusion.generate(4)
        next(generation)
        inner = generation._stream

        class Interrupted:  # as when Ctrl-C is met between two looks
            close = inner.close

            def next(self, timeout_ms):
                raise KeyboardInterrupt

        generation._stream = Interrupted()
        with self.assertRaises(KeyboardInterrupt):
            next(generation)
        fusion.decode([5])  # it is not in use any more
        self.assertEqual(list(generation), [])

    def test_one_user_at_a_time(self):
        fusion = self.fuse()
        with fusion.generate(8, ignore_eos=True) as stream:
            next(stream)
            for use in (lambda: fusion.decode([5]), lambda: fusion.info,
                        lambda: next(fusion.generate())):
                with self.assertRaises(libblend.InUseError):
                    use()
        fusion.decode([5])


class Collecting(Case):
    def test_what_is_dropped_is_closed(self):
        ctx = libblend.Context(1)
        store = libblend.Store(ctx, self.folder / "dropped")
        references = [weakref.ref(ctx), weakref.ref(store)]
        del ctx, store
        gc.collect()
        self.assertEqual([r() for r in references], [None, None])

    def test_a_layerwise_fuse_keeps_what_a_probe_writes_to_again(self):
        """Layer 1 is placed once more after the probe."""
        chunk = [5 + i for i in range(10)]
        self.model.precompute(self.store, chunk)
        info = self.model.info
        shape = (1 + len(chunk) + 2, info.n_kv_heads, info.head_dim)
        prompt = libblend.Prompt().text([99]).chunk(chunk).question([5, 6])
        with libblend.Layerwise(self.model, self.store, prompt, policy="probe", on_miss="fail") as layerwise:
            kept = []
            for layer in range(2):
                arrays = [np.zeros(shape, np.float32) for _ in range(2)]
                kept.append([weakref.ref(array) for array in arrays])
                layerwise.fetch_kv(layer, *arrays)
                del arrays
                layerwise.synchronize(layer)
                if layer == 0:
                    layerwise.commit(0)
            gc.collect()
            self.assertEqual([ref() for ref in kept[0]], [None, None])
            self.assertTrue(all(ref() is not None for ref in kept[1]), "the layerwise fuse will write to them")
            layerwise.probe(np.zeros(shape[0]))
            self.assertTrue(all(ref() is not None for ref in kept[1]), "the layerwise fuse writes to them")
            for layer in range(2):
                layerwise.synchronize(layer)
                layerwise.commit(layer)
            self.assertEqual([ref() for ref in kept[1]], [None, None])

    def test_the_lock_is_let_go_of(self):
        # No lists: numpy lets go of the lock while it makes arrays of them.
        tokens = array.array("i", [5 + i % 500 for i in range(800)])
        prompt = libblend.Prompt().question(tokens)
        text = " ".join(DOCUMENTS) * 20
        fusion = self.model.fuse(None, libblend.Prompt().question([5]), policy="full",
                                 reserve_tokens=700)
        fusions = []  # closing them would let go of it too
        stored = self.model.precompute(self.store, tokens[:20]).id
        messages = [{"role": "user", "content": text}]
        template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        calls = {
            "fuse": lambda i: fusions.append(self.model.fuse(self.store, prompt, policy="full")),
            "precompute": lambda i: self.model.precompute(self.store, tokens[i:] + tokens[:i]),
            "tokenize": lambda i: self.model.tokenize(text),
            "decode": lambda i: fusion.decode(tokens[:10]),
            "list": lambda i: self.store.list(verify=True),
            "remove_matching": lambda i: self.store.remove_matching(label="no such label"),
            "set_label": lambda i: self.store.set_label(stored, f"label#{i}"),
            "set_tags": lambda i: self.store.set_label(stored, tags=f"tag{i}"),
            "set_label of a tenant": lambda i: self.store.set_label(stored, f"of#{i}", tenant=""),
            "set_tags of a tenant": lambda i: self.store.set_label(stored, tags=f"of{i}", tenant=""),
            "chat": lambda i: self.model.chat(messages, template_source=template),
            "chat_text": lambda i: self.model.chat_text(messages, template_source=template),
        }
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(1000)  # seconds: a thread runs until it lets go itself
        grow = {"fuse", "precompute", "decode"}  # no more than 60 of them, which take long enough
        for name, call in calls.items():
            ran, calls_made = [], []
            end = time.monotonic() + (0 if name in grow else 20)

            def work():
                # A waiting thread may be late for the lock where a call lets go of it for microseconds.
                while not ran and (len(calls_made) < 60 or time.monotonic() < end):
                    call(len(calls_made))
                    calls_made.append(name)

            thread = threading.Thread(target=work)
            thread.start()  # waits until it runs, and then for the lock
            ran.append(True)
            thread.join()
            with self.subTest(name):
                self.assertTrue(len(calls_made) < 60 or time.monotonic() < end, f"{name} kept the lock")

    def test_garbage_under_load(self):
        stop = threading.Event()
        failures = []

        def collect():
            while not stop.is_set():
                gc.collect()

        def work(seed):
            rng = random.Random(seed)
            try:
                for _ in range(12):
                    fusion = self.fuse(reserve_tokens=8)
                    stream = fusion.generate(4)
                    if rng.random() < 0.5:
                        if next(stream).text.strip() not in ANSWER:
                            failures.append("a wrong token")
                        del stream
                    kept = fusion if rng.random() < 0.5 else None
                    del fusion
                    if kept is not None and rng.random() < 0.5:
                        kept.close()
            except BaseException as error:
                failures.append(error)

        collector = threading.Thread(target=collect)
        collector.start()
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        collector.join()
        self.assertEqual(failures, [])

    def test_ten_thousand_without_growth(self):
        """Contexts, stores' options, prompts, cancel tokens and errors, new each time; fusions a
        hundredth as often."""

        def once(i):
            with libblend.Context(1):
                pass
            libblend.Cancel().request()
            try:
                self.model.fuse(None, libblend.Prompt())
            except libblend.InvalidArgumentError:
                pass
            if i % 100 == 0:
                # Without checks of answers, whose thread and queue come and go as they like.
                with self.model.fuse(unchecked, self.prompt(), reserve_tokens=4) as fusion:
                    next(fusion.generate(2))
                with libblend.Store(self.ctx, self.folder / "again") as store:
                    store.stat()

        unchecked = libblend.Store(self.ctx, self.folder / "unchecked", check_every=2**32 - 1)
        self.addCleanup(unchecked.close)
        # On a busy machine the allocator's arenas and idle work's memory come late, once.
        for i in range(10_000):
            once(i)
        unchecked.flush()
        gc.collect()
        before = resident_kib()
        for i in range(10_000):
            once(i)
        gc.collect()
        self.assertLess(resident_kib() - before, 4096)


class Processes(unittest.TestCase):
    """What can only be seen from outside an interpreter."""

    def run_python(self, code, **kwargs):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=60, **kwargs)

    def test_exit_with_everything_open(self):
        done = self.run_python(f"""
import libblend
ctx = libblend.Context(2, log=print, log_level="warning")
model = libblend.Model(ctx, {str(MODEL)!r})
fusion = model.fuse(None, model.prompt().question("Once"), policy="full")
stream = fusion.generate(4)
next(stream)
other = model.fuse(None, model.prompt().question("Once"), policy="full")
logits = other.logits
print("end")
""")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))

    def test_exit_while_a_thread_computes(self):
        done = self.run_python(f"""
import libblend, threading
ctx = libblend.Context(1)
model = libblend.Model(ctx, {str(MODEL)!r})
def work():
    while True:
        model.fuse(None, model.prompt().question("Once upon a time"), policy="full")
threading.Thread(target=work, daemon=True).start()
def watched():
    while True:
        model.fuse(None, model.prompt().question("Once upon a time"), policy="full",
                   progress=lambda done, total: None)
threading.Thread(target=watched, daemon=True).start()
import time; time.sleep(0.3)
print("end")
""")
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)

    def test_fork(self):
        done = self.run_python("""
import libblend, os, sys, tempfile
ctx = libblend.Context(1)
store = libblend.Store(ctx, tempfile.mkdtemp())
child = os.fork()
if child == 0:
    try:
        store.stat()
    except libblend.ForkedError:
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")
        self.assertEqual((done.returncode, done.stdout), (0, "7\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
