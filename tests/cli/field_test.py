#!/usr/bin/env python3
"""bench/paired.py and bench/field_questions.py, without a model."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(script, *args):
    done = subprocess.run([sys.executable, "-B", BENCH / script, *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def outcome(kl, right=True):
    return {"kl": kl, "top1_agrees": True, "same_answer": True, "exact_match": right, "f1": float(right)}


def result(ways, kls, lines):
    """ways: (name, ratio, FLOPs); kls: a row a question."""
    return {"configs": [{"name": n, "ratio": r, "records": "alone", "flops_relative": f} for n, r, f in ways],
            "questions": [{"line": line, "full": outcome(0), "configs": [outcome(kl) for kl in row]}
                          for line, row in zip(lines, kls)]}


class Paired(unittest.TestCase):
    def tables(self, results, *more):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, one in enumerate(results):
                paths.append(Path(folder) / f"{i}.json")
                paths[-1].write_text(json.dumps(one))
            run("paired.py", *paths, "--against", "ours", "--flops", "0.2,0.4", "--json", Path(folder) / "t", *more)
            return json.loads((Path(folder) / "t").read_text())

    def test_each_is_compared_at_its_own_budget_and_question_by_question(self):
        a = result([("ours", .1, .19), ("ours", .3, .39), ("theirs", .4, .41)], [[5, 1, 2], [9, 3, 4]], [1, 2])
        b = result([("others", .2, .2)], [[10], [6]], [2, 1])  # in another order
        table = self.tables([a, b])
        low, high = ({w["name"]: w for w in budget["ways"]} for budget in table["budgets"])
        self.assertEqual(high["theirs"]["kl_minus"], 1)
        self.assertEqual(high["theirs"]["kl_minus_ci95"], [1, 1])  # the same on each, so no width
        self.assertEqual(low["others"]["kl_minus_ci95"], [1, 1])
        self.assertEqual((set(low), set(high)), ({"ours", "others"}, {"ours", "theirs"}))

    def test_only_the_questions_that_are_asked_for(self):
        a = result([("ours", .1, .2), ("theirs", .1, .2)], [[1, 2], [1, 9]], [1, 2])
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as data:
            data.write('{"kind": "a"}\n{"kind": "b"}\n')
            data.flush()
            table = self.tables([a], "--data", data.name, "--where", "kind=b")
        self.assertEqual((table["n"], table["budgets"][0]["ways"][1]["kl_minus"]), (1, 8))


class Questions(unittest.TestCase):
    def records(self, *args):
        with tempfile.NamedTemporaryFile("r", suffix=".jsonl") as out:
            run("field_questions.py", *args, "--out", out.name)
            return [json.loads(line) for line in out]

    def test_every_answer_is_in_the_chunks_and_a_seed_gives_the_same_again(self):
        shapes = "single,keys,values,tracking,bridge,comparison,chain"
        for words in ("ruler", "world"):
            args = ("--shapes", shapes, "--words", words, "--chunks", "6", "--count", "70", "--seed", "3")
            records = self.records(*args)
            self.assertEqual(records, self.records(*args))
            self.assertEqual({r["kind"] for r in records}, set(shapes.split(",")))
            for r in records:
                texts = r.get("chunks") or [c["text"] for c in r["ctxs"]]
                self.assertEqual(len(texts), 6)
                self.assertTrue(any(r["answers"][0] in text for text in texts), r)

    def test_what_is_tracked_is_set_from_chunk_to_chunk(self):
        for r in self.records("--shapes", "tracking", "--count", "20", "--seed", "5"):
            at = {}
            for text in r["chunks"]:
                for name, value in ((s.split()[1], s.split(" = ")[1]) for s in text.split(". ") if s.startswith("VAR")):
                    at[name] = at.get(value.split()[-1].rstrip(".\n"), value.rstrip(".\n"))
            self.assertEqual(at[r["question"].split()[-1].rstrip("?")], r["answers"][0])


if __name__ == "__main__":
    unittest.main()
