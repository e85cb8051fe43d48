"""Stores with a remote tier, on a redis-server of the tests' own."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import libblend
from support import DOCUMENTS, Case

SERVER = shutil.which("redis-server")


@unittest.skipIf(SERVER is None, "redis-server is not installed")
class Remote(Case):
    def setUp(self):
        super().setUp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, True)
        server = subprocess.Popen(
            [SERVER, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
             "--requirepass", "sesame"], stdout=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self.url = f"redis://127.0.0.1:{port}"

    def open(self, name, **options):
        options.setdefault("remote_password", "sesame")
        store = libblend.Store(self.ctx, self.folder / name, remote=self.url,
                               remote_timeout_ms=20000, **options)
        self.addCleanup(store.close)
        return store

    def test_push_pull_verify_remove(self):
        with libblend.Store(self.ctx, self.folder / "first") as before:
            ids = sorted(self.model.precompute(before, self.model.tokenize(d)).id
                         for d in DOCUMENTS[:3])
        first = self.open("first")
        first.remote_check()
        told = []
        self.assertEqual(first.remote_push(ids[:2], progress=lambda n, all: told.append((n, all))), 2)
        self.assertEqual(told[-1], (2, 2))
        self.assertEqual(first.remote_push(), 1)
        self.assertEqual(first.remote_push(), 0)
        second = self.open("second")
        self.assertEqual(second.remote_pull(ids[:1]), 1)
        self.assertEqual(second.remote_pull(), 2)
        self.assertEqual([c.id for c in second.list(verify=True)], ids)
        found = second.remote_verify()
        self.assertEqual(sorted(c.id for c in found), ids)
        self.assertEqual({c.problem for c in found}, {None})
        second.remote_remove(ids[0])
        self.assertEqual(sorted(c.id for c in first.remote_verify()), ids[1:])
        with self.assertRaises(libblend.NotFoundError):
            second.remote_remove(ids[0])
        with self.assertRaises(libblend.NotFoundError):
            second.remote_pull([ids[0][::-1]])
        self.assertEqual(first.stat().remote_written, 3)

    def test_secrets(self):
        with self.assertRaisesRegex(libblend.IoError, "NOAUTH|WRONGPASS|user or password"):
            self.open("stranger", remote_password="guessed").remote_check()
        with mock.patch.dict(os.environ, {"BLEND_REMOTE_PASSWORD": "sesame"}):
            self.open("environment", remote_password="").remote_check()
        sealed = self.open("sealed", remote_seal_key=bytes(range(32)))
        id = self.model.precompute(sealed, self.model.tokenize(DOCUMENTS[0])).id
        sealed.flush()
        self.assertEqual([c.id for c in sealed.remote_verify()], [id])
        with self.assertRaises(libblend.NotFoundError):
            self.open("other", remote_seal_key=bytes(32)).remote_pull([id])
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "seal key"):
            self.open("short", remote_seal_key=b"too short")

    def test_a_store_without_it(self):
        with libblend.Store(self.ctx, self.folder / "alone") as alone:
            for call in (alone.remote_check, alone.remote_push, alone.remote_pull, alone.remote_verify,
                         lambda: alone.remote_remove("0" * 64)):
                with self.assertRaisesRegex(libblend.InvalidArgumentError, "remote tier"):
                    call()


if __name__ == "__main__":
    unittest.main()
