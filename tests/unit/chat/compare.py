#!/usr/bin/env python3
"""Random templates, rendered by jinja2 with transformers' settings and by libblend: what both render must be the
same to the byte, and what jinja2 renders may be refused as unknown (UNSUPPORTED) but not be called wrong.

    compare.py build/release/tests/chat_render_lines [--seed 1] [--number 3000] [--show]

77 where jinja2 is not installed.
"""

import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "golden")]
from grammar import VARIABLES, Grammar  # noqa: E402


def theirs(env, source):
    try:
        return {"text": env.from_string(source).render(**VARIABLES)}
    except RecursionError:
        raise
    except Exception as error:  # whatever it is: the template is wrong
        return {"error": f"{type(error).__name__}: {error}"}


def judge(jinja, ours, allowed):
    """A finding, or None."""
    if "text" in jinja and "text" in ours:
        return None if jinja["text"] == ours["text"] else "other text"
    if "text" in jinja:
        return None if ours["code"] == allowed else "called wrong"
    # Some syntax that Jinja refuses has one meaning all the same.
    return "not called wrong" if "text" in ours and not jinja["error"].startswith("TemplateSyntaxError") else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("renderer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=3000)
    parser.add_argument("--show", action="store_true", help="what is refused, and how often")
    args = parser.parse_args()
    try:
        from render import environment
        env = environment()
    except ImportError:
        print("skipped: jinja2 is not installed")
        return 77
    unsupported = json.loads(subprocess.run([args.renderer], input=json.dumps({"source": "{% do x %}", "variables": {}}) + "\n",
                                            capture_output=True, text=True, check=True).stdout)["code"]
    process = subprocess.Popen([args.renderer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    counts, refused, findings = collections.Counter(), collections.Counter(), 0
    for i in range(args.number):
        seed = args.seed * 1000003 + i
        source = Grammar(random.Random(seed)).template()
        process.stdin.write(json.dumps({"source": source, "variables": VARIABLES}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            print(f"the renderer died: seed {seed}\n{source}")
            return 1
        ours, jinja = json.loads(line), theirs(env, source)
        counts["rendered" if "text" in jinja and "text" in ours else "refused as unknown" if "text" in jinja else "wrong"] += 1
        if "text" in jinja and "text" not in ours:
            refused[ours["error"]] += 1
        finding = judge(jinja, ours, unsupported)
        if finding:
            findings += 1
            if findings <= 10:
                print(f"{finding}: seed {seed}\n  {source!r}\n  jinja2:   {jinja}\n  libblend: {ours}")
    if args.show:
        for message, n in refused.most_common(40):
            print(f"{n:>6} {message}")
    print(f"{args.number} templates: " + ", ".join(f"{n} {what}" for what, n in counts.items()) + f"; {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
