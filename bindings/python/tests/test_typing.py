"""What a strict type checker says of the package and of programs that use it."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import libblend

ROOT = pathlib.Path(__file__).resolve().parents[3]
ADAPTERS = {"transformers": ("torch", "transformers"), "_hf_rotation": ("torch", "transformers"),
            "langchain": ("langchain_core",), "llama_index": ("llama_index",)}
PROGRAM = """
from typing import List
import libblend

def ask(model: libblend.Model, store: libblend.Store, texts: List[str]) -> str:
    prompt = model.prompt().bos()
    for text in texts:
        prompt.chunk(text)
    with model.fuse(store, prompt.question("Who?"), ratio=0.15, policy=libblend.Policy.HKVD) as fusion:
        return fusion.generate(max_tokens=8).text()

def told(model: libblend.Model, store: libblend.Store, texts: List[str]) -> str:
    model.precompute_texts(store, texts, system="Be brief.", contexts=2)
    with model.fuse_texts(store, texts, "Who?", system="Be brief.", ratio=0.15, tenant="ada") as fusion:
        return fusion.generate(max_tokens=8).text()
"""


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed for this Python")
class Typing(unittest.TestCase):
    def mypy(self, *arguments):
        # The generated module has no types: what stands before it has them.
        package = pathlib.Path(libblend.__file__).resolve().parent.parent
        with tempfile.TemporaryDirectory() as cache:
            config = pathlib.Path(cache, "mypy.ini")
            config.write_text("[mypy]\nstrict = True\n[mypy-libblend.raw]\nfollow_imports = skip\n")
            return subprocess.run([sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", cache,
                                   "--no-error-summary", *arguments], capture_output=True, text=True, timeout=280,
                                  env={**os.environ, "MYPYPATH": f"{package}:{ROOT / 'examples/python'}"})

    def program(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(text)
            return self.mypy(str(path))

    def test_a_program(self):
        done = self.program(PROGRAM)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_what_a_program_has_wrong_is_found(self):
        for right, wrong in (("ratio=0.15", 'ratio="much"'), ("max_tokens=8", "most=8"), ("ratio=0.15", "ration=0.15"),
                             ("-> str", "-> int")):
            with self.subTest(wrong=wrong):
                done = self.program(PROGRAM.replace(right, wrong))
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)

    def test_the_package(self):
        package = pathlib.Path(libblend.__file__).resolve().parent
        lacking = {name for name, needs in ADAPTERS.items() if not all(map(importlib.util.find_spec, needs))}
        files = [str(path) for path in package.glob("*.py")
                 if path.stem not in lacking | {"raw"}]
        done = self.mypy(*files)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # says why it is skipped
