"""A framework runs the model itself, layer by layer."""

import unittest

import numpy as np

import libblend
from support import DOCUMENTS, Case


class Steps(Case):
    """The step API, with a host whose K and V are made up: placing and selecting is what is tested."""

    SHAPE = dict(n_layers=3, n_heads=2, n_kv_heads=2, head_dim=4, n_vocab=100, context_length=64)

    def setUp(self):
        self.host = libblend.Model.create_from_description(self.ctx, name="made up", **self.SHAPE)
        self.steps = libblend.Store(self.ctx, self.folder / self._testMethodName, kv_dtype="f32")
        rng = np.random.default_rng(1)
        self.chunk = np.arange(10, 20, dtype=np.int32)
        self.kv = rng.standard_normal((3, 2, 10, 2, 4)).astype(np.float32)
        self.host.put_chunk(self.steps, self.chunk, [(k, v) for k, v in self.kv], unrotated=True)

    def test_fetch_select_commit(self):
        # After a text, or the chunk would be a prefix hit.
        prompt = libblend.Prompt().text([99]).chunk(self.chunk).question([1, 2])
        with libblend.Layerwise(self.host, self.steps, prompt, ratio=0.2, on_miss="fail") as layerwise:
            self.assertEqual(layerwise.tokens.tolist(), [99] + self.chunk.tolist() + [1, 2])
            fresh = np.ones((3, 2, 13, 2, 4), np.float32)
            fresh[:, :, 1:11] = self.kv
            fresh[1, 1, 4] += 5.0  # V of row 4 at the check layer deviates most
            for layer in range(3):
                # Heads before rows: any strides do.
                k = np.zeros((2, 13, 4), np.float32).transpose(1, 0, 2)
                v = np.zeros((2, 13, 4), np.float32).transpose(1, 0, 2)
                layerwise.fetch_kv(layer, k, v, unrotated=True)
                layerwise.synchronize(layer)
                rows = layerwise.rows
                if layer == 2:
                    stored = [r for r in range(1, 11) if r not in rows.tolist()]
                    self.assertEqual(len(stored), 8)
                    np.testing.assert_array_equal(k[stored], fresh[2, 0, stored])
                    np.testing.assert_array_equal(v[stored], fresh[2, 1, stored])
                layerwise.select(layer, fresh[layer, 0, rows], fresh[layer, 1, rows], unrotated=True)
                layerwise.commit(layer)
            self.assertIn(4, layerwise.selected.tolist())
            self.assertEqual(len(layerwise.selected), 2)
            self.assertEqual(len(layerwise.layers), 3)
        with self.assertRaises(libblend.ClosedError):
            layerwise.info

    def test_the_question_chooses_first(self):
        # A chunk that libblend prefilled keeps the attention to its rows. The host's K, V and attention are
        # made up: the question attends to rows 3, 5 and 8, so those go on, and no others.
        chunk = self.model.tokenize(DOCUMENTS[0])[:20]
        self.model.precompute(self.store, chunk)
        prompt = libblend.Prompt().text([99]).chunk(chunk).question([5, 6])
        n = 1 + len(chunk) + 2
        kv = np.zeros((2, 6, n, self.model.info.n_kv_heads, self.model.info.head_dim), np.float32)
        with libblend.Layerwise(self.model, self.store, prompt, policy="probe", ratio=0.15, on_miss="fail") as layerwise:
            for layer in range(2):
                self.assertEqual(layerwise.rows.tolist(), [0, n - 2, n - 1])
                layerwise.fetch_kv(layer, *kv[:, layer])
                with self.assertRaisesRegex(libblend.InvalidArgumentError, "due now is Layerwise.synchronize"):
                    layerwise.probe(np.zeros(n))
                layerwise.synchronize(layer)
                if layer == 0:
                    layerwise.commit(layer)
            attention = np.zeros(n)  # not float32: converted
            attention[[3, 5, 8]] = 0.1, 0.2, 0.3
            with self.assertRaisesRegex(libblend.InvalidArgumentError, "due now is Layerwise.probe"):
                layerwise.commit(1)
            with self.assertRaisesRegex(libblend.InvalidArgumentError, "each gets one"):
                layerwise.probe(attention[:-1])
            with self.assertRaises(TypeError):
                layerwise.probe([[0.1]])
            rows = layerwise.probe(attention[::-1][::-1])
            self.assertEqual(rows.dtype, np.uint32)
            self.assertEqual(rows.tolist(), [0, 3, 5, 8, n - 2, n - 1])
            self.assertEqual(layerwise.selected.tolist(), [3, 5, 8])
            layerwise.synchronize(0)
            # All of the chunk was there to be asked about; the others are the host's.
            self.assertTrue(kv[0, :2, 1:n - 2].any(axis=(2, 3)).all())
            self.assertFalse(kv[0, :, [0, n - 2, n - 1]].any())

    def test_memory_is_checked(self):
        prompt = libblend.Prompt().chunk(self.chunk).question([1, 2])
        layerwise = libblend.Layerwise(self.host, self.steps, prompt, on_miss="fail")
        small = np.zeros((11, 2, 4), np.float32)
        with self.assertRaisesRegex(ValueError, "12 rows need"):
            layerwise.fetch_kv(0, small, small)
        read_only = np.zeros((12, 2, 4), np.float32)
        read_only.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "writable"):
            layerwise.fetch_kv(0, read_only, read_only)
        with self.assertRaises(ValueError):
            layerwise.fetch_kv(0, np.zeros((12, 2, 8), np.float32)[:, :, ::2], small)
        with self.assertRaises(TypeError):
            layerwise.fetch_kv(0, [[1]], [[1]])
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "fetch|layer"):
            layerwise.commit(0)

    def test_f16_and_bf16(self):
        half = self.kv.astype(np.float16)
        as_f16 = self.host.put_chunk(self.steps, self.chunk + 30, [(k, v) for k, v in half])
        bits = (self.kv.view(np.uint32) >> 16).astype(np.uint16)
        as_bf16 = self.host.put_chunk(self.steps, self.chunk + 50, [(k, v) for k, v in bits],
                                   dtype="bf16")
        self.assertEqual(len({as_f16, as_bf16}), 2)
        with self.assertRaises(ValueError):
            self.host.put_chunk(self.steps, self.chunk, [(k, v) for k, v in bits])


if __name__ == "__main__":
    unittest.main()
