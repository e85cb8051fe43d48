"""fork() at random moments while three threads fuse, put and generate. In the child whatever computes or stores on
an inherited handle gives BLEND_E_FORKED within 5 s, closing does not hang, and opening again works. And two
processes of one number, in two PID namespaces, on one store."""

import ctypes as c
import faulthandler
import os
import random
import signal
import threading
import time

import calls
from abi import CALLBACKS, CODES, Wrong
from world import FAIL, World, ids, random_tokens

SOON_S = 5
NEWPID = 0x20000000
LIBC = c.CDLL(None)


def in_child(r, work):
    """Runs `work` in a forked child and exits there; gives its process number here."""
    pid = os.fork()
    if pid:
        return pid
    faulthandler.register(signal.SIGALRM, chain=True)  # a hang ends as a signal; its watchdog forgets forks
    signal.alarm(8 * SOON_S)
    code = 1
    try:
        work()
        code = 0
    except Wrong as wrong:
        r.tell("wrong", f"in the child: {wrong}")
    except BaseException as error:
        r.tell("wrong", f"the suite itself, in the child: {error!r}")
    finally:
        os._exit(code)


def ended(pid):
    """The sentence about a child that did not end well, or None."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return f"the child died by signal {os.WTERMSIG(status)}"
    return None if os.WEXITSTATUS(status) == 0 else "the child failed or hung (see its output)"


def inherited_calls(w, fusion, layerwise):
    """All that computes or stores."""
    lib, token, out, path = w.lib, ids([5]), c.c_void_p(), str(w.r.dir / "child").encode()
    n, chunk = c.c_size_t(), CALLBACKS["chunk_fn"](lambda *_: 0)
    rows = (c.c_float * (1024 * 128))()
    view = lib.struct("kv_view", k=rows, v=rows)
    more = lib.struct("generate_options", max_tokens=3, ignore_eos=1)
    full = lib.struct("fuse_options", policy=1)
    one = w.segments([], token)
    sample = lib.array("sample", [lib.struct("sample", segments=w.prompt, n_segments=len(w.prompt))] * 2)
    request = lib.array("fuse_request", [lib.struct("fuse_request", segments=one, n_segments=1, options=full)])
    return {
        "model_open": lambda: lib.call("model_open", c.byref(out), w.ctx, w.model_path.encode(), None),
        "store_open": lambda: lib.call("store_open", c.byref(out), w.ctx, path, None),
        "precompute": lambda: w.precompute(w.question),
        "chunk_find": lambda: lib.call("chunk_find", w.model, w.store, token, 1, None, None),
        "fuse": lambda: w.fuse()[0],
        "fuse without a store": lambda: lib.call("fuse", c.byref(out), w.model, None, one, 1, full),
        "fuse_batch": lambda: lib.call("fuse_batch", c.byref(out), None, w.model, w.store, request, 1),
        "decode": lambda: lib.call("fusion_decode", fusion, token, 1, None),
        "generate": lambda: lib.call("fusion_generate", fusion, more, CALLBACKS["token_fn"](), None, None),
        "extend": lambda: lib.call("fusion_extend", fusion, w.store, one, 1, full),
        "replace": lambda: lib.call("fusion_replace", fusion, 0, 1, token, 1, None),
        "erase": lambda: lib.call("fusion_erase", fusion, 0, 1, None),
        "save": lambda: lib.call("fusion_save", fusion, w.store, None, None, None),
        "restore": lambda: lib.call("fusion_restore", c.byref(out), w.model, w.store, w.ids[0], None, 1, None),
        "calibrate": lambda: lib.call("calibrate", w.model, sample, 2, None, path),
        "machine_open": lambda: lib.call("machine_open", c.byref(out), w.model, None, None),
        "layerwise_create": lambda: lib.call("layerwise_create", c.byref(out), w.model, w.store, w.prompt, len(w.prompt), None),
        "layerwise_fetch_kv": lambda: lib.call("layerwise_fetch_kv", layerwise, 0, view),
        "layerwise_synchronize": lambda: lib.call("layerwise_synchronize", layerwise, 0),
        "layerwise_select": lambda: lib.call("layerwise_select", layerwise, 0, None, c.byref(out), c.byref(n)),
        "layerwise_restart": lambda: lib.call("layerwise_restart", layerwise),
        "flush": lambda: lib.call("store_flush", w.store),
        "wait": lambda: lib.call("store_wait", w.store, w.ids[0], -1),
        "list": lambda: w.list(1, chunk),
        "remove": lambda: lib.call("store_remove", w.store, w.ids[0], None),
        "pin": lambda: lib.call("store_set_pinned", w.store, w.ids[0], 1),
        "evict": lambda: lib.call("store_evict", w.store, 0, None),
        "hint": lambda: lib.call("store_prefetch", w.store, w.ids[0], 1),
        "set_tenant_quota": lambda: lib.call("store_set_tenant_quota", w.store, b"t", 1),
        "get_tenant": lambda: lib.call("store_get_tenant_usage", w.store, b"t", None, None, None),
        "repair": lambda: lib.call("store_repair", w.store, chunk, None, None),
        "copy": lambda: lib.call("store_copy", w.store, path),
        "export": lambda: lib.call("store_export", w.store, path, None, None),
        "get_stat": lambda: lib.call("store_get_stat", w.store, lib.struct("store_stat")),
    }


def timed(r, what, call):
    r.step(what)
    began = time.monotonic()
    result = call()
    if time.monotonic() - began > SOON_S:
        raise Wrong(f"{what} took {time.monotonic() - began:.1f} s")
    return result


def refused(r, inherited, n):
    for name, call in r.rng.sample(inherited, n):
        code = timed(r, f"{name} in the child", call)
        if code != CODES["BLEND_E_FORKED"]:
            raise Wrong(f"{name} on inherited handles gave {code.name}: {code.message}")


def child(r, w, fusions, layerwise, expected):
    refused(r, list(inherited_calls(w, fusions[0], layerwise).items()), 12)
    handles = [("layerwise", layerwise), ("store", w.store), ("model", w.model), ("ctx", w.ctx)]
    handles += [("fusion", fusion) for fusion in fusions]
    for kind, handle in r.rng.sample(handles, len(handles)):
        timed(r, f"{kind}_close in the child", lambda: r.lib.call(f"{kind}_close", handle))
    r.step("opening anew in the child")
    anew = World(r, chunks=w.chunks)
    if anew.bits(anew.fused(on_miss=FAIL)) != expected:
        raise Wrong("a fuse in the child gave other bits")
    anew.close()


def threads_at_work(r, w, own, stop, failures):
    rng = random.Random(r.seed)

    def forever(work):
        def loop():
            try:
                while not stop.is_set():
                    work()
            except Wrong as wrong:
                failures.append(wrong)
        return loop

    put = forever(lambda: (w.precompute(random_tokens(rng, 40)), calls_remove(w)))
    fuse = forever(lambda: w.bits(w.fused(on_miss=FAIL)))
    options = r.lib.struct("generate_options", max_tokens=5, ignore_eos=1)

    def generating():
        r.lib.done("fusion_generate", own, options, CALLBACKS["token_fn"](), None, None)
        r.lib.done("fusion_erase", own, 20, 5, None)

    return [threading.Thread(target=work) for work in (put, fuse, forever(generating))]


def calls_remove(w):
    w.lib.call("store_remove", w.store, w.id, None)


def forking(r):
    w = calls.world(r, queue_bytes=1 << 20)
    expected = w.bits(w.fused(on_miss=FAIL))
    fusion, own = w.fused(on_miss=FAIL), w.fused(on_miss=FAIL)
    stop, failures = threading.Event(), []
    threads = threads_at_work(r, w, own, stop, failures)
    for thread in threads:
        thread.start()
    for _ in range(6):
        layerwise = r.lib.opened("layerwise_create", w.model, w.store, w.prompt, len(w.prompt), None)
        time.sleep(r.rng.uniform(0, 0.03))
        problem = ended(in_child(r, lambda: child(r, w, (fusion, own), layerwise, expected)))
        r.lib.call("layerwise_close", layerwise)
        if problem:
            stop.set()
            raise Wrong(problem)
        r.rng.random()  # or every child would draw the same
        r.count("forks")
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    if w.bits(w.fused(on_miss=FAIL)) != expected:
        raise Wrong("the parent's fuse gives other bits after the forks")
    for handle in (fusion, own):
        r.lib.call("fusion_close", handle)
    w.close()


def child_of_one_number(r, w):
    """A forked child in a namespace of its own has the number of its parent, which is 1."""
    fusion, layerwise = w.fused(on_miss=FAIL), c.c_void_p()
    if LIBC.unshare(NEWPID) != 0:  # no threads are started from here on
        return
    problem = ended(in_child(r, lambda: refused(r, [
        (name, call) for name, call in inherited_calls(w, fusion, layerwise).items() if not name.startswith("layerwise_")], 4)))
    if problem:
        raise Wrong(f"a child of its parent's number: {problem}")
    r.count("forks of one number")


def one_of_two(r, chunks, first, ready, done):
    """Process 1 of a namespace."""
    if first:
        w = calls.world(r, chunks=chunks)
        expected = w.bits(w.fused(on_miss=FAIL))
        os.write(ready, expected)
        os.close(ready)
        os.read(done, 1)  # the other one is through
        if w.bits(w.fused(on_miss=FAIL)) != expected:
            raise Wrong("a process of the same number in another namespace changed the bits")
        child_of_one_number(r, w)
        w.close()
        return
    expected = b""
    while data := os.read(ready, 1 << 20):
        expected += data
    try:
        w = World(r, chunks=chunks)
    except Wrong as wrong:
        if getattr(wrong, "code", 0) != CODES["BLEND_E_BUSY"]:
            raise
        r.count("busy")
        return
    for _ in range(20):
        if w.bits(w.fused(on_miss=FAIL)) != expected:
            raise Wrong("of two processes of one number the second gets other bits")
        w.precompute(random_tokens(r.rng, 30))
    w.close()
    r.count("both at once")


def namespaces(r):
    if os.geteuid() != 0:
        r.count("skipped: not root")
        return
    chunks = [random_tokens(r.rng, 40), random_tokens(r.rng, 30)]
    told, tell = os.pipe(), os.pipe()
    outer = []
    for first in (True, False):
        def alone():
            os.close(told[0] if first else told[1])
            os.close(tell[1] if first else tell[0])
            if LIBC.unshare(NEWPID) != 0:
                r.count("skipped: no namespaces")
                return
            inner = in_child(r, lambda: one_of_two(r, chunks, first, told[1] if first else told[0], tell[0]))
            if first:
                os.close(told[1])
            problem = ended(inner)
            if problem:
                raise Wrong(problem)
        outer.append(in_child(r, alone))
    for end in (*told, tell[0]):
        os.close(end)
    problems = [ended(outer[1])]
    os.close(tell[1])
    problems.append(ended(outer[0]))
    if any(problems):
        raise Wrong("; ".join(p for p in problems if p))
    r.count("namespaces")


def run(r):
    namespaces(r) if r.rng.random() < 0.25 else forking(r)
