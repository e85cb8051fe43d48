"""`blend serve` among hostile clients: an honest one gets the same answers throughout, memory is bounded, and
SIGTERM ends it."""

import collections
import http.client
import json
import pathlib
import random
import signal
import subprocess
import threading
import time

import hostile_clients
from abi import Wrong
from world import MODEL

SECONDS = 180
ATTACK_S = 40
MOST_BYTES = 700 << 20  # resident: a tiny model, and 64 MiB of bodies
ASKED = {"prompt": "Who", "documents": ["The cat sat on the mat.", "The dog ran to the park."], "temperature": 0, "max_tokens": 8}


def ask(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/v1/completions", json.dumps(ASKED), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def text_of(answer):
    status, body = answer
    if status != 200:
        raise Wrong(f"status {status}: {body[:300]}")
    return json.loads(body)["choices"][0]["text"]


def resident(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def run(r):
    program = r.build / "tools" / "blend" / "blend"
    options = ["--parallel", "2", "--client-timeout", "3", "--drain", "5", "--connections", str(r.rng.choice((40, 300))),
               "--request-memory", "64MiB", "--ratio", "0.3"]
    server = subprocess.Popen([program, "serve", "--model", MODEL, "--store", r.dir / "store", "--port", "0", "--json", *options],
                              stdout=subprocess.PIPE, text=True)
    port = json.loads(server.stdout.readline())["port"]
    for _ in range(3):  # what is stored is rounded: from the second time on answers are one
        wanted = text_of(ask(port))
        time.sleep(0.5)
    end = time.monotonic() + ATTACK_S
    counts = [collections.Counter() for _ in range(12)]

    def attack(i):
        rng = random.Random(f"{r.seed}:{i}")
        while time.monotonic() < end and server.poll() is None:
            hostile_clients.one(port, rng, counts[i])
    threads = [threading.Thread(target=attack, args=(i,)) for i in range(len(counts))]
    for t in threads:
        t.start()
    r.step("asking among hostile clients")
    n = 0
    while time.monotonic() < end:
        try:
            answer = ask(port)
        except (OSError, http.client.HTTPException) as error:
            if server.poll() is not None:
                raise Wrong(f"the server ended with {server.returncode}") from error
            # Where it is full of silent ones, one that has said nothing yet may be the oldest.
            r.count("cut off")
            continue
        if answer[0] in (429, 503):
            r.count("busy")
            time.sleep(0.05)
            continue
        if text_of(answer) != wanted:
            raise Wrong(f"another answer: {answer[1][:300]}")
        n += 1
        if (bytes_now := resident(server.pid)) > MOST_BYTES:
            raise Wrong(f"{bytes_now >> 20} MiB are resident")
    for t in threads:
        t.join()
    if n == 0:
        raise Wrong("no honest answer")
    for name, times in sum(counts, collections.Counter()).items():
        for _ in range(times):
            r.count(name)
    r.step("SIGTERM")
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(20)
    except subprocess.TimeoutExpired as error:
        raise Wrong("it does not end") from error
    if code != 0:
        raise Wrong(f"it ended with {code}")
