"""The same as fuse_call.c, through the Python binding; and the comparison of bindings with C.

    python3 fuse_call.py MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS
    python3 fuse_call.py --compare build/release/bench/fuse_call [--json FILE]
                         [--binding NAME "COMMAND ..."] ...
    python3 fuse_call.py --turns build/release/bench/libfuse_call_turns.so

Without --binding --compare compares Python. Rounds of C and of the bindings take turns, so that whatever
else the machine does falls on all of them. Compared are medians of the calling thread's CPU time (it is the
one that computes). --turns is finer: one process, in which C, C once more, the raw module under the package
and the package take turns call by call, in any order.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

MODEL = pathlib.Path(__file__).resolve().parents[1] / "examples/models/blend-qa.gguf"
SHAPES = ((5, 32), (6, 150))  # chunks, tokens each


def measure(model_path, store_path, chunks, tokens, calls):
    import libblend

    with libblend.Context(1) as ctx, libblend.Model(ctx, model_path) as model, \
            libblend.Store(ctx, store_path) as store:
        ids = [5 + i * 7919 % 800 for i in range(chunks * tokens + 16)]
        prompt = libblend.Prompt()
        for i in range(chunks):
            chunk = ids[i * tokens:(i + 1) * tokens]
            model.precompute(store, chunk)
            prompt.chunk(chunk)
        prompt.question(ids[chunks * tokens:])
        for i in range(-3, calls):
            begin, cpu = time.monotonic_ns(), time.thread_time_ns()
            model.fuse(store, prompt).close()
            cpu_ns = time.thread_time_ns() - cpu
            if i >= 0:
                print(time.monotonic_ns() - begin, cpu_ns)


def compare(c_program, bindings, rounds, calls):
    commands = {"C": [c_program], **bindings}
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for chunks, tokens in SHAPES:
            times = {name: [] for name in commands}
            for _ in range(rounds):
                for name, command in commands.items():
                    done = subprocess.run(
                        [*command, MODEL, f"{folder}/{chunks}", str(chunks), str(tokens), str(calls)],
                        stdout=subprocess.PIPE, text=True, check=True)
                    times[name] += [tuple(int(ns) / 1e3 for ns in line.split())
                                    for line in done.stdout.splitlines()]
            base = statistics.median(cpu for _, cpu in times["C"])
            for name, values in times.items():
                cpu = statistics.median(cpu for _, cpu in values)
                results.append({"rows": chunks * tokens + 16, "language": name, "calls": len(values),
                                "wall_us": round(statistics.median(wall for wall, _ in values), 1),
                                "cpu_us": round(cpu, 1), "over_c_us": round(cpu - base, 1),
                                "over_c_percent": round(100 * (cpu / base - 1), 2)})
    print(f"{'rows':>5} {'language':10} {'wall us':>9} {'CPU us':>9} {'over C us':>10} {'%':>6}")
    for r in results:
        print(f"{r['rows']:5} {r['language']:10} {r['wall_us']:9.1f} {r['cpu_us']:9.1f} "
              f"{r['over_c_us']:10.1f} {r['over_c_percent']:6.2f}")
    return results


def take_turns(library, calls):
    import ctypes
    import random

    import libblend
    from libblend import raw

    c = ctypes.CDLL(library)
    c.fuse_call_once.restype = ctypes.c_longlong
    wall = ctypes.c_longlong()
    clock = time.thread_time_ns
    results = []
    for chunks, tokens in SHAPES:
        with tempfile.TemporaryDirectory() as folder, libblend.Context(1) as ctx, \
                libblend.Model(ctx, MODEL) as model, libblend.Store(ctx, folder) as store:
            assert c.fuse_call_open(str(MODEL).encode(), folder.encode(), chunks, tokens) == 0
            ids = [5 + i * 7919 % 800 for i in range(chunks * tokens + 16)]
            prompt = libblend.Prompt()
            for i in range(chunks):
                prompt.chunk(ids[i * tokens:(i + 1) * tokens])
            prompt.question(ids[chunks * tokens:])
            options = raw.FuseOptions()

            def in_c():
                return c.fuse_call_once(ctypes.byref(wall))

            def in_raw():
                begin = clock()
                raw.Fusion.fuse(model._raw, store._raw, prompt._raw, options).close()
                return clock() - begin

            def in_python():
                begin = clock()
                model.fuse(store, prompt).close()
                return clock() - begin

            turns = {"C": in_c, "C again": in_c, "raw module": in_raw, "Python": in_python}
            times = {name: [] for name in turns}
            for i in range(-5, calls):
                for name in random.sample(list(turns), len(turns)):
                    taken = turns[name]() / 1e3
                    if i >= 0:
                        times[name].append(taken)
            c.fuse_call_close()
        base = statistics.median(times["C"])
        for name, values in times.items():
            cpu = statistics.median(values)
            results.append({"rows": chunks * tokens + 16, "language": name, "calls": calls,
                            "cpu_us": round(cpu, 1), "over_c_us": round(cpu - base, 1),
                            "over_c_percent": round(100 * (cpu / base - 1), 2)})
    print(f"{'rows':>5} {'language':10} {'CPU us':>9} {'over C us':>10} {'%':>6}")
    for r in results:
        print(f"{r['rows']:5} {r['language']:10} {r['cpu_us']:9.1f} {r['over_c_us']:10.1f} "
              f"{r['over_c_percent']:6.2f}")
    return results


def main():
    if len(sys.argv) == 6 and not sys.argv[1].startswith("-"):
        return measure(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--compare", metavar="FUSE_CALL")
    what.add_argument("--turns", metavar="LIBRARY")
    parser.add_argument("--binding", nargs=2, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--json")
    args = parser.parse_args()
    bindings = {name: shlex.split(command) for name, command in args.binding} or {
        "Python": [sys.executable, "-B", __file__]}
    if args.turns:
        results = take_turns(args.turns, args.rounds * args.calls)
    else:
        results = compare(args.compare, bindings, args.rounds, args.calls)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
