"""The blend command, end to end, on a small random model.

    python3 cli_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ARGS = argparse.Namespace()

TEXT = "the cat sat on the mat\n\nthe dog ran to the park\n\na bird sang in the old tree\n"
# Small, as the random model's vocabulary has few words: a chunk holds a paragraph.
CHUNK = ["--chunk-tokens", "24"]


class CliTest(unittest.TestCase):
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
        # The empty directory: nothing is found by luck, nothing is left behind.
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

    def precompute(self, *args):
        """After the head alone, one record a chunk, unless --contexts says otherwise."""
        if "--contexts" not in args:
            args = ("--contexts", "0", *args)
        return self.json("precompute", *self.place, "--docs", self.docs, *CHUNK, *args)

    # ---- Chat

    def test_ask_by_a_chat_template(self):
        template = self.dir / "chat.jinja"
        template.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ more }}")
        chat = ["--chat", "--chat-template", template]
        first = self.ask(*chat, "--system", "be brief")["fusion"]
        self.assertEqual([s["kind"] for s in first["segments"]][0], "prefix")
        self.assertEqual([s["kind"] for s in first["segments"]][-1], "question")
        # After another head a chunk is another record.
        plain = self.ask("--system", "be brief")["fusion"]

        def chunks(fusion):
            return [s["id"] for s in fusion["segments"] if s["kind"] == "chunk"]
        self.assertFalse(set(chunks(plain)) & set(chunks(first)))
        more = self.ask(*chat, "--chat-variables", '{"more": "and why"}', "--system", "be brief")["fusion"]
        self.assertGreater(more["n_rows"], first["n_rows"])

    def test_ask_by_a_chat_template_says_what_is_wrong(self):
        place = ["ask", *self.place, "--question", "who"]
        self.assertIn("chat template", self.blend(*place, "--chat", code=3).stderr)  # it has none
        self.blend(*place, "--chat", "--special", code=2)
        self.blend(*place, "--chat-template", "x", code=2)  # without --chat
        self.blend(*place, "--chat", "--chat-template", self.dir / "none.jinja", code=3)
        wrong = self.dir / "wrong.jinja"
        wrong.write_text("{% include 'x' %}")
        self.assertIn("include", self.blend(*place, "--chat", "--chat-template", wrong, code=1).stderr)

    def test_ask_with_functions_to_call(self):
        template = self.dir / "chat.jinja"
        # The model's context is short.
        template.write_text("{% for tool in tools or [] %}<tool_call>{{ tool.function.name }}{% endfor %}"
                            "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] ")
        functions = [{"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"town": {"enum": ["Wien", "Graz"]}, "hour": {"enum": [6, 18]}},
            "required": ["town", "hour"]}}}, {"type": "function", "function": {"name": "time"}}]
        tools = self.dir / "tools.json"
        tools.write_text(json.dumps(functions))
        place = ["ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat", "--chat", "--chat-template", template]
        given = [*place, "--tools", tools, "--max-tokens", "200"]
        plain = self.json(*place, "--max-tokens", "2")
        may = self.json(*place, "--tools", tools, "--max-tokens", "2")
        self.assertGreater(may["fusion"]["n_rows"], plain["fusion"]["n_rows"])  # the model is told of them
        self.assertEqual(may["tool_calls"], [])
        self.assertNotIn("tool_calls", plain)
        # The chunks of a prompt with functions are stored after its head.
        self.blend("precompute", *self.place, "--docs", self.docs, *CHUNK, "--contexts", "0", "--chat", "--chat-template",
                   template, "--tools", tools)
        self.assertEqual(self.json(*given, "--read-only")["fusion"]["n_misses"], 0)
        for wrong, says in (("{}", "list"), ("[", "JSON"), ('[{"type": "function"}]', "tools[0].function")):
            tools.write_text(wrong)
            self.assertIn(says, self.blend(*given, code=1).stderr)
        tools.write_text(json.dumps(functions))
        self.assertIn("moon", self.blend(*given, "--tool-choice", "moon", code=1).stderr)
        self.blend(*place, "--tool-choice", "required", code=2)  # without --tools
        self.blend("ask", *self.place, "--question", "x", "--tools", tools, code=2)  # without --chat
        self.blend(*given, "--json-object", code=2)
        self.blend(*given, "--exact", code=2)
        self.assertIn("none.json", self.blend(*place, "--tools", self.dir / "none.json", code=3).stderr)
        made = subprocess.run([ARGS.blend, *map(str, given), "--tool-choice", "required", "--json"], capture_output=True, text=True)
        if "BLEND_GRAMMAR" in made.stderr:
            self.skipTest("this build has no grammars")
        for choice in ("required", "weather", "time"):
            lines = self.blend(*given, "--tool-choice", choice, "--quiet").stdout.splitlines()
            (call,) = [json.loads(line) for line in lines]
            self.assertEqual(list(call), ["name", "arguments"])
            self.assertIn(call["name"], ("weather", "time") if choice == "required" else (choice,))
            if call["name"] == "weather":
                self.assertEqual(list(call["arguments"]), ["town", "hour"])  # in the schema's order
                self.assertIn(call["arguments"]["town"], ("Wien", "Graz"))
            else:
                self.assertEqual(call["arguments"], {})
            one = self.json(*given, "--tool-choice", choice)
            self.assertEqual((one["tool_calls"], one["answer"]), ([call], ""))
        cut = self.json(*place, "--tools", tools, "--tool-choice", "weather", "--max-tokens", "12")
        self.assertTrue(cut["answer"] or isinstance(cut["tool_calls"][0]["arguments"], str), cut)
        self.assertFalse(cut["stopped"])

    def test_special_tokens_count_in_the_template_alone(self):
        def rows(*args):
            return self.ask(*args, docs=False)["fusion"]["n_rows"]
        plain = rows("--question-template", "{question}</s>")
        special = rows("--question-template", "{question}</s>", "--special")
        self.assertLess(special, plain)
        self.assertEqual(rows("--question-template", "{question}", "--special"),
                         rows("--question-template", "{question}"))

    # ---- What new users met

    def test_an_unknown_command_or_option_is_named(self):
        for args, named in ((["frobnicate"], "frobnicate"), (["store", "lsx"], "lsx"),
                            (["ask", "--frobnicate"], "--frobnicate"), (["store", "ls", "--foo=1"], "--foo"),
                            (["ask", "frobnicate", "--model", self.model], "frobnicate"),
                            (["store", "stat", "frobnicate"], "frobnicate")):
            said = self.blend(*args, code=2).stderr
            self.assertIn(named, said)
            self.assertNotIn("required", said)
        self.assertIn("precompute", self.blend("frobnicate", code=2).stderr)

    def test_policies_are_listed(self):
        said = self.blend("ask", *self.place, "--question", "x", "--policy", "best", code=2).stderr
        helped = self.blend("ask", "--help").stdout
        for name in ("hkvd", "first_k", "random", "question", "context_impact", "ape", "reuse", "full"):
            self.assertIn(name, said)
            self.assertIn(name, helped)

    def test_ask_of_a_store_that_is_only_read(self):
        self.precompute()
        (self.docs / "b.txt").write_text("a new text that no chunk has\n")
        before = sorted((p.name, p.stat().st_size) for p in self.store.iterdir() if "lock" not in p.name)
        got = self.ask("--read-only")
        self.assertGreater(got["fusion"]["n_hits"], 0)
        self.assertGreater(got["fusion"]["n_misses"], 0)
        after = sorted((p.name, p.stat().st_size) for p in self.store.iterdir() if "lock" not in p.name)
        self.assertEqual(before, after)
        self.blend("ask", "--model", self.model, "--store", self.dir / "none", "--read-only", "--question",
                   "who", code=3)

    def test_a_full_store_does_not_spoil_an_answer(self):
        got = self.ask("--quota", "1000", "--eviction", "never")
        self.assertIn("answer", got)
        self.assertIn("not_stored", got)

    def test_no_bar_is_left_on_a_terminal(self):
        """On a terminal of its own: what is shown at the end has no trace of a bar."""
        import pty
        documents = self.dir / "many"
        documents.mkdir()
        for i in range(40):
            (documents / f"{i}.txt").write_text("\n\n".join(f"{n} {n * n} the cat {n * i}" for n in range(i, i + 12)))
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(ARGS.blend, [str(a) for a in (
                ARGS.blend, "precompute", *self.place, "--docs", documents, *CHUNK, "--threads", "1")])
        shown = b""
        try:
            while block := os.read(terminal, 65536):
                shown += block
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.close(terminal)
        self.assertTrue(b"Precomputing [" in shown, "the work is too short to show a bar")
        lines = []
        for line in shown.decode("utf-8", "replace").split("\n"):
            line = line.rstrip("\r")
            lines.append(line.split("\r\x1b[K")[-1])
        self.assertNotIn("[#", "".join(lines))
        self.assertNotIn("...]", "".join(lines))

    # ---- The controller

    def test_advise_measures_once_and_chooses_a_device(self):
        machine = self.dir / "machine.txt"
        place = ["advise", "--model", self.model, "--machine", machine, "--max-tokens", "64"]
        first = self.json(*place)
        self.assertFalse(first["kept"])
        self.assertEqual([point["n_tokens"] for point in first["prefill"]], [64])
        self.assertEqual(first["storages"], [])
        # Without end fast, and a byte a second: the fast one adds no delay, whatever it costs.
        got = self.json(*place, "--tokens", "512", "--ratio", "0.2",
                        "--storage", "fast=1000T:5", "--storage", "slow=1")
        self.assertTrue(got["kept"])
        self.assertEqual(got["prefill"], first["prefill"])
        fast, slow = got["storages"]
        self.assertTrue(fast["cheapest"] and fast["no_delay"])
        self.assertEqual(fast["ratio"], 0.2)
        self.assertTrue(slow["slower_than_prefill"] and not slow["no_delay"])
        self.assertEqual(slow["ratio"], 1)
        self.assertEqual(fast["bytes_per_s"], 1e15)
        self.assertFalse(self.json(*place, "--measure")["kept"])
        text = self.blend(*place, "--storage", "fast=1000T:5").stdout
        self.assertIn("the cheapest without delay", text)
        self.assertIn("With --storage NAME=BYTES_PER_SECOND", self.blend(*place).stdout)

    def test_advise_refuses_devices_it_cannot_read(self):
        for device in ("nvme", "=3G", "nvme=fast", "nvme=3X", "nvme=3G:", "nvme=3G:1x", "nvme=0"):
            self.blend("advise", "--model", self.model, "--max-tokens", "8", "--storage", device,
                       code=2)

    @unittest.skipIf(shutil.which("redis-server") is None, "redis-server is not installed")
    def test_a_key_that_others_may_read_is_told(self):
        key = self.dir / "client.key"
        key.write_text("no key\n")
        place = ["store", "push", "--store", self.store, "--remote", "redis://127.0.0.1:1", "--remote-key", key]
        for mode, told in ((0o644, True), (0o660, True), (0o600, False), (0o400, False)):
            key.chmod(mode)
            note = self.blend(*place, code=2).stderr  # for it names no certificate
            self.assertEqual(f"the key in '{key}' is open to others" in note, told, f"{mode:o}: {note}")

    def test_advise_measures_the_remote_tier(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                                  stdout=subprocess.DEVNULL, cwd=self.dir)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        url = f"redis://127.0.0.1:{port}"
        place = ["advise", "--model", self.model, "--max-tokens", "8", "--remote", url]
        self.assertIn("no chunk yet", self.blend(*place, code=3).stderr)
        self.blend("precompute", "--docs", self.docs, "--model", self.model, "--store", self.dir / "shared", "--remote", url)
        (remote,) = self.json(*place, "--remote-cost", "0.5")["storages"]
        self.assertEqual((remote["name"], remote["cost_per_gb_hour"]), ("remote", 0.5))
        self.assertTrue(remote["bytes_per_s"] > 0 and remote["latency_s"] > 0)
        self.assertGreaterEqual(remote["load_ns"], remote["latency_s"] * 1e9 - 1)
        self.assertIn("before the first byte", self.blend(*place).stdout)

    # ---- Truncation

    def test_embed_writes_a_line_for_each_text(self):
        place = ["embed", "--model", self.model]
        lines = self.dir / "texts.txt"
        texts = ["the cat sat", "a dog"] * 40
        lines.write_text("\n".join(texts))
        made = [json.loads(line) for line in self.blend(*place, "--lines", lines).stdout.splitlines()]
        self.assertEqual([line["index"] for line in made], list(range(80)))
        self.assertEqual(made[0]["embedding"], made[2]["embedding"])
        self.assertNotEqual(made[0]["embedding"], made[1]["embedding"])
        self.assertAlmostEqual(sum(value * value for value in made[0]["embedding"]), 1, places=5)
        given = self.blend(*place, "--text", "the cat sat", "--text", "a dog", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line) for line in given], made[:2])
        few = json.loads(self.blend(*place, "--text", "a dog", "--dimensions", 3, "--pooling", "last",
                                    "--unnormalized").stdout)
        self.assertEqual(len(few["embedding"]), 3)
        piped = subprocess.run([ARGS.blend, *map(str, place), "--lines", "-"], input="a dog\n",
                               capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(piped.stdout)["embedding"], made[1]["embedding"])

    def test_embed_refuses_what_cannot_be(self):
        place = ["embed", "--model", self.model]
        self.assertIn("--text", self.blend(*place, code=2).stderr)
        self.blend(*place, "--lines", self.dir / "none.txt", code=3)
        self.blend(*place, "--text", "x", "--pooling", "most", code=2)
        self.assertIn("n_dimensions", self.blend(*place, "--text", "x", "--dimensions", 100000, code=2).stderr)
        long = self.dir / "long.txt"
        long.write_text("the cat sat " * 2000)
        self.assertIn("text 0", self.blend(*place, "--lines", long, code=1).stderr)
        self.assertEqual(json.loads(self.blend(*place, "--lines", long, "--truncate").stdout)["n_tokens"], 512)

    def test_perplexity_compares_rotated_rows_with_computed_ones(self):
        got = self.json("perplexity", "--model", self.model, "--docs", self.docs,
                        "--window", "16", "--drop", "0.25")
        self.assertEqual((got["window"], got["drop"], got["keep"]), (16, 4, 1))
        self.assertEqual(got["n_documents"], 1)
        self.assertGreaterEqual(got["recomputed"]["n_truncations"], 2)
        self.assertEqual(got["rotated"]["n_truncations"], got["recomputed"]["n_truncations"])
        self.assertGreater(got["recomputed"]["perplexity"], 1)
        # A random model's rows say little of each other, but they do say something.
        self.assertNotEqual(got["rotated"]["perplexity"], got["recomputed"]["perplexity"])
        self.assertAlmostEqual(
            got["difference"], got["rotated"]["perplexity"] - got["recomputed"]["perplexity"])
        # Nothing but the last row left: its K and V depend on nothing that is gone.
        alone = self.json("perplexity", "--model", self.model, "--docs", self.docs,
                          "--window", "16", "--drop", "0.9375", "--keep", "0")
        self.assertAlmostEqual(alone["difference"] / alone["rotated"]["perplexity"], 0, places=4)
        text = self.blend("perplexity", "--model", self.model, "--docs", self.docs,
                          "--window", "16").stdout
        self.assertIn("recomputed", text)

    def test_perplexity_refuses_windows_that_cannot_be(self):
        place = ["perplexity", "--model", self.model, "--docs", self.docs]
        self.blend(*place, "--window", "100000", code=2)
        self.blend(*place, "--window", "16", "--drop", "0.01", code=2)
        self.blend(*place, "--window", "16", "--keep", "10", code=2)
        self.blend(*place, "--window", "400", code=3)  # the document is shorter

    # ---- The main job

    def test_precompute_then_ask_hits_the_store(self):
        first = self.precompute()
        self.assertGreaterEqual(len(first["chunks"]), 3)
        self.assertEqual(first["n_existed"], 0)
        again = self.precompute()
        self.assertEqual(again["n_stored"], 0)
        ids = [chunk["id"] for chunk in first["chunks"]]
        self.assertEqual([chunk["id"] for chunk in again["chunks"]], ids)
        fusion = self.ask()["fusion"]
        self.assertEqual(fusion["n_misses"], 0)
        self.assertEqual(fusion["n_hits"], len(ids))
        self.assertGreater(fusion["bytes_loaded"], 0)
        chunks = [s for s in fusion["segments"] if s["kind"] == "chunk"]
        self.assertEqual([s["id"] for s in chunks], [c["id"] for c in first["chunks"] if not c["prefix"]])
        self.assertTrue(all(s["source"] == "store" for s in chunks))

    def test_ask_from_nothing_and_the_second_run_hits(self):
        exact = self.ask("--policy", "full", "--kv-dtype", "f32")
        first = self.ask("--kv-dtype", "f32")
        self.assertGreater(first["fusion"]["n_misses"], 0)
        self.assertEqual(first["fusion"]["miss_ns"] // 10**6, 0)  # nothing was stored before the answer
        self.assertEqual(first["answer"], exact["answer"])  # computed inline
        second = self.ask("--kv-dtype", "f32")
        self.assertEqual(second["fusion"]["n_misses"], 0)
        self.assertGreater(second["fusion"]["n_hits"], 0)

    def test_ask_can_precompute_what_is_missing(self):
        first = self.ask("--on-miss", "precompute")
        self.assertGreater(first["fusion"]["n_misses"], 0)
        self.assertEqual({s["source"] for s in first["fusion"]["segments"] if s["kind"] == "chunk"}, {"precomputed"})
        second = self.ask()
        self.assertEqual(second["fusion"]["n_misses"], 0)

    def test_ratio_one_answers_as_full_prefill(self):
        options = ["--kv-dtype", "f32"]
        full = self.ask("--policy", "full", *options)
        one = self.ask("--ratio", "1", *options)
        self.assertEqual(full["answer"], one["answer"])
        self.assertEqual(full["fusion"]["n_hits"], 0)

    def test_ratio_is_the_share_of_rows(self):
        self.precompute()
        fusion = self.ask("--ratio", "0.25")["fusion"]
        self.assertAlmostEqual(fusion["n_rows_selected"] / fusion["n_rows_reused"], 0.25, delta=0.1)

    def test_ratio_is_by_default_what_keeps_an_agreement(self):
        self.precompute()
        by_default = self.ask()["fusion"]
        # For records after the head; a short prompt has a larger share.
        self.assertLess(by_default["n_rows_reused"], 400)
        self.assertAlmostEqual(by_default["ratio"], 0.45 ** 0.5, places=6)
        self.precompute("--tenant", "other")  # the first answer has made better records
        self.assertEqual(self.ask("--tenant", "other", "--ratio", "fidelity", "--agreement", "0.9")["fusion"]["ratio"], by_default["ratio"])
        place = [*self.place, "--docs", self.docs, "--question", "x"]
        refused = self.blend("ask", *place, "--checks", "2", code=2)
        self.assertIn("--ratio 0.15", refused.stderr)
        self.assertIn("nor fidelity", self.blend("ask", *place, "--ratio", "most", code=2).stderr)

    def test_several_questions_share_their_chunks(self):
        self.precompute()
        questions = ["who sat", "who ran", "what is it"]
        asked = [a for q in questions for a in ("--question", q)]
        # Read-only: answers make better records, which the next answers use.
        command = ["ask", *self.place, "--docs", self.docs, *CHUNK, "--max-tokens", "4", "--read-only"]
        out = json.loads(self.blend(*command, *asked, "--json").stdout)
        self.assertEqual([one["question"] for one in out], questions)
        self.assertGreater(out[0]["fusion"]["bytes_loaded"], 0)
        self.assertEqual(out[1]["fusion"]["bytes_loaded"], 0)
        self.assertEqual(out[1]["fusion"]["bytes_shared"], out[0]["fusion"]["bytes_loaded"])
        for question, one in zip(questions, out):
            alone = json.loads(self.blend(*command, "--question", question, "--json").stdout)
            self.assertEqual(alone["answer"], one["answer"])
        text = self.blend(*command, *asked, "--quiet").stdout
        self.assertEqual([line[2:] for line in text.splitlines() if line.startswith("> ")], questions)

    def test_ratio_auto_asks_the_machine(self):
        self.precompute()
        machine = self.dir / "machine.txt"
        fusion = self.ask("--ratio", "auto", "--machine", machine)["fusion"]
        self.assertTrue(machine.exists())
        self.assertGreaterEqual(fusion["ratio"], 0.15)
        self.assertEqual(self.ask("--ratio", "auto")["fusion"]["ratio"], 0.15)
        self.blend("ask", *self.place, "--docs", self.docs, "--question", "x", "--ratio", "2", code=2)

    def test_sampling(self):
        plain = self.ask("--logprobs", "2")
        tokens = [entry["token"] for entry in plain["logprobs"]]
        self.assertEqual(len(tokens), plain["n_generated"])
        for entry in plain["logprobs"]:
            self.assertEqual(entry["token"], entry["top"][0]["token"])  # greedy
            self.assertGreaterEqual(entry["top"][0]["logprob"], entry["top"][1]["logprob"])
        answer = plain["answer"]
        # Random bytes; a part cut inside a character before it is not reported.
        stop = next(c for i, c in enumerate(answer) if c.isascii() and c.isprintable()
                    and answer.index(c) == i and answer[i - 1:i] != "\ufffd")
        out = self.ask("--stop", "\x01no", "--stop", stop)
        self.assertEqual((out["answer"], out["stopped"]), (answer[:answer.index(stop)], True))
        other = self.ask("--logprobs", "1", "--logit-bias", f"{tokens[0]}:-inf")
        self.assertNotIn(tokens[0], [entry["token"] for entry in other["logprobs"]])
        self.assertNotEqual(self.ask("--presence-penalty", "100")["answer"],
                            self.ask("--presence-penalty", "-100")["answer"])
        for bad in (["--logit-bias", "x"], ["--min-p", "2"], ["--repetition-penalty", "0"]):
            self.ask_text(*bad, code=2)

    def test_exact_after_a_moment(self):
        full = self.ask("--policy", "full", "--kv-dtype", "f32")
        self.precompute("--kv-dtype", "f32")
        self.assertNotEqual(self.ask("--policy", "reuse", "--kv-dtype", "f32")["answer"], full["answer"])
        out = self.ask("--exact", "--policy", "reuse", "--kv-dtype", "f32")
        for key in ("answer", "n_generated", "stopped"):
            self.assertEqual(out[key], full[key])
        self.assertGreaterEqual(out["exact"]["n_shown"], out["exact"]["n_taken_back"])
        # The last line on a terminal is the answer, whether or not another was shown before it.
        run = self.blend("ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat", "--max-tokens",
                         "8", "--exact", "--policy", "reuse", "--kv-dtype", "f32", "--quiet")
        self.assertEqual(run.stdout.removesuffix("\n"), full["answer"])  # --quiet shows nothing that is taken back
        self.ask_text("--exact", "--temperature", "1", code=2)

    def test_compare(self):
        out = self.ask("--compare", "--kv-dtype", "f32")
        rows = {row["policy"]: row for row in out["compare"]}
        self.assertEqual(set(rows), {"full", "reuse", "auto"})
        self.assertEqual(rows["full"]["kl_first"], 0)
        self.assertGreater(rows["reuse"]["kl_first"], 0)
        for row in rows.values():
            self.assertGreater(row["ttft_ns"], 0)
            self.assertLessEqual(row["n_agree"], row["n_places"])
        exact = self.ask("--compare", "--kv-dtype", "f32", "--ratio", "1")
        row = [r for r in exact["compare"] if r["policy"] == "auto"][0]
        self.assertLess(row["kl_mean"], 1e-6)
        self.assertTrue(row["same_answer"])

    def test_layers_and_tables_in_text(self):
        self.precompute()
        run = self.blend(
            "ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat",
            "--max-tokens", "4", "--layers", "--compare", "--read-only",
        )
        for word in ("time to first token", "hits", "compute ms", "load ms", "speed-up", "= loading"):
            self.assertIn(word, run.stdout)
        self.assertEqual(run.stderr, "")  # no bar: stderr is not a terminal
        quiet = self.blend(
            "ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat",
            "--max-tokens", "4", "--quiet", "--read-only",
        )
        self.assertNotIn("time to first token", quiet.stdout)
        self.assertTrue(run.stdout.startswith(quiet.stdout.rstrip("\n")))

    def test_system_text_is_an_exact_prefix(self):
        self.precompute("--system", "be kind")
        fusion = self.ask("--system", "be kind")["fusion"]
        self.assertEqual(fusion["segments"][0]["kind"], "prefix")
        self.assertTrue(fusion["segments"][0]["exact"])
        self.assertGreater(fusion["segments"][0]["n_rows"], 1)

    def test_ids_depend_on_prefix_tenant_and_dtype_but_not_on_neighbours(self):
        def ids(*args):
            return [c["id"] for c in self.precompute(*args)["chunks"] if not c["prefix"]]

        plain = ids()
        for other in (["--chunk-prefix", "none"], ["--chunk-prefix", "text:so "],
                      ["--tenant", "t"], ["--kv-dtype", "f32"]):
            self.assertFalse(set(plain) & set(ids(*other)), other)
        (self.docs / "0.md").write_text("a new text in front\n")
        self.assertEqual(ids()[1:], plain)

    # More than ten tokens each, so that they are context, and one chunk.
    LONG = [f"{first} the cat sat on the {second}\n\n"
            for first, second in (("so", "dog"), ("a", "bird"), ("in", "park"))]

    def kinds(self, made):
        return [c["kind"] for c in made["chunks"] if not c["prefix"]]

    def test_chunks_are_stored_after_the_head_and_in_context(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "4")
        self.assertEqual(self.kinds(made), ["contextual"] * 3)
        self.assertEqual([c["n_contexts"] for c in made["chunks"] if not c["prefix"]], [2] * 3)
        n_records = self.json("store", "stat", "--store", self.store)["n_chunks"]
        self.assertEqual(n_records, 1 + 2 * 3, "the prefix, and two records a chunk")
        self.assertEqual(self.precompute("--contexts", "4")["n_stored"], 0)
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "contextual", "contextual"])
        text = self.blend("ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat").stdout
        self.assertRegex(text, r"chunks stored\s+1 exact, 2 contextual")

    def test_without_contexts_there_are_head_records(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "0")
        self.assertEqual(self.kinds(made), ["head"] * 3)
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "head", "head"])
        self.assertEqual(self.kinds(self.precompute("--contexts", "1")), ["contextual"] * 3)

    def test_another_head_needs_other_records(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        self.precompute("--system", "be brief")
        told = self.ask("--system", "be brief", "--on-miss", "fail")["fusion"]
        self.assertEqual(told["n_misses"], 0)
        self.blend("ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who", "--system",
                   "be long", "--on-miss", "fail", code=3)
        self.assertEqual(self.precompute("--system", "be long")["n_existed"], 0)

    def test_a_new_document_refreshes_its_neighbors(self):
        (self.docs / "a.txt").write_text("".join(self.LONG[:2]))
        context = ["--contexts", "4"]
        self.precompute(*context)
        (self.docs / "b.txt").write_text(self.LONG[2])
        self.assertEqual(self.precompute(*context)["n_stored"], 1)
        self.assertEqual(self.precompute(*context, "--refresh")["n_stored"], 2, "those of a.txt")
        self.assertEqual(self.precompute(*context, "--refresh")["n_stored"], 0)

    def test_variants_are_bounded_and_counted(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        self.precompute("--contexts", "4", "--predecessors")
        stat = lambda: self.json("store", "stat", "--store", self.store)
        before = stat()
        self.assertEqual(before["n_texts"], 4)
        self.assertEqual(before["varied_texts"], 3)
        self.assertEqual(before["n_variants"], 3 + 2, "in context, and after the one before it")
        self.assertGreater(before["variant_bytes"], 0)
        # Room for one: each text keeps its plain record and the newest.
        self.precompute("--chunk-prefix", "text:so ", "--most-variants", "1")
        self.assertLessEqual(stat()["n_variants"], before["n_variants"])
        refused = self.blend("precompute", *self.place, "--docs", self.docs, "--most-variants", "0",
                             code=2).stderr
        self.assertIn("neither a whole number from 1 on nor all", refused)
        self.precompute("--most-variants", "all")
        self.assertIn("variants", self.blend("store", "stat", "--store", self.store).stdout)

    def test_chunks_after_the_one_before_them_are_found_there(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "4", "--predecessors")
        self.assertEqual(self.kinds(made), ["contextual"] * 3 + ["predecessor"] * 2)
        after = [c for c in made["chunks"] if c["kind"] == "predecessor"]
        self.assertEqual(after[0]["label"], made["chunks"][2]["label"], "named by its own place")
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "exact", "predecessor"])
        self.assertEqual([s["id"] for s in segments if s["kind"] == "chunk"][1:],
                         [c["id"] for c in after])

    def test_chunk_prefix_must_match_to_hit(self):
        self.precompute("--chunk-prefix", "bos")
        fail = self.ask("--chunk-prefix", "bos", "--on-miss", "fail")
        self.assertEqual(fail["fusion"]["n_misses"], 0)

    def test_documents_below_a_directory_in_order(self):
        (self.docs / "sub").mkdir()
        (self.docs / "sub" / "z.md").write_text("the end\n")
        (self.docs / "b.txt").write_text("\ufeffin the middle\r\n")
        (self.docs / "ignored.pdf").write_text("not text")
        names = [Path(c["document"]).name for c in self.precompute()["chunks"] if not c["prefix"]]
        self.assertEqual(sorted(set(names), key=names.index), ["a.txt", "b.txt", "z.md"])

    # ---- store and model

    def test_store_ls_stat_rm(self):
        made = [c["id"] for c in self.precompute()["chunks"]]
        at = ["--store", self.store]
        listed = self.json("store", "ls", *at)["chunks"]
        self.assertEqual([c["id"] for c in listed], sorted(made))
        stat = self.json("store", "stat", *at)
        self.assertEqual(stat["n_chunks"], len(made))
        self.assertEqual(stat["bytes"], sum(c["bytes"] for c in listed))
        self.assertIn(made[0], self.blend("store", "ls", *at).stdout)
        self.assertIn("chunks", self.blend("store", "stat", *at).stdout)
        self.assertEqual(stat["codecs"]["none"]["stored_bytes"], stat["bytes"])

        self.assertEqual(self.json("store", "rm", made[0][:12], *at)["removed"], [made[0]])
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], len(made) - 1)
        self.blend("store", "rm", made[0], *at, code=3)
        # A wrong id among right ones removes nothing.
        self.blend("store", "rm", made[1], made[0], *at, code=3)
        self.blend("store", "rm", "--all", *at, code=2)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], len(made) - 1)
        self.json("store", "rm", "--all", "--yes", *at)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], 0)

    def test_store_ls_and_rm_of_a_tenant(self):
        mine = sorted(c["id"] for c in self.precompute("--tenant", "acme")["chunks"])
        everyones = sorted(c["id"] for c in self.precompute()["chunks"])
        at = ["--store", self.store]
        listed = lambda *more: [c["id"] for c in self.json("store", "ls", *at, *more)["chunks"]]
        self.assertEqual(listed(), sorted(mine + everyones))
        self.assertEqual(listed("--tenant", "acme"), mine)
        self.assertEqual(listed("--tenant", ""), everyones)
        self.blend("store", "rm", mine[0], "--tenant", "evil", *at, code=3)
        self.json("store", "rm", "--all", "--yes", "--tenant", "acme", *at)
        self.assertEqual(listed(), everyones)

    def test_chunks_are_found_by_what_they_are_called(self):
        (self.docs / "b.md").write_text("the end of it\n")
        # A name that no label can have as it is.
        (self.docs / os.fsdecode(b"odd\xff\n.txt")).write_text("the sun was odd\n")
        made = self.precompute("--tag", "lang=en", "--tag", "draft", "--system", "be brief")["chunks"]
        place = str(self.docs)
        self.assertEqual([c["label"] for c in made if not c["prefix"]],
                         [f"{place}/a.txt#{i}" for i in (1, 2, 3)] + [f"{place}/b.md#1", f"{place}/odd\ufffd?.txt#1"])
        at = ["--store", self.store]
        def labels(*more):
            return sorted(c["label"] for c in self.json("store", "ls", *at, *more)["chunks"])

        self.assertEqual(labels(), sorted(c["label"] for c in made))
        self.assertEqual(labels("--label", f"{place}/a.txt"), [f"{place}/a.txt#{i}" for i in (1, 2, 3)])
        self.assertEqual(labels("--label", "*#2"), [f"{place}/a.txt#2"])
        self.assertEqual(len(labels("--tag", "lang=*", "--tag", "draft")), 5)
        self.assertEqual(labels("--tag", "lang=*", "--tag", "final"), [])
        self.assertEqual(labels("--label", "(prefix)"), ["(prefix)"])
        self.assertEqual(labels("--model", self.model), labels())
        every = self.json("store", "ls", *at)["chunks"]
        self.assertEqual(labels("--model", every[0]["fingerprint"][:8]), labels())
        self.assertEqual(every[0]["tags"] or ["draft", "lang=en"], ["draft", "lang=en"])
        self.assertEqual(labels("--model", "0" * 64), [])
        self.assertIn("none.gguf", self.blend("store", "ls", *at, "--model", "none.gguf", code=3).stderr)
        self.assertIn("b.md#1", self.blend("store", "ls", *at).stdout)

        # Another label for one of them, and none.
        b = next(c["id"] for c in made if c["label"].endswith("b.md#1"))
        self.json("store", "label", b[:12], *at, "--label", "manual.pdf#3", "--tag", "final")
        self.assertEqual(labels("--label", "manual.pdf", "--tag", "final"), ["manual.pdf#3"])
        self.json("store", "label", b, *at, "--label", "", "--no-tags")
        self.assertEqual(labels("--unlabelled"), [""])
        self.assertIn("control", self.blend("store", "label", b, *at, "--label", "a\nb", code=2).stderr)
        self.assertIn("one word", self.blend("store", "label", b, *at, "--tag", "a b", code=2).stderr)
        self.blend("store", "label", b, *at, code=2)
        # Precomputed again, it keeps its label, and nothing is computed.
        self.assertTrue(all(c["existed"] for c in self.precompute("--system", "be brief")["chunks"]))
        self.assertEqual(labels("--label", "*b.md"), [f"{place}/b.md#1"])

        doomed = ["store", "rm", *at, "--label", f"{place}/a.txt", "--tag", "draft"]
        would = self.json(*doomed, "--dry-run")["would_remove"]
        self.assertEqual(len(labels()), len(made))
        self.assertIn("a.txt#2", self.blend(*doomed, "--dry-run").stdout)
        self.assertEqual(self.json(*doomed)["removed"], would)
        self.assertEqual(len(would), 3)
        self.assertEqual(len(labels()), len(made) - 3)
        self.assertEqual(self.json(*doomed)["removed"], [])
        # Two ways at once, or none.
        self.blend("store", "rm", *at, code=2)
        self.blend("store", "rm", *at, "--all", "--yes", "--label", "*", code=2)
        self.blend("store", "rm", *at, b, "--tag", "draft", code=2)
        self.assertEqual(len(labels()), len(made) - 3)

    def test_looking_after_a_store(self):
        made = [c["id"] for c in self.precompute()["chunks"]]
        at = ["--store", self.store]
        self.assertEqual(self.json("store", "pin", made[0][:9], *at)["pinned"], [made[0]])
        stat = self.json("store", "stat", *at)
        self.assertEqual(stat["pinned_chunks"], 1)
        self.assertEqual(stat["evicted_chunks"], 0)
        self.assertGreater(stat["stored_bytes"], stat["bytes"])
        self.assertIn("pinned", self.blend("store", "stat", *at).stdout)
        text = self.blend("store", "stat", "--metrics", *at).stdout
        self.assertRegex(text, r"(?m)^blend_store_chunks\{store=\"[^\"]*\"\} %d$" % len(made))

        file = str(self.store) + ".chunks"
        self.assertEqual(self.json("store", "export", "--file", file, *at)["n_chunks"], len(made))
        self.assertIn("pinned", self.blend("store", "evict", "--to", "0", *at, code=1).stderr)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], 1)
        self.json("store", "unpin", made[0], *at)
        self.assertEqual(self.json("store", "evict", "--to", "0", *at)["n_evicted"], 1)
        size = self.json("store", "compact", *at)
        self.assertLess(size["bytes_after"], size["bytes_before"])
        put = self.json("store", "import", "--file", file, *at)
        self.assertEqual(put["n_chunks"], len(made))
        self.assertEqual(self.json("store", "import", "--file", file, *at)["n_chunks"], 0)
        self.assertEqual(self.json("store", "repair", *at)["n_removed"], 0)
        copy = str(self.store) + ".copy"
        self.json("store", "compact", "--out", copy, *at)
        self.assertEqual(self.json("store", "stat", "--store", copy)["n_chunks"], len(made))
        self.blend("store", "import", "--file", file + ".none", *at, code=3)
        self.blend("store", "pin", *at, code=2)

    def test_codecs_are_chosen_and_seen(self):
        made = self.precompute()["chunks"]
        at = ["--store", self.store]
        want = self.ask("--policy", "hkvd", "--ratio", "0.2")
        for codec in ("zstd", "int8", "int4", "rans"):
            self.json("store", "rm", "--all", "--yes", *at)
            self.precompute("--codec", codec)
            chunks = self.json("store", "ls", *at)["chunks"]
            self.assertEqual({c["codec"] for c in chunks}, {codec})
            if codec == "int4":  # these chunks are too small for the others' headers and steps
                self.assertTrue(all(c["stored_bytes"] < c["bytes"] for c in chunks
                                    if c["n_tokens"] >= 8))
            stat = self.json("store", "stat", *at)["codecs"]
            self.assertEqual(list(stat), [codec])
            self.assertEqual(stat[codec]["n_chunks"], len(made))
            self.assertEqual(stat[codec]["stored_bytes"], sum(c["stored_bytes"] for c in chunks))
            self.assertIn("times smaller", self.blend("store", "stat", *at).stdout)
            self.json("store", "verify", *at)
            got = self.ask("--policy", "hkvd", "--ratio", "0.2")
            if codec == "zstd":
                self.assertEqual(got["answer"], want["answer"])
        self.blend("precompute", "--codec", "gzip", code=2)

    def test_verify_finds_flipped_bytes(self):
        made = self.precompute()["chunks"]
        at = ["--store", self.store]
        self.assertEqual(self.json("store", "verify", *at)["n_sound"], len(made))
        self.damage()
        run = self.blend("store", "verify", *at, "--json", code=4)
        out = json.loads(run.stdout)
        self.assertGreaterEqual(out["n_damaged"], 1)
        self.assertTrue(out["damaged"][0]["problem"])
        # A damaged chunk is a miss, not a wrong answer.
        answer = self.ask("--policy", "hkvd", "--ratio", "1", "--on-miss", "compute")
        self.assertEqual(answer["answer"], self.ask("--policy", "full")["answer"])
        self.assertGreater(answer["fusion"]["n_misses"], 0)

    def damage(self):
        """Flips bits in the middle of every sizable run of the data file's chunk bytes."""
        data = self.store / "data.mdb"
        if not data.exists():
            data = max((p for p in self.store.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        with open(data, "r+b") as file:
            file.seek(40)
            page = int.from_bytes(file.read(4), "little")
            size = os.fstat(file.fileno()).st_size
            # Overflow pages hold the chunks' bytes: a header of 16 bytes with flag 4, then data.
            position = 2 * page
            while position + page <= size:
                file.seek(position)
                head = file.read(16)
                flags = int.from_bytes(head[10:12], "little")
                pages = int.from_bytes(head[12:16], "little") if flags & 4 else 1
                if flags & 4 and pages > 1:
                    # Past the layers up to the check layer, which a fuse does not read.
                    file.seek(position + pages * page * 6 // 10)
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 0x40]))
                position += max(pages, 1) * page

    def test_model_info(self):
        info = self.json("model", "info", "--model", self.model)
        self.assertEqual(info["architecture"], "llama")
        self.assertEqual(len(info["fingerprint"]), 64)
        self.assertRegex(info["backend"], r"^cpu \(.+\)$")
        self.assertIn("llama", self.blend("model", "info", "--model", self.model).stdout)

    def test_model_info_tells_what_the_chat_template_reads(self):
        conformance = Path(__file__).resolve().parents[1] / "conformance"
        model = self.dir / "hf"
        shutil.copytree(conformance / "hf/qwen2", model)
        shutil.copy(conformance / "tokenizers/qwen2.tokenizer.json", model / "tokenizer.json")
        place = ["model", "info", "--model", model]
        self.assertEqual(self.json(*place)["chat_template_reads"], [])
        self.assertRegex(self.blend(*place).stdout, "chat template +none")
        (model / "chat_template.jinja").write_text("{{ messages[0].content }}{% if tools %}{% endif %}{{ documents }}")
        self.assertEqual(self.json(*place)["chat_template_reads"], ["system", "tools", "documents"])
        self.assertIn("reads system, tools, documents (", self.blend(*place).stdout)
        (model / "chat_template.jinja").write_text("{% if %}")
        self.assertIn("cannot be read: ", self.blend(*place).stdout)

    def test_model_info_lists_adapters(self):
        root = Path(__file__).resolve().parents[2]
        model = root / "examples/models/blend-qa.gguf"
        adapter = root / "tests/conformance/lora/blend-qa.gguf"
        place = ["model", "info", "--model", model]
        plain = self.json(*place)
        self.assertEqual(plain["loras"], [])
        info = self.json(*place, "--lora", adapter, "--lora", f"{adapter}:-0.5")
        self.assertEqual(
            [(lora["path"], lora["scale"], lora["rank"]) for lora in info["loras"]],
            [(str(adapter), 1, 2), (str(adapter), -0.5, 2)],
        )
        self.assertNotEqual(info["fingerprint"], plain["fingerprint"])
        self.assertIn("scale -0.5", self.blend(*place, "--lora", f"{adapter}:-0.5").stdout)
        self.assertIn("scale", self.blend(*place, "--lora", f"{adapter}:0", code=2).stderr)
        # The whole is a file's name where no number follows.
        self.assertIn("x:y", self.blend(*place, "--lora", "x:y", code=3).stderr)
        run = self.blend("model", "info", "--model", self.model, "--lora", adapter, code=1)
        self.assertIn("blk.", run.stderr)

    # ---- What bad input gets

    def test_missing_things_are_not_found(self):
        absent = self.dir / "absent"
        run = self.blend("model", "info", "--model", absent, code=3)
        self.assertIn("absent", run.stderr)
        self.blend("ask", "--model", absent, "--store", self.store, "--question", "x", code=3)
        self.blend("precompute", *self.place, "--docs", absent, code=3)
        for command in ("ls", "stat", "verify"):
            self.blend("store", command, "--store", absent, code=3)
        self.assertFalse(absent.exists())
        self.ask_text("--on-miss", "fail", code=3)

    def ask_text(self, *args, code):
        return self.blend(
            "ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "q", *args, code=code
        )

    def test_garbage_models_are_damaged(self):
        garbage = self.dir / "garbage.gguf"
        whole = self.model.read_bytes()
        for content in (b"", b"GGUF", b"not a model at all" * 100, whole[: len(whole) // 2]):
            garbage.write_bytes(content)
            run = self.blend("model", "info", "--model", garbage, code=4)
            self.assertIn("garbage.gguf", run.stderr)

    def test_usage(self):
        self.ask_text("--ratio", "1.5", code=2)
        self.ask_text("--ratio", "nan", code=2)
        self.ask_text("--policy", "guess", code=2)
        self.ask_text("--policy", "hkvd", "--check-layer", "99", code=2)
        self.ask_text("--question-template", "no place", code=2)
        self.ask_text("--chunk-prefix", "eos", code=2)
        self.ask_text("--no-such-option", code=2)
        self.blend(code=2)
        self.blend("store", code=2)
        self.blend("store", "rm", "xyz", "--store", self.store, code=2)
        self.blend("ask", *self.place, code=2)  # no question

    def test_empty_documents(self):
        for path in self.docs.iterdir():
            path.write_text(" \n\n\t\n")
        self.assertIn("no text", self.ask_text(code=3).stderr)

    def test_too_long_a_prompt_says_by_how_much(self):
        (self.docs / "a.txt").write_text(TEXT * 40)
        run = self.ask_text(code=1)
        self.assertRegex(run.stderr, r"the prompt has \d+ tokens .* \d+ too many .* context of 512")

    def test_a_full_store_says_so(self):
        run = self.blend(
            "precompute", *self.place, "--docs", self.docs, *CHUNK, "--quota", "1KiB", code=1
        )
        self.assertIn("BLEND_E_FULL", run.stderr)

    def test_not_a_store(self):
        self.store.write_text("a file")
        run = subprocess.run(
            [ARGS.blend, "store", "ls", "--store", self.store], capture_output=True, text=True
        )
        self.assertIn(run.returncode, (1, 2, 3, 4))
        self.assertIn(str(self.store), run.stderr)

    def test_help_has_examples(self):
        for command in (["precompute"], ["ask"], ["store", "ls"], ["store", "stat"],
                        ["store", "verify"], ["store", "rm"], ["model", "info"]):
            text = self.blend(*command, "--help").stdout
            self.assertIn("Example:", text)
            self.assertIn("blend " + " ".join(command), text)
        self.assertRegex(self.blend("--version").stdout, r"^\d+\.\d+\.\d+\n$")

    # ---- Ctrl-C

    def test_ctrl_c_cancels_and_leaves_the_store_sound(self):
        # More work than anyone waits for: every paragraph is a chunk of its own.
        words = ["red", "green", "blue", "old", "new", "big", "tiny", "kind"]
        paragraphs = [f"{a} {b} {c} {d}" for a in words for b in words for c in words for d in words]
        (self.docs / "a.txt").write_text("\n\n".join(paragraphs))
        process = subprocess.Popen(
            [ARGS.blend, "precompute", *self.place, "--docs", self.docs, "--chunk-tokens", "12"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            self.assertIn("stored", process.stdout.readline())  # it is at work
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("BLEND_E_CANCELLED", error)
        out = self.json("store", "verify", "--store", self.store)
        self.assertEqual(out["n_damaged"], 0)
        self.assertGreater(out["n_sound"], 0)
        self.assertLess(out["n_sound"], len(paragraphs))


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
