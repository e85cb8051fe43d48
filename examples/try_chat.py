"""Asks a chat host of examples/README.md, in whatever language, and checks its answers.

    python3 try_chat.py [--model FILE] [--template FILE] [--answer WORDS] -- HOST [ARGUMENTS ...]

Starts the host on a store of its own. The same chat must be answered again, in the end from the store. What is no
chat must be refused with 400. Exit code 1 if anything was wrong.
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from load import events

EXAMPLES = pathlib.Path(__file__).resolve().parent
# For the small model, which has no template of its own.
TEMPLATE = "{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}{% for d in documents %}{{ d.text }}\n{% endfor %}Question: {{ messages[-1].content }}\nAnswer:"
DOCUMENTS = ["Hugo Rask works at the south inn.", "There he guards the square anchor."]
CHAT = {"messages": [{"role": "user", "content": "What does Hugo Rask guard?"}], "documents": DOCUMENTS, "max_tokens": 12}
SCHEMA = {"type": "object", "properties": {"guards": {"enum": ["anchor", "door"]}, "sure": {"type": "boolean"}},
          "required": ["guards", "sure"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "description": does, "parameters": {
    "type": "object", "properties": {"who": {"enum": ["Hugo", "Ada"]}}, "required": ["who"], "additionalProperties": False}}}
    for name, does in (("find_desk", "Where somebody works"), ("call_up", "Calls somebody"))]


def post(port, body):
    """(status, text)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/chat", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask(port, **more):
    """(answer, account)."""
    status, text = post(port, json.dumps({**CHAT, **more}))
    assert status == 200, text
    *pieces, (name, account) = events(text)
    assert name == "done", text
    return "".join(piece["text"] for _, piece in pieces), account


def check_json(port):
    """Answers by a schema, calls of tools, and what follows a call."""
    status, text = post(port, json.dumps({**CHAT, "schema": SCHEMA}))
    if status == 400 and "BLEND_GRAMMAR" in text:
        return print("this build has no grammars:", text)
    value = json.loads(ask(port, schema=SCHEMA, max_tokens=60)[0])
    assert set(value) == {"guards", "sure"} and value["guards"] in ("anchor", "door"), value
    call = json.loads(ask(port, tools=TOOLS, max_tokens=60)[0])
    assert call["name"] in ("find_desk", "call_up") and call["arguments"]["who"] in ("Hugo", "Ada"), call
    print(value, call)
    called = {"id": "c1", "type": "function", "function": {**call, "arguments": json.dumps(call["arguments"])}}
    turns = [*CHAT["messages"], {"role": "assistant", "content": None, "tool_calls": [called]},
             {"role": "tool", "tool_call_id": "c1", "content": "At the south inn."}]
    assert ask(port, messages=turns)[0]
    assert ask(port, schema=None)[0] == ask(port)[0]  # null: none
    for wrong in ({"tools": 3}, {"tools": [{"function": {}}]}, {"schema": {"type": "objekt"}}, {"schema": 3}):
        status, text = post(port, json.dumps({**CHAT, **wrong}))
        assert status == 400 and json.loads(text)["error"], (wrong, status, text)


def check(port, answer):
    first, before = ask(port)
    end = time.monotonic() + 60
    while True:  # documents that were missing are stored in idle time
        second, after = ask(port)
        if after["reused"] > before["reused"] or time.monotonic() > end:
            break
        time.sleep(0.05)
    print(repr(second), after)
    assert answer in first and answer in second, (first, second)
    assert after["rows"] == before["rows"], (before, after)
    assert after["reused"] > before["reused"], (before, after)
    for wrong in ("", "{", "[]", "{}", json.dumps({"messages": "hello"}), json.dumps({**CHAT, "documents": [1]}),
                  json.dumps({**CHAT, "messages": [1]}),
                  json.dumps({**CHAT, "messages": [{"role": "user", "content": "word " * 20000}]})):
        status, text = post(port, wrong)
        assert status == 400 and json.loads(text)["error"], (wrong[:60], status, text)
    check_json(port)
    assert answer in ask(port)[0]  # and it is still there


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EXAMPLES / "models" / "blend-qa.gguf")
    parser.add_argument("--template", help="a file; none for a model that has one of its own")
    parser.add_argument("--answer", default="square anchor")
    parser.add_argument("host", nargs="+")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder) / "template"
        own.write_text(TEMPLATE)
        template = args.template if args.template is not None else own
        command = [*args.host, str(args.model), f"{folder}/store", "0", *([str(template)] if template else [])]
        host = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            line = host.stdout.readline()
            assert line.startswith("listening on http://127.0.0.1:"), line
            check(int(line.rsplit(":", 1)[1]), args.answer)
        finally:
            host.terminate()
            host.wait(30)
            host.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
