"""Prompts are fused and answered, and what is told of them."""

import array
import json
import unittest

import numpy as np

import libblend
from support import ANSWER, DOCUMENTS, MODEL, QUESTION, ROOT, Case


class MainJob(Case):
    def test_answers_as_full_prefill(self):
        fused = self.fuse(reserve_tokens=16)
        full = self.fuse(policy="full", reserve_tokens=16)
        self.assertEqual(fused.generate(8).text().strip(), ANSWER)
        self.assertEqual(full.generate(8).text().strip(), ANSWER)
        self.assertEqual(full.info.n_rows_reused, 0)
        self.assertEqual(fused.info.policy, libblend.Policy.ATTENTION)  # what "auto" takes
        self.assertIn("policy=<Policy.ATTENTION", repr(fused.info))
        self.assertGreater(fused.info.n_rows_selected, 0)

    def test_ratio_one_is_full_prefill(self):
        store = libblend.Store(self.ctx, self.folder / "f32", kv_dtype="f32")
        fused = self.model.fuse(store, self.prompt(), ratio=1.0)
        full = self.fuse(policy="full")
        np.testing.assert_allclose(fused.logits, full.logits, atol=2e-3)
        self.assertGreater(np.abs(self.fuse(ratio=0.0).logits - full.logits).max(), 1e-2)

    def test_account(self):
        fusion = self.fuse(policy="hkvd", metric="v")
        info = fusion.info
        self.assertEqual(len(fusion.layers), info.n_layers)
        self.assertEqual(len(fusion.segments), info.n_segments)
        self.assertEqual(sum(s.n_rows for s in fusion.segments), info.n_rows)
        self.assertEqual(fusion.selected.dtype, np.uint32)
        self.assertEqual(len(fusion.selected), info.n_rows_selected)
        self.assertEqual(fusion.deviation.dtype, np.float32)
        self.assertEqual(len(fusion.deviation), info.n_rows)
        self.assertEqual(len(fusion.tokens), info.n_rows)
        self.assertEqual(len(fusion.logits), self.model.info.n_vocab)
        # The selected rows are those of greatest deviation among the reused ones, as it is not weighed.
        rows = set(fusion.selected.tolist())
        rest = [d for row, d in enumerate(fusion.deviation.tolist()) if row not in rows]
        self.assertGreaterEqual(fusion.deviation[fusion.selected].min(), max(rest))

    def test_model_info(self):
        info = self.model.info
        self.assertEqual(info.chat_template, "")  # it has none
        self.assertEqual((info.architecture, info.name, len(info.fingerprint)),
                         ("llama", "blend-qa", 64))
        with self.assertRaises(Exception):
            info.n_layers = 3  # immutable

    def test_loras(self):
        adapter = ROOT / "tests" / "conformance" / "lora" / "blend-qa.gguf"
        with libblend.Model(self.ctx, MODEL, loras=[adapter, libblend.Lora(str(adapter), scale=-0.25)]) as model:
            self.assertEqual([(lora.path, lora.scale, lora.rank, lora.n_matrices) for lora in model.loras],
                             [(str(adapter), 1.0, 2, 2), (str(adapter), -0.25, 2, 2)])
            self.assertEqual(model.info.n_loras, 2)
            self.assertNotEqual(model.info.fingerprint, self.model.info.fingerprint)
            tokens = model.tokenize("Only the model with its adapters stores this.")
            model.precompute(self.store, tokens)
            self.assertTrue(model.find_chunk(self.store, tokens).existed)
            self.assertFalse(self.model.find_chunk(self.store, tokens).existed)
        self.assertEqual(self.model.loras, [])
        for wrong, raised in ((["absent.gguf"], libblend.MissingFileError), ([MODEL], libblend.FormatError),
                              ([libblend.Lora(adapter, scale=0)], ValueError), ("adapter.gguf", TypeError)):
            with self.assertRaises(raised):
                libblend.Model(self.ctx, MODEL, loras=wrong)

    def test_tokenizer(self):
        text = "Lily € 😀 \x00 end"
        tokens = self.model.tokenize(text)
        self.assertEqual(tokens.dtype, np.int32)
        self.assertEqual(self.model.detokenize(tokens), text)
        self.assertEqual(self.model.detokenize_bytes(self.model.tokenize(b"\xff\xfe")), b"\xff\xfe")
        self.assertEqual(self.model.tokenize("", bos=True).tolist(), [self.model.info.bos_token])

    def test_tokens_of_any_kind(self):
        ids = self.model.tokenize("Lily had a ball")
        want = self.model.detokenize(ids)
        for tokens in (ids.tolist(), tuple(ids.tolist()), ids.astype(np.int64), memoryview(ids),
                       array.array("i", ids.tolist()), iter(ids.tolist()), ids[::1]):
            self.assertEqual(self.model.detokenize(tokens), want, type(tokens))
        every_second = np.repeat(ids, 2)[::2]
        self.assertFalse(every_second.flags.c_contiguous)
        self.assertEqual(self.model.detokenize(every_second), want)
        for bad in ("text", b"text", [1.5], np.zeros((2, 2), np.int32), [2**40], object()):
            with self.assertRaises((TypeError, ValueError), msg=repr(bad)):
                self.model.detokenize(bad)

    def test_precompute_find_list_remove(self):
        tokens = self.model.tokenize("A chunk of its own.")
        self.assertFalse(self.model.find_chunk(self.store, tokens).existed)
        stored = self.model.precompute(self.store, tokens, codec="zstd")
        self.assertFalse(stored.existed)
        self.assertTrue(self.model.precompute(self.store, tokens).existed)
        self.assertEqual(self.model.find_chunk(self.store, tokens), (stored.id, True))
        other = self.model.precompute(self.store, tokens, tenant="other", chunk_prefix=[1])
        self.assertNotEqual(other.id, stored.id)
        chunk = {c.id: c for c in self.store.list(verify=True)}[stored.id]
        self.assertEqual((chunk.n_tokens, chunk.problem), (len(tokens), ""))
        self.assertEqual(chunk.codec, libblend.Codec.ZSTD)
        self.assertEqual(chunk.fingerprint, self.model.info.fingerprint)
        self.assertEqual(self.store.codec_stat("zstd").n_chunks, 1)
        self.assertGreaterEqual(self.store.stat().n_chunks, 2)
        self.store.remove(stored.id)
        with self.assertRaises(KeyError):
            self.store.remove(stored.id)

    def test_the_head_is_what_stands_before_the_first_chunk(self):
        bos, said = self.model.info.bos_token, self.model.tokenize("Be brief.").tolist()
        self.assertEqual(self.prompt().head().tolist(), [bos])
        prompt = self.model.prompt().bos().prefix(said)
        self.assertEqual(prompt.head().tolist(), [])
        self.assertEqual(prompt.chunk("One.").text("Two.").chunk("Three.").head().tolist(), [bos, *said])

    def test_a_corpus(self):
        head, chunks = self.prompt().head(), [self.model.tokenize(d) for d in DOCUMENTS]
        with libblend.Store(self.ctx, self.folder / "corpus") as store:
            told = []
            records = self.model.precompute_corpus(store, [libblend.CorpusChunk(chunks[0], "a.md#1"), *chunks[1:]],
                                                   chunk_prefix=head, progress=lambda *of: told.append(of))
            self.assertEqual([(r.existed, r.n_contexts) for r in records], [(False, 4)] * 5)
            self.assertTrue(told)
            again = self.model.precompute_corpus(store, chunks, chunk_prefix=head)
            self.assertEqual(again, [r._replace(existed=True) for r in records])
            self.assertIn((records[0].id, "a.md#1"), [(c.id, c.label) for c in store.list()])
            with self.model.fuse(store, self.prompt()) as fusion:
                kinds = [s.record for s in fusion.segments if s.kind == libblend.SegmentKind.CHUNK]
                self.assertEqual(kinds, [libblend.RecordKind.EXACT] + [libblend.RecordKind.CONTEXTUAL] * 4)
                self.assertFalse(fusion.info.flags & libblend.FusionFlags.ALONE)
            two = self.model.precompute_corpus(store, chunks, chunk_prefix=head, contexts=2, tenant="two")
            self.assertEqual({r.n_contexts for r in two}, {4})  # short ones: all others
            alone = self.model.precompute_corpus(store, chunks, chunk_prefix=head, head_only=True, tenant="alone")
            self.assertEqual({r.n_contexts for r in alone}, {0})
            with self.assertRaisesRegex(libblend.InvalidArgumentError, "chunk 1"):
                self.model.precompute_corpus(store, [chunks[0], []])
            with self.assertRaises(libblend.InvalidArgumentError):
                self.model.precompute_corpus(store, chunks, contexts=17)
            with self.assertRaisesRegex(ValueError, "^contexts must be"):
                self.model.precompute_corpus(store, chunks, contexts=-1)
            stopped = libblend.Cancel()
            stopped.request()
            with self.assertRaises(libblend.CancelledError):
                self.model.precompute_corpus(store, chunks, tenant="stopped", cancel=stopped)

            def stop(done, total):
                raise KeyError(done)
            with self.assertRaises(KeyError):
                self.model.precompute_corpus(store, chunks, tenant="stopped", progress=stop)

    def test_context_passages(self):
        head, (chunk, *others) = self.prompt().head(), [self.model.tokenize(d) for d in DOCUMENTS]
        plain = self.model.precompute(self.store, chunk, chunk_prefix=head, tenant="c")
        made = self.model.precompute(self.store, chunk, chunk_prefix=head, contexts=others[:2], tenant="c")
        self.assertFalse(made.existed)
        self.assertNotEqual(made.id, plain.id)
        found = self.model.find_chunk(self.store, chunk, chunk_prefix=head, contexts=others[2:], tenant="c")
        self.assertEqual(found, (made.id, True))  # whichever they are
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "17"):
            self.model.precompute(self.store, chunk, contexts=[chunk] * 17)

    def test_a_predecessor_counts_as_the_end_of_the_chunk_prefix(self):
        head, (chunk, before, passage, *_) = self.prompt().head(), [self.model.tokenize(d) for d in DOCUMENTS]
        at = dict(chunk_prefix=head, predecessor=before)
        made = self.model.precompute(self.store, chunk, **at)
        self.assertTrue(self.model.precompute(self.store, chunk, chunk_prefix=[*head, *before]).existed)
        seen_more = self.model.precompute(self.store, chunk, contexts=[passage], **at)
        self.assertNotEqual(seen_more.id, made.id)
        self.assertEqual(self.model.find_chunk(self.store, chunk, contexts=[passage], **at), (seen_more.id, True))
        long = dict(at, predecessor=([*before] * 192)[:192])  # needs no passages
        alone = self.model.precompute(self.store, chunk, **long)
        self.assertEqual(self.model.find_chunk(self.store, chunk, contexts=[passage], **long), (alone.id, True))

    def test_a_chunk_prefix_that_is_given_not_given_or_nothing(self):
        head, second = self.prompt().head(), self.model.tokenize(DOCUMENTS[1])
        with libblend.Store(self.ctx, self.folder / "prefixes") as store:
            after_head = self.model.find_chunk(store, second, chunk_prefix=head).id
            alone = self.model.find_chunk(store, second).id
            for options, id, record in (({}, after_head, libblend.RecordKind.HEAD),
                                        (dict(chunk_prefix=None), after_head, libblend.RecordKind.HEAD),
                                        (dict(chunk_prefix=head), after_head, libblend.RecordKind.HEAD),
                                        (dict(chunk_prefix=[]), alone, libblend.RecordKind.ALONE)):
                with self.model.fuse(store, self.prompt(), on_miss="precompute", **options) as fusion:
                    segment = [s for s in fusion.segments if s.kind == libblend.SegmentKind.CHUNK][1]
                    self.assertEqual((segment.id, segment.record), (id, record), options)
                    said = bool(fusion.info.flags & libblend.FusionFlags.ALONE)
                    self.assertEqual(said, record == libblend.RecordKind.ALONE)

    def test_another_tenants_chunk_is_not_there(self):
        tokens = self.model.tokenize("Of acme, and of nobody else.")
        id = self.model.precompute(self.store, tokens, tenant="acme").id
        prompt = self.model.prompt().chunk_id(id).question("Who?")
        for tenant in ("", "evil"):
            with self.assertRaises(libblend.NotFoundError):
                self.model.fuse(self.store, prompt, tenant=tenant, on_miss="fail")
            self.assertNotIn(id, [c.id for c in self.store.list(tenant=tenant)])
            with self.assertRaises(libblend.NotFoundError):
                self.store.remove(id, tenant=tenant)
        self.model.fuse(self.store, prompt, tenant="acme", on_miss="fail")
        self.assertEqual([c.id for c in self.store.list(True, tenant="acme")], [id])
        self.store.remove(id, tenant="acme")

    def test_numbers_that_do_not_fit_are_told_by_their_name(self):
        fusion = self.fuse(reserve_tokens=8)
        for call, kind, said in (
                (lambda: fusion.generate(-1).text(), ValueError, "max_tokens must be from 0 to 4294967295, not -1"),
                (lambda: self.fuse(threads=-1), ValueError, "threads must be from 0 to 4294967295, not -1"),
                (lambda: fusion.generate(2, seed=2 ** 64), ValueError, "seed must be from 0"),
                (lambda: fusion.generate(2, top_k=2 ** 32), ValueError, "top_k must be from 0"),
                (lambda: fusion.generate(2, top_k="many"), TypeError, "top_k must be a whole number, not 'many'"),
                (lambda: fusion.generate(2, top_k=2.5), TypeError, "top_k must be a whole number, not 2.5"),
                (lambda: self.fuse(ratio="half"), TypeError, "ratio must be a number, not 'half'")):
            with self.assertRaises(kind) as caught:
                call()
            self.assertIn(said, str(caught.exception))
            self.assertNotRegex(str(caught.exception), r"uint\d+_t|method|_set|Options_")
        self.assertEqual(len(list(fusion.generate(np.int64(2), ignore_eos=True))), 2)

    def test_prompt_by_id(self):
        head = self.prompt().head()
        ids = [self.model.precompute(self.store, self.model.tokenize(d), chunk_prefix=head).id for d in DOCUMENTS]
        prompt = self.model.prompt().bos()
        for id in ids:
            prompt.chunk_id(id)
        prompt.question(f"Question: {QUESTION}\nAnswer:")
        by_id = self.model.fuse(self.store, prompt, on_miss="fail")
        np.testing.assert_array_equal(by_id.logits, self.fuse().logits)
        self.assertEqual([s.id for s in by_id.segments if s.kind == libblend.SegmentKind.CHUNK], ids)

    def test_generate_continues(self):
        whole = [t.id for t in self.fuse().generate(6, ignore_eos=True)]
        fusion = self.fuse()
        parts = [t.id for t in fusion.generate(2, ignore_eos=True)]
        parts += [t.id for t in fusion.generate(4, ignore_eos=True)]
        self.assertEqual(parts, whole)

    def test_generate_seed_and_stop(self):
        def sampled(seed):
            return [t.id for t in self.fuse().generate(8, temperature=5.0, seed=seed, ignore_eos=True)]

        self.assertEqual(sampled(7), sampled(7))
        self.assertNotEqual(sampled(7), sampled(8))
        first = next(self.fuse().generate(2))
        stream = self.fuse().generate(8, stop_tokens=[first.id])
        self.assertEqual((list(stream), stream.stopped), ([], True))

    def test_sampling(self):
        plain = [t.id for t in self.fuse().generate(6, ignore_eos=True)]
        text = self.fuse().generate(6, ignore_eos=True).text()
        stop = text[len(text) // 2:len(text) // 2 + 3]
        with self.fuse().generate(6, ignore_eos=True, stop=["\0", stop]) as stream:
            self.assertEqual(stream.text(), text[:text.index(stop)])
            self.assertTrue(stream.stopped)
        self.assertEqual(self.fuse().generate(6, ignore_eos=True, stop=stop.encode()).text(),
                         text[:text.index(stop)])
        other = [t.id for t in self.fuse().generate(6, ignore_eos=True, logit_bias={plain[0]: float("-inf")})]
        self.assertNotIn(plain[0], other)
        self.assertNotEqual([t.id for t in self.fuse().generate(6, ignore_eos=True, presence_penalty=50.0)],
                            [t.id for t in self.fuse().generate(6, ignore_eos=True, presence_penalty=-50.0)])

        fusion = self.fuse()
        logits = np.array(fusion.logits)
        stream = fusion.generate(2, top_logprobs=3, min_p=0.5, temperature=1.0)
        next(stream)
        (own, logprob), *top = stream.logprobs
        self.assertEqual([t for t, _ in top], np.argsort(-logits, kind="stable")[:3].tolist())
        want = logits - np.log(np.exp(logits.astype(np.float64)).sum())
        self.assertAlmostEqual(logprob, want[own], places=4)

    def grammar(self, language, text):
        try:
            return libblend.Grammar(self.model, language=language, text=text)
        except libblend.UnsupportedError as error:
            if "BLEND_GRAMMAR" not in str(error):
                raise
            self.skipTest("this build has no grammars")

    def test_answers_keep_to_a_grammar(self):
        grammar = self.grammar(libblend.GrammarLanguage.JSON_SCHEMA, json.dumps(
            {"type": "object", "properties": {"b": {"enum": ["x", "y"]}, "a": {"type": "boolean"}}, "required": ["b", "a"]}))
        generation = self.fuse(reserve_tokens=64).generate(64, temperature=1.0, grammar=grammar)
        grammar.close()  # the options keep it
        value = json.loads(generation.text())
        self.assertTrue(generation.stopped)
        self.assertEqual(list(value), ["b", "a"])
        cut = self.fuse(reserve_tokens=64).generate(3, grammar=self.grammar("regex", "[0-9]{40}"))
        self.assertRegex(cut.text(), "^[0-9]+$")
        self.assertFalse(cut.stopped)
        with self.assertRaisesRegex(libblend.UnsupportedError, "'not'"):
            libblend.Grammar(self.model, language="json_schema", text='{"not": {}}')
        with self.assertRaises(libblend.InvalidArgumentError):
            libblend.Grammar(self.model, language="ebnf", text="x")
        with self.assertRaises(libblend.errors.ClosedError):
            self.fuse().generate(3, grammar=grammar)

    def test_logits_are_the_hosts_to_change(self):
        plain = [t.id for t in self.fuse().generate(3, ignore_eos=True)]
        shown = []

        def forbid(logits):
            shown.append(logits)
            logits[plain[len(shown) - 1]] = -np.inf

        fusion = self.fuse()
        first = np.array(fusion.logits)
        ids = [t.id for t in fusion.generate(3, ignore_eos=True, logits=forbid)]
        self.assertEqual(len(shown), 3)
        self.assertNotEqual(ids[0], plain[0])
        first[plain[0]] = -np.inf
        self.assertEqual(ids[0], int(first.argmax()))
        self.assertEqual(shown[0].shape, first.shape)
        shown[0][:] = 0  # still somebody's memory

        def fail(logits):
            raise KeyError("own")

        fusion = self.fuse()
        with self.assertRaisesRegex(KeyError, "own"):
            fusion.generate(3, logits=fail).text()
        fusion.decode([5])  # free again
        with self.assertRaises(libblend.NumericError):
            self.fuse().generate(3, logits=lambda logits: logits.fill(np.nan)).text()

    def test_left_loop_appends_no_more_than_was_asked_past(self):
        fusion = self.fuse()
        before = len(fusion.tokens)
        taken = []
        for token in fusion.generate(8, ignore_eos=True):
            taken.append(token.id)
            if len(taken) == 2:
                break
        # The second was reported and not asked past.
        self.assertEqual(fusion.tokens[before:].tolist(), taken[:1])

    def test_decode_replace_erase(self):
        fusion = self.fuse(reserve_tokens=8)
        greedy = [t.id for t in self.fuse().generate(3, ignore_eos=True)]
        for token in greedy:
            self.assertEqual(int(fusion.logits.argmax()), token)
            fusion.decode([token])
        n = len(fusion.tokens)
        fusion.erase(n - 3, 3)
        self.assertEqual(len(fusion.tokens), n - 3)
        fusion.replace(1, 1, [5, 6])
        self.assertEqual(fusion.tokens[1:3].tolist(), [5, 6])
        self.assertTrue(fusion.info.flags & libblend.FusionFlags.EDITED)

    def test_forks_go_on_by_themselves(self):
        fusion = self.fuse(reserve_tokens=16)
        rows = len(fusion.tokens)
        wanted = [t.id for t in self.fuse().generate(6, ignore_eos=True)]
        view = fusion.logits  # a view of what is forked may be out
        other = fusion.fork()
        del view
        fusion.decode([5])
        self.assertEqual(len(other.tokens), rows)
        fusion.close()
        self.assertEqual([t.id for t in other.generate(6, ignore_eos=True)], wanted)

    def test_exact_after_a_moment(self):
        full = [t.id for t in self.model.fuse(None, self.prompt(), policy="full").generate(6, ignore_eos=True)]
        fusion = self.fuse(policy="reuse")
        shown = fusion.fork()
        self.assertEqual(fusion.make_exact(), 0)
        self.assertTrue(fusion.info.flags & libblend.FusionFlags.EXACT)
        tokens = [t.id for t in shown.generate(6, ignore_eos=True)]
        tokens[4] = (full[4] + 1) % 100  # whatever the fused cache said, this is none of full prefill's
        kept = fusion.make_exact(tokens)
        self.assertLessEqual(kept, 4)
        self.assertEqual(tokens[:kept] + [t.id for t in fusion.generate(6 - kept, ignore_eos=True)], full)

    def test_extend_save_restore(self):
        fusion = self.fuse(reserve_tokens=32)
        fusion.generate(8).text()
        more = self.model.prompt().chunk(DOCUMENTS[0]).question("Question: Who?\nAnswer:")
        fusion.extend(self.store, more, on_miss="precompute")
        id = fusion.save(self.store, tenant="talk")
        self.store.flush()
        for tenant in ("", "talks"):
            with self.assertRaises(libblend.NotFoundError):
                self.model.restore(self.store, id, tenant=tenant)
        again = self.model.restore(self.store, id, tenant="talk")
        np.testing.assert_array_equal(again.tokens, fusion.tokens)
        self.assertLess(np.abs(again.logits - fusion.logits).max(), 0.05)
        self.assertTrue(again.info.flags & libblend.FusionFlags.RESTORED)

    def test_policies(self):
        for policy in ("reuse", "first_k", "random", "question"):
            self.assertEqual(self.fuse(policy=policy).info.policy,
                             libblend.Policy[policy.upper()])
        union = self.fuse(policy="union", terms=[("hkvd", 1), ("first_k", 1)])
        self.assertGreater(union.info.n_rows_selected, 0)
        ape = self.fuse(policy="ape", ape_temperature=0.8, ape_scale=1.1)
        first = next(s for s in ape.segments if s.kind == libblend.SegmentKind.CHUNK)  # exact
        self.assertEqual(ape.info.n_rows_tempered, ape.info.n_rows_reused - first.n_rows)
        self.assertFalse(np.array_equal(ape.logits, self.fuse(policy="ape").logits))
        plain = self.fuse(policy="ape", ape_temperature=1.0, ape_scale=1.0)
        np.testing.assert_allclose(plain.logits, self.fuse(policy="reuse").logits, atol=1e-3)
        with self.assertRaises(libblend.InvalidArgumentError):
            self.fuse(policy="ape", ape_scale=-1)
        layers = self.model.default_check_layers(0.2, 1, 3)
        falling = self.fuse(check_layers=layers)
        self.assertEqual(falling.info.n_check_layers, len(layers))
        with self.assertRaisesRegex(ValueError, "'hkvd'"):
            self.fuse(policy="nonsense")
        with self.assertRaises(TypeError):
            self.fuse(polici="hkvd")

    def test_score_callback_chooses(self):
        wanted = {}

        def score(layer, rows, deviation, scores):
            self.assertFalse(deviation.flags.writeable)
            np.testing.assert_array_equal(scores, deviation)
            scores[:] = -rows.astype(np.float32)  # the first rows first
            wanted["rows"] = rows.copy()

        fusion = self.fuse(policy="callback", score=score)
        n = fusion.info.n_rows_selected
        self.assertEqual(fusion.selected.tolist(), wanted["rows"][:n].tolist())

    def test_batch(self):
        alone = self.fuse().logits.copy()
        results = self.model.fuse_batch(self.store, [
            (self.prompt(), {"on_miss": "precompute"}), (self.prompt("Who?"), {"on_miss": "precompute", "ratio": 0.3}),
            (self.model.prompt().chunk_id("0" * 64).question([5]), {})])
        np.testing.assert_array_equal(results[0].logits, alone)
        self.assertAlmostEqual(results[1].info.ratio, 0.3)
        self.assertIsInstance(results[2], libblend.NotFoundError)
        self.assertEqual(self.model.fuse_batch(self.store, []), [])

    def test_backend_and_version(self):
        self.assertRegex(self.ctx.backend, r"^cpu \(.+\)$")
        self.assertRegex(libblend.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
