"""The library's log as Python gets it."""

import logging
import queue
import time
import unittest

import libblend
from libblend import LogLevel
from support import MODEL, Case


class Log(Case):
    def told(self, use, **options):
        """{name: record} of what a context tells while `use(ctx)` runs. What comes last says that all has come."""
        records = queue.Queue()
        with libblend.Context(1, log=records.put, **options) as ctx:
            use(ctx)
            with libblend.Store(ctx, self.folder / "last"):
                pass
        found = {}
        while True:
            record = records.get(timeout=30)
            if record.fields.get("path") == str(self.folder / "last"):
                return found
            found[record.name] = record

    def test_records_have_levels_and_fields(self):
        def use(ctx):
            with libblend.Model(ctx, MODEL) as model:
                model.fuse_texts(None, ["A passage."], "Who?", policy="full").close()

        found = self.told(use)
        self.assertNotIn("BLEND_EVENT_FUSED", found)
        opened = found["BLEND_EVENT_MODEL_OPENED"]
        self.assertIs(opened.level, LogLevel.INFO)
        self.assertEqual((opened.component, opened.fields["path"], opened.fields["architecture"]),
                         ("model", str(MODEL), "llama"))
        self.assertIsInstance(opened.fields["layers"], int)
        self.assertIsInstance(opened.fields["seconds"], float)
        self.assertAlmostEqual(opened.time, time.time(), delta=600)
        fused = self.told(use, log_level="debug")["BLEND_EVENT_FUSED"]
        self.assertEqual((fused.level, fused.fields["policy"]), (LogLevel.DEBUG, "full"))
        self.assertIsInstance(fused.fields["ratio"], float)

    def test_the_logging_module(self):
        logger = logging.getLogger("test of libblend")
        with self.assertLogs(logger, "INFO") as caught:
            with libblend.Context(1, log=libblend.to_logging(logger)) as ctx:
                libblend.Store(ctx, self.folder / "s with %s").close()
            end = time.monotonic() + 30
            while not caught.records and time.monotonic() < end:
                time.sleep(0.01)
        record = caught.records[0]
        self.assertEqual((record.name, record.levelno), ("test of libblend.store", logging.INFO))
        self.assertIn("s with %s", record.getMessage())
        self.assertEqual((record.blend_name, record.blend_path),
                         ("BLEND_EVENT_STORE_OPENED", str(self.folder / "s with %s")))


if __name__ == "__main__":
    unittest.main()
