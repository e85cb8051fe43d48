"""The blend command on a small random model, as the tests of its commands run it."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ARGS = argparse.Namespace()

TEXT = "the cat sat on the mat\n\nthe dog ran to the park\n\na bird sang in the old tree\n"
# Small, as the random model's vocabulary has few words: a chunk holds a paragraph.
CHUNK = ["--chunk-tokens", "24"]


class CliCase(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.dir = Path(self.temp.name)
        self.model = self.dir / "model.gguf"
        subprocess.run([ARGS.make_model, self.model], check=True)
        self.docs = self.dir / "docs"
        self.docs.mkdir()
        (self.docs / "a.txt").write_text(TEXT)
        self.store = self.dir / "store"
        self.place = ["--model", self.model, "--store", self.store]

    def blend(self, *args, code=0):
        """Runs blend and checks the exit code; stdout and stderr as text."""
        # An empty directory: no file of another one is found, and none may be left in it.
        cwd = self.dir / "cwd"
        cwd.mkdir(exist_ok=True)
        run = subprocess.run(
            [ARGS.blend, *map(str, args)], capture_output=True, cwd=cwd, timeout=120,
            # A random model's answer need not be UTF-8.
            encoding="utf-8", errors="replace",
        )
        self.assertEqual(run.returncode, code, f"{args}\n{run.stdout}\n{run.stderr}")
        self.assertEqual(list(cwd.iterdir()), [])
        if code != 0:
            self.assertNotIn("terminate called", run.stderr)
            self.assertTrue(run.stderr.strip(), "a failure without a sentence")
        return run

    def json(self, *args, code=0):
        return json.loads(self.blend(*args, "--json", code=code).stdout)

    def ask(self, *args, code=0, docs=True):
        where = ["--docs", self.docs, *CHUNK] if docs else []
        return self.json(
            "ask", *self.place, *where, "--question", "who sat", "--max-tokens", "8", *args,
            code=code,
        )

    def ask_text(self, *args, code):
        return self.blend(
            "ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "q", *args, code=code
        )

    def precompute(self, *args):
        """After the head alone, one record a chunk, unless --contexts says otherwise."""
        if "--contexts" not in args:
            args = ("--contexts", "0", *args)
        return self.json("precompute", *self.place, "--docs", self.docs, *CHUNK, *args)


def run_tests():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model", required=True)
    options, rest = parser.parse_known_args()
    ARGS.blend = os.path.abspath(options.blend)
    ARGS.make_model = os.path.abspath(options.make_model)
    unittest.main(argv=[sys.argv[0], *rest])
