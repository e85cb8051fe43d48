#!/usr/bin/env python3
"""How long does a corpus take to precompute in context, in what memory, and what does a restart cost?

    bench/corpus_precompute.py --blend build/release/tools/blend/blend --model model.gguf --chunks 10000

Made-up documents of --words words, drawn as often as the words of bench/questions are, a third of each from a
topic of its own, so that some are alike. `blend precompute` stores them three times, each time in an empty store: after the
head alone; in context; and in context once more, interrupted in the middle (SIGINT, with --kill SIGKILL) and run again. The
third store must hold the records of the second. --stop-after-cpu leaves the second out, which takes half of the time, and
interrupts the third after so many CPU seconds; then it must hold a record of every chunk. Times are of the whole command. On a
machine that others use, look at the CPU time: the middle is where half of it is used up.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

INTERRUPTED = (130, -signal.SIGKILL)  # what the command ends with then
QUESTIONS = Path(__file__).resolve().parent / "questions"


def words_of_questions():
    words = []
    for path in sorted(QUESTIONS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for chunk in json.loads(line)["chunks"]:
                words += chunk.split()
    return words


def write_documents(folder, args):
    rng = random.Random(args.seed)
    words = words_of_questions()
    topics = [rng.sample(words, 12) for _ in range(max(1, args.chunks // 8))]
    for i in range(args.chunks):
        topic = topics[i % len(topics)]
        text = [rng.choice(topic) if rng.random() < 1 / 3 else rng.choice(words) for _ in range(args.words)]
        (folder / f"{i:06}.txt").write_text(" ".join(text) + "\n", encoding="utf-8")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(process, after_cpu, kill):
    try:
        while cpu_seconds(process.pid) < after_cpu:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL if kill else signal.SIGINT)
    except (OSError, IndexError):  # it has ended
        pass


class Run:
    """One `blend precompute`: what it said, seconds, and the most memory that it had."""

    def __init__(self, args, docs, store, contexts, stop_after_cpu=None):
        command = [args.blend, "precompute", "--model", args.model, "--store", store, "--docs", docs, "--contexts",
                   str(contexts), "--quota", "1TiB", "--json", *args.more]
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            if stop_after_cpu is not None:
                threading.Thread(target=stop, args=(process, stop_after_cpu, args.kill), daemon=True).start()
            said = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.seconds = time.monotonic() - begin
        self.mib = usage.ru_maxrss / 1024
        self.cpu = usage.ru_utime + usage.ru_stime
        if process.returncode != 0 and (stop_after_cpu is None or process.returncode not in INTERRUPTED):
            sys.exit(f"blend precompute ended with {process.returncode}")
        self.report = json.loads(said) if process.returncode == 0 else None

    def tokens(self):
        return sum(chunk["n_tokens"] for chunk in self.report["chunks"])


def ids(args, store):
    done = subprocess.run([args.blend, "store", "ls", "--store", store, "--json"], capture_output=True, check=True)
    listed = json.loads(done.stdout)
    return sorted(chunk["id"] for chunk in (listed["chunks"] if isinstance(listed, dict) else listed))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blend", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--chunks", type=int, default=10000)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--contexts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="interrupt by SIGKILL")
    parser.add_argument("--stop-after-cpu", type=float, metavar="S", help="leave out the run without an interruption")
    parser.add_argument("more", nargs="*", help="further options of blend precompute, after --")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="corpus"))
    try:
        docs = folder / "docs"
        docs.mkdir()
        write_documents(docs, args)
        plain = Run(args, docs, folder / "plain", 0)
        shutil.rmtree(folder / "plain")
        runs = [("after the head", plain)]
        stored, middle = None, args.stop_after_cpu
        if middle is None:
            whole = Run(args, docs, folder / "whole", args.contexts)
            stored = ids(args, folder / "whole")
            shutil.rmtree(folder / "whole")
            runs.append(("in context", whole))
            middle = whole.cpu / 2
        first = Run(args, docs, folder / "restarted", args.contexts, stop_after_cpu=middle)
        half = len(ids(args, folder / "restarted"))
        second = Run(args, docs, folder / "restarted", args.contexts)
        runs += [("interrupted", first), ("run again", second)]
        restarted = ids(args, folder / "restarted")
        n = plain.tokens()
        print(f"{args.chunks} chunks, {n} tokens, {args.contexts} prefills in context each")
        print(f"{'':28} {'s':>8} {'CPU s':>8} {'tokens/s':>9} {'tokens/CPU s':>13} {'MiB':>7}")
        for name, run in runs:
            rate = "" if run in (first, second) else f"{n / run.seconds:9.0f} {n / run.cpu:13.0f}"
            print(f"{name:28} {run.seconds:8.1f} {run.cpu:8.1f} {rate:23} {run.mib:7.0f}")
        seconds, cpu = first.seconds + second.seconds, first.cpu + second.cpu
        print(f"{'both together':28} {seconds:8.1f} {cpu:8.1f} {n / seconds:9.0f} {n / cpu:13.0f}")
        print(f"{half} of {len(restarted)} records were there after the interruption")
        if stored is None:
            right = {chunk["id"] for chunk in second.report["chunks"]} <= set(restarted)
        else:
            print(f"both runs took {cpu / whole.cpu:.2f} times the CPU time of one")
            right = restarted == stored
        print(f"the records are {'all there' if right else 'NOT THE SAME'}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
