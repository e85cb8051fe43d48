"""blend serve: OpenAI's API over real sockets, with a small random model.

    python3 serve_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]

Against another model, and for longer, with a table of times:

    python3 serve_test.py --blend BLEND --load 60 --clients 50 --model FILE
"""

import argparse
import base64
import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from serve_case import ARGS, CHUNKED, DOCUMENTS, HEAD, Server, ServeCase, chat, chunks, wait_for
from serve_load import load


class ServeTest(ServeCase):
    def test_an_answer_is_that_of_ask(self):
        server = self.serve()
        # The command ends every paragraph of a document with a newline.
        status, answer, _ = server.post(chat(documents=[text + "\n" for text in DOCUMENTS]))
        self.assertEqual(status, 200, answer)
        docs = self.dir / "asked"
        docs.mkdir()
        for i, text in enumerate(DOCUMENTS):
            (docs / f"{i}.txt").write_text(text)
        run = subprocess.run(
            [ARGS.blend, "ask", "--model", self.model, "--store", self.dir / "asked-store", "--docs", docs,
             "--chat", "--chat-template", next(self.dir.glob("*/chat.jinja")), "--question", "who sat",
             "--max-tokens", "12", "--json"], capture_output=True, check=True)
        asked = json.loads(run.stdout)
        self.assertEqual(answer["choices"][0]["message"]["content"], asked["answer"])
        self.assertEqual(answer["usage"]["prompt_tokens"], asked["fusion"]["n_rows"])
        self.assertEqual(answer["usage"]["completion_tokens"], asked["n_generated"])
        self.assertEqual(answer["object"], "chat.completion")
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length"))

    def test_documents_are_reused_and_the_account_says_so(self):
        server = self.serve()
        first = server.post(chat(documents=DOCUMENTS))[1]["usage"]["blend"]
        self.assertGreaterEqual(first["misses"], 3)
        # Missed chunks are stored in idle time.
        for _ in range(200):
            again = server.post(chat("when", documents=DOCUMENTS[::-1]))[1]["usage"]
            if again["blend"]["misses"] == 0:
                break
            time.sleep(0.05)
        self.assertEqual(again["blend"]["misses"], 0)
        self.assertGreater(again["blend"]["reused_tokens"], 0)
        self.assertGreater(again["blend"]["recomputed_tokens"], 0)
        self.assertEqual(again["prompt_tokens_details"]["cached_tokens"],
                         again["blend"]["reused_tokens"] - again["blend"]["recomputed_tokens"])
        self.assertGreater(server.metric("blend_reused_tokens_total"), 0)

    def stored(self, server, body, path="/v1/chat/completions"):
        """The account once all chunks are stored, which is done in idle time."""
        for _ in range(200):
            account = server.post(body, path)[1]["usage"]["blend"]
            if account["misses"] == 0:
                return account
            time.sleep(0.05)
        self.fail(account)

    def test_a_request_may_set_policy_and_ratio(self):
        # A fixed ratio and prefix: what idle time finds and stores would change the counts meanwhile.
        server = self.serve("--ratio", "0.2", "--chunk-prefix", "bos")
        usual = self.stored(server, chat(documents=DOCUMENTS))
        self.assertEqual(self.stored(server, chat(documents=DOCUMENTS, policy="reuse"))["recomputed_tokens"], 0)
        most = self.stored(server, chat(documents=DOCUMENTS, ratio=1))["recomputed_tokens"]
        self.assertGreater(most, usual["recomputed_tokens"])
        half = self.stored(server, chat(documents=DOCUMENTS, policy="hkvd+first_k", ratio=0.5))["recomputed_tokens"]
        self.assertTrue(0 < half < most, (half, most))
        again = self.stored(server, chat(documents=DOCUMENTS, ratio=None, policy=None))["recomputed_tokens"]
        self.assertEqual(again, usual["recomputed_tokens"], "the next request is as ever")
        self.assertEqual(server.post(chat(documents=DOCUMENTS, ratio="fidelity"))[0], 200)

    def test_white_space_at_the_ends_of_a_document_does_not_count(self):
        server = self.serve()
        for path, body in (("/v1/chat/completions", chat), ("/v1/completions", lambda **more: {"prompt": "who sat", **more})):
            self.stored(server, body(documents=DOCUMENTS), path)
            for other in ([text + "\n" for text in DOCUMENTS], [f"\r\n {text}\t\r\n" for text in DOCUMENTS]):
                account = server.post(body(documents=other), path)[1]["usage"]["blend"]
                self.assertEqual(account["misses"], 0)

    def test_without_a_template_chats_are_refused_with_what_to_do(self):
        run = subprocess.Popen([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "plain-store", "--port",
                                "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server = object.__new__(Server)
        server.process, server.port = run, json.loads(run.stdout.readline())["port"]
        status, answer, _ = server.post(chat())
        self.assertEqual((status, answer["error"]["code"]), (400, "no_chat_template"))
        self.assertIn("--chat-template FILE", answer["error"]["message"])
        self.assertEqual(server.post({"prompt": "who sat", "max_tokens": 1}, "/v1/completions")[0], 200)
        code, said = server.stop()
        run.stdout.close(), run.stderr.close()
        self.assertEqual(code, 0)
        self.assertIn("no chat template", said)

    def test_a_stored_chunk_is_a_document_by_its_id(self):
        server = self.serve()
        by_text = server.post(chat(documents=DOCUMENTS[:1]))[1]
        self.assertEqual(server.stop()[0], 0)
        listed = json.loads(subprocess.run(
            [ARGS.blend, "store", "ls", "--store", self.store_of(server), "--json"], capture_output=True,
            check=True).stdout)
        ids = [c["id"] for c in listed["chunks"]]
        self.assertTrue(ids)
        again = Server(self.store_of(server).parent, self.model)
        try:
            answers = [again.post(chat(documents=[{"id": id}]))[1] for id in ids]
            self.assertIn(by_text["choices"][0]["message"]["content"],
                          [a["choices"][0]["message"]["content"] for a in answers if "choices" in a])
            status, answer, _ = again.post(chat(documents=[{"id": "0" * 64}]))
            self.assertEqual((status, answer["error"]["code"]), (400, "not_found"))
        finally:
            self.assertEqual(again.stop()[0], 0)
            again.process.stdout.close()
            again.process.stderr.close()

    @staticmethod
    def store_of(server):
        return Path(server.process.args[server.process.args.index("--store") + 1])

    def test_a_stream_is_the_same_text_in_pieces(self):
        server = self.serve()
        whole = server.post(chat(ignore_eos=True))[1]
        events = server.stream(chat(ignore_eos=True, stream_options={"include_usage": True}))
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        usage = events.pop()
        self.assertEqual([e["usage"] for e in events], [None] * len(events))
        self.assertEqual(usage["choices"], [])
        self.assertEqual(usage["usage"]["completion_tokens"], 12)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        self.assertEqual(text, whole["choices"][0]["message"]["content"])

    def test_n_answers_are_those_of_their_seeds(self):
        server = self.serve()
        body = chat(n=4, temperature=1, seed=5, ignore_eos=True, logprobs=True)
        status, several, _ = server.post(body)
        self.assertEqual((status, several["usage"]["completion_tokens"]), (200, 48))
        self.assertEqual([c["index"] for c in several["choices"]], [0, 1, 2, 3])
        texts = [c["message"]["content"] for c in several["choices"]]
        self.assertEqual(len(set(texts)), 4)
        for i, text in enumerate(texts):
            alone = server.post({**body, "n": 1, "seed": 5 + i})[1]["choices"][0]
            self.assertEqual(text, alone["message"]["content"])
            self.assertEqual(several["choices"][i]["logprobs"], alone["logprobs"])
        pieces = ["", "", "", ""]
        ends = []
        for event in server.stream({**body, "logprobs": False}):
            choice = event["choices"][0]
            pieces[choice["index"]] += choice["delta"].get("content", "")
            if choice["finish_reason"]:
                ends.append(choice["index"])
        self.assertEqual((pieces, ends), (texts, [0, 1, 2, 3]))

    def test_completions_stop_bias_and_logprobs(self):
        server = self.serve()
        body = {"prompt": "the cat", "temperature": 0, "max_tokens": 8, "ignore_eos": True}
        status, plain, _ = server.post(body, "/v1/completions")
        self.assertEqual((status, plain["object"]), (200, "text_completion"))
        text = plain["choices"][0]["text"]
        cut = server.post({**body, "stop": [text[3:5]]}, "/v1/completions")[1]["choices"][0]
        self.assertEqual(cut["text"], text[:text.index(text[3:5])])
        self.assertEqual(cut["finish_reason"], "stop")
        told = server.post({**body, "logprobs": 2}, "/v1/completions")[1]["choices"][0]["logprobs"]
        self.assertEqual(len(told["tokens"]), 8)
        self.assertTrue(all(p <= 0 for p in told["token_logprobs"]))
        for token, top in zip(told["tokens"], told["top_logprobs"]):
            self.assertIn(token, top)  # greedy takes the likeliest; the token itself, not a JSON string
        for token, at in zip(told["tokens"], told["text_offset"]):
            if token.startswith("bytes:"):  # a part of a character, which the text has whole or not
                break
            self.assertEqual(text[at:at + len(token)], token)
        self.assertEqual(told["text_offset"][0], 0)
        self.assertEqual(told["text_offset"], sorted(told["text_offset"]))
        chosen = server.post(chat(logprobs=True, top_logprobs=3, ignore_eos=True))[1]
        content = chosen["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 12)
        self.assertEqual(len(content[0]["top_logprobs"]), 3)
        # The likeliest is what greedy takes; forbidden, another is.
        self.assertEqual(content[0]["token"], content[0]["top_logprobs"][0]["token"])

    def test_embeddings(self):
        server = self.serve()
        path = "/v1/embeddings"
        texts = ["the cat sat", "a dog ran home"]
        status, got, headers = server.post({"model": "small", "input": texts}, path)
        self.assertEqual((status, got["object"], got["model"]), (200, "list", "small"))
        self.assertEqual(headers["Cache-Control"], "no-store")
        self.assertEqual([(one["object"], one["index"]) for one in got["data"]], [("embedding", 0), ("embedding", 1)])
        first, second = (one["embedding"] for one in got["data"])
        self.assertAlmostEqual(sum(value * value for value in first), 1, places=5)
        usage = got["usage"]
        self.assertGreater(usage["prompt_tokens"], 4)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"])
        self.assertGreaterEqual(server.metric("blend_embedded_tokens_total"), usage["prompt_tokens"])
        # One text; as base64; its first dimensions.
        _, got, _ = server.post({"input": texts[1]}, path)
        self.assertEqual(got["data"][0]["embedding"], second)
        for n in (1, 5, len(second)):
            _, numbers, _ = server.post({"input": texts[1], "dimensions": n}, path)
            _, packed, _ = server.post({"input": texts[1], "dimensions": n, "encoding_format": "base64"}, path)
            data = base64.b64decode(packed["data"][0]["embedding"], validate=True)
            self.assertEqual(len(data), 4 * n)
            self.assertEqual(struct.pack(f"<{n}f", *numbers["data"][0]["embedding"]), data)
        # Tokens are taken as they are.
        _, got, _ = server.post({"input": [5, 6, 7]}, path)
        _, both, _ = server.post({"input": [[5, 6, 7], [8]]}, path)
        self.assertEqual(got["usage"]["prompt_tokens"], 3)
        self.assertEqual(both["data"][0]["embedding"], got["data"][0]["embedding"])

    def test_what_is_wrong_with_texts_to_embed_is_said(self):
        server = self.serve()
        for body, status, word in (
                ({}, 400, "input"), ({"input": []}, 400, "input"), ({"input": 7}, 400, "input"),
                ({"input": ["x", 7]}, 400, "input"), ({"input": ["x", [7]]}, 400, "apart"),
                ({"input": ["x"] * 2049}, 400, "2048"), ({"input": [5, 1 << 40]}, 400, "vocabulary"),
                ({"input": [5, 5000]}, 400, "vocabulary"), ({"input": "x", "dimensions": 0}, 400, "dimensions"),
                ({"input": "x", "dimensions": 5000}, 400, "dimensions"),
                ({"input": "x", "encoding_format": "hex"}, 400, "encoding_format"),
                ({"input": "x", "model": "other"}, 404, "other"), ({"input": "the cat " * 3000}, 400, "text 0")):
            got, answer, _ = server.post(body, "/v1/embeddings")
            self.assertEqual(got, status, answer)
            self.assertIn(word, answer["error"]["message"])
        status, _, headers = server.call("GET", "/v1/embeddings")
        self.assertEqual((status, headers["Allow"]), (405, "POST, OPTIONS"))

    def test_models_and_health(self):
        server = self.serve()
        listed = json.loads(server.call("GET", "/v1/models")[1])
        self.assertEqual([m["id"] for m in listed["data"]], ["small"])
        self.assertEqual(json.loads(server.call("GET", "/v1/models/small")[1])["context_length"], 512)
        self.assertEqual(server.call("GET", "/v1/models/large")[0], 404)
        self.assertEqual(server.call("GET", "/health")[0], 200)
        self.assertEqual(server.call("HEAD", "/health")[:2], (200, b""))
        self.assertEqual(server.call("GET", "/nothing")[0], 404)
        for method, path, allowed in (("GET", "/v1/chat/completions", "POST, OPTIONS"),
                                      ("PUT", "/v1/completions", "POST, OPTIONS"),
                                      ("POST", "/v1/models", "GET, HEAD, OPTIONS"),
                                      ("DELETE", "/health", "GET, HEAD, OPTIONS")):
            status, data, headers = server.call(method, path, "" if method in ("POST", "PUT") else None)
            self.assertEqual((status, headers["Allow"]), (405, allowed), (method, path))
            self.assertEqual(json.loads(data)["error"]["type"], "invalid_request_error")
        status, answer, _ = server.post(chat(model="large"))
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))

    def test_what_is_wrong_with_a_request_is_said(self):
        server = self.serve()
        for body, named in (
                ("{", "JSON"), ("[]", "JSON"), ('{"a":' + "[" * 100000, "deep"), ({}, "messages"), (chat(n=17), "'n'"),
                (chat(n=1.5), "'n'"), (chat(best_of=2), "'best_of'"),
                ({"messages": []}, "messages"), ({"messages": [{"content": "x"}]}, "messages[0]"),
                ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text"),
                (chat(temperature="hot"), "temperature"), (chat(top_p=2), "top_p"), (chat(stop=""), "stop"),
                (chat(max_tokens=0), "max_tokens"), (chat(max_tokens=-1), "max_tokens"),
                (chat(documents=[{}]), "documents[0]"), (chat(documents=[{"id": "xyz"}]), "documents[0].id"),
                (chat(documents=["  "]), "documents[0]"),
                (chat(logit_bias={"x": 1}), "logit_bias"), (chat(logit_bias={"9999999": 1}), "9999999"),
                (chat(response_format={"type": "xml"}), "json_schema"), (chat(response_format="json"), "response_format"),
                (chat(response_format={"type": "json_schema"}), "json_schema.schema"),
                (chat(response_format={"type": "json_schema", "json_schema": {"schema": "x"}}), "json_schema.schema"),
                (chat(response_format={"type": "json_object"}, ignore_eos=True), "ignore_eos"),
                (chat(stream="yes"), "stream"), (chat("word " * 600), "context"),
                (chat(top_logprobs=3), "top_logprobs"), (chat(seed="x"), "seed"), (chat(seed=1.5), "seed"),
                (chat(max_tokens=2.5), "max_tokens"), (chat(top_k=0.5), "top_k"), (chat(n=None, model=3), "model"),
                (b'{"messages": [{"role": "user", "content": "\xff"}]}', "JSON"), (chat(stop=[3]), "stop"),
                (chat(logprobs=2), "logprobs"), (chat(messages="x"), "messages"), (chat(documents="x"), "documents"),
                (chat(temperature=1e400), "JSON"), (chat(temperature=-1), "temperature"),
                (chat(chat_template_kwargs={"messages": []}), "'messages'"),
                (chat(chat_template_kwargs={"eos_token": "x"}), "'eos_token'"),
                (chat(chat_template_kwargs=[1]), "chat_template_kwargs"), (chat(stream_options=1), "stream_options"),
                (chat(policy="best"), "attention"), (chat(policy=3), "'policy'"), (chat(ratio=1.5), "'ratio'"),
                (chat(ratio="much"), "fidelity"), (chat(agreement=0.9), "server starts"), (chat(on_miss="fail"), "'on_miss'"),
                (chat(max_tokens=10 ** 30), "max_tokens"), (chat(stop=["a"] * 17), "stop")):
            status, answer, _ = server.post(body)
            self.assertEqual(status, 400, (body, answer))
            self.assertIn(named, answer["error"]["message"])
            self.assertEqual(answer["error"]["type"], "invalid_request_error")
            self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        self.assertEqual(server.post(chat(top_p=2))[1]["error"]["param"], "top_p")
        self.assertEqual(server.post(chat(unknown_member={"x": 1}, user="me", metadata={}))[0], 200)

    def test_answers_keep_to_their_format(self):
        server = self.serve()
        status, answer, _ = server.post(chat(response_format={"type": "json_object"}, max_tokens=100))
        if status == 501:
            self.assertIn("BLEND_GRAMMAR", answer["error"]["message"])
            self.skipTest("this build has no grammars")
        self.assertEqual(status, 200, answer)
        self.assertTrue(answer["choices"][0]["message"]["content"].startswith("{"))
        # Members that sorting would put in another order.
        schema = {"type": "object", "properties": {"z": {"enum": ["one", "two"]}, "a": {"type": "boolean"}},
                  "required": ["z", "a"], "additionalProperties": False}
        def asked(schema, **more):
            return chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}},
                        temperature=1, max_tokens=40, **more)
        for seed in range(4):
            status, answer, _ = server.post(asked(schema, seed=seed, n=3))
            self.assertEqual(status, 200, answer)
            for choice in answer["choices"]:
                self.assertEqual(choice["finish_reason"], "stop")
                value = json.loads(choice["message"]["content"])
                self.assertEqual(list(value), ["z", "a"])
                self.assertIn(value["z"], ("one", "two"))
        long = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "minLength": 50}}}
        completed = server.post({"prompt": "who", "max_tokens": 3, "response_format": long},
                                path="/v1/completions")[1]["choices"][0]
        self.assertEqual(completed["finish_reason"], "length")
        self.assertTrue(completed["text"].startswith('"'))
        for wrong, named in (({"type": "objekt"}, "'type'"), ({"not": {}}, "'not'"), ({"$ref": "#"}, "nothing"),
                             ({"type": "array", "items": {"type": "array", "uniqueItems": True}}, "#/items")):
            status, answer, _ = server.post(asked(wrong))
            self.assertEqual((status, answer["error"]["param"]), (400, "response_format"), answer)
            self.assertIn(named, answer["error"]["message"])

    def test_a_wrong_key_is_401(self):
        server = self.serve(env={"BLEND_API_KEY": "secret"})
        for key in (None, "Bearer wrong", "secret", "Bearer secretx"):
            status, answer, _ = server.post(chat(), headers={"Authorization": key} if key else {})
            self.assertEqual((status, answer["error"]["code"]), (401, "invalid_api_key"), key)
        self.assertEqual(server.call("GET", "/metrics")[0], 401)
        self.assertEqual(server.call("GET", "/health")[0], 200)
        self.assertEqual(server.post(chat(), headers={"Authorization": "Bearer secret"})[0], 200)

    def test_no_listening_beyond_this_machine_without_a_key(self):
        run = subprocess.run([ARGS.blend, "serve", "--model", self.model, "--store", self.dir / "s",
                              "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("--api-key-file", run.stderr)

    def test_a_body_of_100_megabytes_is_413(self):
        server = self.serve()
        got = server.send(HEAD + b"Content-Length: 100000000\r\n\r\n", *([b"x" * 1000000] * 100))
        self.assertTrue(got.startswith(b"HTTP/1.1 413"), got[:100])
        self.assertIn(b"--max-body", got)
        self.assertEqual(server.post(chat())[0], 200)

    def test_a_body_in_chunks_has_the_same_bound(self):
        server = self.serve("--max-body", "64KiB")
        body = json.dumps(chat()).encode()
        got = server.send(CHUNKED, *chunks(body, 7))
        self.assertTrue(got.startswith(b"HTTP/1.1 200"), got[:200])
        for size in (100, 60000):
            got = server.send(CHUNKED, *chunks(b" " * 90000, size))
            self.assertTrue(got.startswith(b"HTTP/1.1 413"), (size, got[:200]))
        # A chunk's size that does not end, and a body of which nobody says where it ends.
        got = server.send(CHUNKED, b"0" * 2000000)
        self.assertNotIn(b" 200 ", got)
        self.assertTrue(server.send(HEAD + b"\r\n" + body).startswith(b"HTTP/1.1 411"))
        form = HEAD.replace(b"application/json", b"multipart/form-data; boundary=b") + b"Content-Length: 3\r\n\r\n--b"
        self.assertTrue(server.send(form).startswith(b"HTTP/1.1 415"))
        self.assertEqual(server.post(chat())[0], 200)

    def test_a_packed_body_is_not_read(self):
        server = self.serve("--max-body", "64KiB")
        bomb = gzip.compress(b" " * 20000000)
        self.assertLess(len(bomb), 65536)
        got = server.send(HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb), bomb)
        self.assertTrue(got.startswith(b"HTTP/1.1 415"), got[:100])
        self.assertEqual(server.post(chat())[0], 200)

    def test_a_head_without_an_end_is_left(self):
        server = self.serve("--client-timeout", 600)
        for endless in ([HEAD] + [b"X-%d: y\r\n" % i for i in range(300000)], [b"GET /" + b"a" * 5000000],
                        [HEAD + b"X: " + b"a" * 5000000]):
            got = server.send(*endless)  # Hangs if broken.
            self.assertNotIn(b" 200 ", got)
        self.assertEqual(server.post(chat())[0], 200)

    def test_a_request_has_to_come_whole_in_time(self):
        server = self.serve("--client-timeout", 1)
        for begin, told in ((HEAD, b""), (HEAD + b"Content-Length: 100000\r\n\r\n", b"HTTP/1.1 408")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as s:
                s.sendall(begin + b"X")
                s.settimeout(0.2)
                got = None
                for _ in range(200):  # a byte now and then is not enough
                    try:
                        got = s.recv(65536)
                        break
                    except TimeoutError:
                        s.sendall(b"a")
                    except ConnectionResetError:
                        got = b""
                        break
                self.assertIsNotNone(got, "it was never left")
                self.assertTrue(got.startswith(told), got)

    def test_those_who_say_nothing_are_in_nobodys_way(self):
        server = self.serve("--client-timeout", 600, "--parallel", 1, "--queue", 4)
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for s in idle:
            self.addCleanup(s.close)
        self.assertEqual(server.call("GET", "/health", timeout=30)[0], 200)
        self.assertEqual(server.post(chat(), timeout=30)[0], 200)

    def test_too_many_are_429_and_told_when_to_come_back(self):
        server = self.serve("--parallel", 1, "--queue", 0, "--max-tokens", 4000, model=self.slow_model)
        first = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=True))
        self.addCleanup(first.close)
        first.recv(1)
        statuses = [server.post(chat()) for _ in range(3)]
        refused = [s for s in statuses if s[0] == 429]
        self.assertTrue(refused, [s[0] for s in statuses])
        self.assertEqual(refused[0][1]["error"]["type"], "rate_limit_error")
        self.assertEqual(refused[0][2]["Retry-After"], "1")

    def test_a_client_that_hangs_up_ends_its_generation(self):
        server = self.serve("--parallel", 1, "--max-tokens", 4000, model=self.slow_model)
        for stream in (True, False):
            before = server.metric("blend_http_hang_ups_total")
            s = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=stream))
            if stream:
                s.recv(1)
            else:
                wait_for(lambda: server.metric("blend_http_running") == 1)
            s.close()
            wait_for(lambda: server.metric("blend_http_running") == 0)
            self.assertEqual(server.metric("blend_http_hang_ups_total"), before + 1, stream)
        self.assertEqual(server.post(chat())[0], 200)

    def test_a_slow_reader_gets_all_of_it_and_a_slow_writer_is_left(self):
        server = self.serve("--client-timeout", 1)
        wanted = server.stream(chat(max_tokens=100, ignore_eos=True))
        slow = server.begin(chat(max_tokens=100, ignore_eos=True, stream=True))
        got = b""
        while block := slow.recv(512):
            got += block
            time.sleep(0.01)
        slow.close()
        self.assertTrue(got.startswith(b"HTTP/1.1 200"))
        self.assertEqual(got.count(b"data: "), len(wanted) + 1)
        s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = s.recv(65536)  # it comes back at all
        s.close()
        self.assertTrue(answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer)
        self.assertEqual(server.post(chat())[0], 200)

    def test_sigterm_answers_what_has_begun_and_takes_no_more(self):
        server = self.serve("--max-tokens", 300)
        s = server.begin(chat(max_tokens=300, ignore_eos=True, stream=True))
        got = s.recv(1)
        server.process.send_signal(signal.SIGTERM)
        while block := s.recv(65536):
            got += block
        s.close()
        self.assertIn(b"data: [DONE]", got)
        self.assertEqual(server.process.wait(60), 0, server.process.stderr.read())
        with self.assertRaises(ConnectionError):
            server.call("GET", "/health")

    def test_many_may_come_at_once(self):
        server = self.serve()
        # A stopped process accepts no connection: the system keeps them for it.
        server.process.send_signal(signal.SIGSTOP)
        try:
            waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(100)]
        finally:
            server.process.send_signal(signal.SIGCONT)
        for s in waiting:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for s in waiting:
            s.settimeout(60)
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200"))
            s.close()

    def test_it_stops_though_clients_say_nothing(self):
        server = self.serve("--client-timeout", 600)
        for sent in (b"", HEAD, HEAD + b"Content-Length: 10\r\n\r\n{"):
            s = socket.create_connection(("127.0.0.1", server.port))
            self.addCleanup(s.close)
            s.sendall(sent)
        self.assertEqual(server.call("GET", "/health")[0], 200)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 0)

    def test_an_answer_that_fails_has_the_status_of_its_failure(self):
        server = self.serve("--max-tokens", 4000, "--drain", 0, model=self.slow_model)
        s = server.begin(chat(max_tokens=4000, ignore_eos=True))
        wait_for(lambda: server.metric("blend_http_running") == 1)
        time.sleep(0.5)  # fused, and in the middle of its 4000 tokens
        server.process.send_signal(signal.SIGTERM)
        got = b""
        while block := s.recv(65536):
            got += block
        s.close()
        self.assertTrue(got.startswith(b"HTTP/1.1 503"), got[:200])
        self.assertIn(b"Retry-After", got)
        self.assertEqual(server.process.wait(60), 0)

    def test_who_leaves_while_he_waits_is_not_answered(self):
        server = self.serve("--parallel", 1, "--max-tokens", 4000, model=self.slow_model)
        first = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=True))
        first.recv(1)
        second = server.begin(chat(max_tokens=4000, ignore_eos=True, documents=DOCUMENTS))
        wait_for(lambda: server.metric("blend_http_waiting") == 1)
        second.close()
        first.close()
        wait_for(lambda: server.metric("blend_http_hang_ups_total") == 2)
        self.assertEqual(server.metric('blend_store_misses_total{store="store"}'), 0)  # its documents were not looked up

    def test_a_store_that_is_full_answers_all_the_same(self):
        server = self.serve("--quota", "1000", "--eviction", "never")
        for stream in (False, True):
            body = chat(documents=DOCUMENTS)
            self.assertTrue(server.stream(body) if stream else server.post(body)[0] == 200)

    def test_a_store_that_is_only_read(self):
        server = self.serve()
        for _ in range(2):  # what is stored is rounded: from the second time on answers are one
            wanted = server.post(chat(documents=DOCUMENTS[:2]))[1]["choices"]
        self.assertEqual(server.stop()[0], 0)
        store = self.store_of(server)

        def files():
            return sorted((p.name, p.stat().st_size) for p in store.iterdir() if "lock" not in p.name)
        before = files()
        again = Server(store.parent, self.model, "--read-only")
        self.addCleanup(again.process.stdout.close)
        self.addCleanup(again.process.stderr.close)
        got = again.post(chat(documents=DOCUMENTS))[1]["usage"]["blend"]
        self.assertGreaterEqual(got["hits"], 2)
        self.assertEqual(got["misses"], 1)
        self.assertEqual(again.post(chat(documents=DOCUMENTS[:2]))[1]["choices"], wanted)
        self.assertEqual(again.stop()[0], 0)
        self.assertEqual(files(), before)

    def test_metrics_are_what_prometheus_reads(self):
        server = self.serve()
        server.post(chat(documents=DOCUMENTS))
        server.post(chat(top_p=2))
        text = server.call("GET", "/metrics")[1].decode()
        self.assertTrue(text.endswith("\n"))
        kinds, samples = {}, set()
        for line in text.splitlines():
            if line.startswith("# "):
                word, name, rest = line[2:].split(" ", 2)
                self.assertIn(word, ("HELP", "TYPE"))
                if word == "TYPE":
                    self.assertNotIn(name, kinds)
                    self.assertIn(rest, ("counter", "gauge", "summary", "histogram", "untyped"))
                    kinds[name] = rest
                continue
            found = re.fullmatch(r'([a-z_:][a-z0-9_:]*)(\{(?:[a-z_]+="[^"\\\n]*",?)*\})? (\S+)', line)
            self.assertTrue(found, line)
            float(found[3])
            base = re.sub("_(sum|count|bucket)$", "", found[1])
            self.assertTrue(found[1] in kinds or base in kinds, line)
            self.assertNotIn(found[1] + (found[2] or ""), samples, "twice")
            samples.add(found[1] + (found[2] or ""))
            if kinds.get(found[1]) == "counter":
                self.assertTrue(found[1].endswith("_total"), line)
        self.assertIn('blend_http_requests_total{path="/v1/chat/completions",code="400"}', samples)
        self.assertTrue(any(name.startswith("blend_store") for name in kinds), kinds)
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            return
        self.assertGreater(len(list(text_string_to_metric_families(text))), 5)

    def test_drain_ends(self):
        server = self.serve("--max-tokens", 4000, "--drain", 0, model=self.slow_model)
        s = server.begin(chat(max_tokens=4000, ignore_eos=True, stream=True))
        got = s.recv(1)
        server.process.send_signal(signal.SIGTERM)
        while block := s.recv(65536):
            got += block
        s.close()
        self.assertLess(got.count(b"data: "), 4000)
        self.assertEqual(server.process.wait(60), 0)

    def test_many_clients_at_once_get_their_own_answers(self):
        server = self.serve()
        report = load(server, self.dir, self.model, clients=50, requests=4)
        self.assertEqual(report["answers"], 200)
        self.assertEqual(report["wrong"], 0, report)
        self.assertEqual(report["lost"], 0, report)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model")
    parser.add_argument("--model")
    parser.add_argument("--load", type=float, help="seconds")
    parser.add_argument("--clients", type=int, default=50)
    _, rest = parser.parse_known_args(namespace=ARGS)
    if ARGS.load is None:
        unittest.main(argv=[sys.argv[0], *rest])
        return
    with tempfile.TemporaryDirectory() as folder:
        model = ARGS.model or Path(folder) / "model.gguf"
        if ARGS.model is None:
            subprocess.run([ARGS.make_model, model], check=True)
        server = Server(folder, model)
        print(json.dumps(load(server, folder, model, ARGS.clients, seconds=ARGS.load)))
        server.stop()


if __name__ == "__main__":
    main()
