"""The log of blend serve: a line a request, what the library tells, and nothing that a client could forge.

    python3 serve_log_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import json
import os
import re
import shlex
import time
import unittest

from serve_case import DOCUMENTS, HEAD, ServeCase, chat, wait_for, run_tests

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


class LogTest(ServeCase):
    def logged(self, *options, **more):
        return self.serve("--log", "json", *options, **more)

    def end(self, server):
        """All lines, once the server has ended. Each is an object."""
        code, err = server.stop()
        self.assertEqual(code, 0, err)
        lines = [json.loads(line) for line in err.splitlines()]
        for line in lines:
            self.assertEqual(list(line)[:4], ["time", "level", "component", "message"])
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("error", "warning", "info", "debug"))
        return lines

    def requests(self, server):
        """A line is written after its answer, so on a busy machine those of two connections may change places."""
        return [line for line in self.end(server) if line["component"] == "http"]

    # ---- Requests ------------------------------------------------------------------------------------------

    def test_an_answer_is_a_line_with_what_it_cost(self):
        server = self.logged("--log-level", "info")
        body = chat(documents=DOCUMENTS)
        for _ in range(200):  # missed chunks are stored in idle time
            if server.post(body)[1]["usage"]["blend"]["misses"] == 0:
                break
            time.sleep(0.05)
        status, answer, headers = server.post(body, headers={"X-Request-Id": "mine-1"})
        self.assertEqual(status, 200)
        self.assertEqual(headers["X-Request-Id"], "mine-1")
        lines = self.requests(server)
        second = next(line for line in lines if line["request_id"] == "mine-1")
        first = min((line for line in lines if line is not second), key=lambda line: line["cached_tokens"])
        usage = answer["usage"]
        self.assertEqual(second["request_id"], "mine-1")
        self.assertEqual((second["method"], second["path"], second["status"], second["level"]),
                         ("POST", "/v1/chat/completions", 200, "info"))
        self.assertEqual(second["prompt_tokens"], usage["prompt_tokens"])
        self.assertEqual(second["completion_tokens"], usage["completion_tokens"])
        self.assertEqual(second["cached_tokens"], usage["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(second["recomputed_tokens"], usage["blend"]["recomputed_tokens"])
        self.assertGreater(second["cached_tokens"] + second["recomputed_tokens"], 0)
        self.assertAlmostEqual(second["ttft_ms"], usage["blend"]["ttft_ms"], delta=0.01)
        self.assertLessEqual(second["queue_ms"] + second["ttft_ms"], second["ms"])
        self.assertEqual(first["cached_tokens"], 0)
        self.assertRegex(first["request_id"], r"^[0-9a-f]{32}$")
        self.assertNotIn("trace_id", second)

    def test_embeddings_say_how_many_tokens_they_read(self):
        server = self.logged()
        status, answer, _ = server.post({"input": ["a boat", "an anchor"]}, path="/v1/embeddings")
        self.assertEqual(status, 200)
        line, = self.requests(server)
        self.assertEqual(line["prompt_tokens"], answer["usage"]["prompt_tokens"])
        self.assertNotIn("ttft_ms", line)

    def test_bytes_are_those_of_the_socket(self):
        server = self.logged()
        data = json.dumps({**chat(), "stream": True}).encode()
        got = [len(server.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data)), len(server.send(GET + b"\r\n")),
               len(server.send(b"nonsense\r\n\r\n"))]
        lines = {line["method"]: line for line in self.requests(server)}
        lines = [lines[method] for method in ("POST", "GET", "")]
        self.assertEqual([line["bytes"] for line in lines], got)
        self.assertEqual([line["status"] for line in lines], [200, 200, 400])
        self.assertGreater(lines[0]["completion_tokens"], 0)
        self.assertEqual(lines[2]["path"], "")

    def test_every_answer_has_an_id(self):
        server = self.serve()  # without a log too
        ids = set()
        for path in ("/health", "/nowhere", "/v1/models"):
            _, _, headers = server.call("GET", path)
            ids.add(headers["X-Request-Id"])
        stream = server.call("POST", "/v1/chat/completions", chat(stream=True))
        ids.add(stream[2]["X-Request-Id"])
        self.assertEqual(len(ids), 4)
        for id in ids:
            self.assertRegex(id, r"^[0-9a-f]{32}$")
        self.assertIn(b"X-Request-Id: ", server.send(b"nonsense\r\n\r\n"))

    def test_one_connection_has_a_line_for_each_request(self):
        server = self.logged()
        server.send(GET.replace(b"Connection: close\r\n", b"X-Request-Id: a\r\n") + b"\r\n" +
                    GET + b"X-Request-Id: b\r\n\r\n")
        self.assertEqual([line["request_id"] for line in self.requests(server)], ["a", "b"])

    def test_who_leaves_is_499(self):
        server = self.logged(model=self.slow_model)
        s = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=True))
        s.recv(1)
        s.close()
        wait_for(lambda: server.metric("blend_http_hang_ups_total") == 1)
        line = next(line for line in self.requests(server) if line["method"] == "POST")
        self.assertEqual((line["status"], line["level"]), (499, "info"))
        self.assertGreater(line["bytes"], 0)

    def test_the_tenant_of_a_key(self):
        keys = self.dir / "keys"
        keys.write_text("secret-of-ann ann\n")
        keys.chmod(0o644)
        server = self.logged("--api-keys", keys)
        server.post(chat(), headers={"Authorization": "Bearer secret-of-ann"})
        server.post(chat(), headers={"Authorization": "Bearer secret-of-bob"})
        lines = self.end(server)
        self.assertEqual({(line["status"], line.get("tenant")) for line in lines if line["component"] == "http"},
                         {(200, "ann"), (401, None)})
        self.assertNotIn("secret-of", json.dumps(lines))
        self.assertIn("chmod 600", lines[0]["message"])  # notes have the form of the log

    # ---- Traces --------------------------------------------------------------------------------------------

    def test_a_trace_is_joined(self):
        server = self.logged()
        later = "cc" + TRACE[2:] + "-what-a-later-version-adds"
        for given in (TRACE, later):
            server.call("GET", "/health", headers={"traceparent": given})
        for line in self.requests(server):
            self.assertEqual((line["trace_id"], line["parent_span_id"], line["trace_flags"]),
                             ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "01"))

    def test_what_is_no_trace_is_ignored(self):
        server = self.logged()
        wrong = ["", "00", TRACE.upper(), "ff" + TRACE[2:], TRACE + "-00", TRACE + "0", TRACE[:-1], TRACE.replace("-", "_"),
                 "00-" + "0" * 32 + TRACE[35:], TRACE[:36] + "0" * 16 + TRACE[52:], TRACE[:3] + "g" + TRACE[4:],
                 "cc" + TRACE[2:] + "x", TRACE[:10] + "\t" + TRACE[11:], "a" * 10000]
        for given in wrong:
            status, _, _ = server.call("GET", "/health", headers={"traceparent": given})
            self.assertEqual(status, 200, given)
        server.send(GET + b"traceparent: %s\r\ntraceparent: %s\r\n\r\n" % (TRACE.encode(), TRACE.encode()))
        lines = self.requests(server)
        self.assertEqual(len(lines), len(wrong) + 1)
        for line in lines:
            self.assertNotIn("trace_id", line)

    # ---- What clients could forge --------------------------------------------------------------------------

    def test_a_strange_id_is_replaced(self):
        server = self.logged()
        strange = [b"", b"a" * 129, b"a b", b'"', b"\x1b[2J", b"a\tb", b"\xe2\x80\xa8", b'x","level":"error', b"a\x00b"]
        for given in strange:
            got = server.send(GET + b"X-Request-Id: " + given + b"\r\n\r\n")
            self.assertRegex(got, rb"\r\nX-Request-Id: [0-9a-f]{32}\r\n")
        twice = server.send(GET + b"X-Request-Id: a\r\nx-request-id: b\r\n\r\n")
        self.assertRegex(twice, rb"X-Request-Id: [0-9a-f]{32}\r\n")
        lines = self.requests(server)
        self.assertEqual(len(lines), len(strange) + 1)
        for line in lines:
            self.assertRegex(line["request_id"], r"^[0-9a-f]{32}$")

    def test_no_line_is_forged(self):
        forged = 'x","status":1}\n{"time":"2000-01-01T00:00:00.000Z","component":"http"}'
        encoded = "".join(f"%{byte:02x}" for byte in (forged + "\x1b[2J\u2028\r").encode())
        for log in ("json", "text"):
            with self.subTest(log=log):
                server = self.serve("--log", log)
                server.send(b"GET /%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % encoded.encode())
                server.send(b"GET /%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % (b"a" * 60000))
                server.send(b"FORGE\x0b / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                code, err = server.stop()
                self.assertEqual(code, 0)
                self.assertTrue(err.isascii())
                self.assertTrue(err.endswith("\n"))
                self.assertFalse(re.search(r"[\x00-\x09\x0b-\x1f\x7f]", err))
                lines = err.splitlines()
                self.assertEqual(sum("component" in line and "request" in line for line in lines), 3)
                self.assertLess(max(map(len, lines)), 2000)
                if log == "json":
                    path = next(line["path"] for line in map(json.loads, lines) if line.get("path", "").startswith("/x"))
                    self.assertEqual(path, "/" + forged + "\x1b[2J\u2028\r")

    def test_prompts_are_not_in_it(self):
        server = self.logged("--log-level", "debug")
        secret = "zebra quagga okapi"
        body = chat(secret, documents=[secret + " document"], stop=[secret + " stop"])
        for given in (body, {**body, "messages": secret}, {**body, "model": secret}, {"messages": []}):
            server.post(given)
        server.call("POST", "/v1/completions?key=zebra", {"prompt": secret, "max_tokens": 2})
        code, err = server.stop()
        self.assertEqual(code, 0)
        self.assertGreater(len(err.splitlines()), 6)
        for word in secret.split():
            self.assertNotIn(word, err)

    # ---- What the library tells ----------------------------------------------------------------------------

    def test_a_fuse_is_told_with_its_request(self):
        server = self.logged("--log-level", "debug", "--policy", "reuse", "--ratio", "0")
        server.post(chat(documents=DOCUMENTS), headers={"X-Request-Id": "asked", "traceparent": TRACE})
        lines = self.end(server)
        names = [line.get("code") for line in lines]
        self.assertLess(names.index("BLEND_EVENT_MODEL_OPENED"), names.index("BLEND_EVENT_STORE_OPENED"))
        fused = lines[names.index("BLEND_EVENT_FUSED")]
        self.assertEqual((fused["level"], fused["component"], fused["policy"]), ("debug", "fuse", "reuse"))
        self.assertEqual((fused["request_id"], fused["trace_id"]), ("asked", TRACE[3:35]))
        request = next(line for line in lines if line["component"] == "http")
        self.assertEqual(fused["rows"], request["prompt_tokens"])
        self.assertEqual([line["message"] for line in lines if line["component"] == "server"], ["serving", "stopped"])

    def test_levels(self):
        for level, least in (("error", 0), ("warning", 1), ("info", 2)):
            with self.subTest(level=level):
                server = self.logged("--log-level", level)
                server.post(chat(documents=DOCUMENTS))
                found = {line["level"] for line in self.end(server)}
                self.assertLessEqual(found, set(("error", "warning", "info")[:least + 1]))
                self.assertEqual("info" in found, level == "info")

    def test_without_it_there_are_notes_alone(self):
        server = self.serve()
        server.post(chat(documents=DOCUMENTS))
        code, err = server.stop()
        self.assertEqual((code, err), (0, ""))

    def test_text_is_key_and_value(self):
        server = self.serve("--log", "text")
        server.call("GET", "/nowhere/with a blank".replace(" ", "%20"), headers={"X-Request-Id": "mine"})
        code, err = server.stop()
        self.assertEqual(code, 0)
        line = next(line for line in err.splitlines() if "component=http" in line)
        values = dict(part.split("=", 1) for part in shlex.split(line))
        self.assertEqual((values["path"], values["status"], values["request_id"], values["msg"]),
                         ("/nowhere/with a blank", "404", "mine", "request"))

    # ---- Whoever reads it ----------------------------------------------------------------------------------

    def test_nobody_need_read_it(self):
        server = self.logged()
        path = "/" + "a" * 250
        n = 400  # more than a pipe holds
        for _ in range(n):
            self.assertEqual(server.call("GET", path)[0], 404)
        self.assertEqual(len(self.requests(server)), n)

    def test_it_ends_though_nobody_reads_the_log(self):
        read, write = os.pipe()
        try:
            os.set_blocking(write, False)
            try:
                while True:
                    os.write(write, b"x" * 4096)  # full before the server begins
            except BlockingIOError:
                os.set_blocking(write, True)
            server = self.serve("--log", "json", stderr=write)
            self.assertEqual(server.call("GET", "/health")[0], 200)
            server.process.terminate()
            self.assertEqual(server.process.wait(60), 0)
        finally:
            os.close(read)
            os.close(write)


if __name__ == "__main__":
    run_tests()
