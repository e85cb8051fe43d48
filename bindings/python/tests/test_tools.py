"""What the adapters make of tools: the schema of a call, and which of a text is calls."""

import json
import unittest

import libblend
from libblend._tools import ToolCallReader, ToolForm, Tools, chosen
from support import Case

HERMES = "{% if tools %}<tool_call>{% endif %}{{ messages[0].content }}"
LLAMA = "{% if tools %}'\"parameters\": '{% endif %}{{ messages[0].content }}"
MISTRAL = "{% if tools %}[TOOL_CALLS]{% endif %}{{ messages[0].content }}"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}}}
TIME = {"type": "function", "function": {"name": "time"}}
TREE = {"type": "function", "function": {"name": "tree", "parameters": {
    "$defs": {"node": {"type": "object", "properties": {"$defs": {"$ref": "#/$defs/node"}, "n": {"$ref": "#/definitions/n"}}}},
    "definitions": {"n": {"const": {"$ref": "#/x"}}}, "properties": {"root": {"$ref": "#/$defs/node"}, "all": {"$ref": "#"}}}}}


class ToolsOfAdapters(Case):
    def read(self, source, text, step=1000, is_call=False):
        reader = ToolCallReader(ToolForm(self.model, source), ["weather", "time"], is_call)
        shown = "".join(reader.take(-1, text[i:i + step]) for i in range(0, len(text), step)) + reader.end()
        return "|".join([shown] + [f"{call.name}({json.dumps(call.arguments)})" for call in reader.calls])

    def expect(self, source, text, wanted, is_call=False):
        for step in (1, 3, 1000):  # in whatever pieces it comes
            with self.subTest(text=text, step=step):
                self.assertEqual(self.read(source, text, step, is_call), wanted)

    def test_calls_in_the_forms_of_three_families(self):
        self.expect(HERMES, 'I look. <tool_call>\n{"name": "time"}</tool_call>\n<tool_call>{"arguments": {"z": 1, "a": 2}, '
                    '"name": "weather"}\n</tool_call>\n', 'I look.|time({})|weather({"z": 1, "a": 2})')
        self.expect(HERMES, '<tool_call>{"name": "time", "arguments": "{\\"a\\": 1}"}</tool_call>', '|time({"a": 1})')
        self.expect(HERMES, '<tool_call>{"name": "time", "arguments": {"a": "\\"</tool_call> "}}</tool_call>',
                    '|time({"a": "\\"</tool_call> "})')
        self.expect(HERMES, '<tool_call>{"name": "time", "arguments": {}}', "|time({})")  # the end mark may be missing
        self.expect(LLAMA, '\n {"name": "weather", "parameters": {"town": "Wien"}} ', '|weather({"town": "Wien"})')
        self.expect(MISTRAL, '[TOOL_CALLS] [{"name": "weather", "arguments": {"a": "]"}}, {"name": "time"}]',
                    '|weather({"a": "]"})|time({})')
        for source in (HERMES, LLAMA, MISTRAL):
            self.expect(source, '{"name": "time", "arguments": {"a": "</tool_call><tool_call>"}}',
                        '|time({"a": "</tool_call><tool_call>"})', is_call=True)

    def test_what_is_no_call_stays_text(self):
        for text in ("Hello < there.\n", '<tool_call>{"name": "delete_all"}</tool_call>', "a <tool_ b", "<tool_call>",
                     '<tool_call>{"name": "time", "arguments": 3}</tool_call> x', "a <tool_call>no JSON</tool_call> b",
                     '<tool_call>["name"]</tool_call>', '{"name": "time"}', '<tool_call>{"name": "time", "argu'):
            self.expect(HERMES, text, text)
        for text in ("{not JSON}", 'See {"name": "time"}', '{"name": "delete_all"}'):
            self.expect(LLAMA, text, text)
        self.expect(MISTRAL, '[TOOL_CALLS] [{"name": "time"}, {"name": "x"}]', '[TOOL_CALLS] [{"name": "time"}, {"name": "x"}]')

    def test_a_control_token_before_a_call(self):
        form = ToolForm(self.model, MISTRAL)
        form.open_token = 7
        reader = ToolCallReader(form, ["time"], False)
        self.assertEqual([reader.take(5, "Wait."), reader.take(7, ""), reader.take(5, '[{"name": "time"}]'), reader.end()],
                         ["Wait.", "", "", ""])
        self.assertEqual([call.name for call in reader.calls], ["time"])
        self.assertRegex(reader.calls[0].id, "^[0-9a-f]{9}$")  # its template takes no others

    def test_the_schema_of_a_call_keeps_references(self):
        schema = json.loads(Tools([WEATHER, TREE], "required").schema("parameters"))
        self.assertEqual([call["properties"]["name"] for call in schema["anyOf"]], [{"const": "weather"}, {"const": "tree"}])
        self.assertEqual(schema["anyOf"][1]["required"], ["name", "parameters"])
        self.assertEqual(schema["$defs"]["f1"], {"type": "object", "properties": {
            "root": {"$ref": "#/$defs/f1.node"}, "all": {"$ref": "#/$defs/f1"}}})
        self.assertEqual(schema["$defs"]["f1.node"]["properties"], {"$defs": {"$ref": "#/$defs/f1.node"},
                                                                    "n": {"$ref": "#/$defs/f1:n"}})
        self.assertEqual(schema["$defs"]["f1:n"], {"const": {"$ref": "#/x"}})  # data
        one = json.loads(Tools([WEATHER, TIME], "time").schema("arguments"))
        self.assertEqual(one["$defs"], {"f0": {"type": "object", "additionalProperties": False}})
        try:
            libblend.Grammar(self.model, language="json_schema", text=json.dumps(schema))
        except libblend.UnsupportedError as error:
            self.skipTest(str(error))

    def test_choices(self):
        self.assertEqual([chosen(c) for c in (None, False, True, "any", "auto", "none", "time",
                                              {"type": "function", "function": {"name": "time"}})],
                         ["auto", "auto", "required", "required", "auto", "none", "time", "time"])
        with self.assertRaisesRegex(ValueError, "clock"):
            Tools([TIME], "clock")


if __name__ == "__main__":
    unittest.main(verbosity=2)
