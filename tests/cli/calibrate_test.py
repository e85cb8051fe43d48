"""blend calibrate, blend verify and --profile, end to end, on a small random model.

    python3 calibrate_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL --examples DIRECTORY
        [unittest arguments]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

ARGS = argparse.Namespace()
WORDS = "the cat sat on a mat and dog ran to park while bird sang in old tree".split()


def records(n=6):
    def text(seed, length):
        return " ".join(WORDS[(seed * 7 + k * k) % len(WORDS)] for k in range(length)) + "\n"

    return [{"chunks": [text(3 * i + c, 8 + c) for c in range(3)], "question": f"who {i}?",
             "answers": ["nobody"]} for i in range(n)]


class CalibrateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.holder.name)
        cls.model = cls.dir / "model.gguf"
        subprocess.run([ARGS.make_model, cls.model], check=True)
        cls.data = cls.dir / "data.jsonl"
        cls.data.write_text("".join(json.dumps(r) + "\n" for r in records()))
        cls.profile = cls.dir / "p.profile"
        cls.made = cls.run_blend("calibrate", "--data", cls.data, "--out", cls.profile,
                                 "--score-tokens", "3", "--ratios", "0,0.2,1", "--max-kl", "1e-6",
                                 "--min-top1", "1", "--json")

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    @classmethod
    def run_blend(cls, command, *arguments, model=None):
        return subprocess.run([ARGS.blend, command, "--model", str(model or cls.model),
                               "--threads", "2", *map(str, arguments)],
                              capture_output=True, text=True, timeout=300)

    def test_calibrate_writes_a_profile_and_a_table(self):
        self.assertEqual(self.made.returncode, 0, self.made.stderr)
        out = json.loads(self.made.stdout)
        # After the samples' head; attention measures no deviation, so there is nothing to correct by.
        ways = [(line["policy"], line["corrected"]) for line in out["table"]]
        self.assertEqual(sorted(set(ways)), [("attention", False), ("hkvd", False), ("hkvd", True)])
        self.assertEqual(len(ways), 3 * 3)
        self.assertEqual({line["chunk_prefix"] for line in out["table"]}, {"bos"})
        self.assertEqual(out["profile"]["n_fitted"], 3)
        self.assertEqual(out["profile"]["n_measured"], 3)
        self.assertTrue(out["trusted"])
        self.assertEqual(out["profile"]["ratio"], 1)
        self.assertEqual([d["layer"] for d in out["profile"]["drift"]], [2, 3])
        for line in out["table"]:
            self.assertEqual(line["kl_mean"] < 1e-6, line["ratio"] == 1, line)

    def test_a_profile_of_attention_is_fused_by(self):
        path = self.dir / "attention.profile"
        made = self.run_blend("calibrate", "--data", self.data, "--out", path, "--score-tokens", "2", "--ratios",
                              "0.4,1", "--policies", "attention", "--max-kl", "100", "--min-top1", "0", "--contexts",
                              "0", "--json")
        self.assertEqual(made.returncode, 0, made.stderr)
        profile = json.loads(made.stdout)["profile"]
        self.assertEqual((profile["policy"], profile["ratio"]), ("attention", 0.4))
        # It corrects nothing, so no sample is spent on maps.
        self.assertEqual((profile["n_fitted"], profile["n_measured"]), (0, len(records())))
        self.assertEqual(self.run_blend("verify", "--data", self.data, "--profile", path, "--score-tokens", "2",
                                        "--ratios", "0.4").returncode, 0)
        docs = self.dir / "attention_docs"
        docs.mkdir(exist_ok=True)
        (docs / "a.txt").write_text("\n\n".join(r["chunks"][0] for r in records(8)))
        # Vouched for at that ratio by any metric, which attention does not look at; not below it.
        ask = ["--docs", docs, "--chunk-tokens", "24", "--question", "who sat", "--store", self.dir / "attention",
               "--max-tokens", "2", "--profile", path, "--json"]
        for more, trusted in (((), True), (("--metric", "k"), True), (("--ratio", "0.2"), False)):
            done = self.run_blend("ask", *ask, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            fusion = json.loads(done.stdout)["fusion"]
            self.assertEqual(fusion["policy"], "attention")
            self.assertEqual(fusion["trusted"], trusted, (more, fusion))

    def test_the_table_as_text(self):
        done = self.run_blend("calibrate", "--data", self.data, "--out", self.dir / "text.profile",
                              "--score-tokens", "2", "--ratios", "0,0.2", "--chunk-prefixes",
                              "text:the cat", "--metrics", "k,kv", "--drift-rank", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the cat", done.stdout)
        self.assertIn("rank 4", done.stdout)
        self.assertIn("written to", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_verify_says_yes_and_no(self):
        yes = self.run_blend("verify", "--data", self.data, "--profile", self.profile,
                             "--score-tokens", "3", "--ratios", "0")
        self.assertEqual(yes.returncode, 0, yes.stderr)
        self.assertIn("trusted at ratio 1", yes.stdout)
        no = self.run_blend("verify", "--data", self.data, "--profile", self.profile,
                            "--score-tokens", "3", "--max-kl", "0", "--json")
        self.assertEqual(no.returncode, 5, no.stderr)
        verdict = json.loads(no.stdout)
        self.assertFalse(verdict["trusted"])
        self.assertEqual(verdict["ratio"], 1)
        self.assertIn("not to be trusted", no.stderr)

    def test_a_profile_that_trusts_nothing_is_not_verified(self):
        none = self.dir / "none.profile"
        made = self.run_blend("calibrate", "--data", self.data, "--out", none, "--score-tokens", "2",
                              "--ratios", "0,0.2", "--max-kl", "0", "--drift-inputs", "none")
        self.assertTrue(none.exists(), made.stderr)
        done = self.run_blend("verify", "--data", self.data, "--profile", none, "--score-tokens", "2",
                              "--max-kl", "100", "--min-top1", "0")
        self.assertEqual(done.returncode, 5, done.stdout)
        self.assertIn("trusts no ratio", done.stderr)
        self.assertNotIn("trusted at ratio", done.stdout)
        done = self.run_blend("verify", "--data", self.data, "--profile", none, "--score-tokens", "2",
                              "--max-kl", "100", "--min-top1", "0", "--json")
        self.assertEqual(done.returncode, 5, done.stdout)
        self.assertFalse(json.loads(done.stdout)["trusted"])

    def test_a_server_says_that_its_profile_trusts_nothing(self):
        none = self.dir / "served.profile"
        self.run_blend("calibrate", "--data", self.data, "--out", none, "--score-tokens", "2", "--ratios", "0,0.2",
                       "--max-kl", "1e-6", "--min-top1", "1", "--json")
        for profile, trusted in ((none, False), (self.profile, True)):
            run = subprocess.Popen([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "served", "--port", "0",
                                    "--profile", profile, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            said = json.loads(run.stdout.readline())
            self.assertEqual(said["profile_trusted"], trusted)
            with urllib.request.urlopen(f"http://127.0.0.1:{said['port']}/metrics", timeout=60) as answer:
                self.assertIn(f"\nblend_profile_trusted {int(trusted)}\n", answer.read().decode())
            run.terminate()
            _, notes = run.communicate(timeout=60)
            self.assertEqual("trusts no ratio" in notes, not trusted, notes)

    def test_progress_is_written_in_lines_where_there_is_no_terminal(self):
        def said(seconds):
            done = subprocess.run([ARGS.blend, "calibrate", "--model", self.model, "--data", self.data, "--score-tokens", "2",
                                   "--ratios", "0.2", "--out", self.dir / "told.profile", "--json"], capture_output=True,
                                  text=True, timeout=300, env={**os.environ, "BLEND_PROGRESS_SECONDS": seconds})
            json.loads(done.stdout)
            return done.stderr
        self.assertRegex(said("1e-9"), r"(?m)^blend: Calibrating: \d+ % after \d+ s$")
        self.assertNotIn("Calibrating", said("0"))
        self.assertNotIn("Calibrating", said("3600"))

    def test_documents_are_samples_too(self):
        docs = self.dir / "docs"
        docs.mkdir(exist_ok=True)
        (docs / "a.txt").write_text("\n\n".join(r["chunks"][0] for r in records(24)))
        done = self.run_blend("calibrate", "--docs", docs, "--chunk-tokens", "24", "--out",
                              self.dir / "docs.profile", "--chunks-per-sample", "3", "--ratios",
                              "0.2", "--score-tokens", "1", "--drift-inputs", "none", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertGreater(out["n_samples"], 1)
        self.assertEqual(out["profile"]["n_measured"], out["n_samples"])
        self.assertEqual(out["profile"]["drift"], [])

    def test_samples_are_put_by_a_chat_template(self):
        template = self.dir / "chat.jinja"
        template.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ more }}")
        docs = self.dir / "chat_docs"
        docs.mkdir(exist_ok=True)
        (docs / "a.txt").write_text("\n\n".join(r["chunks"][0] for r in records(24)))

        def lines(source, *args):
            done = self.run_blend("calibrate", *source, "--out", self.dir / "chat.profile", "--ratios", "0.2",
                                  "--score-tokens", "1", "--drift-inputs", "none", "--chunk-prefixes", "none",
                                  "--policies", "hkvd", "--step-samples", "0", "--json", *args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [line["kl_mean"] for line in json.loads(done.stdout)["table"]]

        chat = ("--chat", "--chat-template", template)
        for source in (("--data", self.data),
                       ("--docs", docs, "--chunk-tokens", "24", "--chunks-per-sample", "3")):
            by_template = lines(source, *chat)
            self.assertNotEqual(by_template, lines(source))
            self.assertNotEqual(by_template, lines(source, *chat, "--system", "be brief"))
            self.assertNotEqual(by_template, lines(source, *chat, "--chat-variables", '{"more": "so"}'))
        self.assertEqual(self.run_blend("verify", "--data", self.data, "--profile", self.profile, *chat,
                                        "--ratios", "0", "--score-tokens", "1").returncode, 0)
        self.assertEqual(self.run_blend("verify", "--data", self.data, "--profile", self.profile, *chat,
                                        "--special").returncode, 2)

    def test_a_profile_goes_into_ask_and_eval(self):
        limits = ["--max-kl", "100", "--min-top1", "0", "--score-tokens", "2"]
        easy = self.dir / "easy.profile"
        done = self.run_blend("calibrate", "--data", self.data, "--out", easy, "--chunk-prefixes",
                              "bos", "--ratios", "0.1,0.2", *limits)
        self.assertEqual(done.returncode, 0, done.stderr)
        docs = self.dir / "ask"
        docs.mkdir(exist_ok=True)
        for i, record in enumerate(records(3)):
            (docs / f"{i}.txt").write_text(record["chunks"][0])
        store = self.dir / "store"
        common = ["--store", store, "--docs", docs, "--profile", easy]
        stored = self.run_blend("precompute", *common, "--json")
        self.assertEqual(stored.returncode, 0, stored.stderr)
        asked = self.run_blend("ask", *common, "--question", "who?", "--max-tokens", "2", "--json")
        self.assertEqual(asked.returncode, 0, asked.stderr)
        fusion = json.loads(asked.stdout)["fusion"]
        self.assertEqual(fusion["ratio"], 0.1)
        self.assertTrue(fusion["calibrated"])
        self.assertTrue(fusion["trusted"])
        self.assertEqual(fusion["n_misses"], 0, "precompute used the profile's chunk prefix")
        corrected = self.run_blend("ask", *common, "--question", "who?", "--max-tokens", "2",
                                   "--ratio", "0.05", "--json")
        fusion = json.loads(corrected.stdout)["fusion"]
        self.assertEqual(fusion["ratio"], 0.05)
        self.assertFalse(fusion["trusted"], "0.05 was not measured")
        doubted = ["ask", *common, "--question", "who?", "--max-tokens", "2", "--ratio", "0.05",
                   "--json", "--on-untrusted"]
        full = self.run_blend(*doubted, "full")
        self.assertEqual(full.returncode, 0, full.stderr)
        self.assertEqual(json.loads(full.stdout)["fusion"]["policy"], "full")
        failed = self.run_blend(*doubted, "fail")
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("ratio 0.05 is below 0.1", failed.stderr)
        evaluated = self.run_blend("eval", "--data", self.data, "--profile", easy, "--policies",
                                   "reuse", "--ratios", "0.2", "--max-tokens", "2", "--json",
                                   self.dir / "eval.json")
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        names = [(c["name"], c["ratio"])
                 for c in json.loads((self.dir / "eval.json").read_text())["configs"]]
        for ratio in (0.1, 0.2):
            self.assertIn(("hkvd v_weighed", ratio), names)
            self.assertIn(("hkvd v_weighed corrected", ratio), names)

    def test_a_profile_beside_the_model_is_found(self):
        limits = ["--max-kl", "100", "--min-top1", "0", "--score-tokens", "1", "--ratios", "0.1"]
        folder = self.dir / "hf"
        subprocess.run([sys.executable, Path(ARGS.examples, "python/to_hugging_face.py"), folder], check=True)
        docs = self.dir / "beside"
        docs.mkdir()
        (docs / "a.txt").write_text(records(1)[0]["chunks"][0])
        alone = self.dir / "alone.gguf"
        shutil.copy(self.model, alone)
        for model, file in ((alone, self.dir / "alone.gguf.profile"), (folder, folder / "blend.profile")):
            def run(command, *arguments):
                return self.run_blend(command, *arguments, model=model)
            self.assertEqual(run("verify", "--data", self.data).returncode, 3, "there is none yet")
            store = ["--store", self.dir / ("store." + model.name), "--docs", docs]
            ask = ["ask", *store, "--question", "who?", "--max-tokens", "1", "--json"]
            self.assertFalse(json.loads(run(*ask).stdout)["fusion"]["calibrated"])
            file.write_text("damaged; calibrate replaces it")
            self.assertEqual(run(*ask).returncode, 4, "never silently without")
            made = run("calibrate", "--data", self.data, "--chunk-prefixes", "text:cat", *limits)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertTrue(file.read_bytes().startswith(self.profile.read_bytes()[:4]))
            self.assertEqual(run("verify", "--data", self.data, *limits).returncode, 0)
            self.assertEqual(run("precompute", *store, "--json").returncode, 0)
            fusion = json.loads(run(*ask).stdout)["fusion"]
            self.assertTrue(fusion["calibrated"])
            self.assertEqual(fusion["ratio"], 0.1)
            self.assertEqual(fusion["n_misses"], 0, "precompute found it too")
            for without in (["--profile", "none"], ["--chunk-prefix", "none"]):
                self.assertFalse(json.loads(run(*ask, *without).stdout)["fusion"]["calibrated"])

    def test_layers_steps(self):
        """In the example model one layer carries most of rounding's loss. calibrate finds it; precompute, ask
        and eval round by it, and say so."""
        model = Path(ARGS.examples, "models/blend-qa.gguf")
        questions = Path(ARGS.examples, "data/held-out.jsonl")
        steps = self.dir / "steps.profile"
        limits = ["--ratios", "1", "--policies", "hkvd", "--chunk-prefixes", "none", "--drift-inputs",
                  "none", "--score-tokens", "2", "--contexts", "0"]
        made = self.run_blend("calibrate", "--data", questions, "--limit", "20", "--out", steps,
                              "--json", *limits, model=model)
        self.assertEqual(made.returncode, 0, made.stderr)
        found = json.loads(made.stdout)["profile"]["layer_steps"]
        self.assertEqual(len(found["factors"]), 6)
        self.assertEqual(min(found["factors"]), found["factors"][1])
        self.assertLess(found["kl_split"] + found["gain_margin"], found["kl_alike"])
        self.assertEqual(found["n_prompts"], 10)
        off = self.run_blend("calibrate", "--data", questions, "--limit", "20", "--step-samples", "0",
                             "--out", self.dir / "alike.profile", *limits, model=model)
        self.assertRegex(off.stdout, r"layers' steps \(rans\) +all alike")

        def rounding(*profile):
            out = self.dir / "codecs.json"
            done = self.run_blend("eval", "--data", questions, "--limit", "12", "--policies", "reuse",
                                  "--codecs", "none,rans", "--codec-step", "4", "--max-tokens", "1",
                                  "--json", out, *profile, model=model)
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(out.read_text())
            rans = next(c for c in result["configs"]
                        if c["policy"] == "reuse" and c["codec"] == "rans")
            return result["settings"]["layer_steps"], rans["kl_rounding_mean"]

        alike, split = rounding(), rounding("--profile", steps, "--ratios", "1")
        self.assertEqual(alike[0], [])
        self.assertEqual(split[0], found["factors"])
        self.assertLess(split[1] * 4, alike[1])
        docs = self.dir / "rounded"
        docs.mkdir()
        (docs / "a.txt").write_text("Clouds came in from the sea. In spring Mara became the miller.")
        sizes = {}
        for command, more in (("precompute", []), ("ask", ["--question", "who?", "--max-tokens", "1", "--on-miss", "precompute"])):
            for name, profile in (("alike", "none"), ("split", steps)):
                store = self.dir / (command + name)
                done = self.run_blend(command, "--store", store, "--docs", docs, "--codec", "rans",
                                      "--codec-step", "4", "--profile", profile, *more, model=model)
                self.assertEqual(done.returncode, 0, done.stderr)
                listed = subprocess.run([ARGS.blend, "store", "ls", "--store", str(store), "--json"],
                                        capture_output=True, text=True, check=True)
                sizes[command, name] = sorted(
                    c["stored_bytes"] for c in json.loads(listed.stdout)["chunks"])
        self.assertEqual(sizes["precompute", "split"], sizes["ask", "split"])
        self.assertEqual(sizes["precompute", "alike"], sizes["ask", "alike"])
        self.assertNotEqual(sizes["ask", "alike"], sizes["ask", "split"])

    def test_a_codec_that_costs_more_than_the_fuse_is_named(self):
        one = self.dir / "one.jsonl"
        one.write_text("".join(json.dumps(r | {"chunks": r["chunks"][:1]}) + "\n" for r in records()))
        how = ["--ratios", "0", "--policies", "hkvd", "--drift-inputs", "none", "--score-tokens", "2", "--max-kl", "100",
               "--min-top1", "0"]
        docs = self.dir / "codec_docs"
        docs.mkdir()
        (docs / "a.txt").write_text("the cat sat on a mat and dog ran to park")

        def codecs(data, profile):
            made = self.run_blend("calibrate", "--data", data, "--out", profile, "--json", *how)
            self.assertEqual(made.returncode, 0, made.stderr)
            return {c["codec"]: c for c in json.loads(made.stdout)["profile"]["codecs"]}

        def note(codec, profile):
            done = self.run_blend("precompute", "--store", self.dir / f"{codec}-{profile.name}", "--docs", docs, "--codec",
                                  codec, "--profile", profile)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stderr

        # A prompt of one chunk is exact: anything that rounds costs more.
        exact, stale = self.dir / "exact.profile", self.dir / "stale.profile"
        costs = codecs(one, exact)
        self.assertEqual(sorted(costs), ["int4", "int8", "rans"])
        for cost in costs.values():
            self.assertGreater(cost["kl"], cost["kl_fuse"])
            self.assertTrue(cost["costly"])
            self.assertEqual(cost["n_measured"], 6)
        self.assertIn("codec int8 costs more than the fuse itself", note("int8", exact))
        self.assertIn("take zstd, which is lossless", note("int4", exact))
        self.assertEqual(note("none", exact), "")
        said = self.run_blend("verify", "--data", one, "--profile", exact, "--score-tokens", "2", "--ratios", "0").stdout
        self.assertEqual(said.count("costs more than the fuse itself"), 3, said)
        # Where three chunks are reused as they are, the fuse costs more than 8 bits.
        costs = codecs(self.data, stale)
        self.assertLess(costs["int8"]["kl"], costs["int8"]["kl_fuse"])
        self.assertFalse(costs["int8"]["costly"])
        self.assertEqual(note("int8", stale), "")

    def test_records_in_context_are_measured(self):
        how = ["--ratios", "0", "--policies", "attention", "--score-tokens", "2", "--max-kl", "100", "--min-top1", "0"]
        lines = {}
        for contexts in ("0", "2"):
            path = self.dir / f"contexts{contexts}.profile"
            made = self.run_blend("calibrate", "--data", self.data, "--out", path, "--contexts", contexts, "--json", *how)
            self.assertEqual(made.returncode, 0, made.stderr)
            out = json.loads(made.stdout)
            self.assertEqual(out["profile"]["n_contexts"], int(contexts))
            seen = self.run_blend("verify", "--data", self.data, "--profile", path, "--score-tokens", "2", "--ratios", "0",
                                  "--json")
            lines[contexts] = out["table"][0]["kl_mean"]
            self.assertAlmostEqual(json.loads(seen.stdout)["kl_mean"], lines[contexts], places=9)
        self.assertNotEqual(lines["0"], lines["2"])

    def test_exit_codes(self):
        out = self.dir / "bad.profile"
        self.assertEqual(self.run_blend("calibrate", "--out", out).returncode, 2)
        self.assertEqual(
            self.run_blend("calibrate", "--data", self.data, "--limit", "1", "--out",
                           out).returncode, 2)
        self.assertEqual(
            self.run_blend("verify", "--data", self.data, "--profile", self.dir / "none").returncode,
            3)
        cut = self.dir / "cut.profile"
        cut.write_bytes(self.profile.read_bytes()[:100])
        self.assertEqual(
            self.run_blend("verify", "--data", self.data, "--profile", cut).returncode, 4)
        other = self.dir / "other.gguf"
        subprocess.run([ARGS.make_model, other, "9"], check=True)
        refused = self.run_blend("verify", "--data", self.data, "--profile", self.profile,
                                 model=other)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("calibrate this model", refused.stderr)
        self.assertFalse(out.exists())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model", required=True)
    parser.add_argument("--examples", required=True)
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
