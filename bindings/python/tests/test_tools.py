"""What the adapters make of tools: an answer that must be a call, and its calls as the frameworks have them."""

import json
import unittest

import libblend
from libblend._tools import CallForm, Tools, chosen, kept_grammars
from support import Case

HERMES = "{% if tools %}<tool_call>{% endif %}{{ messages[0].content }}"
MISTRAL = "{% if tools %}[TOOL_CALLS]{% endif %}{{ messages[0].content }}"
LLAMA = "{{ messages[0].content }}{{ tools }}\"parameters\""
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"town": {"enum": ["Wien"]}}, "required": ["town"]}}}
TIME = {"type": "function", "function": {"name": "time"}}
TREE = {"type": "function", "function": {"name": "tree", "parameters": {
    "$defs": {"leaf": {"const": True}}, "properties": {"root": {"$ref": "#/$defs/leaf"}}, "required": ["root"]}}}


class ToolsOfAdapters(Case):
    def test_calls_have_ids_and_arguments(self):
        for source, ids in ((HERMES, "^call_[0-9a-f]{24}$"), (MISTRAL, "^[0-9a-f]{9}$")):  # its template takes no others
            form = CallForm(self.model, source)
            reader = form.reader(Tools([WEATHER, TIME]))
            call = '{"name": "weather", "arguments": {"town": "Wien", "n": 1%s}}' % ("0" * 300)
            self.assertEqual(reader.take("Wait." + form.info.call_open + call + form.info.call_close, -1), "Wait.")
            self.assertEqual(reader.end(), "")
            (made,) = reader.calls
            self.assertEqual((made.name, made.arguments), ("weather", {"town": "Wien", "n": 10**300}))
            self.assertRegex(made.id, ids)
            self.assertEqual(reader.calls[0].id, made.id)
        must = CallForm(self.model, HERMES).reader(Tools([WEATHER, TIME], "time"))
        must.take('{"name": "time", "arguments": {}}', -1)
        self.assertEqual((must.end(), [call.name for call in must.calls]), ("", ["time"]))

    def test_a_call_keeps_to_the_functions(self):
        for source, name in ((HERMES, "arguments"), (LLAMA, "parameters")):
            form = CallForm(self.model, source)
            for choice in ("required", "weather", "tree"):
                tools = Tools([WEATHER, TREE], choice)
                try:
                    grammar = form.grammar(tools)
                except libblend.UnsupportedError as error:
                    if "BLEND_GRAMMAR" not in str(error):
                        raise
                    self.skipTest(str(error))
                self.assertIs(grammar, form.grammar(tools))  # kept
                kept = kept_grammars(self.model)  # for several forms
                self.assertIs(*(CallForm(self.model, source, kept).grammar(tools) for _ in range(2)))
                with self.model.fuse(None, self.model.prompt().bos().question("Who?"), policy="full", reserve_tokens=90) as fusion:
                    text = fusion.generate(90, temperature=1.0, seed=3, grammar=grammar).text()
                call = json.loads(text)
                self.assertEqual(list(call), ["name", name])
                self.assertIn(call["name"], ("weather", "tree") if choice == "required" else (choice,))
                self.assertEqual(list(call[name].values()), [True] if call["name"] == "tree" else ["Wien"])
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "language"):
            libblend.Grammar(self.model, language="regex", text="x", function="time")

    def test_a_prompt_begins_the_call(self):
        messages = [{"role": "user", "content": "Who?"}]
        given = {"template_source": HERMES, "tools": json.dumps([WEATHER])}
        text = self.model.chat_text(messages, **given)
        self.assertEqual(self.model.chat_text(messages, must_call=True, **given), text + "<tool_call>\n")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "must be a call"):
            self.model.chat(messages, must_call=True, generation_prompt=False, **given)
        for none in ("", "[]"):
            with self.assertRaisesRegex(libblend.InvalidArgumentError, "no tools"):
                self.model.chat_text(messages, must_call=True, template_source=HERMES, tools=none)

    def test_choices(self):
        self.assertEqual([chosen(c) for c in (None, False, True, "any", "auto", "none", "time",
                                              {"type": "function", "function": {"name": "time"}})],
                         ["auto", "auto", "required", "required", "auto", "none", "time", "time"])
        with self.assertRaisesRegex(ValueError, "clock"):
            Tools([TIME], "clock")
        for none in ("", {"function": {"name": ""}}):
            with self.assertRaisesRegex(ValueError, "the tool ''"):
                Tools([TIME], chosen(none))


if __name__ == "__main__":
    unittest.main(verbosity=2)
