"""The tools of blend serve: calls that a grammar makes, what the model is told of functions, and which are refused.

    python3 serve_tools_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import json

from serve_case import ServeCase, chat, run_tests, tool


class ToolsTest(ServeCase):
    def test_calls_that_a_grammar_makes(self):
        server = self.serve(model=self.slow_model)  # for its context
        town = {"type": "object", "properties": {"town": {"enum": ["Wien", "Graz"]}, "again": {"type": "boolean"}},
                "required": ["town", "again"], "additionalProperties": False}
        nested = {"type": "object", "properties": {"z": {"$ref": "#/$defs/Pair"}, "a": {"$ref": "#/$defs/Pair"}},
                  "required": ["z", "a"], "additionalProperties": False,
                  "$defs": {"Pair": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}}}
        tools = [tool("weather", town), tool("pairs", nested), tool("now")]
        asked = lambda **more: chat(tools=tools, temperature=1, max_tokens=150, **more)
        status, answer, _ = server.post(asked(tool_choice="required", n=4, seed=1))
        if "BLEND_GRAMMAR" in str(answer):
            self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
            self.skipTest("this build has no grammars")
        self.assertEqual(status, 200, answer)

        def check(message, names):
            self.assertIsNone(message["content"])
            call, = message["tool_calls"]
            self.assertEqual(call["type"], "function")
            self.assertRegex(call["id"], "^call_[0-9a-f]{16}$")
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            self.assertIn(name, names)
            if name == "weather":
                self.assertIn(arguments["town"], ("Wien", "Graz"))
                self.assertIs(type(arguments["again"]), bool)
            elif name == "pairs":
                self.assertEqual(list(arguments), ["z", "a"])  # in the order of the schema
                self.assertEqual([len(pair) for pair in arguments.values()], [2, 2])
            else:
                self.assertEqual(arguments, {})
            return name, arguments
        seen = set()
        for seed in range(4):
            answer = server.post({**asked(tool_choice="required", n=4, seed=10 * seed), "temperature": 2})[1]
            for choice in answer["choices"]:
                self.assertEqual(choice["finish_reason"], "tool_calls")
                seen.add(check(choice["message"], ("weather", "pairs", "now"))[0])
        self.assertGreater(len(seen), 1)
        for name in ("weather", "pairs", "now"):
            body = asked(tool_choice={"type": "function", "function": {"name": name}}, seed=3)
            whole = server.post(body)[1]["choices"][0]
            called = check(whole["message"], (name,))
            deltas = [e["choices"][0]["delta"] for e in server.stream(body)]
            told = [call for d in deltas for call in d.get("tool_calls", [])]
            self.assertEqual([call.pop("index") for call in told], [0])
            self.assertEqual(check({"content": None, "tool_calls": told}, (name,)), called)
            self.assertEqual("".join(d.get("content") or "" for d in deltas), "")
            self.assertEqual(server.stream(body)[-1]["choices"][0]["finish_reason"], "tool_calls")
        # The model has begun its call where the grammar takes over.
        n_prompt = [server.post(asked(tool_choice=c, seed=1))[1]["usage"]["prompt_tokens"] for c in ("auto", "required")]
        self.assertLess(*n_prompt)
        # Cut short: the name, and what there is of the arguments.
        text = {"type": "object", "properties": {"text": {"type": "string", "minLength": 500}}, "required": ["text"]}
        cut = server.post(chat(tools=[tool("say", text)], tool_choice="required", max_tokens=60))[1]["choices"][0]
        self.assertEqual(cut["finish_reason"], "length")
        self.assertTrue(cut["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"text": "'), cut)
        for more, reason in (({"stop": ['"arguments"']}, "stop"), ({"max_tokens": 2}, "length")):
            cut = server.post({**asked(tool_choice="required", seed=1), **more})[1]["choices"][0]
            self.assertNotIn("tool_calls", cut["message"])
            self.assertTrue(cut["message"]["content"].startswith("{"), cut)
            self.assertEqual(cut["finish_reason"], reason)
        status, answer, _ = server.post(chat(tools=[tool("f", {"type": "object", "not": {}})], tool_choice="required"))
        self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
        self.assertIn("'not'", answer["error"]["message"])

    def test_parts_of_a_functions_schema_are_found(self):
        server = self.serve(model=self.slow_model)  # for its context
        # Names of parameters may be words of JSON Schema, and both places of parts may have a name.
        words = ("const", "enum", "default", "examples", "properties", "$defs")
        part = {name: {"$ref": "#/$defs/Part"} for name in words}
        schema = {"type": "object", "properties": {**part, "old": {"$ref": "#/definitions/Part"}},
                  "required": [*words, "old"], "additionalProperties": False,
                  "$defs": {"Part": {"type": "boolean"}}, "definitions": {"Part": {"type": "null"}}}
        body = chat(tools=[tool("f", schema)], tool_choice="required", temperature=1, seed=1, max_tokens=300)
        status, answer, _ = server.post(body)
        if "BLEND_GRAMMAR" in str(answer):
            self.skipTest("this build has no grammars")
        self.assertEqual(status, 200, answer)
        call, = answer["choices"][0]["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        self.assertEqual({name: type(value) for name, value in arguments.items()},
                         {**dict.fromkeys(words, bool), "old": type(None)})

    def test_tools_are_told_to_the_model(self):
        server = self.serve(model=self.slow_model)
        n_prompt = lambda **more: server.post(chat(max_tokens=1, **more))[1]["usage"]["prompt_tokens"]
        tools = [tool("weather", {"type": "object", "properties": {}})]
        self.assertGreater(n_prompt(tools=tools), n_prompt() + 50)
        self.assertEqual(n_prompt(tools=tools, tool_choice="none"), n_prompt())
        self.assertEqual(n_prompt(tools=[], tool_choice="auto", parallel_tool_calls=True), n_prompt())
        # A conversation that goes on after a call, as OpenAI's client sends it.
        turns = [{"role": "user", "content": "who sat"},
                 {"role": "assistant", "content": None, "tool_calls": [
                     {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"b": 1, "a": "rain"}'}}]},
                 {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "wet"}]}]
        status, answer, _ = server.post(chat(messages=turns, tools=tools, max_tokens=4))
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertNotIn("tool_calls", answer["choices"][0]["message"])
        less = [turns[0], {"role": "assistant", "content": ""}, {**turns[2], "content": ""}]
        self.assertGreater(n_prompt(messages=turns), n_prompt(messages=less) + 30)
        self.assertEqual(server.post({"prompt": "x", "tools": tools}, path="/v1/completions")[0], 400)

    def test_wrong_tools_are_refused_by_name(self):
        server = self.serve()
        f = tool("f")
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for more, named in (
                ({"tools": "f"}, "tools"), ({"tools": [f] * 129}, "tools"), ({"tools": [3]}, "tools[0]"),
                ({"tools": [{}]}, "tools[0].function"), ({"tools": [f, {"type": "web_search"}]}, "tools[1].type"),
                ({"tools": [tool("")]}, "tools[0].function.name"), ({"tools": [tool("a b")]}, "tools[0].function.name"),
                ({"tools": [tool("x" * 65)]}, "tools[0].function.name"), ({"tools": [f, f]}, "tools[1].function.name"),
                ({"tools": [tool("f", "x")]}, "tools[0].function.parameters"),
                ({"tools": [tool("f", {"type": "string"})]}, "tools[0].function.parameters"),
                ({"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]}, "tools[0].function.description"),
                ({"tools": [tool("f", {"x": "y" * 300000})]}, "tools"),
                ({"tool_choice": "required"}, "tool_choice"), ({"tools": [f], "tool_choice": "any"}, "tool_choice"),
                ({"tools": [f], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
                ({"tools": [f], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
                ({"tools": [f], "tool_choice": 3}, "tool_choice"), ({"tools": [f], "tool_choice": [f]}, "tool_choice"),
                ({"tools": [f], "parallel_tool_calls": 1}, "parallel_tool_calls"),
                ({"tools": [f], "response_format": {"type": "json_object"}}, "response_format"),
                ({"tools": [f], "tool_choice": "required", "ignore_eos": True}, "ignore_eos"),
                ({"functions": [{"name": "f"}]}, "functions"),
                ({"messages": [{"role": "assistant", "tool_calls": 3}]}, "messages[0].tool_calls"),
                ({"messages": [{"role": "assistant", "tool_calls": [call] * 129}]}, "messages[0].tool_calls"),
                ({"messages": [{"role": "user", "tool_calls": [call]}]}, "messages[0].tool_calls"),
                ({"messages": [{"role": "assistant", "tool_calls": [{**call, "id": 3}]}]}, "messages[0].tool_calls[0].id"),
                ({"messages": [{"role": "assistant", "tool_calls": [{**call, "function": {"name": "f", "arguments": {}}}]}]},
                 "messages[0].tool_calls[0].function.arguments"),
                ({"messages": [{"role": "tool", "content": "x", "tool_call_id": 1}]}, "messages[0].tool_call_id")):
            status, answer, _ = server.post(chat(**more))
            self.assertEqual((status, answer["error"].get("param")), (400, named), (str(more)[:100], answer))
            self.assertIn("'" + named + "'", answer["error"]["message"])


if __name__ == "__main__":
    run_tests()
