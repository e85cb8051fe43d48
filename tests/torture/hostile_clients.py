"""What clients of `blend serve` do that mean harm, or are merely broken. Each takes a port and random numbers,
talks to 127.0.0.1 alone, and ends within SECONDS."""

import json
import socket
import struct
import time

SECONDS = 10


def connected(port, receive=None):
    s = socket.socket()
    s.settimeout(SECONDS)
    if receive:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    s.connect(("127.0.0.1", port))
    return s


def body_of(rng, **more):
    return json.dumps({"messages": [{"role": "user", "content": f"who {rng.randrange(9)}"}], "max_tokens": 16, **more}).encode()


def post(body, *fields, kind=b"application/json"):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + kind + b"\r\n"
    return head + b"".join(f + b"\r\n" for f in fields) + b"Content-Length: %d\r\n\r\n" % len(body) + body


def drain(s, seconds=2):
    end = time.monotonic() + seconds
    s.settimeout(0.2)
    while time.monotonic() < end:
        try:
            if not s.recv(65536):
                return
        except TimeoutError:
            pass


def silent(port, rng):
    with connected(port) as s:
        time.sleep(rng.uniform(0.5, SECONDS / 2))
        s.close()


def many_silent(port, rng):
    held = []
    for _ in range(rng.randrange(20, 100)):
        held.append(connected(port))
    time.sleep(rng.uniform(0.1, 3))
    for s in held:
        s.close()


def drip(port, rng):
    """A byte now and then, of a head or of a body."""
    data = post(body_of(rng))
    with connected(port) as s:
        s.sendall(data[:rng.randrange(len(data))])
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end:
            s.sendall(b"a")
            time.sleep(0.2)


def slow_reader(port, rng):
    more = {"stream": rng.random() < 0.7, "max_tokens": 200, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    with connected(port, receive=2048) as s:
        s.sendall(post(body_of(rng, **more)))
        end = time.monotonic() + SECONDS / 2
        while time.monotonic() < end and s.recv(8):
            time.sleep(0.1)


def never_reads(port, rng):
    with connected(port, receive=2048) as s:
        for _ in range(rng.randrange(1, 60)):
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(rng.uniform(0, 3))


def much_json(port, rng):
    n = rng.choice((1000, 100000, 1000000))
    body = rng.choice((b'{"x":[' + b",".join([rng.choice((b"0", b"{}", b"[]", b'""'))] * n) + b"]}",
                       b'{"x":' + b"[" * n, b'{"a":' * 30 + b"0" + b"}" * 30,
                       b'{"messages":[' + b",".join([b'{"role":"user","content":""}'] * (n // 10)) + b"]}",
                       b'{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{' +
                       b",".join(b'"k%d":%d' % (i, i) for i in range(n // 10)) + b"}}",
                       b'{"x":"' + b"\\u0000" * (n // 6) + b'"}', b'{"x":' + b"9" * n + b"}"))
    with connected(port) as s:
        s.sendall(post(body[:8 << 20], b"Connection: close"))
        drain(s, SECONDS / 2)


def strange_head(port, rng):
    pieces = [b"GET", b"POST", b" ", b"/", b"/v1/chat/completions", b"/v1/models/", b"/health", b" HTTP/1.1", b" HTTP/1.0", b"\r\n",
              b"\r\n\r\n", b"\n", b"Host: localhost", b"Host: ", b"Content-Length: ", b"Content-Length: 5", b"Transfer-Encoding: chunked",
              b"Transfer-Encoding: ", b"Range: bytes=" + b"-," * rng.randrange(1, 8000), b"Expect: 100-continue", b":", b"\0", b"\xff",
              b"Connection: close", b"Upgrade: h2c", b"a" * rng.randrange(1, 70000), b"0\r\n\r\n", b"5\r\nhello\r\n", b"{}", b"%", b"#", b"?"]
    data = b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 40)))
    if rng.random() < 0.5:
        data = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + data
    with connected(port) as s:
        s.sendall(data)
        if rng.random() < 0.5:
            s.shutdown(socket.SHUT_WR)
        drain(s, 1)


def smuggler(port, rng):
    inner = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connected(port) as s:
        s.sendall(post(b"0\r\n\r\n" + inner, rng.choice((b"Transfer-Encoding: chunked", b"Transfer-Encoding : chunked",
                                                         b"Content-Length: 5", b"Transfer-Encoding: xchunked"))))
        drain(s, 1)


def leaves(port, rng):
    """Asks and goes: cuts the connection, closes it, or only its side of it."""
    with connected(port) as s:
        s.sendall(post(body_of(rng, stream=rng.random() < 0.5, max_tokens=200, ignore_eos=True)))
        time.sleep(rng.choice((0, 0, 0.02, 0.2)))
        how = rng.randrange(3)
        if how == 0:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == 1:
            s.shutdown(socket.SHUT_WR)
            drain(s, 1)


def page(port, rng):
    fields = rng.choice(((b"Origin: https://evil.example",), (b"Origin: null",), ()))
    with connected(port) as s:
        s.sendall(post(body_of(rng), *fields, b"Connection: close", kind=rng.choice((b"text/plain", b"application/json"))).replace(
            b"localhost", rng.choice((b"evil.example", b"localhost")), 1))
        drain(s, 1)


ALL = (silent, many_silent, drip, slow_reader, never_reads, much_json, strange_head, smuggler, leaves, page)


def one(port, rng, counts):
    """One of them, by chance; that it is cut off is what it asked for."""
    attack = rng.choice(ALL)
    try:
        attack(port, rng)
    except OSError:
        pass
    counts[attack.__name__] = counts.get(attack.__name__, 0) + 1
