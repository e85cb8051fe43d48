"""blend_cancel_request from another thread at a random time of every long call: it ends soon, as cancelled or
done, and the same call afterwards gives the same bits as before."""

import threading
import time

import calls
from abi import CODES, Wrong

SOON_S = 10  # "within about one layer's compute time", on a machine that has other work


def run(r):
    w = calls.world(r)
    token, n_cancelled = r.lib.opened("cancel_create"), 0
    for call in r.rng.sample(calls.CANCELLED, 5):
        r.step(f"{call.__name__} without cancel")
        began = time.monotonic()
        code, expected = call(w)
        took = time.monotonic() - began
        if code < 0:
            raise Wrong(f"{call.__name__}: {code.name}: {code.message}")
        for _ in range(4):
            delay = r.rng.uniform(0, 1.1 * took) * r.rng.choice((1, 1, 0.1, 0))
            r.step(f"{call.__name__}, cancelled after {1e3 * delay:.3f} ms of {1e3 * took:.3f}")
            requested = []

            def request():
                time.sleep(delay)
                requested.append(time.monotonic())
                r.lib.call("cancel_request", token)

            thread = threading.Thread(target=request)
            thread.start()
            code, bits = call(w, cancel=token)
            ended = time.monotonic()
            thread.join()
            r.lib.call("cancel_reset", token)
            if code < 0 and code != CODES["BLEND_E_CANCELLED"]:
                raise Wrong(f"{call.__name__} with a cancel gave {code.name}: {code.message}")
            if code >= 0 and bits != expected:
                raise Wrong(f"{call.__name__} came too early for its cancel and gave other bits")
            if code < 0 and ended - requested[0] > SOON_S:
                raise Wrong(f"{call.__name__} ended {ended - requested[0]:.1f} s after its cancel")
            n_cancelled += code < 0
            r.count("done" if code >= 0 else "cancelled")
        r.step(f"{call.__name__} after the cancels")
        code, bits = call(w)
        if code < 0 or bits != expected:
            raise Wrong(f"{call.__name__} after a cancel: {code.name}, {'other' if bits != expected else 'equal'} bits")
    if n_cancelled == 0:  # some came before their calls
        raise Wrong("no cancel had any effect")
    w.close()
    r.lib.call("cancel_free", token)
