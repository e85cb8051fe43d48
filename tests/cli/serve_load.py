"""Many honest clients of `blend serve` at once, each of whose answers is compared."""

import http.client
import json
import subprocess
import threading
import time
from pathlib import Path

from serve_case import ARGS, DOCUMENTS, chat


def asked(server, path, body, stream, **more):
    """Status and text of an answer."""
    if not stream:
        status, answer, _ = server.post(body, path, **more)
        choice = answer["choices"][0] if status == 200 else {}
    else:
        status, choice = 200, {"text": ""}
        for event in server.stream(body, path, **more):
            one = event["choices"][0]
            choice["text"] += one.get("text", "") + one.get("delta", {}).get("content", "")
    return status, choice.get("text", choice.get("message", {}).get("content"))


def load(server, folder, model, clients, requests=None, seconds=None):
    """Clients that each ask in turn, every answer compared with the one that a lone client got: by both
    endpoints, in streams and whole, with documents by their texts and by their ids."""
    store = server.process.args[server.process.args.index("--store") + 1]
    docs = Path(folder) / "load"
    docs.mkdir()
    for i, text in enumerate(DOCUMENTS):
        (docs / f"{i}.txt").write_text(text)
    made = json.loads(subprocess.run([ARGS.blend, "precompute", "--model", model, "--store", store, "--docs", docs,
                                      "--json"], capture_output=True, check=True).stdout)
    ids = [{"id": chunk["id"]} for chunk in made["chunks"] if not chunk["prefix"]]
    assert len(ids) == len(DOCUMENTS), made
    kinds = []
    for i, word in ((0, "sat"), (1, "ran"), (2, "sang")):
        for documents in (DOCUMENTS, ids):
            turned = documents[i:] + documents[:i]
            for stream in (False, True):
                kinds.append(("/v1/chat/completions", chat(f"who {word}", documents=turned, ignore_eos=True), stream))
                kinds.append(("/v1/completions", {"prompt": f"who {word}", "documents": turned, "ignore_eos": True,
                                                  "temperature": 0, "max_tokens": 12}, stream))
    # Stored chunks are rounded, and better records of chunks come from use in idle time: answers are one after that.
    wanted, before = [], None
    for _ in range(10):
        if wanted and wanted == before:
            break
        before = wanted
        time.sleep(1)
        wanted = [asked(server, *kind)[1] for kind in kinds]
    assert len(set(wanted)) > 3, wanted
    end = time.monotonic() + (seconds or 1e9)
    times, wrong, lost, why, lock = [], [0], [0], set(), threading.Lock()

    def client(number):
        n = 0
        while (requests is None or n < requests) and time.monotonic() < end:
            which = (number + n) % len(kinds)
            n += 1
            begin = time.monotonic()
            try:
                status, text = asked(server, *kinds[which], timeout=120)
            except (OSError, AssertionError, http.client.HTTPException) as error:
                with lock:
                    lost[0] += 1
                    why.add(repr(error)[:300])
                continue
            with lock:
                times.append(time.monotonic() - begin)
                if status != 200 or text != wanted[which]:
                    wrong[0] += 1
                    why.add(f"{len(times)} {kinds[which][0]}: {status} {text!r}, not {wanted[which]!r}"[:300])
    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    times.sort()
    return {"answers": len(times), "kinds": len(kinds), "wrong": wrong[0], "lost": lost[0],
            "why": sorted(why)[:5], "p50_ms": 1000 * times[len(times) // 2], "p99_ms": 1000 * times[len(times) * 99 // 100]}
