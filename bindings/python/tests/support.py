"""What the tests share: a model, a corpus, a folder that goes away."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import libblend

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples" / "models" / "blend-qa.gguf"
DOCUMENTS = [path.read_text() for path in sorted((ROOT / "examples/data/documents").glob("*.txt"))]
QUESTION = (ROOT / "examples" / "data" / "question.txt").read_text().strip()
ANSWER = "square anchor"


def run_example(name, *arguments):
    """What one of the examples prints."""
    done = subprocess.run([sys.executable, ROOT / "examples/python" / name, *arguments], capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Case(unittest.TestCase):
    """A context, a model and a store for each class of tests."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="libblend"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.ctx = libblend.Context(1)
        cls.model = libblend.Model(cls.ctx, MODEL)
        # Checks of answers would compute beside what is tested.
        cls.store = libblend.Store(cls.ctx, cls.folder / "store", check_every=2**32 - 1)
        for close in (cls.ctx.close, cls.model.close, cls.store.close):
            cls.addClassCleanup(close)

    def prompt(self, question=QUESTION):
        prompt = self.model.prompt().bos()
        for document in DOCUMENTS:
            prompt.chunk(document)
        return prompt.question(f"Question: {question}\nAnswer:")

    def fuse(self, **options):
        # At once what the default leaves for idle time.
        return self.model.fuse(self.store, self.prompt(), **{"on_miss": "precompute", **options})
