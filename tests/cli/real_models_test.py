"""blend eval on real models, a few questions each, and calls of functions by blend serve.

    python3 real_models_test.py --blend BLEND --data DIR [unittest arguments]

DIR has real-models/*.gguf and data/town.jsonl; where it has not, the tests are skipped, and when all
are, this ends with 77.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from pathlib import Path

ARGS = argparse.Namespace()
SYSTEM = "You are a helpful AI assistant. Answer the question from the passages."
SMOLLM, GEMMA = "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"
CHAT = ("--chat", "--system", SYSTEM, "--question-template", "Question: {question}\\nAnswer in a few words.")
BASE = ("--system", SYSTEM + "\n\n")
SKIPPED = 77  # what CTest takes for "skipped"


class RealModels(unittest.TestCase):
    def eval(self, model, *args, policies="reuse,hkvd", ratios="1", records="head"):
        """The result on four questions; the test is skipped where a file is not there."""
        paths = [ARGS.data / "real-models" / model, ARGS.data / "data" / "town.jsonl"]
        for path in paths:
            if not path.is_file():
                self.skipTest(f"{path} is not there: see BLEND_DATA_DIR in CONTRIBUTING.md")
        run = subprocess.run(
            [ARGS.blend, "eval", "--model", paths[0], "--data", paths[1], "--limit", "4", "--policies",
             policies, "--ratios", ratios, "--records", records, "--kv-dtype", "f32", "--max-tokens",
             "12", "--json", "-", *args], capture_output=True, text=True, timeout=1200)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def check(self, out):
        reuse, all_rows = out["configs"]
        self.assertEqual((len(out["questions"]), out["skipped"]), (4, []))
        self.assertEqual((reuse["n_misses"], all_rows["n_misses"]), (0, 0))
        # The first of four chunks is exact and not computed again, the others are.
        self.assertLess(all_rows["rows_of_all"], 0.95)
        # All rows recomputed are full prefill.
        self.assertEqual((all_rows["answer_agreement"], all_rows["token_agreement"]), (1, 1))
        self.assertLess(all_rows["kl_mean"], 1e-4)
        self.assertLess(all_rows["kl8_mean"], 1e-4)
        self.assertGreater(reuse["kl8_mean"], 1e-3, "reuse is not full prefill")
        # What the passages say is not known without them.
        self.assertLess(out["floor"]["found"], out["full"]["found"])

    def test_the_default_is_near_full_prefill_in_context(self):
        for model, args in ((SMOLLM, CHAT), (GEMMA, BASE)):
            head, context = self.eval(model, *args, policies="attention", ratios="fidelity",
                                      records="head,similar:4")["configs"]
            with self.subTest(model):
                self.assertGreater(head["ratio"], 1.3 * context["ratio"], "less is known of it")
                for one in (head, context):
                    self.assertGreater(one["token_agreement"], 0.9)
                    self.assertLess(one["kl8_mean"], 0.02)

    def test_an_instruct_model_by_its_chat_template(self):
        out = self.eval(SMOLLM, *CHAT)
        self.check(out)
        self.assertTrue(out["settings"]["chat"])
        for question in out["questions"]:
            self.assertNotIn("<|im_", question["full"]["answer"])

    def test_the_server_finds_the_calls_that_a_model_writes(self):
        model = ARGS.data / "real-models" / SMOLLM
        if not model.is_file():
            self.skipTest(f"{model} is not there: see BLEND_DATA_DIR in CONTRIBUTING.md")
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a town now",
                                                   "parameters": {"type": "object", "required": ["town"], "properties": {
                                                       "town": {"type": "string", "maxLength": 20}}}}}]

        def asked(*turns):
            """So small a model needs to see how it is done: the last turn is what it is to do."""
            messages = []
            for towns in turns:
                calls = [{"id": "c" + town, "type": "function", "function": {
                    "name": "get_weather", "arguments": json.dumps({"town": town})}} for town in towns]
                messages += [{"role": "user", "content": f"What is the weather in {' and '.join(towns)}?"},
                             {"role": "assistant", "content": None, "tool_calls": calls}]
            return messages[:-1]
        body = {"messages": asked(["Graz"], ["Linz"], ["Wels"], ["Vienna"]), "tools": tools, "temperature": 0,
                "max_tokens": 100}
        with tempfile.TemporaryDirectory() as store:
            server = subprocess.Popen([ARGS.blend, "serve", "--model", model, "--store", store, "--port", "0", "--json"],
                                      stdout=subprocess.PIPE, text=True)
            try:
                url = json.loads(server.stdout.readline())["url"] + "/chat/completions"

                def post(**more):
                    request = urllib.request.Request(url, json.dumps({**body, **more}).encode(),
                                                     {"Content-Type": "application/json"})
                    with urllib.request.urlopen(request, timeout=300) as response:
                        return response.read().decode()
                choice = json.loads(post())["choices"][0]
                call, = choice["message"]["tool_calls"]
                self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
                self.assertEqual(call["function"]["name"], "get_weather")
                self.assertEqual(json.loads(call["function"]["arguments"]), {"town": "Vienna"})
                events = [json.loads(e[6:])["choices"][0] for e in post(stream=True).split("\n\n") if e[6:7] == "{"]
                told = [c for e in events for c in e["delta"].get("tool_calls", [])]
                self.assertEqual([c["function"] for c in told], [call["function"]])
                self.assertEqual("".join(e["delta"].get("content") or "" for e in events), "")
                self.assertEqual(events[-1]["finish_reason"], "tool_calls")
                # Two calls in one answer, unless they are not wanted.
                two = asked(["Graz", "Linz"], ["Wels", "Steyr"], ["Paris", "Rome"], ["Vienna", "Bern"])
                n_tokens = []
                for parallel, n in ((True, 2), (False, 1)):
                    answer = json.loads(post(messages=two, parallel_tool_calls=parallel))
                    choice = answer["choices"][0]
                    n_tokens.append(answer["usage"]["completion_tokens"])
                    calls = choice["message"]["tool_calls"]
                    self.assertEqual([json.loads(c["function"]["arguments"])["town"] for c in calls],
                                     ["Vienna", "Bern"][:n])
                    self.assertEqual(len({c["id"] for c in calls}), n)
                    self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertLess(n_tokens[1], n_tokens[0])  # the second call is not even generated
                # Nobody knows a function of this name: what the model wrote stays text.
                other = [{"type": "function", "function": {"name": "get_time"}}]
                said = json.loads(post(tools=other))["choices"][0]
                if "tool_calls" not in said["message"]:
                    self.assertIn("get_weather", said["message"]["content"])
                    self.assertEqual(said["finish_reason"], "stop")
                else:
                    self.assertEqual({c["function"]["name"] for c in said["message"]["tool_calls"]}, {"get_time"})
            finally:
                server.terminate()
                server.wait(60)
                server.stdout.close()

    def test_a_base_model_after_bos(self):
        self.check(self.eval(GEMMA, *BASE))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--data", default="")
    options, rest = parser.parse_known_args()
    ARGS.blend = os.path.abspath(options.blend)
    ARGS.data = Path(options.data or "no-BLEND_DATA_DIR")
    result = unittest.main(argv=[sys.argv[0], *rest], exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.testsRun == len(result.skipped) else 0)


if __name__ == "__main__":
    main()
