"""What a store keeps, how it is found, and how it is looked after."""

import unittest

import libblend
from support import DOCUMENTS, Case


class Keeping(Case):
    """What keeps a store in order."""

    def setUp(self):
        self.path = self.folder / self._testMethodName
        self.kept = libblend.Store(self.ctx, self.path, ram_bytes=1 << 20)
        self.addCleanup(self.kept.close)
        self.ids = [self.model.precompute(self.kept, self.model.tokenize(d)).id for d in DOCUMENTS]

    def test_pin_evict(self):
        self.kept.set_pinned(self.ids[0])
        with self.assertRaises(libblend.FullError):
            self.kept.evict(0)
        self.assertEqual([c.id for c in self.kept.list()], self.ids[:1])
        self.assertEqual(self.kept.stat().pinned_chunks, 1)
        self.kept.set_pinned(self.ids[0], False)
        self.assertEqual(self.kept.evict(0), 1)
        with self.assertRaises(libblend.NotFoundError):
            self.kept.set_pinned(self.ids[0])

    def test_background_and_wait(self):
        tokens = self.model.tokenize("Later, in the background.")
        stored = self.model.precompute(self.kept, tokens, background=True)
        self.assertTrue(self.kept.wait(stored.id))
        self.assertTrue(self.kept.wait(stored.id, 5.0))
        with self.assertRaises(libblend.NotFoundError):
            self.kept.wait("0" * 64)

    def test_hint(self):
        self.kept.prefetch(self.ids + ["0" * 64])
        self.kept.prefetch([])
        with self.assertRaises(libblend.InvalidArgumentError):
            self.kept.prefetch(["short"])

    def test_tenants(self):
        self.model.precompute(self.kept, [5, 6, 7], tenant="a")
        self.kept.set_tenant_quota("a", 1 << 20)
        use = self.kept.tenant_usage("a")
        self.assertEqual((use.n_chunks, use.quota_bytes), (1, 1 << 20))
        self.assertGreater(use.stored_bytes, 0)
        self.assertEqual(self.kept.tenant_usage("b").n_chunks, 0)

    def test_chunks_are_found_by_what_they_are_called(self):
        names = ["a.md#1", "a.md#2", "b.md#1"]
        ids = [self.model.precompute(self.kept, [20 + i, 6, 7], label=name, tags="lang=en draft").id
               for i, name in enumerate(names)]
        of_acme = self.model.precompute(self.kept, [5, 6, 7], label="a.md#1", tenant="acme").id

        def labels(**filter):
            return sorted(c.label for c in self.kept.list(**filter) if c.label)

        self.assertEqual(labels(label="a.md"), ["a.md#1", "a.md#1", "a.md#2"])
        self.assertEqual(labels(label="a.md", tenant=""), ["a.md#1", "a.md#2"])
        self.assertEqual(labels(label="?.md#1", tags="lang=* draft"), ["a.md#1", "b.md#1"])
        self.assertEqual(labels(model=self.model.info.fingerprint[:6]), labels())
        self.assertEqual(labels(model="0" * 64), [])
        self.assertEqual(len(self.kept.list(unlabelled=True)), 5)
        chunk = {c.id: c for c in self.kept.list()}[ids[0]]
        self.assertEqual((chunk.label, chunk.tags), ("a.md#1", "draft lang=en"))

        self.kept.set_label(ids[0], "Größe.pdf#7")
        self.kept.set_label(ids[0], tags="")
        chunk = {c.id: c for c in self.kept.list(label="Größe.pdf")}[ids[0]]
        self.assertEqual((chunk.label, chunk.tags), ("Größe.pdf#7", ""))
        self.kept.set_label(of_acme, "c.md#1", tenant="acme")
        with self.assertRaises(libblend.NotFoundError):
            self.kept.set_label(of_acme, "mine", tenant="evil")
        self.kept.set_label(of_acme, tags="x", tenant="acme")
        self.assertEqual(labels(tags="x"), ["c.md#1"])
        self.assertTrue(self.model.precompute(self.kept, [20, 6, 7], label="a.md#1").existed)
        self.assertEqual(labels(label="a.md", tenant=""), ["a.md#1", "a.md#2"])

        for wrong in ("x" * 1025, "a\nb", "a\0b"):
            with self.assertRaises(libblend.InvalidArgumentError):
                self.kept.set_label(ids[0], wrong)
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "names no model"):
            self.kept.list(model="model.gguf")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "every chunk"):
            self.kept.remove_matching(tenant="acme")
        removed = self.kept.remove_matching(label="a.md")
        self.assertEqual(sorted(c.label for c in removed), ["a.md#1", "a.md#2"])
        self.assertEqual(self.kept.remove_matching(label="a.md"), [])
        self.assertEqual([c.id for c in self.kept.remove_matching(label="*", tenant="acme")], [of_acme])
        self.assertEqual(labels(), ["b.md#1"])

    def test_export_import_copy_compact_repair(self):
        file = self.folder / "chunks"
        told = []
        n = self.kept.export_to(file, progress=lambda done, total: told.append((done, total)))
        self.assertEqual((n, told[-1]), (5, (5, 5)))
        with libblend.Store(self.ctx, self.folder / "imported") as other:
            self.assertEqual(other.import_from(file), 5)
            self.assertEqual(other.import_from(file), 0)
            self.assertEqual(other.import_from(file, replace=True), 5)
        self.assertEqual(self.kept.export_to(file, self.ids[:2]), 2)
        with self.assertRaises(libblend.NotFoundError):
            self.kept.export_to(file, ["0" * 64])
        self.kept.copy(self.folder / "copied")
        with libblend.Store(self.ctx, self.folder / "copied") as copied:
            self.assertEqual([c.id for c in copied.list()], [c.id for c in self.kept.list()])
        self.assertEqual(self.kept.repair(), [])
        with self.assertRaises(libblend.BusyError):
            libblend.Store.compact(self.path)
        self.kept.close()
        before, after = libblend.Store.compact(self.path)
        self.assertLessEqual(after, before)

    def test_metrics(self):
        text = self.kept.metrics("main")
        figures = self.kept.list_metrics()
        self.assertTrue(figures)
        for figure in figures:
            self.assertIn(figure.name, text)
            self.assertTrue(figure.help)
        self.assertIn('store="main"', text)

    def test_eviction_by_quota(self):
        size = self.kept.list()[0].stored_bytes
        with libblend.Store(self.ctx, self.folder / "small", quota_bytes=4 * size + 65536,
                            eviction="fifo") as small:
            for i in range(12):
                self.model.precompute(small, self.model.tokenize(f"{i} {DOCUMENTS[0]}"))
            self.assertGreater(small.stat().evicted_chunks, 0)
        with libblend.Store(self.ctx, self.folder / "small", quota_bytes=4 * size,
                            eviction="never") as small:
            with self.assertRaises(libblend.FullError):
                for i in range(12):
                    self.model.precompute(small, self.model.tokenize(f"x{i} {DOCUMENTS[0]}"))


if __name__ == "__main__":
    unittest.main()
