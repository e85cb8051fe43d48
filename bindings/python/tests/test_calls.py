"""Calls of functions in answers, beside a second reader made of regular expressions and Python's json."""

import json
import random
import re
import unittest

import libblend
from support import Case

READS = "{% if tools %}{{ tools }}{% endif %}{{ messages[0].content }}"
FORMS = {"hermes": READS + "<tool_call>", "llama": READS + '"parameters"', "mistral": READS + "[TOOL_CALLS]"}
NAMES = ("weather", "time")
TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in NAMES])
PARTS = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", '{"name": "time"}', '{"name": "weather", "parameters": {"a": [1, {}]}}',
         '{"name": "time", "arguments": "{}"}', "[", "]", "{", "}", '"name"', ": ", '"time"', '"arguments"', ",", " ", "\n", '"', "\\",
         "<tool_", "é", "null", '<tool_call>{"name": "time"}</tool_call>', '<tool_call>\n{"name": "weather", "arguments": {"b": "<"}}',
         '[TOOL_CALLS] [{"name": "time"}, {"name": "weather"}]']


def one_call(item):
    """name(arguments) of what json has read; None: it is no call."""
    if not isinstance(item, dict) or item.get("name") not in NAMES:
        return None
    arguments = item["arguments"] if "arguments" in item else item.get("parameters")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    arguments = {} if arguments is None else arguments
    return f"|{item['name']}({json.dumps(arguments)})" if isinstance(arguments, dict) else None


def once(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def calls_in(text, lists):
    """Those of a text that is nothing else; None: it is something else."""
    try:
        read = json.loads(text, object_pairs_hook=once)
    except ValueError:
        return None
    if isinstance(read, list) and not lists:
        return None
    found = [one_call(item) for item in (read if isinstance(read, list) else [read])]
    return None if not found or None in found else found


def reference(form, text):
    """What the reader shows, and the calls that it finds, of a whole answer."""
    calls, shown = [], ""
    if form == "llama":
        found = calls_in(text, False) if text.lstrip(" \t\r\n").startswith("{") else None
        return (text, []) if found is None else ("", found)
    if form == "mistral":
        before, mark, after = text.partition("[TOOL_CALLS]")
        found = calls_in(after, True) if mark else None
        return (text, []) if found is None else (before.rstrip(" \t\r\n"), found)
    # A string of JSON ends with its quote or its line; an open one at the end hides what is in it.
    call = re.compile(r'([ \t\r\n]*)<tool_call>((?:[^"<]|"(?:[^"\\\n]|\\[\s\S])*["\n]|(?!</tool_call>)<)*)</tool_call>')
    at = 0
    while True:
        begin = text.find("<tool_call>", at)
        if begin < 0:
            break
        start = at + len(text[at:begin].rstrip(" \t\r\n"))
        match = call.match(text, start)
        if not match:  # it goes on to the end
            found = calls_in(text[begin + len("<tool_call>"):], True)
            rest = text[start:] if found is None else ""
            return shown + text[at:start] + rest, calls + (found or [])
        found = calls_in(match[2], False)
        shown += text[at:start] + (match[0] if found is None else "")
        calls += found or []
        at = match.end()
    rest = text[at:]
    return shown + ("" if calls and not rest.strip(" \t\r\n") else rest), calls


class Calls(Case):
    def read(self, form, text, step=1000, must_call=False, tools=TOOLS, is_cut=False):
        with libblend.CallReader(self.model, template_source=FORMS[form], tools=tools, must_call=must_call) as reader:
            shown = "".join(reader.add(text[i:i + step]) for i in range(0, len(text), step)) + reader.end(is_cut)
            return shown, [f"|{call.name}({json.dumps(json.loads(call.arguments))})" for call in reader.calls]

    def test_beside_a_second_reader(self):
        rng, n_calls = random.Random(5), 0
        for _ in range(3000):
            text = "".join(rng.choice(PARTS) for _ in range(rng.randrange(12)))
            for form in FORMS:
                wanted = reference(form, text)
                n_calls += len(wanted[1])
                self.assertEqual(self.read(form, text, rng.choice((1, 4, 1000))), wanted, (form, text))
        self.assertGreater(n_calls, 500)

    def test_arguments_are_those_of_the_model(self):
        with libblend.CallReader(self.model, template_source=FORMS["hermes"]) as reader:  # any function
            self.assertEqual(reader.add('Well. <tool_call>{"name": "any", "arguments": {"b": 1.50, "a":2}}</tool_call>'), "Well.")
            (call,) = reader.calls
            self.assertEqual((call.name, call.arguments, call.is_cut), ("any", '{"b": 1.50, "a":2}', False))
            reader.add('<tool_call>{"name": "any", "arguments": {"b": "so fa')
            self.assertEqual(reader.end(is_cut=True), "")
            self.assertEqual([(call.arguments, call.is_cut) for call in reader.calls[1:]], [('{"b": "so fa', True)])
            with self.assertRaisesRegex(libblend.InvalidArgumentError, "ended"):
                reader.add("more")
        with self.assertRaises(libblend.errors.ClosedError):
            reader.add("more")

    def test_an_answer_that_is_a_call(self):
        text = '{"name": "time", "arguments": {"a": "</tool_call><tool_call>"}}'
        for form in FORMS:
            self.assertEqual(self.read(form, text, must_call=True), ("", ['|time({"a": "</tool_call><tool_call>"})']))

    def test_what_is_wrong_is_said(self):
        with self.assertRaises(libblend.NotFoundError):
            libblend.CallReader(self.model)  # it has no template
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "tools"):
            libblend.CallReader(self.model, template_source=FORMS["hermes"], tools="{}")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "tool 0"):
            libblend.CallReader(self.model, template_source=FORMS["hermes"], tools="[{}]")


if __name__ == "__main__":
    unittest.main(verbosity=2)
