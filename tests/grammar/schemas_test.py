#!/usr/bin/env python3
"""Answers by many schemas, each judged by a JSON parser, and by jsonschema where it is installed.

    schemas_test.py --answers PROGRAM --make-model PROGRAM [--model FILE] [--schemas N] [--each N]
                    [--from N] [--to N]

PROGRAM: schema_answers and make_random_model of the build. Without a model, one with random weights, which
tries what no trained one would write.
"""

import argparse
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from schemas import schemas  # noqa: E402

try:
    import jsonschema
except ImportError:
    jsonschema = None


def once(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"a name twice: {names}")
    return dict(pairs)


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


def judge(schema, text):
    """What is wrong with an answer; None: nothing."""
    try:
        # Names may repeat only among further members (docs/generate.md).
        value = json.loads(text, parse_constant=no_constant)
        text.encode("utf-8")
    except ValueError as error:
        return str(error)
    if jsonschema is None:
        return None
    errors = jsonschema.Draft202012Validator(schema).iter_errors(value)
    return next((error.message for error in errors), None)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--answers", required=True)
    options.add_argument("--make-model", required=True)
    options.add_argument("--model")
    options.add_argument("--schemas", type=int, default=60)
    options.add_argument("--from", dest="first", type=int, default=0, help="the first of them, from 0")
    options.add_argument("--to", type=int, help="the one after the last; so that long runs may be cut up")
    options.add_argument("--each", type=int, default=2)
    options.add_argument("--max-tokens", type=int, default=160)
    options.add_argument("--drafts", type=int, default=0)
    options.add_argument("--question", default="Write JSON:")
    o = options.parse_args()
    given = schemas(o.schemas)[o.first : o.to]
    if not given:
        return f"--from {o.first} --to {o.to} leaves none of {o.schemas} schemas"
    with tempfile.TemporaryDirectory() as folder:
        model = o.model
        if model is None:
            model = str(pathlib.Path(folder) / "model.gguf")
            subprocess.run([o.make_model, model], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run([o.answers, model, str(o.each), str(o.max_tokens), str(o.drafts), o.question,
                               str(o.first)],
                              input="".join(json.dumps(s) + "\n" for s in given), text=True, encoding="utf-8",
                              stdout=subprocess.PIPE)
    if done.returncode != 0:
        return f"{o.answers} failed: {done.returncode}"
    lines = [json.loads(line) for line in done.stdout.strip("\n").split("\n")]
    if len(lines) != len(given):
        return f"{len(lines)} lines for {len(given)} schemas"
    n_complete = n_cut = n_refused = 0
    without, wrong = [], []
    for schema, line in zip(given, lines):
        if "error" in line:
            n_refused += 1
            wrong.append(f"refused: {json.dumps(schema)}: {line['message']}")
            continue
        complete = [text for text, whole in line["answers"] if whole]
        n_complete += len(complete)
        n_cut += len(line["answers"]) - len(complete)
        if not complete:
            without.append(schema)
        for text in complete:
            why = judge(schema, text)
            if why is not None:
                wrong.append(f"{json.dumps(schema, ensure_ascii=False)}\n  gave {text!r}: {why}")
    print("\n".join(wrong[:20]))
    print(f"{len(given)} schemas, {n_refused} refused; {n_complete} complete answers, {n_cut} cut; "
          f"{len(without)} schemas without a complete one; {len(wrong)} wrong; "
          f"judged by {'jsonschema ' + importlib.metadata.version('jsonschema') if jsonschema else 'a JSON parser alone'}")
    return 1 if wrong or n_complete < 2 * n_cut // 3 else 0


if __name__ == "__main__":
    sys.exit(main())
