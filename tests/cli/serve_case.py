"""A server of `blend serve` on a small random model, as the tests of the server run it."""

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ARGS = argparse.Namespace()
TEMPLATE = ("{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}")
DOCUMENTS = ["the cat sat on the mat", "the dog ran to the park", "a bird sang in the old tree"]


class Server:
    def __init__(self, folder, model, *options, env=None, **more):
        template = Path(folder) / "chat.jinja"
        template.write_text(TEMPLATE)
        self.process = subprocess.Popen(
            [ARGS.blend, "serve", "--model", model, "--store", Path(folder) / "store", "--port", "0",
             "--chat-template", template, "--model-name", "small", "--json", *map(str, options)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
            **{"stderr": subprocess.PIPE, **more})
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read())
        self.port = json.loads(line)["port"]
        self.url = json.loads(line)["url"]

    def call(self, method, path, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def post(self, body, path="/v1/chat/completions", **more):
        status, data, headers = self.call("POST", path, body, **more)
        return status, json.loads(data), headers

    def stream(self, body, path="/v1/chat/completions", **more):
        """The events of a stream."""
        status, data, _ = self.call("POST", path, {**body, "stream": True}, **more)
        assert status == 200, data
        events = [line[len("data: "):] for line in data.decode().split("\n\n") if line]
        assert events.pop() == "[DONE]", data
        return [json.loads(event) for event in events]

    def metric(self, name):
        _, text, _ = self.call("GET", "/metrics")
        found = [line.rsplit(" ", 1)[1] for line in text.decode().splitlines() if line.startswith(name + " ")]
        return float(found[0]) if found else 0.0

    def send(self, *pieces):
        """What comes back for these bytes, a connection of their own, until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as s:
            try:
                for piece in pieces:
                    s.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was told before
            got = b""
            try:
                while block := s.recv(65536):
                    got += block
            except ConnectionResetError:
                pass
            return got

    def begin(self, body):
        """A socket on which the request is sent and nothing is read yet."""
        data = json.dumps(body).encode()
        s = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(data) + data)
        return s

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunks(data, size):
    for at in range(0, len(data), size):
        piece = data[at:at + size]
        yield b"%x\r\n%s\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("it did not come true")
        time.sleep(0.02)


def chat(content="who sat", **more):
    return {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 12, **more}


def tool(name, parameters=None):
    return {"type": "function", "function": {"name": name, **({} if parameters is None else {"parameters": parameters})}}


class ServeCase(unittest.TestCase):
    """With a model, and servers that end with the test."""
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = Path(cls.temp.name)
        cls.model = cls.dir / "model.gguf"
        subprocess.run([ARGS.make_model, cls.model], check=True)
        # Its 4000 tokens take seconds: what a test does meanwhile need not be quick.
        cls.slow_model = cls.dir / "slow.gguf"
        subprocess.run([ARGS.make_model, cls.slow_model, "1", "slow"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def serve(self, *options, env=None, model=None, **more):
        folder = tempfile.mkdtemp(dir=self.dir)
        server = Server(folder, model or self.model, *options, env=env, **more)

        def end():
            if server.process.poll() is None:
                server.process.kill()
                server.process.communicate()
            server.process.stdout.close()
            if server.process.stderr is not None:
                server.process.stderr.close()
        self.addCleanup(end)
        return server


def run_tests():
    """The tests of a file that needs the command and a random model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blend", required=True)
    parser.add_argument("--make-model", required=True)
    _, rest = parser.parse_known_args(namespace=ARGS)
    unittest.main(argv=[sys.argv[0], *rest])
