"""A service: documents in, answers streamed out, several requests at a time on one context.

    python service.py [--model MODEL.gguf] [--store DIR] [--port N]

What it answers is in examples/README.md. Stop it with Ctrl-C or SIGTERM: it finishes what it has
begun. A client that goes away ends its generation: the loop over the tokens is left, and that is all.
"""

import argparse
import collections
import http.server
import json
import pathlib
import signal
import sys
import tempfile
import threading

import libblend
from retrieval import Bm25, chunks_of, prompt_of, store_chunks

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
MAX_BODY = 4 << 20


class Bad(Exception):
    """A request that cannot be served: status and what is wrong."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Service:
    """What the requests share. The library's objects are thread-safe; the index has a lock."""

    def __init__(self, model, store):
        self.model = model
        self.store = store
        self.lock = threading.Lock()
        self.index = Bm25()
        self.documents = set()
        self.requests = collections.Counter()
        self.tokens = 0
        self.ttft_s = 0.0
        self.answers = 0

    def add_document(self, name, text):
        chunks = chunks_of(self.model, name, text)
        stored = store_chunks(self.model, self.store, chunks)
        with self.lock:
            if name in self.documents:
                raise Bad(409, f"there is a document {name!r} already")
            self.documents.add(name)
            for chunk in chunks:
                self.index.add(chunk)
        return {"name": name, "chunks": len(chunks), "stored": stored}

    def find(self, question, top):
        with self.lock:
            if not self.index.chunks:
                raise Bad(404, "there are no documents: POST /documents first")
            return self.index.best(question, top)

    def ask(self, question, max_tokens, top):
        """Yields (None, text) for each token and (account, None) at the end."""
        prompt = prompt_of(self.model, self.find(question, top), question)
        with self.model.fuse(self.store, prompt, reserve_tokens=max_tokens) as fusion:
            info = fusion.info
            text = ""
            n_tokens = 0
            for token in fusion.generate(max_tokens):
                text += token.text
                n_tokens += 1
                yield None, token.text
        with self.lock:
            self.tokens += n_tokens
            self.ttft_s += info.ttft_ns / 1e9
            self.answers += 1
        yield {"answer": text.strip(), "ttft_ms": info.ttft_ns / 1e6, "rows": info.n_rows,
               "reused": info.n_rows_reused, "recomputed": info.n_rows_selected}, None

    def metrics(self):
        with self.lock:
            lines = ["# TYPE blend_requests_total counter"]
            lines += [f'blend_requests_total{{path="{path}",code="{code}"}} {n}'
                      for (path, code), n in sorted(self.requests.items())]
            lines += ["# TYPE blend_tokens_total counter", f"blend_tokens_total {self.tokens}",
                      "# TYPE blend_ttft_seconds summary",
                      f"blend_ttft_seconds_sum {self.ttft_s:.6f}",
                      f"blend_ttft_seconds_count {self.answers}"]
        return "\n".join(lines) + "\n" + self.store.metrics("documents")


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection; its thread makes the calls."""

    protocol_version = "HTTP/1.1"
    service: Service

    def log_message(self, *_):
        pass

    def body(self):
        try:
            size = int(self.headers["Content-Length"])
        except (TypeError, ValueError):
            raise Bad(411, "a Content-Length is needed") from None
        if not 0 <= size <= MAX_BODY:
            raise Bad(413, f"at most {MAX_BODY} bytes are taken")
        try:
            body = json.loads(self.rfile.read(size))
        except ValueError as error:
            raise Bad(400, f"the body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise Bad(400, "the body is not a JSON object")
        return body

    @staticmethod
    def member(body, name, kind, default=None):
        value = body.get(name, default)
        if not isinstance(value, kind) or isinstance(value, bool) or not value:
            raise Bad(400, f"{name!r} must be given, as {kind.__name__}")
        return value

    def send(self, status, text, kind="application/json"):
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_json(self, status, value):
        self.send(status, json.dumps(value))

    def serve(self, path, work):
        """Runs `work`, and counts how it ended."""
        code = 200
        try:
            work()
        except Bad as error:
            code = error.status
            self.close_connection = True  # the body may not have been read
            self.send_json(code, {"error": str(error)})
        except (BrokenPipeError, ConnectionResetError):
            code = 499
            self.close_connection = True
        except libblend.BlendError as error:
            code = 400 if isinstance(error, ValueError) else 500
            self.send_json(code, {"error": str(error)})
        with self.service.lock:
            self.service.requests[path, code] += 1

    def do_GET(self):
        if self.path == "/metrics":
            self.serve("/metrics", lambda: self.send(200, self.service.metrics(),
                                                     "text/plain; version=0.0.4"))
        else:
            self.serve("other", self.no_such)

    def do_POST(self):
        work = {"/documents": self.documents, "/ask": self.ask}.get(self.path)
        self.serve(self.path if work else "other", work or self.no_such)

    def no_such(self):
        raise Bad(404, "there are POST /documents, POST /ask and GET /metrics")

    def documents(self):
        body = self.body()
        self.send_json(200, self.service.add_document(self.member(body, "name", str),
                                                      self.member(body, "text", str)))

    def ask(self):
        body = self.body()
        answer = self.service.ask(self.member(body, "question", str),
                                  self.member(body, "max_tokens", int, 32),
                                  self.member(body, "top", int, 6))
        first = next(answer)  # what is wrong before the first token has a status of its own
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for account, text in self.chained(first, answer):
                if account is None:
                    self.event({"text": text})
                else:
                    self.event(account, "done")
        except libblend.BlendError as error:
            self.event({"error": str(error)}, "error")

    @staticmethod
    def chained(first, rest):
        yield first
        yield from rest

    def event(self, value, name=None):
        head = f"event: {name}\n" if name else ""
        self.wfile.write(f"{head}data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = False  # server_close() waits for what was begun
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EXAMPLES / "models" / "blend-qa.gguf")
    parser.add_argument("--store", help="kept between runs; a temporary folder without it")
    parser.add_argument("--port", type=int, default=8080)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, \
            libblend.Context(log=lambda record: print(record.message, file=sys.stderr)) as ctx, \
            libblend.Model(ctx, args.model) as model, \
            libblend.Store(ctx, args.store or folder) as store:
        Handler.service = Service(model, store)
        server = Server(("127.0.0.1", args.port), Handler)

        def stop(*_):
            # shutdown() waits for serve_forever, which this thread is in.
            threading.Thread(target=server.shutdown).start()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever(poll_interval=0.1)
        server.server_close()


if __name__ == "__main__":
    main()
