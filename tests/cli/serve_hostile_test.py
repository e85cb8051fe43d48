"""blend serve among clients that mean harm, or know HTTP less well than they think. What each test is
named after is what once broke, or what a standard asks for.

    python3 serve_hostile_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]

The effect of hostile clients on honest ones: this many seconds without, and as many with them:

    python3 serve_hostile_test.py --blend BLEND --load 300 --clients 150 --hostile 50 --model FILE
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import serve_load
from serve_case import ARGS, DOCUMENTS, HEAD, ServeCase, Server, chat, chunks, wait_for

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def status_of(got):
    """The status of raw bytes; 0: nothing came."""
    return int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/1.1 ") else 0


def post(body, *fields, version=b"HTTP/1.1", path=b"/v1/chat/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = b"POST " + path + b" " + version + b"\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"".join(f + b"\r\n" for f in fields) + b"Content-Length: %d\r\n\r\n" % len(data) + data


class HostileTest(ServeCase):
    def peak(self, server):
        """The most bytes that were resident."""
        for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    # ---- Heads ---------------------------------------------------------------------------------------------

    def test_a_range_is_of_no_use_to_a_post(self):
        server = self.serve(env={"BLEND_API_KEY": "k"})
        many = b"Range: bytes=" + b",".join([b"-"] * 4000)
        for ranged in (b"Range: bytes=0-9", many):
            got = server.send(post(chat(), b"Authorization: Bearer k", b"Connection: close", ranged))
            self.assertEqual(status_of(got), 200, got[:200])
            self.assertTrue(got.rstrip().endswith(b"}"), got[-100:])
            got = server.send(GET.replace(b"health", b"metrics") + b"Connection: close\r\n" + ranged + b"\r\n\r\n")
            self.assertEqual(status_of(got), 401)
            self.assertLess(len(got), 2000)

    def test_long_targets_and_heads_need_no_deep_stack(self):
        def little_stack():
            resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10))
        server = self.serve(preexec_fn=little_stack)
        for head in (b"GET /v1/models/" + b"a" * 60000 + b" HTTP/1.1\r\nHost: localhost\r\n",
                     GET + b"Range: bytes=" + b"-," * 30000 + b"\r\n", GET + b"X: " + b" " * 60000 + b"y\r\n",
                     GET + b"Accept: " + b"a/b," * 15000 + b"\r\n", GET + b"Cookie: " + b"a=b;" * 15000 + b"\r\n"):
            self.assertIn(status_of(server.send(head + b"Connection: close\r\n\r\n")), (200, 404))
        deep = b'{"a":' * 20000 + b"1" + b"}" * 20000
        self.assertEqual(status_of(server.send(post(deep, b"Connection: close"))), 400)
        self.assertEqual(server.post(chat(documents=DOCUMENTS))[0], 200)

    def test_what_rfc_9110_and_9112_ask_of_a_server(self):
        server = self.serve("--max-body", "64KiB")
        body = json.dumps(chat()).encode()
        length = b"Content-Length: %d\r\n" % len(body)
        rows = [
            # 9112 3.2: Host, one, of a sound request
            (b"GET /health HTTP/1.1\r\n\r\n", 400), (GET + b"Host: localhost\r\n\r\n", 400),
            (b"GET /health HTTP/1.0\r\n\r\n", 200),
            # 9112 3.2.1-4: forms of targets; what a URL's host says counts
            (b"GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200),
            (b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 403),
            (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 204), (b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"GET /he%61lth?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
            (b"GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"GET /health%2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"GET /health#a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            # 9112 2.2, 2.3: lines and versions
            (b"\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", (200, 400)),
            (b"GET /health HTTP/1.1\nHost: localhost\n\n", (400, 505)), (b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
            (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505), (b"GET /health http/1.1\r\nHost: localhost\r\n\r\n", (400, 505)),
            (b"nonsense\r\n\r\n", 400), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
            # 9112 5: fields
            (GET + b"X : y\r\n\r\n", 400), (GET + b" X: y\r\n\r\n", (200, 400, 403)), (GET + b"X\r\n\r\n", 400),
            (GET + b"X: a\x00b\r\n\r\n", 400), (GET + b"X: a\rb\r\n\r\n", 400),
            # 9112 6: lengths that disagree are how one request is smuggled in another
            (HEAD + length + b"Content-Length: 5\r\n\r\n" + body, 400),
            (HEAD + length + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks(body, 50)), 400),
            (HEAD + b"Content-Length: -1\r\n\r\n", 400), (HEAD + b"Content-Length: 1e3\r\n\r\n", 400),
            (HEAD + b"Content-Length: +5\r\n\r\n" + body[:5], 400), (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
            (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + b"".join(chunks(body, 50)), (400, 501)),
            (HEAD + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(chunks(body, 50)), (400, 501)),
            (HEAD + b"Transfer-Encoding: chunked;a=b\r\n\r\n" + b"".join(chunks(body, 50)), (400, 501)),
            (HEAD + length + length + b"\r\n" + body, 400), (GET + b"Content-Length: 0, 0\r\n\r\n", 400),
            (HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + 4) + body + b"\0 []", 400),
            (GET + b"a:\r\n" * 200 + b"\r\n", 431), (b"GET HTTP://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
            (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", (400, 501)), (HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", (400, 501)),
            (HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(chunks(body, 50)), 400),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400), (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5 \r\n", 400),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(body), body), 200),
            # 9110: methods, expectations, what a body is in
            (b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 501), (b"TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
            (HEAD + b"Expect: a-miracle\r\n" + length + b"\r\n" + body, 417),
            (HEAD + b"Content-Encoding: identity\r\n" + length + b"\r\n" + body, 200),
            (HEAD + b"Content-Encoding: br\r\n" + length + b"\r\n" + body, 415),
            (HEAD.replace(b"json", b"json; charset=utf-8") + length + b"\r\n" + body, 200),
            (HEAD.replace(b"application/json", b"text/plain") + length + b"\r\n" + body, 415),
            (HEAD.replace(b"Content-Type: application/json\r\n", b"") + length + b"\r\n" + body, 415),
            (b"GET /" + b"a" * 70000, 414), (GET + b"X: " + b"a" * 70000, 431), (GET + b"X: " + b"a" * 60000 + b"\r\n\r\n", 200),
            (GET + b"Connection: close, upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        ]
        for sent, wanted in rows:
            if b"Connection: " not in sent and b"\r\n\r\n" in sent:
                sent = sent.replace(b"\r\nHost", b"\r\nConnection: close\r\nHost", 1)
            got = server.send(sent)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            self.assertIn(status_of(got), wanted, (sent[:120], got[:300]))
            self.assertEqual(got.count(b"HTTP/1.1 "), 1, got[:500])
            self.assertIn(b"\r\nDate: ", got)
        self.assertEqual(server.post(chat())[0], 200)

    def test_http_1_0_gets_no_chunks(self):
        server = self.serve()
        got = server.send(post(chat(stream=True), version=b"HTTP/1.0"))
        head, _, body = got.partition(b"\r\n\r\n")
        self.assertNotIn(b"Transfer-Encoding", head)
        self.assertIn(b"Connection: close", head)
        self.assertTrue(body.startswith(b"data: ") and body.endswith(b"data: [DONE]\n\n"), body[-100:])

    def test_expect_100_is_told_before_the_body_and_after_the_key(self):
        server = self.serve(env={"BLEND_API_KEY": "k"})
        body = json.dumps(chat()).encode()
        for key, first in ((b"k", b"HTTP/1.1 100"), (b"wrong", b"HTTP/1.1 401")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
                s.sendall(HEAD + b"Authorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (key, len(body)))
                got = s.recv(65536)
                self.assertTrue(got.startswith(first), got)
                if key == b"k":
                    s.sendall(body)
                    self.assertTrue(s.recv(65536).startswith(b"HTTP/1.1 200"))

    def test_a_connection_is_kept_and_requests_that_come_early_wait(self):
        server = self.serve()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.addCleanup(connection.close)
        sockets = set()
        for stream in (False, True, False):
            connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=stream)),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            answer.read()
            sockets.add(connection.sock.getsockname())
        self.assertEqual(len(sockets), 1)
        got = server.send(post(chat()) + GET + b"\r\n" + post(chat(), b"Connection: close"))
        self.assertEqual(got.count(b"HTTP/1.1 200"), 3, got)

    def test_a_head_answers_no_body(self):
        server = self.serve()
        for path in ("/health", "/v1/models", "/metrics", "/nothing"):
            status, body, headers = server.call("HEAD", path)
            self.assertEqual(body, b"")
            self.assertGreater(int(headers["Content-Length"]), 0)

    # ---- The port ------------------------------------------------------------------------------------------

    def test_a_port_has_one_server(self):
        server = self.serve()
        second = subprocess.run([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "second",
                                 "--port", str(server.port)], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("in use", second.stderr)

    def test_those_who_say_nothing_keep_nobody_out(self):
        server = self.serve("--connections", 64, "--client-timeout", 600)
        silent = []
        for i in range(300):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            self.addCleanup(s.close)
            if i % 3 == 1:
                s.sendall(HEAD)
            if i % 3 == 2:
                s.sendall(HEAD + b"Content-Length: 10\r\n\r\n{")
            silent.append(s)
        for _ in range(20):
            self.assertEqual(server.call("GET", "/health", timeout=30)[0], 200)
        self.assertEqual(server.post(chat(), timeout=30)[0], 200)

    def test_those_who_do_not_read_keep_nobody_out(self):
        server = self.serve("--connections", 16, "--client-timeout", 600)
        many = (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n") * 3000
        for _ in range(60):
            s = socket.socket()
            self.addCleanup(s.close)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", server.port))
            s.setblocking(False)
            try:
                s.send(many)
            except BlockingIOError:
                pass
        self.assertEqual(server.call("GET", "/health", timeout=30)[0], 200)
        links = [os.readlink(p) for p in Path(f"/proc/{server.process.pid}/fd").iterdir() if p.is_symlink()]
        self.assertLess(sum(link.startswith("socket:") for link in links), 24)

    def test_heads_of_many_fields_take_little(self):
        server = self.serve("--client-timeout", 600)
        server.post(chat())
        time.sleep(1)
        before = self.peak(server)
        for _ in range(200):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            self.addCleanup(s.close)
            s.sendall(GET + b"a:\r\n" * 16000)
        self.assertEqual(server.call("GET", "/health", timeout=30)[0], 200)
        self.assertLess(self.peak(server) - before, 100 << 20)  # once 1.3 MiB each

    def test_heads_that_come_at_the_last_moment(self):
        server = self.serve("--client-timeout", 1)
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(60)]
        begin = time.monotonic()
        for s in held:
            self.addCleanup(s.close)
        while time.monotonic() - begin < 1.2:  # a use of freed memory where the deadline met a read
            for s in held:
                try:
                    s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" if time.monotonic() - begin < 0.05 else b"a: b\r\n" * 10)
                except OSError:
                    pass
        self.assertEqual(server.call("GET", "/health", timeout=30)[0], 200)

    def test_a_head_that_has_begun_is_told_of_the_end(self):
        server = self.serve("--max-tokens", 4000, "--drain", 20, model=self.slow_model)
        first = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=True))
        self.addCleanup(first.close)
        first.recv(1)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
            s.sendall(b"GET /health HTTP/1.1\r\n")
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            s.sendall(b"Host: localhost\r\n\r\n")
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 503"))

    # ---- Bodies --------------------------------------------------------------------------------------------

    def test_json_is_read_in_linear_time(self):
        server = self.serve()
        lists = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":2,"x":[' + b",".join([b"{}"] * 80000) + b"]}"
        self.assertEqual(server.post(lists, timeout=60)[0], 200)  # once 8 s, and 8 MB an hour
        for huge in (b'{"x":[' + b",".join([b"{}"] * 2700000) + b"]}", b'{"x":' + b"[" * 4000000,
                     b'{"x":{' + b",".join(b'"%d":0' % i for i in range(700000)) + b"}}",
                     b'{"messages":[' + b",".join([b'{"role":"user","content":""}'] * 150000) + b"]}"):
            self.assertIn(server.post(huge, timeout=60)[0], (400, 413))

    def test_bodies_share_one_memory(self):
        server = self.serve("--request-memory", "24MiB", "--parallel", 8)
        server.post(chat())
        before = self.peak(server)
        body = b'{"x":[' + b",".join([b"0"] * 3900000) + b"]}"
        statuses = []

        def send():
            statuses.append(status_of(server.send(post(body, b"Connection: close"))))
        threads = [threading.Thread(target=send) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertTrue(set(statuses) <= {400, 503}, statuses)
        self.assertIn(503, statuses)
        self.assertLess(self.peak(server) - before, 80 << 20)
        self.assertEqual(server.post(chat())[0], 200)

    def test_arguments_of_calls_have_their_price(self):
        server = self.serve("--request-memory", "96MiB")
        server.post(chat())
        before = self.peak(server)
        arguments = '{"a":[' + ",".join(["[]"] * 2600000) + "]}"
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        status, answer, _ = server.post(chat(messages=[{"role": "assistant", "tool_calls": [call]}]), timeout=60)
        self.assertEqual(status, 503, answer)
        self.assertLess(self.peak(server) - before, 96 << 20)
        self.assertEqual(server.post(chat())[0], 200)

    def test_documents_are_tokenized_once_and_only_while_they_fit(self):
        server = self.serve()
        body = {"prompt": ["a"] * 128, "documents": ["the cat sat on the mat " * 20000] * 12, "max_tokens": 1}
        status, answer, _ = server.post(body, "/v1/completions", timeout=60)  # once a minute, after its client even
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        self.assertEqual(server.stop()[0], 0)

    def test_answers_with_logprobs_are_bounded(self):
        server = self.serve()
        body = {"prompt": ["the"] * 128, "n": 16, "logprobs": 20, "max_tokens": 500, "ignore_eos": True}
        status, answer, _ = server.post(body, "/v1/completions")  # once 60 MB a second
        self.assertEqual((status, answer["error"]["param"]), (400, "logprobs"))

    def test_where_json_ends_is_said(self):
        server = self.serve()
        for body, said in ((b'{"messages": [}', "byte 15"), (b'{"a": 1, "a": 2}', "twice"), (b'{"a": "\xff"}', "byte 8")):
            status, answer, _ = server.post(body)
            self.assertEqual(status, 400)
            self.assertIn(said, answer["error"]["message"])

    # ---- Slow readers --------------------------------------------------------------------------------------

    def test_who_reads_slowly_holds_no_place(self):
        server = self.serve("--parallel", 1, "--max-tokens", 4000, "--client-timeout", 3, model=self.slow_model)
        slow = socket.socket()
        self.addCleanup(slow.close)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        body = json.dumps(chat(max_tokens=4000, ignore_eos=True, stream=True, logprobs=True, top_logprobs=5)).encode()
        slow.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        slow.settimeout(60)
        slow.recv(16)
        wait_for(lambda: server.metric("blend_http_running") == 0, 60)
        self.assertEqual(server.post(chat())[0], 200)
        # And it is left, though it reads on.
        def read_on():
            slow.settimeout(0.01)
            try:
                slow.recv(16)
            except OSError:
                pass
            return server.metric("blend_http_connections") == 1  # of who asks
        wait_for(read_on, 60)

    # ---- Browsers ------------------------------------------------------------------------------------------

    def test_a_page_of_another_origin_is_refused(self):
        server = self.serve()
        body = json.dumps(chat()).encode()
        port = str(server.port)
        for fields, wanted in (({"Host": "evil.example"}, 403), ({"Host": "evil.example:" + port}, 403),
                               ({"Host": "127.0.0.1.evil.example"}, 403), ({"Host": "10.1.2.3"}, 403),
                               ({"Host": "localhost:" + port}, 200), ({"Host": "LOCALHOST."}, 200), ({"Host": "[::1]:" + port}, 200),
                               ({"Host": "127.9.9.9"}, 200), ({"Host": "[::1]evil.example"}, 403), ({"Host": "[0:0:0:0:0:0:0:1]"}, 200),
                               ({"Host": "localhost:evil.example"}, 403), ({"Host": "[::1"}, 403), ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
                               ({"Host": "localhost:" + port, "Origin": "http://localhost:" + port}, 200),
                               ({"Host": "localhost:" + port, "Origin": "http://localhost:1"}, 403),
                               ({"Content-Type": "text/plain"}, 415), ({"Content-Type": "application/x-www-form-urlencoded"}, 415)):
            status, _, headers = server.call("POST", "/v1/chat/completions", body, fields)
            self.assertEqual(status, wanted, fields)
            self.assertNotIn("Access-Control-Allow-Origin", headers)
        named = self.serve("--allow-host", "blend.internal")
        self.assertEqual(named.call("GET", "/health", headers={"Host": "blend.internal:80"})[0], 200)

    def test_a_page_that_is_allowed_is_told_so(self):
        server = self.serve("--cors-origin", "https://app.example", env={"BLEND_API_KEY": "k"})
        asks = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
        status, body, headers = server.call("OPTIONS", "/v1/chat/completions", headers=asks)
        self.assertEqual((status, body), (204, b""))
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])
        self.assertIn("x-stainless-os", headers["Access-Control-Allow-Headers"])
        self.assertIn("Origin", headers["Vary"])
        page = {"Origin": "https://app.example", "Authorization": "Bearer k"}
        for body, wanted in ((chat(), 200), (chat(stream=True), 200), (chat(top_p=2), 400)):
            status, _, headers = server.call("POST", "/v1/chat/completions", body, page)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (wanted, "https://app.example"))
        self.assertEqual(server.call("OPTIONS", "/v1/chat/completions", headers={**asks, "Origin": "https://x.example"})[0], 403)

    # ---- Keys and tenants ----------------------------------------------------------------------------------

    def test_tenants_do_not_see_each_others_hits(self):
        keys = self.dir / "keys"
        keys.write_text("# key tenant limits\nka a\nkb b max-tokens=3\nkm a parallel=1 metrics\n")
        keys.chmod(0o600)
        server = self.serve("--api-keys", keys)

        def ask(key, **more):
            return server.post(chat("when", documents=DOCUMENTS, **more), headers={"Authorization": "Bearer " + key})
        for _ in range(200):
            usage = ask("ka")[1]["usage"]
            if usage["blend"]["misses"] == 0:
                break
            time.sleep(0.05)
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
        status, other, _ = ask("kb")
        self.assertEqual((status, other["usage"]["blend"]["hits"]), (200, 0))
        self.assertEqual(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertLessEqual(other["usage"]["completion_tokens"], 3)
        self.assertEqual(ask("km")[1]["usage"]["blend"]["misses"], 0)  # the same tenant
        self.assertEqual(ask("kc")[0], 401)
        self.assertEqual(server.call("GET", "/metrics", headers={"Authorization": "Bearer ka"})[0], 403)
        self.assertEqual(server.call("GET", "/metrics", headers={"Authorization": "bearer km"})[0], 200)

    def test_a_key_has_so_many_places(self):
        keys = self.dir / "few"
        keys.write_text("k1 a parallel=1\nk2 b metrics\n")
        keys.chmod(0o644)
        server = self.serve("--api-keys", keys, "--max-tokens", 4000, model=self.slow_model)
        body = json.dumps(chat(max_tokens=4000, ignore_eos=True, stream=True)).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
            s.sendall(HEAD + b"Authorization: Bearer k1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            s.recv(1)
            status, answer, _ = server.post(chat(), headers={"Authorization": "Bearer k1"})
            self.assertEqual(status, 429)
            self.assertIn("1 places", answer["error"]["message"])
            self.assertEqual(server.post(chat(), headers={"Authorization": "Bearer k2"})[0], 200)
        self.assertIn("chmod 600", server.stop()[1])

    def test_a_client_is_not_in_its_own_way(self):
        keys = self.dir / "one"
        keys.write_text("k1 a parallel=1\n")
        keys.chmod(0o600)
        server = self.serve("--api-keys", keys)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.addCleanup(connection.close)
        for i in range(300):  # the place was given back a moment after the answer
            connection.request("POST", "/v1/chat/completions", json.dumps(chat(max_tokens=1, stream=i % 2 == 0)),
                               {"Content-Type": "application/json", "Authorization": "Bearer k1"})
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200, i)

    def test_who_left_while_it_waited_holds_no_place(self):
        keys = self.dir / "two"
        keys.write_text("k1 a parallel=1\nk2 b metrics\n")
        keys.chmod(0o600)
        server = self.serve("--api-keys", keys, "--parallel", 1, "--max-tokens", 4000, model=self.slow_model)

        def begin(key):
            body = json.dumps(chat(max_tokens=4000, ignore_eos=True, stream=True)).encode()
            s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            s.sendall(HEAD + b"Authorization: Bearer " + key + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return s

        def figure(name):
            text = server.call("GET", "/metrics", headers={"Authorization": "Bearer k2"})[1].decode()
            return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))
        with begin(b"k2") as computes:
            computes.recv(1)
            with begin(b"k1"):
                wait_for(lambda: figure("blend_http_waiting") == 1)
            wait_for(lambda: figure("blend_http_connections") == 2)  # who computes, and who asks
            with begin(b"k1"):
                wait_for(lambda: figure("blend_http_waiting") == 1)
                self.assertEqual(figure("blend_http_hang_ups_total"), 1)

    def test_who_leaves_after_one_byte_more_is_noticed(self):
        server = self.serve("--parallel", 1, "--max-tokens", 4000, model=self.slow_model)
        for more in (b"\r\n", b"GET /health HTTP/1.1\r\n"):
            s = server.begin(chat(max_tokens=4000, ignore_eos=True))
            wait_for(lambda: server.metric("blend_http_running") == 1)
            before = server.metric("blend_http_hang_ups_total")
            s.sendall(more)
            time.sleep(0.1)
            s.close()
            wait_for(lambda: server.metric("blend_http_running") == 0)
            self.assertEqual(server.metric("blend_http_hang_ups_total"), before + 1, more)

    def test_a_file_of_keys_that_is_wrong_is_said(self):
        for text, said in (("", "no keys"), ("k\n", "line 1"), ("k a\nk b\n", "line 2"), ("k a parallel=0\n", "'0'"),
                           ("k a size=3\n", "size=3")):
            keys = self.dir / "wrong"
            keys.write_text(text)
            run = subprocess.run([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "s", "--port", "0",
                                  "--api-keys", keys], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(said, run.stderr)

    def test_an_account_that_is_left_out(self):
        server = self.serve("--no-account")
        for body in (chat(documents=DOCUMENTS), chat(documents=DOCUMENTS)):
            usage = server.post(body)[1]["usage"]
            self.assertEqual(set(usage), {"prompt_tokens", "completion_tokens", "total_tokens"})

    # ---- The API -------------------------------------------------------------------------------------------

    def test_cached_tokens_are_those_that_were_not_computed(self):
        server = self.serve("--ratio", "0.5")
        usage = server.post(chat("when", documents=DOCUMENTS))[1]["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], 0)  # nothing was there
        self.assertEqual(usage["blend"]["computed_tokens"], usage["prompt_tokens"])
        for _ in range(200):
            usage = server.post(chat("when", documents=DOCUMENTS))[1]["usage"]
            if usage["blend"]["misses"] == 0:
                break
            time.sleep(0.05)
        blend = usage["blend"]
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreater(blend["recomputed_tokens"], 0)
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"] + blend["recomputed_tokens"] + blend["computed_tokens"],
                         usage["prompt_tokens"])

    def test_numbers_are_those_of_openais_schema(self):
        server = self.serve()
        greedy = server.post(chat())[1]["choices"][0]["message"]["content"]
        self.assertEqual(server.post(chat(temperature=1, top_p=0))[1]["choices"][0]["message"]["content"], greedy)
        for fine in (dict(max_tokens=5.0), dict(seed=2 ** 63 - 1), dict(seed=-2 ** 63), dict(n=1, best_of=1), dict(n=2, best_of=2),
                     dict(max_tokens=None, max_completion_tokens=3), dict(max_tokens=10 ** 18), dict(frequency_penalty=-2),
                     dict(logit_bias={"5": -100}), dict(top_k=-1), dict(temperature=2), dict(stop=None)):
            self.assertEqual(server.post(chat(**fine))[0], 200, fine)
        for wrong in (dict(seed=2 ** 63), dict(seed=2 ** 64), dict(seed=1e300), dict(max_tokens=True), dict(n="1"), dict(n=0),
                      dict(best_of=3), dict(presence_penalty=2.1), dict(max_tokens=2 ** 64), dict(top_logprobs=21, logprobs=True)):
            self.assertEqual(server.post(chat(**wrong))[0], 400, wrong)
        # Seeds beyond what a double tells apart.
        texts = {server.post(chat(temperature=100, seed=2 ** 60 + i))[1]["choices"][0]["message"]["content"] for i in range(8)}
        self.assertGreater(len(texts), 1)

    def test_several_prompts_of_one_completion(self):
        server = self.serve()
        base = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}

        def ask(prompt, **more):
            status, answer, _ = server.post({**base, "prompt": prompt, **more}, "/v1/completions")
            self.assertEqual(status, 200, answer)
            return answer
        alone = [ask(p)["choices"][0]["text"] for p in ("the cat", "a dog ran")]
        both = ask(["the cat", "a dog ran"])
        self.assertEqual([c["text"] for c in both["choices"]], alone)
        self.assertEqual([c["index"] for c in both["choices"]], [0, 1])
        self.assertEqual(both["usage"]["completion_tokens"], 12)
        pairs = ask(["the cat", "a dog ran"], n=2)["choices"]
        self.assertEqual([c["text"] for c in pairs], [alone[0], alone[0], alone[1], alone[1]])
        events = server.stream({**base, "prompt": ["the cat", "a dog ran"]}, "/v1/completions")
        told = ["", ""]
        for event in events:
            for c in event["choices"]:
                told[c["index"]] += c["text"]
        self.assertEqual(told, alone)
        self.assertEqual(ask([[5, 6, 7]])["choices"][0]["text"], ask([5, 6, 7])["choices"][0]["text"])
        for wrong in ([], [["a"]], [5, "a"], 7, [-1], [10 ** 7], ["x"] * 129, [[]]):
            self.assertEqual(server.post({**base, "prompt": wrong}, "/v1/completions")[0], 400, wrong)

    def test_parts_of_characters_have_names_of_their_own(self):
        server = self.serve()
        body = {"prompt": "the cat", "temperature": 0, "max_tokens": 8, "ignore_eos": True, "logprobs": 5}
        told = server.post(body, "/v1/completions")[1]["choices"][0]["logprobs"]
        self.assertTrue(any(name.startswith("bytes:\\x") for top in told["top_logprobs"] for name in top), told)
        for top in told["top_logprobs"]:
            self.assertEqual(len(top), 5, top)
            self.assertFalse(any("\ufffd" in name for name in top))

    def test_a_template_that_is_wrong_is_found_at_the_start(self):
        template = self.dir / "wrong.jinja"
        template.write_text("{% for m in messages %}{{ m.content }")
        run = subprocess.run([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "s", "--port", "0",
                              "--chat-template", template], capture_output=True, text=True, timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("line 1", run.stderr)


def attack(port, seed, seconds, clients):
    """A process of its own, so that honest clients do not wait for its threads."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "torture"))
    import hostile_clients
    end = time.monotonic() + seconds

    def client(i):
        rng = random.Random(f"{seed}:{i}")
        while time.monotonic() < end:
            hostile_clients.one(port, rng, {})
    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def load():
    """The honest clients' report without and with hostile ones, what was resident, and how it ended. The ratio is
    fixed: else the server's checks may move it, and answers with it."""
    reports = {}
    for hostile in (0, ARGS.hostile):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, ARGS.model, "--queue", 512, "--drain", 10, "--ratio", 0.3, *ARGS.options.split())
            process = multiprocessing.Process(target=attack, args=(server.port, 1, ARGS.load + 5, hostile))
            process.start()
            report = serve_load.load(server, folder, ARGS.model, clients=ARGS.clients, seconds=ARGS.load)
            for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    report["peak_MiB"] = int(line.split()[1]) // 1024
            begin = time.monotonic()
            report["exit"] = server.stop()[0]
            report["seconds_to_end"] = round(time.monotonic() - begin, 2)
            process.join()
            reports[f"{hostile} hostile"] = report
    print(json.dumps(reports, indent=1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model")
    parser.add_argument("--model")
    parser.add_argument("--load", type=float, help="seconds")
    parser.add_argument("--clients", type=int, default=150)
    parser.add_argument("--hostile", type=int, default=50)
    parser.add_argument("--options", default="", help="of blend serve")
    _, rest = parser.parse_known_args(namespace=ARGS)
    if ARGS.load is not None:
        load()
        return
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
