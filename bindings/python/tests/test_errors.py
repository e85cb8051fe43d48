"""Every error has its class, every callback its own exception, Ctrl-C its effect."""

import builtins
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import libblend
from libblend import errors
from libblend._call import make_error
from support import DOCUMENTS, MODEL, ROOT, Case

TABLE = [line.split(None, 4) for line in
         (ROOT / "bindings/common/errors.txt").read_text().splitlines()
         if line and not line.startswith("#")]


class Classes(unittest.TestCase):
    def test_every_code_of_the_table(self):
        for code, value, name, base, text in TABLE:
            kind = getattr(libblend, f"{name}Error")
            self.assertTrue(issubclass(kind, libblend.BlendError))
            self.assertTrue(issubclass(kind, RuntimeError))
            if base != "-":
                self.assertTrue(issubclass(kind, getattr(builtins, base)), name)
            # Through the way that calls take.
            error = make_error(int(value), 5, "a sentence")
            self.assertIs(type(error), kind)
            self.assertEqual((str(error), error.code, error.detail), ("a sentence", int(value), 5))
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.code, str(again)), (kind, int(value), str(error)))

    def test_an_unknown_code(self):
        self.assertIs(type(make_error(-9999, 0, "new")), libblend.BlendError)


class Raised(Case):
    """Those that a user can provoke, by a call that provokes them."""

    def raises(self, kind, call, *args, **kwargs):
        with self.assertRaises(libblend.BlendError) as caught:
            call(*args, **kwargs)
        self.assertIs(type(caught.exception), kind, caught.exception)
        self.assertTrue(str(caught.exception))
        return caught.exception

    def test_invalid_argument(self):
        error = self.raises(libblend.InvalidArgumentError, self.fuse, ratio=1.5)
        self.assertEqual(error.code, -10)
        self.raises(libblend.InvalidArgumentError, libblend.Context, backend="xpu")
        self.raises(libblend.InvalidArgumentError, self.store.remove, "zz")

    def test_context_length(self):
        fusion = self.fuse(reserve_tokens=1)
        self.raises(libblend.ContextLengthError, fusion.decode, [5, 6, 7])

    def test_not_found(self):
        error = self.raises(libblend.MissingFileError, libblend.Model, self.ctx, "absent.gguf")
        self.assertIn("absent.gguf", str(error))
        self.raises(libblend.MissingFileError, libblend.Store, self.ctx, self.folder / "no", create=False)
        self.raises(libblend.NotFoundError, self.model.restore, self.store, "0" * 64)
        with self.assertRaises(KeyError):
            self.model.restore(self.store, "0" * 64)

    def test_format(self):
        path = self.folder / "not.gguf"
        path.write_bytes(b"GGUF" + bytes(64))
        with self.assertRaises((libblend.FormatError, libblend.UnsupportedError)):
            libblend.Model(self.ctx, path)
        path.write_bytes(b"nonsense" * 100)
        self.raises(libblend.FormatError, libblend.Model, self.ctx, path)

    def test_unsupported(self):
        path = self.folder / "v9.gguf"
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", 9, 0, 0))
        self.raises(libblend.UnsupportedError, libblend.Model, self.ctx, path)

    def test_mismatch(self):
        other = libblend.Model.create_from_description(self.ctx, name="other", n_layers=2, n_heads=2, n_kv_heads=2,
                                        head_dim=4, n_vocab=1000, context_length=64)
        stored = self.model.precompute(self.store, self.model.tokenize("Another chunk"))
        prompt = libblend.Prompt().chunk_id(stored.id).question([5])
        self.raises(libblend.MismatchError, libblend.Layerwise, other, self.store, prompt,
                    on_miss="fail")

    def test_corrupt_is_a_miss_and_logged(self):
        told = []
        folder = self.folder / "damaged"
        arrived = threading.Event()

        def on_log(record):
            told.append(record)
            if record.code < 0:
                arrived.set()
            raise ValueError("nobody is there to catch it")  # and the next record still comes

        hook, sys.excepthook = sys.excepthook, lambda *_: None
        try:
            with libblend.Context(1, log=on_log) as ctx:
                model = libblend.Model(ctx, MODEL)
                with libblend.Store(ctx, folder, codec="none") as store:
                    ids = [model.precompute(store, model.tokenize(d)).id for d in DOCUMENTS]
                self.damage(folder / "data.mdb")
                with libblend.Store(ctx, folder) as store:
                    bad = [c for c in store.list(verify=True) if c.problem]
                    self.assertTrue(bad)
                    prompt = model.prompt().text([model.info.bos_token])
                    for id in ids:
                        prompt.chunk_id(id)
                    with self.assertRaises(libblend.NotFoundError):
                        model.fuse(store, prompt.question("Question: Who?\nAnswer:"), on_miss="fail")
                    self.assertTrue(arrived.wait(10))
                model.close()
        finally:
            sys.excepthook = hook
        warned = [r for r in told if r.code == errors.CorruptError.CODE]
        self.assertTrue(warned, told)
        self.assertEqual({(r.level, r.component, r.name) for r in warned},
                         {(libblend.LogLevel.WARNING, "store", "BLEND_E_CORRUPT")})
        opened = next(r for r in told if r.name == "BLEND_EVENT_STORE_OPENED")
        self.assertEqual(opened.fields["path"], str(folder))
        self.assertEqual(opened.fields["chunks"], 0)
        self.assertAlmostEqual(opened.time, time.time(), delta=600)

    def damage(self, path):
        """Flips bytes in the second half, where the chunks' K and V lie, beyond the first pages."""
        data = bytearray(path.read_bytes())
        for at in range(len(data) // 2, len(data) - 64, 512):
            if any(data[at:at + 16]):
                data[at + 9] ^= 0x55
        path.write_bytes(data)

    def test_io(self):
        with self.assertRaises(OSError) as caught:
            libblend.Machine(self.model, "/proc/nothing/machine", max_tokens=16)
        self.assertIs(type(caught.exception), libblend.IoError)
        self.assertEqual(caught.exception.errno, caught.exception.detail)
        self.assertNotEqual(caught.exception.errno, 0)

    def test_full(self):
        with libblend.Store(self.ctx, self.folder / "full", quota_bytes=4096) as store:
            self.raises(libblend.FullError, self.model.precompute, store,
                        self.model.tokenize(DOCUMENTS[0]))

    def test_read_only(self):
        libblend.Store(self.ctx, self.folder / "ro").close()
        with libblend.Store(self.ctx, self.folder / "ro", read_only=True) as store:
            self.raises(libblend.ReadOnlyError, self.model.precompute, store, [5, 6])

    def test_no_device(self):
        try:
            libblend.Context(backend="cuda:99").close()
        except libblend.NoDeviceError as error:
            self.assertIn("cuda", str(error).lower())
        else:
            self.skipTest("there are a hundred GPUs here")

    def test_numeric(self):
        model = libblend.Model.create_from_description(self.ctx, name="nan", n_layers=1, n_heads=1, n_kv_heads=1,
                                        head_dim=2, n_vocab=9, context_length=9)
        bad = np.full((1, 1, 2), np.nan, np.float32)
        self.raises(libblend.NumericError, model.put_chunk, self.store, [5], [(bad, bad)])
        with self.assertRaises(ArithmeticError):
            model.put_chunk(self.store, [5], [(bad, bad)])

    def test_cancelled(self):
        cancel = libblend.Cancel()
        cancel.request()
        self.raises(libblend.CancelledError, self.fuse, cancel=cancel)
        fusion = self.fuse()
        self.raises(libblend.CancelledError, fusion.decode, [5] * 20, cancel=cancel)
        with self.assertRaises(libblend.CancelledError):
            fusion.generate(4, cancel=cancel).text()
        self.store.flush()
        saved = fusion.save(self.store)
        self.store.flush()
        path = self.folder / "cancelled"
        calls = {
            "open": lambda: libblend.Model(self.ctx, MODEL, cancel=cancel),
            "precompute": lambda: self.model.precompute(self.store, [9, 8, 7], cancel=cancel),
            "extend": lambda: fusion.extend(
                None, libblend.Prompt().question([5]), on_miss="compute", cancel=cancel),
            "replace": lambda: fusion.replace(1, 1, [5], cancel=cancel),
            "erase": lambda: fusion.erase(1, 1, cancel=cancel),
            "save": lambda: fusion.save(self.store, cancel=cancel),
            "restore": lambda: self.model.restore(self.store, saved, cancel=cancel),
            "machine": lambda: libblend.Machine(self.model, max_tokens=32, cancel=cancel),
            "calibrate": lambda: self.model.calibrate([self.prompt()], path, ratios=[1.0], score_tokens=1, correction="off",
                cancel=cancel),
            "export": lambda: self.store.export_to(path, cancel=cancel),
        }
        for name, call in calls.items():
            with self.subTest(name):
                self.raises(libblend.CancelledError, call)
        self.assertFalse(path.exists())
        cancel.reset()
        fusion.decode([5], cancel=cancel)

    def test_no_tokenizer(self):
        host = libblend.Model.create_from_description(self.ctx, name="host", n_layers=1, n_heads=1, n_kv_heads=1,
                                       head_dim=2, n_vocab=9, context_length=9)
        self.raises(libblend.InvalidArgumentError, host.tokenize, "text")

    def test_no_store(self):
        with self.assertRaises(libblend.InvalidArgumentError):
            self.model.fuse(None, self.prompt())


class Callbacks(Case):
    class Own(Exception):
        pass

    def test_an_exception_comes_back_as_it_is(self):
        def bad(*_):
            raise self.Own("mine")

        samples = [self.prompt(), self.prompt("Who?")]
        calls = {
            "fuse": lambda: self.fuse(progress=bad),
            "score": lambda: self.fuse(policy="callback", score=bad),
            "open": lambda: libblend.Model(self.ctx, MODEL, progress=bad),
            "precompute": lambda: self.model.precompute(self.store, [7, 8, 9], progress=bad),
            "machine": lambda: libblend.Machine(self.model, max_tokens=32, progress=bad),
            "calibrate": lambda: self.model.calibrate(samples, self.folder / "p", ratios=[1.0], score_tokens=1,
                correction="off", on_measurement=bad),
            "batch": lambda: self.model.fuse_batch(self.store, [(self.prompt(), {"progress": bad})]),
        }
        for where in ("main", "another"):
            for name, call in calls.items():
                with self.subTest(name, thread=where):
                    if where == "main":
                        with self.assertRaises(self.Own) as caught:
                            call()
                        self.assertEqual(str(caught.exception), "mine")
                    else:
                        raised = []

                        def run():
                            try:
                                call()
                            except BaseException as error:
                                raised.append(error)

                        thread = threading.Thread(target=run)
                        thread.start()
                        thread.join()
                        self.assertIsInstance(raised[0], self.Own)

    def test_false_stops(self):
        with self.assertRaises(libblend.CallbackError):
            self.fuse(progress=lambda done, total: False)
        self.assertTrue(self.fuse(progress=lambda done, total: None).info)

    def test_progress_is_told(self):
        told = []
        self.fuse(progress=lambda done, total: told.append((done, total)))
        n = self.model.info.n_layers
        self.assertEqual(told[-1], (n, n))

    def test_nan_scores(self):
        def nan(layer, rows, deviation, scores):
            scores[:] = np.nan

        with self.assertRaises(libblend.InvalidArgumentError):
            self.fuse(policy="callback", score=nan)

    def test_a_text_that_is_none_is_named(self):
        with self.assertRaisesRegex(TypeError, "^tags is a str, not list$"):
            self.model.precompute(self.store, [5, 6], tags=["a"])
        with self.assertRaisesRegex(TypeError, "^system is a str, not int$"):
            self.model.fuse_texts(None, ["a"], "b", system=1)
        with self.assertRaisesRegex(TypeError, "^question is a str, not int$"):
            self.model.fuse_texts(None, ["a"], 1)
        with self.assertRaisesRegex(TypeError, "^tags is a str, not list$"):
            self.model.precompute_corpus(self.store, [libblend.CorpusChunk([5, 6], tags=["a"])])
        with self.assertRaisesRegex(TypeError, "^label is a str, not int$"):
            self.store.set_label("0" * 64, 3)
        with self.assertRaisesRegex(TypeError, "^tenant is a str, not int$"):
            self.store.list(tenant=3)
        for call in (lambda: self.model.fuse_texts(None, "a text", "b"), lambda: self.model.chat([{"role": "user", "content": "x"}], documents="a text")):
            with self.assertRaisesRegex(TypeError, "^documents are a list of str, and this is one str$"):
                call()
        with self.assertRaisesRegex(TypeError, "^a document is a str or .*, and this is 5$"):
            self.model.fuse_texts(None, [5], "b")
        with self.assertRaisesRegex(TypeError, "^policies are a list of str, and this is one str$"):
            self.model.calibrate([], policies="hkvd")

    def test_what_is_yes_or_no_is_a_bool(self):
        with self.fuse() as fusion:
            self.assertIs(type(fusion.info.relative), bool)
            self.assertEqual({type(segment.exact) for segment in fusion.segments}, {bool})
        self.assertIs(type(self.model.info.add_bos), bool)

    def test_a_layerwise_fuse_has_its_own(self):
        host = libblend.Model.create_from_description(self.ctx, name="p", n_layers=2, n_heads=1, n_kv_heads=1,
                                       head_dim=2, n_vocab=9, context_length=9)

        def bad(*_):
            raise self.Own("mine")

        prompt = libblend.Prompt().question([1, 2])
        layerwise = libblend.Layerwise(host, None, prompt, policy="full", on_miss="compute", progress=bad)
        kv = np.zeros((2, 1, 2), np.float32)
        with self.assertRaisesRegex(libblend.InvalidArgumentError, r"Layerwise\.commit.*Layerwise\.fetch_kv") as caught:
            layerwise.commit(0)  # out of turn; the sentence says so in Python's words
        self.assertNotRegex(str(caught.exception), "blend_|BLEND_")
        layerwise.fetch_kv(0, kv, kv)
        layerwise.synchronize(0)
        layerwise.select(0, kv, kv)
        with self.assertRaises(self.Own):
            layerwise.commit(0)


class Interrupts(unittest.TestCase):
    """Ctrl-C stops what computes on the main thread: KeyboardInterrupt, and all is in order after."""

    CODE = f"""
import libblend, os, signal, sys, threading, time
ctx = libblend.Context(1)
model = libblend.Model(ctx, {str(MODEL)!r})
tokens = [5 + i % 500 for i in range(900)]
def interrupt():
    time.sleep(0.25)
    os.kill(os.getpid(), signal.SIGINT)
def full():
    while True:
        model.fuse(None, libblend.Prompt().question(tokens), policy="full")
def decode():
    fusion = model.fuse(None, libblend.Prompt().question([5]), policy="full", reserve_tokens=1000)
    while True:
        fusion.decode(tokens)
        fusion.erase(1, 900)
def generate():
    fusion = model.fuse(None, libblend.Prompt().question([5]), policy="full", reserve_tokens=1000)
    while True:
        for token in fusion.generate(900, ignore_eos=True):
            pass
        fusion.erase(1, 900)
def calibrate():  # one call of several seconds, whose file is written at its end
    prompts = []
    for i in range(60):
        prompt = libblend.Prompt()
        for first in range(i, i + 200, 40):
            prompt.chunk(tokens[first:first + 40])
        prompts.append(prompt.question([5 + i]))
    model.calibrate(prompts, "profile", correction="off")
threading.Thread(target=interrupt, daemon=True).start()
try:
    {{call}}()
except KeyboardInterrupt:
    print("interrupted", model.tokenize("still alive").size > 0, os.path.exists("profile"))
"""

    def test_interrupt(self):
        for call in ("full", "decode", "generate", "calibrate"):
            with self.subTest(call), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, "-c", self.CODE.format(call=call)],
                                      capture_output=True, text=True, timeout=120, cwd=folder)
                self.assertEqual(done.stdout, "interrupted True False\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
