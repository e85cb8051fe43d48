"""blend eval, end to end, on a small random model.

    python3 eval_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]

What the report's scripts draw is looked at where node is installed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

ARGS = argparse.Namespace()

CHUNKS = ["the cat sat on the mat\n", "the dog ran to the park\n", "a bird sang in the old tree\n",
          "he saw <b>her</b> & said \"so\"\n", "it was there and then he went on\n"]
NODE = shutil.which("node")
# What ends a script element, or begins what a parser reads in another way.
NASTY = "</script><!--<script>"
# No closing tag in HTML.
VOID = {"meta", "br", "link", "img", "input", "hr"}


def records(n=4):
    """Questions over the chunks, each with its own choice and order of them."""
    return [
        {
            "chunks": [CHUNKS[(i * 2 + k) % len(CHUNKS)] for k in range(3 + i % 2)],
            "question": f"who sat {'so ' * i}there <{i}>?",
            "answers": ["nobody", NASTY],
            "hops": i % 2 + 1,
        }
        for i in range(n)
    ]


class Checker(HTMLParser):
    """Every tag is closed, in order, and nothing is fetched from anywhere."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.problems = []
        self.tags = {}
        self.text = []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.problems.append(f"attribute twice in {tag}")
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "srcset") or "url(" in (value or ""):
                self.problems.append(f"{tag} {name}={value}")
            if re.search("NaN|Infinity|undefined", value or ""):
                self.problems.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        self.text.append(data)


class EvalTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.dir = Path(self.temp.name)
        self.model = self.dir / "model.gguf"
        subprocess.run([ARGS.make_model, self.model], check=True)
        self.data = self.dir / "data.jsonl"
        self.write(records())
        self.cwd = self.dir / "cwd"
        self.cwd.mkdir()
        # The folder of the temporary store.
        self.tmp = self.dir / "tmp"
        self.tmp.mkdir()
        self.env = {**os.environ, "TMPDIR": str(self.tmp)}

    def write(self, rows):
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def command(self, *args):
        if "--policies" not in args:
            args = ("--policies", "full,reuse,hkvd", *args)
        return [ARGS.blend, "eval", "--model", str(self.model), "--data", str(self.data),
                "--max-tokens", "6", *map(str, args)]

    def run_eval(self, *args, code=0):
        run = subprocess.run(self.command(*args), capture_output=True, text=True, cwd=self.cwd,
                             env=self.env, timeout=300)
        self.assertEqual(run.returncode, code, f"{args}\n{run.stdout}\n{run.stderr}")
        self.assertEqual(list(self.tmp.iterdir()), [], "the temporary store stays behind")
        self.assertEqual(list(self.cwd.iterdir()), [])
        if code != 0:
            self.assertNotIn("terminate called", run.stderr)
            self.assertTrue(run.stderr.strip(), "a failure without a sentence")
        return run

    def json(self, *args):
        run = self.run_eval(*args, "--json", "-")
        self.assertIn("KL of 8", run.stderr)  # the table
        return json.loads(run.stdout)

    def only(self, out, **wanted):
        found = [c for c in out["configs"] if all(c.get(k) == v for k, v in wanted.items())]
        self.assertEqual(len(found), 1, wanted)
        return found[0]

    # ---- The figures

    def test_the_whole(self):
        out = self.json("--metrics", "v,k", "--ratios", "0.2,1", "--records", "alone,bos",
                        "--kv-dtype", "f32", "--repeats", "2")
        self.assertEqual(out["format"], "blend-eval-2")
        self.assertEqual(len(out["configs"]), 1 + 2 * (1 + 2 * 2))
        self.assertEqual(out["data"]["n_questions"], 4)
        self.assertEqual(len(out["questions"]), 4)
        self.assertEqual(out["skipped"], [])
        self.assertEqual(len(out["model"]["fingerprint"]), 64)

        # Full prefill, run again, is itself.
        full = self.only(out, policy="full")
        self.assertEqual((full["kl_mean"], full["kl_p95"]), (0, 0))
        self.assertEqual((full["top1_agreement"], full["answer_agreement"]), (1, 1))
        self.assertEqual(full["flops_relative"], 1)
        self.assertEqual(full["rows_of_all"], 1)

        # A chunk prefilled after BOS is another chunk.
        self.assertNotEqual(*[self.only(out, policy="reuse", records=p)["kl_mean"]
                              for p in ("alone", "bos")])
        self.assertEqual({c["n_misses"] for c in out["configs"][1:]}, {0})
        for prefix in ("alone", "bos"):
            reuse = self.only(out, policy="reuse", records=prefix)
            self.assertGreater(reuse["kl_mean"], 1e-4)
            self.assertEqual(reuse["rows_of_reused"], 0)
            for metric in ("v", "k"):
                one = self.only(out, metric=metric, ratio=1, records=prefix)
                self.assertLess(one["kl_p95"], 1e-8)
                self.assertEqual((one["top1_agreement"], one["answer_agreement"]), (1, 1))
                # Everything but what is exact: BOS, and after BOS the first chunk.
                self.assertGreater(one["rows_of_all"], 0.9 if prefix == "alone" else 0.4)
                some = self.only(out, metric=metric, ratio=0.2, records=prefix)
                self.assertLess(some["kl_mean"], reuse["kl_mean"])
                self.assertAlmostEqual(some["rows_of_reused"], 0.2, delta=0.04)
                self.assertLess(reuse["flops_relative"], some["flops_relative"])
                self.assertLess(some["flops_relative"], one["flops_relative"])
                self.assertLess(one["flops_relative"], 1)

    def test_the_ratio_that_a_fuse_takes_by_itself(self):
        out = self.json("--policies", "first_k", "--ratios", "0.2,fidelity", "--records", "alone")
        own, given = self.only(out, name="first_k fidelity"), self.only(out, name="first_k")
        self.assertEqual(given["ratio"], 0.2)
        self.assertEqual(own["ratio"], own["rows_of_reused"])
        self.assertGreater(own["rows_of_reused"], 0.6, "of records alone, in short prompts")
        self.assertLess(own["kl_mean"], given["kl_mean"])
        self.assertIn("neither in 0 .. 1 nor fidelity", self.run_eval("--ratios", "most", code=2).stderr)

    def test_the_summary_is_of_the_records(self):
        out = self.json("--ratios", "0.1,0.4")
        # Answers as full prefill gives them make exact match mean something.
        rows = records()
        for row, question in zip(rows, out["questions"]):
            row["answers"] = ["nobody", question["full"]["answer"]]
            if row["hops"] == 1:  # where every answer is right, so that reuse loses a part
                row["answers"] += [o["answer"] for o in question["configs"]]
            row["answers"].append(question["configs"][3]["answer"])  # hkvd at 0.4 is right
        self.write(rows)
        out = self.json("--ratios", "0.1,0.4", "--group-by", "hops")
        self.assertEqual([(g["name"], g["n"], g["full"]) for g in out["groups"]],
                         [("1", 2, 1), ("2", 2, 1)])
        for i, config in enumerate(out["configs"]):
            easy, hard = (g["configs"][i] for g in out["groups"])
            self.assertEqual(easy, 1)
            self.assertAlmostEqual((easy + hard) / 2, config["found"])
        self.assertGreater(self.only(out, policy="reuse")["exact_match"], 0)
        self.assertEqual(out["full"]["exact_match"], 1)
        self.assertEqual(out["full"]["exact_match_ci95"], [1, 1])
        self.assertEqual(out["full"]["f1"], 1)
        full_ttft = statistics.median(q["full"]["ttft_ns"] for q in out["questions"])
        full_flops = sum(q["full"]["flops"] for q in out["questions"])
        for i, config in enumerate(out["configs"]):
            mine = [q["configs"][i] for q in out["questions"]]

            def mean(key):
                return statistics.fmean(o[key] for o in mine)

            self.assertAlmostEqual(config["exact_match"], mean("exact_match"))
            self.assertAlmostEqual(config["found"], mean("found"))
            self.assertAlmostEqual(config["f1"], mean("f1"))
            self.assertAlmostEqual(config["kl8_mean"], mean("kl8"))
            self.assertAlmostEqual(config["kl8_difference"], mean("kl8"))  # full prefill's own is 0
            self.assertAlmostEqual(config["token_agreement"], sum(o["n_agree"] for o in mine) /
                                   sum(o["n_places"] for o in mine))
            low, high = config["kl8_mean_ci95"]
            self.assertTrue(low <= config["kl8_mean"] <= high)
            self.assertAlmostEqual(config["kl_mean"], mean("kl"))
            self.assertAlmostEqual(config["kl_median"], statistics.median(o["kl"] for o in mine))
            self.assertAlmostEqual(config["top1_agreement"], mean("top1_agrees"))
            self.assertAlmostEqual(config["answer_agreement"], mean("same_answer"))
            self.assertEqual(config["n_misses"], 0)  # a warm store
            low, high = config["exact_match_ci95"]
            self.assertTrue(low <= config["exact_match"] <= high)
            low, high = config["kl_mean_ci95"]
            self.assertTrue(low <= config["kl_mean"] <= high)
            self.assertAlmostEqual(
                config["ttft_ms_median"], statistics.median(o["ttft_ns"] for o in mine) / 1e6)
            self.assertAlmostEqual(config["ttft_relative"],
                                   config["ttft_ms_median"] * 1e6 / full_ttft)
            self.assertAlmostEqual(config["flops_relative"],
                                   sum(o["flops"] for o in mine) / full_flops)
            n_all = sum(o["n_rows"] for o in mine)
            computed = sum(o["n_rows_selected"] + o["n_rows_always"] for o in mine)
            self.assertAlmostEqual(config["rows_of_all"], computed / n_all)
            for question, outcome in zip(out["questions"], mine):
                self.assertEqual(outcome["same_answer"],
                                 outcome["answer"] == question["full"]["answer"])
                self.assertGreater(outcome["ttft_ns"], 0)
                self.assertEqual(outcome["n_common"] == outcome["n_places"],
                                 outcome["n_agree"] == outcome["n_places"])
                self.assertGreaterEqual(outcome["lead"], 0)
                # What is ahead anywhere is ahead by at least the smallest lead of the answer.
                self.assertGreaterEqual(outcome["lead"], question["full"]["lead"])
        reuse = self.only(out, policy="reuse")
        self.assertLess(reuse["exact_match"], 1)
        self.assertEqual(self.only(out, ratio=0.4)["recovered"], 1)
        for config in out["configs"]:
            if config["policy"] == "hkvd" and reuse["exact_match"] < 1:
                lost = 1 - reuse["exact_match"]
                self.assertAlmostEqual(
                    config["recovered"], (config["exact_match"] - reuse["exact_match"]) / lost)
            else:
                self.assertIsNone(config["recovered"])

    def test_runs_repeat(self):
        self.write(records(12))  # of a few values every seed draws the same interval

        def figures(*args):
            out = self.json("--ratios", "0.2", *args)
            return [(q["line"], [(o["answer"], o["kl"]) for o in q["configs"]])
                    for q in out["questions"]], out["configs"][2]["kl_mean_ci95"]

        self.assertEqual(figures("--seed", "5"), figures("--seed", "5"))
        self.assertNotEqual(figures("--seed", "5")[1], figures("--seed", "6")[1])
        one = figures("--shuffle-chunks", "1")
        self.assertEqual(one, figures("--shuffle-chunks", "1"))
        self.assertNotEqual(one, figures())

    def test_weights_are_compared_with_weights_kept_otherwise(self):
        def full(*args):
            out = self.json("--policies", "full", *args)
            return out["configs"][0]["kl_mean"], out["settings"]

        self.assertEqual(full("--weights", "int8")[0], 0)  # compared with itself
        kl, settings = full("--weights", "int8", "--reference-weights", "packed")
        self.assertTrue(1e-9 < kl < 0.01, kl)
        self.assertEqual((settings["weights"], settings["reference_weights"]), ("int8", "packed"))
        kl, settings = full("--reference-weights", "mapped")
        self.assertLess(kl, 1e-9)
        self.assertEqual((settings["weights"], settings["reference_weights"]), ("packed", "mapped"))

    def test_both_shapes_of_a_record_are_one(self):
        self.write([{"chunks": ["T\nthe cat sat\n", "U\nso he went\n"], "question": "who",
                     "answers": ["x"]}])
        plain = self.json("--policies", "reuse")["questions"]
        self.data.write_text(json.dumps([
            {"ctxs": [{"title": "T", "text": "the cat sat"}, {"title": "U", "text": "so he went"}],
             "question": "who", "answers": "x", "id": 7}], indent=1))
        other = self.json("--policies", "reuse")["questions"]
        for a, b in zip(plain, other):
            self.assertEqual(a["configs"][0]["kl"], b["configs"][0]["kl"])
            self.assertEqual(a["configs"][0]["n_rows"], b["configs"][0]["n_rows"])

    def test_every_policy_and_unions_of_them(self):
        out = self.json("--policies", "full,reuse,hkvd,question,first_k,random,hkvd:3+first_k,"
                        "probe,cascade",
                        "--ratios", "0.2,1", "--checks", "1,2", "--norm", "l1", "--relative",
                        "--policy-seed", "4")
        names = [c["name"] for c in out["configs"]]
        self.assertEqual(sorted(set(names)), sorted([
            "full", "reuse", "first_k", "random", "probe", "cascade v l1 relative",
            "hkvd v_weighed l1 relative", "question v_weighed l1 relative",
            "hkvd v_weighed l1 relative, 2 checks", "question v_weighed l1 relative, 2 checks",
            "hkvd:3+first_k v_weighed l1 relative", "hkvd:3+first_k v_weighed l1 relative, 2 checks"]))
        self.assertEqual(len(names), 2 + 2 * 10)
        for config in out["configs"]:
            if config["policy"] in ("full", "reuse"):
                continue
            self.assertEqual(config["policy_seed"], 4)
            if config["ratio"] == 1:
                self.assertLess(config["kl_mean"], 1e-6, config["name"])
            elif "checks" not in config["name"]:
                self.assertAlmostEqual(config["rows_of_reused"], 0.2, delta=0.05)
        self.page("--policies", "first_k,hkvd+random", "--ratios", "0.2", "--checks", "2",
                  "--limit", "1")

    def test_a_budget_of_flops_is_what_policies_cost(self):
        out = self.json("--policies", "full,reuse,hkvd,random", "--flops", "0.9")
        cost = {c["name"]: c["flops_relative"] for c in out["configs"]}
        self.assertEqual(sorted(cost), ["full", "hkvd v_weighed", "random", "reuse"])
        for name in ("hkvd v_weighed", "random"):
            self.assertAlmostEqual(cost[name], 0.9, delta=0.1)
        none = self.run_eval("--policies", "full,hkvd", "--flops", "0.01")
        self.assertIn("hkvd v_weighed costs more than 1.0 %", none.stderr)

    def test_limit_system_and_prefix_text(self):
        out = self.json("--limit", "2", "--system", "be kind", "--records",
                        "text:so, it was,alone", "--ratios", "0.2")
        self.assertEqual(out["data"]["n_questions"], 2)
        self.assertEqual({c.get("records") for c in out["configs"]},
                         {None, "text:so, it was", "alone"})
        self.assertIn("'text:so, it was,alone'", out["command"])

    def test_records_after_more_of_the_prompt_are_nearer(self):
        out = self.json("--policies", "full,reuse,hkvd", "--ratios", "1", "--kv-dtype", "f32",
                        "--system", "be kind and say what is so", "--records", "alone,head,predecessor")
        self.assertEqual({c["n_misses"] for c in out["configs"][1:]}, {0})
        alone, head, predecessor = (self.only(out, policy="reuse", records=kind)
                                    for kind in ("alone", "head", "predecessor"))
        self.assertLess(head["kl8_mean"], alone["kl8_mean"])
        self.assertLess(predecessor["kl8_mean"], head["kl8_mean"])
        # Prefix hits need not be computed: after the head the first chunk, with a predecessor two.
        rows = [self.only(out, policy="hkvd", records=kind)["rows_of_all"]
                for kind in ("alone", "head", "predecessor")]
        self.assertLess(rows[1], 0.85 * rows[0])
        self.assertLess(rows[2], 0.85 * rows[1])
        for kind in ("alone", "head", "predecessor"):
            exact = self.only(out, policy="hkvd", records=kind)
            self.assertLess(exact["kl8_mean"], 1e-8)
            self.assertEqual((exact["answer_agreement"], exact["token_agreement"]), (1, 1))

    def test_two_chunks_after_their_predecessors_are_full_prefill(self):
        self.write([{**r, "chunks": r["chunks"][:2]} for r in records()])
        out = self.json("--policies", "full,reuse", "--records", "head,predecessor", "--kv-dtype", "f32")
        head, predecessor = (self.only(out, policy="reuse", records=kind)["kl8_mean"]
                             for kind in ("head", "predecessor"))
        self.assertGreater(head, 1e-5)
        self.assertLess(predecessor, 1e-8)

    def test_no_kind_finds_the_records_of_another(self):
        one = {kind: self.json("--policies", "reuse", "--records", kind)["configs"][0]["kl8_mean"]
               for kind in ("predecessor", "alone", "head")}
        out = self.json("--policies", "reuse", "--records", "predecessor,alone,head")
        for kind, kl in one.items():
            self.assertEqual(self.only(out, records=kind)["kl8_mean"], kl)

    def test_the_floor_is_asked_unless_it_is_not_wanted(self):
        out = self.json("--policies", "full,reuse")
        self.assertEqual(set(out["floor"]), {"found", "found_ci95", "exact_match", "f1"})
        answers = [q["floor"]["answer"] for q in out["questions"]]
        rows = [{**r, "chunks": ["x"]} for r in records()]
        self.write(rows)
        other = [q["floor"]["answer"] for q in self.json("--policies", "full")["questions"]]
        self.assertEqual(answers, other, "the chunks are not in it")
        without = self.json("--policies", "full", "--no-floor")
        self.assertIsNone(without["floor"])
        self.assertNotIn("floor", without["questions"][0])
        self.assertIsNone(without["full"]["pgr"])

    def test_the_gap_is_what_full_prefill_gains(self):
        out = self.json("--policies", "full,reuse,hkvd", "--ratios", "0.3")
        rows = records()
        for row, question in zip(rows, out["questions"]):
            row["answers"] = [question["full"]["answer"]]
        rows[0]["answers"].append(out["questions"][0]["floor"]["answer"])  # right without reading
        self.write(rows)
        out = self.json("--policies", "full,reuse,hkvd", "--ratios", "0.3")
        full, floor = out["full"], out["floor"]
        self.assertEqual(full["found"], 1)
        self.assertEqual(full["pgr"], 1)
        self.assertTrue(0.25 <= floor["found"] < 1, floor)
        for config in out["configs"]:
            self.assertAlmostEqual(config["pgr"],
                                   (config["found"] - floor["found"]) / (1 - floor["found"]))
            self.assertAlmostEqual(config["found_difference"], config["found"] - 1)
            low, high = config["found_difference_ci95"]
            self.assertTrue(low <= config["found_difference"] <= high)

    def test_the_answer_stops(self):
        whole = self.json("--policies", "full", "--answer-stop", "")["questions"]
        answer = next(q["full"]["answer"] for q in whole if len(q["full"]["answer"]) > 2)
        stop = answer[1]
        cut = self.json("--policies", "full", "--answer-stop", stop)["questions"]
        for question in cut:
            self.assertNotIn(stop, question["full"]["answer"])

    def test_a_store_is_kept_when_asked_for(self):
        store = self.dir / "store"
        self.run_eval("--store", store, "--ratios", "0.2")
        stat = subprocess.run([ARGS.blend, "store", "stat", "--store", store, "--json"],
                              capture_output=True, text=True, check=True)
        # The head, BOS, and the five chunks.
        self.assertEqual(json.loads(stat.stdout)["n_chunks"], 1 + len(CHUNKS))

    def test_prompts_too_long_are_skipped_and_listed(self):
        rows = records(2)
        rows[0]["chunks"] = ["the cat sat on the mat " * 20 + "\n"] * 12
        self.write(rows)
        out = self.json("--ratios", "0.2")
        self.assertEqual([s["line"] for s in out["skipped"]], [1])
        self.assertIn("512", out["skipped"][0]["reason"])
        self.assertEqual([q["line"] for q in out["questions"]], [2])
        self.write(rows[:1])
        self.assertIn("no question fits", self.run_eval(code=1).stderr)

    # ---- On the example model, which reads

    def on_the_example(self, *args):
        root = Path(__file__).resolve().parents[2] / "examples"
        run = subprocess.run(
            [ARGS.blend, "eval", "--model", root / "models" / "blend-qa.gguf", "--data",
             root / "data" / "held-out.jsonl", "--max-tokens", "8", "--json", "-", *map(str, args)],
            capture_output=True, text=True, env=self.env, cwd=self.cwd, timeout=300)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def test_what_is_read_is_found_and_what_is_not_is_guessed(self):
        out = self.on_the_example("--limit", "12", "--policies", "full,reuse,hkvd", "--ratios", "0.15",
                                  "--records", "alone,head,similar:2")
        self.assertGreater(out["full"]["found"], out["floor"]["found"] + 0.2)
        self.assertEqual({c["n_misses"] for c in out["configs"]}, {0})
        for kind in ("alone", "head", "similar:2"):
            reuse = self.only(out, policy="reuse", records=kind)
            hkvd = self.only(out, policy="hkvd", records=kind)
            self.assertGreaterEqual(hkvd["pgr"], reuse["pgr"])
            self.assertLess(hkvd["kl8_mean"], reuse["kl8_mean"])
            self.assertGreaterEqual(hkvd["token_agreement"], hkvd["answer_agreement"] * 0.5)
        # Records of another kind are others.
        self.assertEqual(len({c["kl8_mean"] for c in out["configs"] if c["policy"] == "reuse"}), 3)

    def test_similar_chunks_are_those_of_the_whole_file(self):
        args = ("--policies", "reuse", "--records", "similar:2")
        few = self.on_the_example("--limit", "2", *args)["questions"]
        more = self.on_the_example("--limit", "3", *args)["questions"]
        self.assertEqual([q["configs"][0]["kl8"] for q in few],
                         [q["configs"][0]["kl8"] for q in more[:2]])

    def test_records_of_other_passages_are_others(self):
        out = self.on_the_example("--limit", "4", "--policies", "reuse", "--records",
                                  "head,similar:1,joined:1,similar:2,joined:2,preceding:1,preceding:2")
        self.assertEqual({c["n_misses"] for c in out["configs"]}, {0})
        kl8 = {c["records"]: c["kl8_mean"] for c in out["configs"]}
        self.assertEqual(len(set(kl8.values())), 7)

    def test_what_precedes_a_chunk_is_that_prompt_s(self):
        args = ("--policies", "reuse", "--records", "preceding:1")
        two = [dict(row, chunks=chunks) for row, chunks in zip(records(2), (CHUNKS[:3], CHUNKS[2::-1]))]
        self.write(two)
        both = self.json(*args)["questions"]
        self.write(two[1:])
        alone = self.json(*args)["questions"]
        self.assertEqual(both[1]["configs"][0]["kl8"], alone[0]["configs"][0]["kl8"])

    CHAT = ("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{{ wish }}[assistant]")

    def test_chat_puts_each_record_by_the_template(self):
        template = self.write_text("chat.jinja", self.CHAT)
        chat = ("--chat", "--chat-template", template, "--policies", "full,reuse,hkvd", "--ratios", "1",
                "--kv-dtype", "f32")
        out = self.json(*chat, "--records", "alone,head,predecessor,similar:2")
        self.assertEqual({c["n_misses"] for c in out["configs"]}, {0})
        self.assertEqual((out["settings"]["chat"], out["settings"]["answer_stop"],
                          out["settings"]["question_template"]), (True, "", "{question}"))
        for kind in ("alone", "head", "predecessor", "similar:2"):
            whole = self.only(out, policy="hkvd", records=kind)
            self.assertLess(whole["kl8_mean"], 1e-8)
            self.assertEqual(whole["answer_agreement"], 1)
        head, predecessor = (self.only(out, policy="hkvd", records=kind)["rows_of_all"]
                             for kind in ("head", "predecessor"))
        self.assertLess(predecessor, head)  # its second chunk is exact too, with the text between

        def rows(*args):
            return [q["full"]["n_rows"] for q in self.json(*chat, *args)["questions"]]

        plain = rows()
        for more in (("--system", "be kind"), ("--question-template", "Say: {question}"),
                     ("--chat-variables", '{"wish": "be brief"}')):
            self.assertTrue(all(a < b for a, b in zip(plain, rows(*more))), more)

    def test_chat_says_what_is_wrong(self):
        self.assertIn("chat template", self.run_eval("--chat", code=3).stderr)  # it has none
        self.run_eval("--chat", "--chat-template", self.dir / "none.jinja", code=3)
        loud = self.write_text("loud.jinja", "{{ messages[-1].content | upper }}")
        said = self.run_eval("--chat", "--chat-template", loud, code=1).stderr
        self.assertIn("line 1: the chat template changes every document", said)

    def test_control_tokens_are_recognized_where_that_is_asked_for(self):
        def rows(*args):
            out = self.json("--policies", "full", "--system", "<s>so", "--question-template",
                            "</s>{question}</s>", *args)
            return [q["full"]["n_rows"] for q in out["questions"]]

        self.assertTrue(all(a < b for a, b in zip(rows("--special"), rows())))

    # ---- The outputs

    def test_the_table(self):
        run = self.run_eval("--ratios", "0.2")
        for word in ("policy", "records", "found % [95 % CI]", "- full [95 % CI]", "PGR %", "EM %",
                     "same %", "agree %", "KL first", "KL of 8 [95 % CI]", "top-1 %", "FLOPs %",
                     "TTFT ms", "speed-up", "hkvd v", "reuse", "head", "no chunks", "4 questions"):
            self.assertIn(word, run.stdout)
        self.assertLessEqual(max(map(len, run.stdout.splitlines())), 120)
        self.assertEqual(run.stderr, "")  # no bar: stderr is not a terminal

    def check_html(self, text):
        checker = Checker()
        checker.feed(text)
        checker.close()
        self.assertEqual(checker.problems, [])
        self.assertEqual(checker.open, [])
        return checker

    def page(self, *args):
        """The file, the figures in it, and what its scripts draw (None without node)."""
        path = self.dir / "report.html"
        self.run_eval("--html", path, *args)
        text = path.read_text(encoding="utf-8")
        checker = self.check_html(text)
        self.assertEqual(checker.tags["script"], 3)
        self.assertEqual(text.count("</script"), 3)
        self.assertIn("default-src 'none'", text)
        # The name of SVG, which nobody fetches.
        self.assertEqual(set(re.findall(r"https?:[^\"']*", text)), {"http://www.w3.org/2000/svg"})
        for word in ("@import", "innerHTML", "<!--<"):
            self.assertNotIn(word, text)
        block = re.search(r'<script type="application/json" id="report">(.*?)</script>', text)[1]
        self.assertNotIn("<", block)
        drawn = None
        if NODE:
            script = Path(__file__).resolve().parent / "eval" / "draw_page.mjs"
            run = subprocess.run([NODE, script, path], capture_output=True, text=True,
                                 encoding="utf-8", timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)
            drawn = run.stdout
        path.unlink()
        return text, json.loads(block), drawn

    REPORT = ("--metrics", "v,kv", "--ratios", "0.1,0.3", "--records", "alone,bos",
              "--group-by", "hops")

    def test_the_report_holds_the_figures(self):
        text, figures, _ = self.page(*self.REPORT)
        printed = self.json(*self.REPORT)
        self.assertEqual(set(figures), {*printed, "page"})
        self.assertEqual([c["name"] for c in figures["configs"]],
                         [c["name"] for c in printed["configs"]])
        self.assertEqual([c["chooses"] for c in figures["configs"]],
                         [c["policy"] == "hkvd" for c in figures["configs"]])
        self.assertEqual([(q["question"], q["answers"], q["full"]["answer"])
                          for q in figures["questions"]],
                         [(q["question"], q["answers"], q["full"]["answer"])
                          for q in printed["questions"]])
        self.assertEqual(figures["questions"][0]["question"], "who sat there <0>?")
        self.assertEqual(figures["questions"][0]["answers"][1], NASTY)
        self.assertNotIn("<b>her", text)
        self.assertRegex(figures["date"], r"^\d{4}-\d\d-\d\d")
        self.assertEqual(figures["version"], subprocess.run(
            [ARGS.blend, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1])
        self.assertRegex(figures["machine"], r"cpu|CPU")
        page = figures["page"]
        self.assertEqual(len(page["prompts"]), 3)
        for prompt in page["prompts"]:
            rows = prompt["rows"]
            self.assertEqual(len(prompt["tokens"]), rows["n_rows"])
            self.assertEqual(sum(s["n_rows"] for s in rows["segments"]), rows["n_rows"])
            self.assertEqual(len(rows["layers"]), figures["model"]["n_layers"])
            self.assertEqual(rows["layers"][-1]["full"], [rows["n_rows"] - 1])
            self.assertTrue(0 < len(rows["selected"]) < rows["n_rows"])
        reuse = page["reuse"]
        self.assertEqual(figures["configs"][reuse]["policy"], "reuse")
        self.assertEqual([d["question"] for d in page["differing"]],
                         [i for i, q in enumerate(figures["questions"])
                          if not q["configs"][reuse]["same_answer"]])
        chunks = [chunk for d in page["differing"] for chunk in d["chunks"]]
        self.assertIn(CHUNKS[3], chunks)

    @unittest.skipUnless(NODE, "node is not installed")
    def test_the_report_is_well_formed_and_whole(self):
        _, _, text = self.page(*self.REPORT)
        checker = self.check_html(text)
        self.assertGreaterEqual(text.count('class="chart"'), 4)
        self.assertEqual(text.count('class="rows"'), 3)
        self.assertIn("tok pick", text)
        self.assertIn("class=\"full\"", text)
        plain = "".join(checker.text)
        self.assertIn("there <0>?", plain)  # the question, as it was written
        self.assertIn("he saw <b>her</b> & said \"so\"", plain)
        self.assertIn(NASTY, plain)
        # When, where and by what it was measured, and what ratio 0 is.
        figures = self.page(*self.REPORT)[1]
        for told in (figures["version"], figures["date"][:10], figures["machine"]):
            self.assertIn(told, plain)
        self.assertIn("Ratio 0 is full reuse for policies that measure nothing; those that do compute", plain)
        self.assertNotIn("<b>her", text)
        self.assertEqual(checker.tags["table"], 3)
        self.assertNotIn("script", checker.tags)

    def test_the_report_begins_with_the_default_policy(self):
        run = [a for a in self.command("--html", self.dir / "report.html", "--ratios", "0.1,fidelity", "--records",
                                       "alone,similar:1") if a not in ("--policies", "full,reuse,hkvd")]
        subprocess.run(run, check=True, capture_output=True, cwd=self.cwd, env=self.env)  # those that are measured by default
        text = (self.dir / "report.html").read_text(encoding="utf-8")
        figures = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', text)[1])
        told = figures["configs"][figures["page"]["headline"]]
        self.assertEqual((told["policy"], told["records"]), ("attention", "similar:1"))
        self.assertIn("fidelity", told["name"])
        self.assertEqual(figures["configs"][figures["page"]["showcase"]]["policy"], "hkvd")  # whose rows are drawn
        if NODE:
            drawn = subprocess.run([NODE, Path(__file__).resolve().parent / "eval" / "draw_page.mjs", self.dir / "report.html"],
                                   capture_output=True, text=True, encoding="utf-8", check=True).stdout
            self.assertIn("<h1>model</h1>", drawn)  # model.gguf
            self.assertRegex(drawn, r"answers found, attention[^<]*, the default policy")
        self.assertIsNone(self.page("--ratios", "0.1", "--limit", "1")[1]["page"]["headline"])

    def test_the_report_of_little(self):
        for args in (["--policies", "full"], ["--policies", "reuse", "--limit", "1"],
                     ["--policies", "hkvd", "--ratios", "1", "--limit", "1"],
                     ["--ratios", "0", "--limit", "1"]):
            _, figures, drawn = self.page(*args)
            self.assertGreater(len(figures["questions"]), 0)
            if drawn is not None:
                self.check_html(drawn)
                self.assertIn("How it was measured", drawn)

    def test_the_json_file_is_the_printed_one(self):
        path = self.dir / "out.json"
        run = self.run_eval("--ratios", "0.2", "--json", path)
        self.assertIn("hkvd v", run.stdout)
        self.assertEqual(set(json.loads(path.read_text())), set(self.json("--ratios", "0.2")))

    def test_results_become_a_markdown_table(self):
        script = Path(__file__).resolve().parents[2] / "tools" / "blend" / "eval" / "markdown.py"

        def table(*paths):
            return subprocess.run([sys.executable, "-B", script, *paths], capture_output=True,
                                  text=True)

        paths = [self.dir / f"{i}.json" for i in range(3)]
        for path, limit, ratio in zip(paths, (1, 3, 3), (0.2, 0.2, 0.3)):
            self.run_eval("--limit", limit, "--ratios", ratio, "--json", path)
        run = table(*paths[:2])
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = [line.split(" | ") for line in run.stdout.splitlines()]
        self.assertEqual(len(rows), 2 + 3)  # full, reuse, hkvd
        one, three = (json.loads(p.read_text())["configs"][1]["top1_agreement"] for p in paths[:2])
        self.assertEqual(rows[3][9], f"{100 * (one + 3 * three) / 4:.1f}")  # by their questions
        self.assertEqual(table(paths[0]).returncode, 0)
        self.assertIn("not of the same", table(*paths[1:]).stderr)
        self.assertIn("not a result", table(self.write_text("x.json", "{}")).stderr)
        self.assertIn("cannot read", table(self.write_text("x.json", "{")).stderr)

    def write_text(self, name, text):
        path = self.dir / name
        path.write_text(text)
        return path

    # ---- What bad input gets

    def test_bad_data(self):
        with self.data.open("a") as file:
            file.write('{"chunks": ["a"], "question": "q"}\n')
        run = self.run_eval(code=4)
        self.assertIn(f"{self.data}:5: no \"answers\"", run.stderr)
        self.write(records())
        self.assertIn(f"{self.data}:1: no \"kind\"", self.run_eval("--group-by", "kind", code=4).stderr)
        self.data.write_text("")
        self.run_eval(code=3)
        self.data.unlink()
        self.assertIn(str(self.data), self.run_eval(code=3).stderr)

    def test_usage(self):
        for args in (["--ratios", "1.5"], ["--ratios", "nan"], ["--ratios", "0.1,x"],
                     ["--policies", "guess"], ["--policies", "hkvd+reuse"], ["--norm", "l3"],
                     ["--checks", "0"], ["--metrics", "q"], ["--records", "eos"],
                     ["--records", "similar:0"], ["--records", "none"], ["--chat", "--special"],
                     ["--chat-template", "x"],
                     ["--check-layer", "99"], ["--check-layer", "0"],
                     ["--question-template", "no place"], ["--repeats", "0"],
                     ["--max-tokens", "0"], ["--no-such-option"]):
            self.run_eval(*args, code=2)

    def test_missing_model(self):
        self.model.unlink()
        self.assertIn("model.gguf", self.run_eval(code=3).stderr)

    def test_outputs_that_cannot_be_written_fail_at_once(self):
        for option in ("--json", "--html"):
            begin = time.monotonic()
            run = self.run_eval(option, self.dir / "absent" / "out", "--repeats", "1000", code=1)
            self.assertIn("absent", run.stderr)
            self.assertLess(time.monotonic() - begin, 60)
            self.run_eval(option, self.dir, code=1)

    def test_ctrl_c_leaves_nothing_behind(self):
        report = self.dir / "report.html"
        report.write_text("an older one")
        process = subprocess.Popen(
            self.command("--repeats", "1000", "--html", report, "--json", self.dir / "o.json"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env, cwd=self.cwd)
        try:
            deadline = time.monotonic() + 60
            while not any(self.tmp.iterdir()) and time.monotonic() < deadline:
                time.sleep(0.01)  # until it has made its store: it is at work
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, error)
        self.assertEqual(list(self.tmp.iterdir()), [])
        self.assertEqual(report.read_text(), "an older one")
        self.assertEqual({p.name for p in self.dir.iterdir()},
                         {"model.gguf", "data.jsonl", "cwd", "tmp", "report.html"})

    def test_help_has_an_example(self):
        text = self.run_eval("--help").stdout
        self.assertIn("Example:", text)
        self.assertIn("blend eval", text)


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
