#!/usr/bin/env python3
"""Tortures libblend.so for hours.

    tests/torture/torture.py --build build/release [--minutes 60] [--seed N] [--only NAME,...] [--json OUT]

Every round is a child process with a seed of its own. One that dies by a signal, hangs, reports
BLEND_E_INTERNAL or gives wrong bits is a finding: it is printed with the command that repeats it, the rest
goes on, and the exit status is 1. The scenarios take turns, each as much time as the others.
BLEND_TORTURE_MINUTES overrides the default of 60 minutes; --rounds N ends after N rounds of each scenario.
"""

import argparse
import collections
import ctypes
import faulthandler
import json
import os
import pathlib
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
import arguments  # noqa: E402
import cancel  # noqa: E402
import damage  # noqa: E402
import forks  # noqa: E402
import kills  # noqa: E402
import limits  # noqa: E402
import reentry  # noqa: E402
import remotes  # noqa: E402
import server  # noqa: E402
import signals  # noqa: E402
import templates  # noqa: E402
from abi import Library, Wrong  # noqa: E402

SCENARIOS = {m.__name__: m for m in (kills, damage, limits, signals, forks, arguments, cancel, reentry, remotes, server,
                                  templates)}
ROUND_S = 90  # a round that takes longer hangs; a scenario may say otherwise
PR_SET_PDEATHSIG = 1
STACKS_S = 5  # before that its stacks are written down


class Round:
    """What a scenario is given: random numbers, the library, an empty directory, and a line to the parent,
    which knows the last step of a round that died."""

    def __init__(self, scenario, seed, build, folder, pipe):
        self.rng = random.Random(f"{scenario}:{seed}")
        self.seed, self.build, self.dir, self.pipe = seed, build, folder, pipe
        self.lib = Library(build / "src" / "capi" / "libblend.so")

    def tell(self, kind, what):
        os.write(self.pipe, (json.dumps([kind, what]) + "\n").encode())

    def step(self, what):
        self.tell("step", what)

    def count(self, what):
        self.tell("count", what)

    def excuse(self, what):
        """From here on a death by SIGSEGV, SIGBUS or SIGABRT or a hang counts as `what`; "": not any more."""
        self.tell("excuse", what)


def inside(scenario, seed, build, folder, pipe):
    """The child: ends with 0, or 1 and a finding told."""
    limit = getattr(SCENARIOS[scenario], "SECONDS", ROUND_S)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output = os.open(folder / "output", os.O_CREAT | os.O_RDWR, 0o666)
    os.dup2(output, 1)
    os.dup2(output, 2)
    faulthandler.enable(all_threads=True)
    faulthandler.dump_traceback_later(limit - STACKS_S)
    code = 1
    try:
        r = Round(scenario, seed, build, folder, pipe)
        SCENARIOS[scenario].run(r)
        code = 0
    except Wrong as wrong:
        r.tell("wrong", str(wrong))
    except BaseException:
        r.tell("wrong", "the suite itself: " + traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(code)


def watch(pid, pipe, limit):
    """What the child told, its wait status, and whether it had to be killed."""
    told, rest, ends, hung = [], b"", time.monotonic() + limit, False
    pidfd = os.pidfd_open(pid)
    os.set_blocking(pipe, False)
    while True:
        ready, _, _ = select.select([pipe, pidfd], [], [], max(0, ends - time.monotonic()))
        hung = not ready
        data = b""
        if pipe in ready or pidfd in ready:
            try:
                data = os.read(pipe, 1 << 20)
            except BlockingIOError:
                pass
        rest += data
        *lines, rest = rest.split(b"\n")
        told += [json.loads(line) for line in lines]
        if not data and (hung or pidfd in ready):
            break
    try:
        os.killpg(pid, signal.SIGKILL)  # with what it left behind
    except ProcessLookupError:
        pass
    os.close(pidfd)
    return told, os.waitpid(pid, 0)[1], hung


def judge(told, status, hung, limit):
    """(finding or None, excused or None, last step)"""
    last = {kind: what for kind, what in told}
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if hung or died in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
        how = f"hung for {limit} s" if hung else f"died by {signal.Signals(died).name}"
        if last.get("excuse"):
            return None, f"{last['excuse']}: {'hung' if hung else 'died'}", last.get("step")
        return how, None, last.get("step")
    if died:
        return f"died by {signal.Signals(died).name}", None, last.get("step")
    if "wrong" in last:
        return "; ".join(what for kind, what in told if kind == "wrong"), None, last.get("step")
    code = os.WEXITSTATUS(status)
    return (f"ended with {code}" if code else None), None, last.get("step")


def one_round(scenario, seed, build):
    """(counts, finding or None)"""
    memory = random.Random(seed).random() < 0.5 and os.access("/dev/shm", os.W_OK)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"torture-{scenario}-", dir="/dev/shm" if memory else None))
    limit = getattr(SCENARIOS[scenario], "SECONDS", ROUND_S)
    counts = collections.Counter()
    try:
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(receive)
            inside(scenario, seed, build, folder, send)
        os.close(send)
        told, status, hung = watch(pid, receive, limit)
        os.close(receive)
        counts.update(what for kind, what in told if kind == "count")
        what, excused, step = judge(told, status, hung, limit)
        if excused:
            counts[excused] += 1
            print(f"no finding: {scenario} --seed {seed}: {excused}; {step}", flush=True)
        output = (folder / "output").read_text(errors="replace") if (folder / "output").exists() else ""
        if what is None:
            return counts, None
        return counts, {"scenario": scenario, "seed": seed, "what": what, "step": step, "output": output[-6000:]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(rows):
    lines = [f"{'scenario':<10} {'rounds':>7} {'findings':>8} {'minutes':>8}  counts"]
    for name, row in rows.items():
        counts = ", ".join(f"{what} {n}" for what, n in sorted(row["counts"].items(), key=lambda x: -x[1]))
        lines.append(f"{name:<10} {row['rounds']:>7} {row['findings']:>8} {row['seconds'] / 60:>8.1f}  {counts}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("BLEND_TORTURE_MINUTES", 60)))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default=",".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    build, seed = args.build.resolve(), args.seed
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 30)
    rows = {name: {"rounds": 0, "findings": 0, "seconds": 0.0, "counts": collections.Counter()}
            for name in args.only.split(",")}
    if not set(rows) <= set(SCENARIOS):
        parser.error(f"the scenarios are {', '.join(SCENARIOS)}")
    for end in (signal.SIGINT, signal.SIGTERM):  # with the table; a shell's background ignores the first
        signal.signal(end, signal.default_int_handler)
    findings, ends = [], time.monotonic() + 60 * args.minutes
    print(f"torture: seed {seed}, {build}", flush=True)
    try:
        while time.monotonic() < ends:
            left = {n: row for n, row in rows.items() if args.rounds is None or row["rounds"] < args.rounds}
            if not left:
                break
            name = min(left, key=lambda n: left[n]["seconds"])
            row, began, its_seed = rows[name], time.monotonic(), seed + rows[name]["rounds"]
            counts, finding = one_round(name, its_seed, build)
            row["rounds"] += 1
            row["seconds"] += time.monotonic() - began
            row["counts"].update(counts)
            if finding:
                finding["repeat"] = f"{sys.argv[0]} --build {args.build} --only {name} --seed {its_seed} --rounds 1"
                row["findings"] += 1
                findings.append(finding)
                print("\nFINDING {scenario}: {what}\n  step: {step}\n  repeat: {repeat}".format(**finding))
                print("  " + "\n  ".join(finding["output"].strip().splitlines()[-40:]), flush=True)
    except KeyboardInterrupt:
        print("stopped")
    print("\n" + table(rows))
    if args.json:
        args.json.write_text(json.dumps({"seed": seed, "scenarios": rows, "findings": findings}, indent=1) + "\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
