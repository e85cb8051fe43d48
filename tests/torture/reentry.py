"""Callbacks that use the library themselves, on the same context, and callbacks that say stop. Their own
call is left open; the log's callback must not call back, and does not."""

import calls
from abi import CALLBACKS, CODES, Wrong
from world import FAIL, PRECOMPUTE, random_tokens

INSIDE = (calls.fuse, calls.generate, calls.export, calls.verified, calls.copy, calls.decode, calls.model_open,
          calls.extend, calls.restore)


def put(w):
    return w.precompute(random_tokens(w.r.rng, 20)), None


def remove(w):
    """Removes a chunk of its own: those of the world are needed."""
    w.precompute(random_tokens(w.r.rng, 9))
    return w.lib.call("store_remove", w.store, w.id, None), None


def miss(w):
    code, fusion = w.fuse(prompt=w.segments([random_tokens(w.r.rng, 20)], w.question), on_miss=PRECOMPUTE)
    w.lib.call("fusion_close", fusion)
    return code, None


def stat(w):
    return w.lib.call("store_get_stat", w.store, w.lib.struct("store_stat")), None


def repair(w):
    return w.lib.call("store_repair", w.store, CALLBACKS["chunk_fn"](lambda *_: 0), None, None), None


def flush(w):
    return w.lib.call("store_flush", w.store), None


def listing(w, fn, **_):
    return w.list(w.r.rng.randrange(2), fn), b""


def repairing(w, fn, **_):
    """Calls its callback only for what it removes."""
    return w.lib.call("store_repair", w.store, fn, None, None), b""


def metrics(w, fn, **_):
    return w.lib.call("store_list_metrics", w.store, fn, None), b""


def tokens(w, fn, **_):
    fusion = w.fused(on_miss=FAIL)
    options = w.lib.struct("generate_options", max_tokens=6, ignore_eos=1)
    code = w.lib.call("fusion_generate", fusion, options, fn, None, None)
    return code, w.bits(fusion) if code >= 0 else None


def progress(call):
    def with_fn(w, fn):
        return call(w, progress=fn)
    with_fn.__name__ = call.__name__
    return with_fn


def measured(w, fn):
    return calls.calibrate(w, on_measurement=fn)


def scored(w, fn):
    """Gives no bits: a score that is not written is the deviation."""
    code, fusion = w.fuse(on_miss=FAIL, policy=7, score=fn)
    return code, w.bits(fusion) if code >= 0 else None


OUTSIDE = [(progress(call), "progress_fn") for call in calls.CANCELLED if call.__name__ not in calls.LIMITED] + [
    (listing, "chunk_fn"), (metrics, "metric_fn"), (tokens, "token_fn"), (measured, "measurement_fn"),
    (scored, "score_fn")]


def run(r):
    w = calls.world(r, n_chunks=2)
    for outside, kind in r.rng.sample(OUTSIDE, 5):
        nothing = CALLBACKS[kind](lambda *_: 0)
        r.step(f"{outside.__name__} with a {kind} that does nothing")
        code, expected = outside(w, nothing)
        if code < 0:
            raise Wrong(f"{outside.__name__}: {code.name}: {code.message}")
        inside = r.rng.choice(INSIDE + (put, remove, miss, stat, repair, flush))
        r.step(f"{inside.__name__} out of a {kind} of {outside.__name__}")
        failed, left = [], [3]

        def call_back(*_):
            if left[0] > 0:
                left[0] -= 1
                try:
                    code, _bits = inside(w)
                    if code < 0:
                        failed.append(f"{code.name}: {code.message}")
                except Wrong as wrong:
                    failed.append(str(wrong))
            return 0

        code, bits = outside(w, CALLBACKS[kind](call_back))
        r.count("no callback came" if left[0] == 3 else "calls out of callbacks")
        # Work inside costs memory and time of a calibration's, and nothing else.
        if code < 0 or (bits != expected):
            raise Wrong(f"{outside.__name__} with {inside.__name__} inside: {code.name} {code.message}, "
                        f"{'other' if bits != expected else 'equal'} bits")
        if failed:
            raise Wrong(f"{inside.__name__} inside {outside.__name__}: {failed[0]}")
        stop_at, value = r.rng.randrange(3), r.rng.choice((1, -1, 7, 2**31 - 1, -2**31, r.rng.randrange(1, 2**31)))
        r.step(f"{outside.__name__} with a {kind} that gives {value} at call {stop_at}")
        n = [0]

        def stop(*_):
            n[0] += 1
            return value if n[0] > stop_at else 0

        code, bits = outside(w, CALLBACKS[kind](stop))
        if n[0] > stop_at + (2 if outside.__name__ == "fuse_batch" else 1):  # each of its prompts asks
            raise Wrong(f"{outside.__name__} called back {n[0] - stop_at - 1} times after {value}")
        if n[0] > stop_at and (code != CODES["BLEND_E_CALLBACK"] or code.detail != value):
            raise Wrong(f"{outside.__name__} was told {value} and gave {code.name} with detail {code.detail}")
        r.count("stopped" if n[0] > stop_at else "ended before")
        code, bits = outside(w, nothing)
        if code < 0 or bits != expected:
            raise Wrong(f"{outside.__name__} after a stop: {code.name} {code.message}, or other bits")
    w.close()
