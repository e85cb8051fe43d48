"""Storms of signals, with handlers that do not restart system calls, during every long call: what comes out is
what comes out without."""

import ctypes
import os
import signal
import threading

import calls
from abi import Wrong

LIBC = ctypes.CDLL(None)


class Storm:
    """SIGALRM by a timer to the process and SIGUSR1 to each of its threads."""

    def __init__(self, every_us):
        self.every, self.handled, self.over = every_us / 1e6, 0, False
        for number in (signal.SIGALRM, signal.SIGUSR1):
            signal.signal(number, self.handle)
            signal.siginterrupt(number, True)

    def handle(self, *_):
        self.handled += 1

    def __enter__(self):
        self.over = False
        self.sender = threading.Thread(target=self.send)
        self.sender.start()
        signal.setitimer(signal.ITIMER_REAL, self.every, self.every)
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.over = True
        self.sender.join()

    def send(self):
        own = threading.get_native_id()
        while not self.over:
            for thread in os.listdir("/proc/self/task"):
                if int(thread) != own:
                    LIBC.tgkill(os.getpid(), int(thread), signal.SIGUSR1)
            threading.Event().wait(self.every)


def run(r):
    w = calls.world(r, read_mode=r.rng.choice((0, 2, 3)), ram_bytes=r.rng.choice((0, 8 << 20)))
    storm = Storm(r.rng.choice((150, 400, 1000)))
    for call in r.rng.sample(calls.ALL, 6):
        r.step(f"{call.__name__} in quiet")
        code, expected = call(w)
        if code < 0:
            raise Wrong(f"{call.__name__}: {code.name}: {code.message}")
        r.step(f"{call.__name__} in a storm")
        with storm:
            code, bits = call(w)
        if code < 0:
            raise Wrong(f"{call.__name__} failed in a storm: {code.name}: {code.message}")
        if bits != expected:
            raise Wrong(f"{call.__name__} gave other bits in a storm")
        r.count("calls")
    r.count("signals" if storm.handled else "no signals")
    w.close()
