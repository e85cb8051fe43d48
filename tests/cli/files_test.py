"""Hostile files, stores and models for the blend command: names that are not text for a
terminal, other encodings, links, hidden files, and pipes that nobody writes into.

    python3 files_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

ARGS = argparse.Namespace()

# Colours, a title, the one-byte forms of both, and what turns the order of a line round.
HOSTILE = "\x1b[31m\x9b2J\u202e"
CHUNK = ["--chunk-tokens", "24", "--contexts", "0"]


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.dir = Path(self.temp.name)
        self.model = self.dir / "model.gguf"
        subprocess.run([ARGS.make_model, self.model], check=True)
        self.docs = self.dir / "docs"
        self.docs.mkdir()
        self.store = self.dir / "store"
        self.place = ["--model", self.model, "--store", self.store]

    def blend(self, *args, code=0):
        run = subprocess.run([ARGS.blend, *map(str, args)], capture_output=True, cwd=self.dir, timeout=120)
        self.assertEqual(run.returncode, code, f"{args}\n{run.stdout}\n{run.stderr}")
        return run

    def precompute(self, *args, code=0):
        return self.blend("precompute", *self.place, *CHUNK, *args, code=code)

    def documents(self, *args):
        """The documents that became chunks, in order, and what was said."""
        run = self.precompute(*args, "--json")
        made = [c["document"] for c in json.loads(run.stdout)["chunks"] if not c["prefix"]]
        return list(dict.fromkeys(made)), run.stderr.decode()

    def names(self, *args):
        made, said = self.documents(*args)
        return [os.path.relpath(d, self.docs) for d in made], said

    def assert_printable(self, *streams):
        for stream in streams:
            text = stream.decode()  # UTF-8 it is, too
            wrong = [c for c in text if not c.isprintable() and c != "\n"]
            self.assertFalse(wrong, text)

    # ---- Names

    def test_a_models_name_is_no_control_sequence(self):
        whole = self.model.read_bytes()
        self.assertEqual(whole.count(b"random"), 1)
        self.model.write_bytes(whole.replace(b"random", b"\x1b]0;\x07\xff"))
        run = self.blend("model", "info", "--model", self.model)
        self.assert_printable(run.stdout, run.stderr)
        self.assertIn(r"\x1b]0;\x07\xff", run.stdout.decode())
        self.assertIn("\x1b]0;\x07", json.loads(self.blend("model", "info", "--model", self.model, "--json").stdout)["name"])

    def test_labels_and_documents_are_printable(self):
        (self.docs / f"{HOSTILE}.txt").write_text("the cat sat\n")
        run = self.precompute("--docs", self.docs)
        self.assert_printable(run.stdout, run.stderr)
        listed = self.blend("store", "ls", "--store", self.store)
        self.assert_printable(listed.stdout)
        self.assertIn(r"\u009b2J\u202e.txt#1", listed.stdout.decode())
        removed = self.blend("store", "rm", "--store", self.store, "--all", "--yes", "--dry-run")
        self.assert_printable(removed.stdout)

    def test_errors_and_notes_are_printable(self):
        hostile = self.dir / f"{HOSTILE}\nno such thing"
        for args in (["precompute", *self.place, "--docs", hostile], ["model", "info", "--model", hostile],
                     ["eval", "--model", self.model, "--data", hostile], ["store", "ls", "--store", hostile]):
            said = self.blend(*args, code=3).stderr
            self.assert_printable(said)
            self.assertEqual(said.count(b"\n"), 1, said)
        (self.docs / "a.txt").write_text("the cat sat\n")
        (self.docs / f".{HOSTILE}\n").write_text("x")
        (self.docs / f"{HOSTILE}.txt").write_bytes(b"\xff\xfe\xff")
        self.assert_printable(self.precompute("--docs", self.docs).stderr)
        said = self.blend("store", "ls", "--store", self.store, HOSTILE, code=2).stderr
        self.assert_printable(said)
        said = self.blend("ask", *self.place, "--question", "q", "--policy", HOSTILE, code=2).stderr
        self.assert_printable(said)

    def test_an_answer_is_no_control_sequence_on_a_terminal(self):
        """Byte tokens follow the first three: 0x1b is 30, 0x9b 158 and 0xc2 197."""
        ask = [ARGS.blend, "ask", *self.place, "--question", "q", "--max-tokens", "3", "--quiet",
               "--logit-bias", "30:1000"]
        run = subprocess.run(ask, capture_output=True, timeout=120)
        self.assertEqual(run.stdout, b"\x1b" * 3 + b"\n", "elsewhere it is what the model said")
        for bias, shown in (([], rb"\x1b\x1b\x1b"), (["--logit-bias", "13:2000"], b"\r\n" * 3)):
            terminal, end = pty.openpty()
            run = subprocess.run([*ask, *bias], stdout=end, stderr=subprocess.PIPE, timeout=120)
            os.close(end)
            said = b""
            try:
                while block := os.read(terminal, 4096):
                    said += block
            except OSError:
                pass
            os.close(terminal)
            self.assertEqual(said, shown + b"\r\n")

    # ---- Encodings

    def test_utf_16_is_read_by_its_mark(self):
        text = "the café \U0001f600 sat\r\non the mat\n"
        for name, encoding in (("le", "utf-16-le"), ("be", "utf-16-be"), ("8", "utf-8")):
            (self.docs / f"{name}.txt").write_bytes(("\ufeff" + text).encode(encoding))
        (self.docs / "plain.txt").write_text(text)
        made = json.loads(self.precompute("--docs", self.docs, "--json").stdout)["chunks"]
        self.assertEqual(len({c["id"] for c in made if not c["prefix"]}), 1, "one text")
        self.assertEqual(len([c for c in made if not c["prefix"]]), 4)

    WRONG = {
        "latin": ("the caf\u00e9 sat".encode("latin-1"), "UTF-8"),
        "utf16-without-mark": ("the cat".encode("utf-16-le"), "NUL"),
        "zeros": (b"the\0cat", "NUL"),
        "utf32": ("\ufeffthe cat".encode("utf-32-le"), "UTF-32"),
        "half": (b"\xff\xfea", "UTF-16"),
        "lone": (b"\xff\xfe\x00\xd8a\x00", "UTF-16"),
        "overlong": (b"the \xc0\xaf", "UTF-8"),
        "surrogate": (b"the \xed\xa0\x80", "UTF-8"),
        "cut": ("the caf\u00e9".encode()[:-1], "UTF-8"),
    }

    def test_a_named_document_that_is_no_text_is_refused(self):
        (self.docs / "good.txt").write_text("the cat sat\n")
        for name, (content, why) in self.WRONG.items():
            path = self.dir / f"{name}.txt"
            path.write_bytes(content)
            said = self.precompute("--docs", self.docs, path, code=1).stderr.decode()
            self.assertIn(f"{name}.txt", said)
            self.assertIn(why, said)
            self.assertFalse(self.store.exists(), "nothing of it is stored")
        self.assertIn("byte 7", self.precompute("--docs", self.dir / "latin.txt", code=1).stderr.decode())
        self.assertIn("iconv", self.precompute("--docs", self.dir / "latin.txt", code=1).stderr.decode())

    def test_documents_of_a_directory_that_are_no_text_are_left_out(self):
        (self.docs / "good.txt").write_text("the cat sat\n")
        for name, (content, _) in self.WRONG.items():
            (self.docs / f"{name}.txt").write_bytes(content)
        made, said = self.names("--docs", self.docs)
        self.assertEqual(made, ["good.txt"])
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn(f"{len(self.WRONG)} files", said)
        self.assertIn("cut.txt", said)

    def test_templates_and_data_are_decoded_as_documents_are(self):
        template = self.dir / "chat.jinja"
        source = "{% for m in messages %}[{{ m.role }}] caf\u00e9 {{ m.content }}{% endfor %}"
        rows = []
        for encoding in ("utf-8", "utf-16"):
            template.write_text(source, encoding)
            run = self.blend("ask", *self.place, "--question", "q", "--chat", "--chat-template", template,
                             "--max-tokens", "1", "--json")
            rows.append(json.loads(run.stdout)["fusion"]["n_rows"])
        self.assertEqual(rows[0], rows[1])
        template.write_text(source, "latin-1")
        said = self.blend("ask", *self.place, "--question", "q", "--chat", "--chat-template", template, code=1).stderr
        self.assertIn(b"UTF-8", said)
        data = self.dir / "data.jsonl"
        record = json.dumps({"chunks": ["the caf\u00e9 sat\n"], "question": "who", "answers": ["x"]}, ensure_ascii=False)
        evaluate = ["eval", "--model", self.model, "--data", data, "--max-tokens", "1", "--policies", "reuse",
                    "--ratios", "0", "--json", "-"]
        for encoding in ("utf-8", "utf-16"):
            data.write_text(record + "\n", encoding)
            report = json.loads(self.blend(*evaluate).stdout)
            self.assertEqual(report["data"]["n_records"], 1)
        data.write_bytes(b"\xff\xfe{")
        self.assertIn(b"half a character", self.blend(*evaluate, code=4).stderr)

    # ---- Directories

    def test_endings_of_any_case(self):
        for name in ("a.TXT", "b.Md", "c.md", "d.txt"):
            (self.docs / name).write_text(f"the {name} sat\n")
        (self.docs / "e.pdf").write_text("no")
        (self.docs / "txt").write_text("no")
        made, said = self.names("--docs", self.docs)
        self.assertEqual(made, ["a.TXT", "b.Md", "c.md", "d.txt"])
        self.assertIn("2 files", said)
        self.assertIn(".txt", said)

    def test_hidden_files_are_left_out(self):
        (self.docs / "a.txt").write_text("the cat sat\n")
        (self.docs / ".b.txt").write_text("hidden\n")
        (self.docs / ".git").mkdir()
        (self.docs / ".git" / "c.txt").write_text("hidden\n")
        made, said = self.names("--docs", self.docs)
        self.assertEqual(made, ["a.txt"])
        self.assertIn("2 hidden", said)
        # A file named explicitly is read.
        made, said = self.names("--docs", self.docs / ".b.txt", self.docs / ".git")
        self.assertEqual(made, [".b.txt", ".git/c.txt"])
        self.assertEqual(said, "")

    def test_linked_directories_are_read_once(self):
        outside = self.dir / "outside"
        outside.mkdir()
        (outside / "o.txt").write_text("the dog ran\n")
        (outside / "back").symlink_to(self.docs)
        (self.docs / "a.txt").write_text("the cat sat\n")
        (self.docs / "aa").symlink_to(outside)
        (self.docs / "again").symlink_to(outside)
        (self.docs / "loop").symlink_to(".")
        (self.docs / "file.md").symlink_to(outside / "o.txt")
        (self.docs / "gone.txt").symlink_to("nowhere")
        (self.docs / "sub").mkdir()
        (self.docs / "sub" / "s.txt").write_text("a bird sang\n")
        (self.docs / "0").symlink_to("sub")  # of a link and the directory itself, that is it
        made, said = self.names("--docs", self.docs)
        self.assertEqual(made, ["a.txt", "aa/o.txt", "file.md", "sub/s.txt"])
        self.assertIn("4 links to directories", said)
        self.assertIn("gone.txt", said)

    def test_only_what_is_left_out(self):
        (self.docs / ".a.txt").write_text("hidden\n")
        said = self.precompute("--docs", self.docs, code=3).stderr.decode()
        self.assertIn("1 hidden", said)
        self.assertIn("no text", said)

    # ---- Signals

    def ends_at_once(self, number, args):
        process = subprocess.Popen([ARGS.blend, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            # It waits for the pipe when it does not compute any longer.
            before, still = -1, 0
            for _ in range(1000):
                time.sleep(0.02)
                with open(f"/proc/{process.pid}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                used = int(fields[11]) + int(fields[12])
                still = still + 1 if used == before else 0
                before = used
                if still > 15:
                    break
            self.assertIsNone(process.poll(), "it did not wait")
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, said)
        self.assertIn(b"BLEND_E_CANCELLED", said)

    def reads(self, pipe):
        ask = ["ask", *self.place, "--question", "q"]
        yield ["precompute", *self.place, "--docs", pipe]
        yield [*ask, "--docs", self.docs, pipe]
        yield [*ask, "--chat", "--chat-template", pipe]
        yield ["eval", "--model", self.model, "--data", pipe]
        yield ["calibrate", "--model", self.model, "--data", pipe]
        yield ["precompute", *self.place, "--docs", self.docs, "--remote", "rediss://127.0.0.1:1",
               "--remote-ca", pipe]

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "how it waits is not known here")
    def test_the_first_signal_ends_a_read_from_a_pipe_that_nobody_opened(self):
        (self.docs / "a.txt").write_text("the cat sat\n")
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        for i, args in enumerate(self.reads(pipe)):
            self.ends_at_once([signal.SIGINT, signal.SIGTERM][i % 2], args)

    @unittest.skipUnless(os.path.exists("/proc/self/stat"), "how it waits is not known here")
    def test_the_first_signal_ends_a_read_from_a_pipe_that_nobody_writes_into(self):
        (self.docs / "a.txt").write_text("the cat sat\n")
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        end = os.open(pipe, os.O_RDWR)
        self.addCleanup(os.close, end)
        for i, args in enumerate(self.reads(pipe)):
            self.ends_at_once([signal.SIGTERM, signal.SIGINT][i % 2], args)

    def test_a_pipe_is_read_to_its_end(self):
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)

        def write():
            with open(pipe, "wb") as file:
                file.write(b"the cat ")
                file.flush()
                time.sleep(0.1)
                file.write(b"sat\n")
        writer = threading.Thread(target=write)
        writer.start()
        made, _ = self.documents("--docs", pipe)
        writer.join()
        self.assertEqual(made, [str(pipe)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model", required=True)
    options, rest = parser.parse_known_args()
    ARGS.blend = os.path.abspath(options.blend)
    ARGS.make_model = os.path.abspath(options.make_model)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
