"""`blend ask`: prompts, what is asked for, and what is told of an answer.

    python3 ask_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import json
import subprocess

from cli_case import ARGS, CHUNK, CliCase, TEXT, run_tests


class AskTest(CliCase):
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
        self.assertLess(by_default["n_rows_reused"], 311)
        self.assertAlmostEqual(by_default["ratio"], 0.45 ** 0.3, places=6)
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

    def test_empty_documents(self):
        for path in self.docs.iterdir():
            path.write_text(" \n\n\t\n")
        self.assertIn("no text", self.ask_text(code=3).stderr)

    def test_too_long_a_prompt_says_by_how_much(self):
        (self.docs / "a.txt").write_text(TEXT * 40)
        run = self.ask_text(code=1)
        self.assertRegex(run.stderr, r"the prompt has \d+ tokens .* \d+ too many .* context of 512")


if __name__ == "__main__":
    run_tests()
