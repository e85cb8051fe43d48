"""kill -9 while a store is written: rounds of tests/crash/store_crash, which judges every one. Its dice are its
own, so a seed does not repeat a finding exactly."""

import os
import subprocess

from abi import Wrong

SECONDS = 300
ROUNDS = 30


def run(r):
    program = r.build / "tests" / "store_crash"
    if not program.exists():
        r.count("skipped: no store_crash")
        return
    r.step(f"{program} --rounds {ROUNDS}")
    done = subprocess.run([program, "--rounds", str(ROUNDS)], env={**os.environ, "TMPDIR": str(r.dir)},
                          capture_output=True, text=True)
    print(done.stdout, done.stderr)
    if done.returncode != 0:
        raise Wrong(f"store_crash ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    for _ in range(ROUNDS):
        r.count("crash rounds")
