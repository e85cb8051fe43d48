"""Resource limits at random values around what is needed, before the context is made or between calls: an error
code or the right bits, and with the limit lifted everything works."""

import contextlib
import ctypes
import os
import resource
import signal
import threading

import calls
from abi import Failed, Wrong
from world import World

LIBC = ctypes.CDLL(None, use_errno=True)
KIB, MIB = 1 << 10, 1 << 20
NOBODY = 65534
NEWNS, PRIVATE = 0x20000, 1 << 18 | 1 << 14


@contextlib.contextmanager
def limited(which, soft):
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield f"a limit of {soft}"
    finally:
        resource.setrlimit(which, before)


def address_space(r):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    return limited(resource.RLIMIT_AS, used + r.rng.randrange(r.rng.choice((MIB, 16 * MIB, 64 * MIB, 512 * MIB))))


def file_size(r):
    signal.signal(signal.SIGXFSZ, r.rng.choice((signal.SIG_DFL, signal.SIG_IGN)))  # Python ignores it
    return limited(resource.RLIMIT_FSIZE, r.rng.randrange(r.rng.choice((8 * KIB, 256 * KIB, 4 * MIB))))


def files(r):
    return limited(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1 + r.rng.randrange(12))


def threads(r):
    """Root has no such limit."""
    if os.geteuid() == 0:
        for folder, _, names in os.walk(r.dir):
            for path in [folder, *(os.path.join(folder, name) for name in names)]:
                os.chown(path, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    return limited(resource.RLIMIT_NPROC, r.rng.randrange(9))


@contextlib.contextmanager
def stacks(r):
    """Stacks of the library's threads, and of the calling one: as small as musl makes them."""
    n = r.rng.choice((128 * KIB, 192 * KIB, 256 * KIB, MIB))
    attributes, before = (ctypes.c_byte * 64)(), (ctypes.c_byte * 64)()
    LIBC.pthread_getattr_default_np(before)
    LIBC.pthread_attr_init(attributes)
    LIBC.pthread_attr_setstacksize(attributes, ctypes.c_size_t(n))
    if LIBC.pthread_setattr_default_np(attributes) != 0:
        raise OSError("pthread_setattr_default_np")
    threading.stack_size(n)
    try:
        yield f"stacks of {n}"
    finally:
        threading.stack_size(0)
        LIBC.pthread_setattr_default_np(before)


@contextlib.contextmanager
def disk(r):
    """A file system with little room left; the store lies on it."""
    filler = r.dir / "filler"
    room = r.rng.randrange(r.rng.choice((16 * KIB, 256 * KIB, 4 * MIB)))
    stat = os.statvfs(r.dir)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, stat.f_bavail * stat.f_bsize - room))
    try:
        yield f"{room} bytes left on the disk"
    finally:
        filler.unlink()


def mounted(r):
    """Whether the round's directory is a small file system of its own from now on, for this process alone."""
    if os.geteuid() != 0 or LIBC.unshare(NEWNS) != 0 or LIBC.mount(b"none", b"/", None, PRIVATE, None) != 0:
        return False
    return LIBC.mount(b"tmpfs", str(r.dir).encode(), b"tmpfs", 0, b"size=48m") == 0


KINDS = {kind.__name__: kind for kind in (address_space, file_size, files, threads, stacks, disk)}


def attempt(r, w, some, expected, other=False):
    """Each call gives an error or the right bits. The host's own want of memory or descriptors is not ours."""
    for call in some:
        try:
            code, bits = call(w)
        except Failed as failed:
            code, bits = failed.code, None
        except (MemoryError, OSError):
            r.count("Python itself failed")
            continue
        # An exported chunk has the time it was put, which is another in another store.
        if code >= 0 and bits != expected[call] and not (other and call is calls.export):
            raise Wrong(f"{call.__name__} gave other bits under a limit")
        r.count("done" if code >= 0 else code.name)


def constrained(r, early, w, chunks, some, expected):
    if not early:
        attempt(r, w, some, expected)
        return
    try:
        other = World(r, chunks=chunks, store="early")
        other.precompute_all()
    except Failed as failed:
        r.count(failed.code.name)
    except (MemoryError, OSError):
        r.count("Python itself failed")
    else:
        attempt(r, other, some, expected, other=True)
        other.close()


def run(r):
    kind = r.rng.choice(list(KINDS))
    if kind == "disk" and not mounted(r):
        r.count("skipped: cannot mount")
        return
    w = calls.world(r, queue_bytes=r.rng.choice((64 * KIB, 16 * MIB)))
    some = r.rng.sample(calls.ALL, 4)
    expected = {}
    for call in some:
        r.step(f"{kind}: {call.__name__} without it")
        code, expected[call] = call(w)
        if code < 0:
            raise Wrong(f"{call.__name__}: {code.name}: {code.message}")
    for _ in range(3):
        early, failures = r.rng.random() < 0.5, []
        with KINDS[kind](r) as what:
            r.step(f"{kind}, {what}, {'before the context' if early else 'between calls'}: "
                   + ", ".join(call.__name__ for call in some))
            if kind == "stacks":  # the calling thread's too
                def work():
                    try:
                        constrained(r, early, w, w.chunks, some, expected)
                    except Wrong as wrong:
                        failures.append(wrong)
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            else:
                constrained(r, early, w, w.chunks, some, expected)
        if failures:
            raise failures[0]
        r.lib.call("store_flush", w.store)  # what background writes met under the limit
        r.count(kind)
        for call in some:
            r.step(f"{kind}: {call.__name__} after {what}")
            code, bits = call(w)
            if code < 0 or bits != expected[call]:
                raise Wrong(f"{call.__name__} after a limit: {code.name} {code.message}, "
                            f"{'other' if bits != expected[call] else 'equal'} bits")
    w.close()
