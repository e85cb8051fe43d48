"""Remote tiers that are slow, broken or lie: replies that come late, in drips, cut, with other lengths, of other keys,
or are garbage; connections that break in the middle. The store beside them gives what it would give without one,
ends every call in a bounded time, and lets go of the server when it is closed."""

import ctypes as c
import os
import random
import shutil
import socket
import threading
import time

from abi import CALLBACKS, Wrong
from world import COMPUTE, FAIL, PRECOMPUTE, Expected, World, random_tokens

SECONDS = 120
SOON_S = 30  # of one call, on a machine that has other work; each waits for some timeouts of at most a second
MOST_HEARD = 64 << 20


class Gone(Exception):
    """The other side has closed the connection, or the server ends."""


class Connection:
    """What came on one connection, as commands."""

    def __init__(self, peer):
        self.peer, self.data = peer, b""

    def more(self):
        try:
            new = self.peer.recv(1 << 16)
        except OSError:
            new = b""
        if not new or len(self.data) > MOST_HEARD:
            raise Gone
        self.data += new

    def line(self):
        while b"\r\n" not in self.data:
            self.more()
        line, self.data = self.data.split(b"\r\n", 1)
        return line

    def command(self):
        n, parts = int(self.line()[1:]), []
        for _ in range(n):
            size = int(self.line()[1:])
            while len(self.data) < size + 2:
                self.more()
            parts.append(self.data[:size])
            self.data = self.data[size + 2:]
        return parts


def bulk(value):
    return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


class Liar:
    """A server that answers as Redis does, and now and then otherwise: `ways` of lying, one reply in `1 / share`."""

    def __init__(self, rng):
        self.seed, self.values, self.old, self.lock = rng.random(), {}, {}, threading.Lock()
        self.ways, self.share, self.n_lies, self.ends = (), 0.0, 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.n = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            peer, _ = self.listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.n += 1
            threading.Thread(target=self.serve, args=(peer, random.Random(f"{self.seed}:{self.n}")), daemon=True).start()

    def serve(self, peer, rng):
        connection = Connection(peer)
        try:
            while True:
                reply = self.reply(connection.command())
                if rng.random() < self.share and self.ways:
                    self.n_lies += 1
                    getattr(self, rng.choice(self.ways))(peer, rng, reply)
                else:
                    peer.sendall(reply)
        except (Gone, OSError, ValueError):
            pass
        finally:
            peer.close()

    def reply(self, command):
        name, key = command[0], command[1] if len(command) > 1 else b""
        with self.lock:
            if name == b"SET":
                self.old.setdefault(key, self.values.get(key))
                self.values[key] = command[2]
                return b"+OK\r\n"
            if name in (b"GET", b"GETEX"):
                return bulk(self.values.get(key))
            if name == b"STRLEN":
                return b":%d\r\n" % len(self.values.get(key, b""))
            if name in (b"UNLINK", b"EXPIRE"):
                there = self.values.pop(key, None) if name == b"UNLINK" else self.values.get(key)
                return b":0\r\n" if there is None else b":1\r\n"
            if name == b"SCAN":
                return b"*2\r\n$1\r\n0\r\n*%d\r\n%s" % (len(self.values), b"".join(bulk(k) for k in self.values))
        return b"+PONG\r\n" if name == b"PING" else b"-ERR unknown command\r\n"

    # ---- Ways of lying

    def late(self, peer, rng, reply):
        time.sleep(rng.choice((0.02, 0.1, 0.4)))
        peer.sendall(reply)

    def never(self, peer, rng, reply):
        time.sleep(3)
        raise Gone

    def drip(self, peer, rng, reply):
        for at in range(0, min(len(reply), 200)):
            peer.sendall(reply[at:at + 1])
            time.sleep(0.005)
        peer.sendall(reply[200:])

    def cut(self, peer, rng, reply):
        peer.sendall(reply[:rng.randrange(len(reply))])
        raise Gone

    def closed(self, peer, rng, reply):
        raise Gone

    def other_length(self, peer, rng, reply):
        if reply[:1] != b"$" or reply[:2] == b"$-":
            peer.sendall(reply)
            return
        head, rest = reply.split(b"\r\n", 1)
        n = rng.choice((0, 1, int(head[1:]) - 1, int(head[1:]) + 1, 1 << 20, 1 << 40, (1 << 63) - 1, -5))
        peer.sendall(b"$%d\r\n%s" % (n, rest))

    def other_value(self, peer, rng, reply):
        with self.lock:
            values = list(self.values.values())
        peer.sendall(bulk(rng.choice(values) if values else b"nothing"))

    def old_value(self, peer, rng, reply):
        with self.lock:
            values = [v for v in self.old.values() if v is not None]
        peer.sendall(bulk(rng.choice(values) if values else None))

    def flipped(self, peer, rng, reply):
        changed = bytearray(reply)
        for _ in range(rng.choice((1, 1, 5))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        peer.sendall(bytes(changed))

    def garbage(self, peer, rng, reply):
        peer.sendall(rng.randbytes(rng.choice((1, 20, 5000))))

    def refused(self, peer, rng, reply):
        peer.sendall(rng.choice((b"-ERR no\r\n", b"-OOM no room\r\n", b"-LOADING wait\r\n", b"-NOAUTH who\r\n",
                                 b"-MOVED 1 127.0.0.1:1\r\n", b"-ASK 1 x:1\r\n", b"-\x1b[2J\x00\r\n")))

    def other_type(self, peer, rng, reply):
        peer.sendall(rng.choice((b":7\r\n", b"+OK\r\n", b"*0\r\n", b"*-1\r\n", b"_\r\n", b"%1\r\n+a\r\n+b\r\n",
                                 b"*2\r\n*2\r\n*2\r\n", b"$-1\r\n")))

    def pushed(self, peer, rng, reply):
        peer.sendall(b">1\r\n+x\r\n" * rng.choice((1, 3, 100000)) + reply)

    def twice(self, peer, rng, reply):
        peer.sendall(reply + reply)


WAYS = tuple(name for name, made in vars(Liar).items()
             if callable(made) and made.__code__.co_varnames[:4] == ("self", "peer", "rng", "reply"))


class Use:
    """The calls of a round. Each gives a Code."""

    def __init__(self, r, world, expected):
        self.r, self.w, self.lib, self.expected = r, world, r.lib, expected
        self.calls = [self.fuse, self.fuse, self.fuse, self.fresh, self.fresh, self.put, self.hint, self.flush, self.reopen,
                      self.stat, self.push, self.pull, self.verify, self.remove, self.check]

    def fuse(self):
        # COMPUTE_STORE would store better records of these chunks as they are asked for again.
        on_miss = self.r.rng.choice((PRECOMPUTE, COMPUTE, FAIL))
        code, fusion = self.w.fuse(on_miss=on_miss)
        self.expected.judge("a fuse beside a server that lies", on_miss, code, fusion)
        if code < 0 and on_miss != FAIL:
            raise Wrong(f"a fuse that may compute gave {code.name}: {code.message}")
        return code

    def fresh(self):
        """A host that has nothing on its disk: all comes from there, or is computed."""
        self.w.close_store()
        shutil.rmtree(self.w.store_path, ignore_errors=True)
        self.w.open_store()
        return self.fuse()

    def reopen(self):
        self.w.close_store()
        return self.w.try_open_store()

    def put(self):
        return self.w.precompute(random_tokens(self.r.rng, self.r.rng.randrange(5, 120)))

    def hint(self):
        ids = self.lib.array("chunk_id", self.w.ids)
        return self.lib.call("store_prefetch", self.w.store, ids, len(ids))

    def flush(self):
        return self.lib.call("store_flush", self.w.store)

    def stat(self):
        return self.lib.call("store_get_stat", self.w.store, self.lib.struct("store_stat"))

    def push(self):
        return self.lib.call("store_remote_push", self.w.store, None, None)

    def pull(self):
        return self.lib.call("store_remote_pull", self.w.store, None, None)

    def verify(self):
        fn = CALLBACKS["remote_fn"](lambda *_: 0)
        return self.lib.call("store_remote_verify", self.w.store, None, fn, None)

    def remove(self):
        return self.lib.call("store_remote_remove", self.w.store, self.r.rng.choice(self.w.ids))

    def check(self):
        return self.lib.call("store_remote_check", self.w.store)

    def timed(self, what, call):
        self.r.step(f"{self.where}; then {what}")
        began = time.monotonic()
        result = call()
        took = time.monotonic() - began
        print(f"{what}: {took:.3f} s", flush=True)
        if took > SOON_S:
            raise Wrong(f"{what} took {took:.1f} s")
        return result

    def some(self, n):
        for _ in range(n):
            call = self.r.rng.choice(self.calls)
            code = self.timed(call.__name__, call)
            self.r.count("errors" if code < 0 else "done")


def run(r):
    if r.rng.random() < 0.5:
        os.environ["BLEND_REMOTE_SEAL_KEY"] = "5a" * 32
    plain = World(r, n_chunks=r.rng.randrange(2, 7), store="plain")
    server = Liar(r.rng)
    w = World(r, chunks=plain.chunks, remote=c.create_string_buffer(b"redis://127.0.0.1:%d" % server.port),
              remote_timeout_ms=r.rng.choice((100, 300, 1000)), remote_retry_ms=r.rng.choice((1, 50, 300)),
              remote_fuse_ms=r.rng.choice((0, 0, 1, 50, 2000)), remote_drain_ms=r.rng.choice((0, 1, 200)),
              remote_segment_bytes=65536, remote_connections=r.rng.choice((1, 2, 4)),
              ram_bytes=r.rng.choice((0, 8 << 20)))
    use = Use(r, w, Expected(plain))
    w.precompute_all()
    r.lib.done("store_flush", w.store)
    server.ways = tuple(r.rng.sample(WAYS, r.rng.choice((1, 2, len(WAYS)))))
    server.share = r.rng.choice((0.02, 0.2, 1.0))
    use.where = f"{server.share} of the replies are {', '.join(server.ways)}"
    r.count("all lie" if server.share == 1.0 else "some lie")
    use.some(12)
    server.share = 0.0  # and when it is well again all is as ever
    use.where = "well again after " + use.where
    time.sleep(0.5)
    use.timed("fresh", use.fresh)
    use.timed("closing", w.close)
    plain.close()
    r.count("sealed" if "BLEND_REMOTE_SEAL_KEY" in os.environ else "not sealed")
