"""What is measured: the machine, layers, profiles."""

import json
import unittest

import numpy as np

import libblend
from support import MODEL, ROOT, Case


class Measured(Case):
    def test_machine(self):
        told = []
        with libblend.Machine(self.model, self.folder / "machine", max_tokens=64,
                              progress=lambda d, t: told.append((d, t))) as machine:
            self.assertFalse(machine.info.kept)
            self.assertTrue(told)
            self.assertEqual(len(machine.points), machine.info.n_points)
            self.assertGreater(machine.recompute_ns(64), machine.recompute_ns(64, 0.1))
            advice = machine.advise([(1e9, 1.0), (5e9, 9.0)], ratio=0.15)
            self.assertEqual(len(advice), 2)
            self.assertLess(advice[1].load_ns, advice[0].load_ns)
            self.assertIsNotNone(self.fuse(ratio=libblend.RATIO_AUTO, machine=machine).info)
        with libblend.Machine(self.model, self.folder / "machine") as machine:
            self.assertTrue(machine.info.kept)

    def samples(self, n):
        lines = (ROOT / "examples/data/held-out.jsonl").read_text().splitlines()
        samples = []
        for line in lines[:n]:
            item = json.loads(line)
            prompt = self.model.prompt().bos()
            for chunk in item["chunks"]:
                prompt.chunk(chunk)
            samples.append(prompt.question(f"Question: {item['question']}\nAnswer:"))
        return samples

    def test_layer_steps(self):
        """In the example model one layer carries most of rounding's loss: calibration finds it, and a store
        that uses the profile keeps it finely."""
        path = self.folder / "steps"
        samples = self.samples(24)
        self.model.calibrate(samples[:20], path, ratios=[1.0], correction="off",
                                   chunk_prefixes=[[]], score_tokens=2)

        def log_odds(name, profile=None, **options):
            rows = []
            with libblend.Store(self.ctx, self.folder / name, **options) as store:
                if profile is not None:
                    store.set_codec_profile(profile)
                for sample in samples[20:]:
                    self.model.fuse(store, sample, policy="reuse").close()  # what it missed it puts
                    store.flush()
                    with self.model.fuse(store, sample, policy="reuse") as fusion:
                        logits = np.array(fusion.logits, np.float64)
                    rows.append(logits - np.logaddexp.reduce(logits))
            return np.array(rows)

        def divergence(p, q):
            return (np.exp(p) * (p - q)).sum()

        with libblend.Profile(self.model, path) as profile:
            self.assertEqual(profile.layer_steps.dtype, np.float32)
            self.assertEqual(len(profile.layer_steps), self.model.info.n_layers)
            self.assertEqual(profile.layer_steps.argmin(), 1)
            self.assertLess(profile.info.steps_kl_split, profile.info.steps_kl_alike)
            self.assertEqual(profile.info.n_steps_measured, 10)
            exact = log_odds("exact")
            alike = log_odds("alike", codec="rans", codec_step=4)
            split = log_odds("split", profile, codec="rans", codec_step=4)
        self.assertLess(4 * divergence(exact, split), divergence(exact, alike))

    def test_bos_only_where_the_model_expects_it(self):
        self.assertEqual(len(self.model.prompt().bos()), 1)
        data = bytearray(MODEL.read_bytes())
        key = b"tokenizer.ggml.add_bos_token"
        at = data.index(key) + len(key) + 4  # past the type
        self.assertEqual(data[at], 1)
        data[at] = 0
        path = self.folder / "no-bos.gguf"
        path.write_bytes(data)
        with libblend.Model(self.ctx, path) as model:
            self.assertFalse(model.info.add_bos)
            self.assertGreaterEqual(model.info.bos_token, 0)
            self.assertEqual(len(model.tokenize("", bos=True)), 0)
            self.assertEqual(len(model.prompt().bos()), 0)
            with model.fuse_texts(None, ["a"], "b") as fusion:
                self.assertNotIn(libblend.SegmentKind.PREFIX, [segment.kind for segment in fusion.segments])

    def test_calibrate_verify_use(self):
        samples = self.samples(6)
        measured = []
        path = self.folder / "profile"
        trusted = self.model.calibrate(samples[:4], path, ratios=[0.15, 1.0], policies=["hkvd"], correction="off",
                                       score_tokens=2, on_measurement=measured.append)
        with libblend.Profile(self.model, path) as profile:
            self.assertEqual(len(profile.measurements), profile.info.n_measurements)
            self.assertEqual(len(measured), profile.info.n_measurements)
            self.assertEqual({line.policy for line in measured}, {libblend.Policy.HKVD})
            self.assertEqual({line.check_layer for line in measured}, {1})
            self.assertEqual(bool(profile.info.trusted), trusted)
            verdict = self.model.verify(profile, samples[4:], ratios=[1.0], score_tokens=2)
            self.assertAlmostEqual(verdict.ratio, profile.info.ratio)
            fusion = self.fuse(profile=profile)
            self.assertFalse(fusion.info.flags & libblend.FusionFlags.UNCALIBRATED)
            self.assertAlmostEqual(fusion.info.ratio, profile.info.ratio)
            self.assertAlmostEqual(self.fuse(profile=profile, ratio=0.4).info.ratio, 0.4)
            doubted = dict(profile=profile, check_layer=2)
            flags = self.fuse(**doubted).info.flags
            self.assertTrue(flags & libblend.FusionFlags.UNTRUSTED)
            full = self.fuse(**doubted, on_untrusted="full").info
            self.assertEqual(full.policy, libblend.Policy.FULL)
            self.assertFalse(full.flags & libblend.FusionFlags.UNTRUSTED)
            with self.assertRaisesRegex(libblend.UntrustedError, "did not measure"):
                self.fuse(**doubted, on_untrusted=libblend.OnUntrusted.FAIL)
            with self.assertRaises(KeyError):
                profile.drift(2)
            with self.assertRaises(KeyError):
                profile.codec_cost("zstd")  # it is lossless
            if profile.info.ratio < 1:
                cost = profile.codec_cost(libblend.Codec.INT8)
                self.assertIs(cost.codec, libblend.Codec.INT8)
                self.assertTrue(7 < cost.bits < 12 and cost.n_measured > 0, cost)
            prefix = profile.chunk_prefix
            self.assertEqual(len(profile.layer_steps), 0)  # four samples say nothing of them
            self.store.set_codec_profile(profile)
        self.assertEqual(prefix.dtype, np.int32)


if __name__ == "__main__":
    unittest.main()
