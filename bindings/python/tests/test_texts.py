"""Documents and a question as text: the prompt is the one of segments, and what was stored is found."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import libblend
from support import ANSWER, DOCUMENTS, QUESTION, Case

TEMPLATE = ("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}[assistant]{% endif %}")


def tokens(prompt):
    return [(s.kind, s.tokens.tolist()) for s in prompt.segments]


class Texts(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.empty = libblend.Store(self.ctx, folder.name, check_every=2**32 - 1)
        self.addCleanup(self.empty.close)

    def test_an_answer_from_documents(self):
        with self.model.fuse_texts(self.empty, DOCUMENTS, QUESTION) as fusion:
            self.assertEqual(fusion.generate(16).text().strip(), ANSWER)
            self.assertEqual(fusion.info.n_hits, 0)
        self.empty.flush()
        # However they were read.
        with self.model.fuse_texts(self.empty, [f" {d.strip()}\r\n\n" for d in DOCUMENTS], QUESTION,
                                   on_miss="fail") as fusion:
            self.assertEqual(fusion.info.n_hits, len(DOCUMENTS) + 1)
        with self.model.fuse_texts(None, DOCUMENTS, QUESTION) as fusion:
            self.assertEqual(fusion.generate(16).text().strip(), ANSWER)

    def test_vectors_of_texts(self):
        texts = [DOCUMENTS[0], "x", DOCUMENTS[1]]
        made = self.model.embed(texts)
        self.assertEqual((made.shape, made.dtype), ((3, self.model.info.d_model), "float32"))
        for vector in made:
            self.assertAlmostEqual(float(vector @ vector), 1, places=5)
        alone = self.model.embed([texts[2]])
        self.assertEqual(alone.tobytes(), made[2].tobytes())
        tokens = [self.model.tokenize(text, bos=True) for text in texts]
        self.assertEqual(self.model.embed(tokens).tobytes(), made.tobytes())
        first = self.model.embed(texts, pooling="last", n_dimensions=5, unnormalized=True)
        self.assertEqual(first.shape, (3, 5))
        self.assertNotAlmostEqual(float(first[0] @ first[0]), 1, places=3)
        self.assertEqual(self.model.embed([], n_dimensions=5).shape, (0, 5))
        told = []
        self.model.embed(texts, progress=lambda done, total: told.append((done, total)))
        self.assertEqual(told[-1], (3, 3))
        with self.assertRaises(TypeError):
            self.model.embed("one text")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "apart|two"):
            self.model.embed(["x", [5, 6]])
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "text 1 has no tokens"):
            self.model.embed([[5], []])
        long = [5] * (self.model.info.context_length + 1)
        with self.assertRaises(libblend.ContextLengthError):
            self.model.embed([long])
        self.assertEqual(self.model.embed([long], truncate=True).tobytes(), self.model.embed([long[1:]]).tobytes())
        cancel = libblend.Cancel()
        cancel.request()
        with self.assertRaises(libblend.CancelledError):
            self.model.embed(texts, cancel=cancel)

    def test_the_prompt_is_that_of_segments(self):
        self.assertEqual(tokens(self.model.text_prompt(DOCUMENTS, QUESTION)), tokens(self.prompt()))
        options = dict(template_source=TEMPLATE)
        chat = self.model.chat([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
                               documents=DOCUMENTS, **options)
        texts = self.model.text_prompt(DOCUMENTS, "Who?", system="Be brief.", **options)
        self.assertEqual(tokens(texts), tokens(chat))
        with self.model.fuse(None, chat, policy="full") as one, \
                self.model.fuse_texts(None, DOCUMENTS, "Who?", system="Be brief.", policy="full", **options) as other:
            np.testing.assert_array_equal(one.logits, other.logits)
        plain = self.model.text_prompt([" a "], "Who?", verbatim=True, question_template="{question}", system="S")
        kinds = [s.kind for s in plain.segments]
        self.assertEqual(kinds, [libblend.SegmentKind.PREFIX, libblend.SegmentKind.CHUNK, libblend.SegmentKind.QUESTION])
        self.assertEqual(plain.segments[1].tokens.tolist(), self.model.tokenize(" a ").tolist())

    def test_what_was_stored_is_found(self):
        seen = []
        documents = [{"text": d, "title": f"document {i}"} for i, d in enumerate(DOCUMENTS)]
        made = self.model.precompute_texts(self.empty, documents, system="Be brief.", contexts=2,
                                           progress=lambda done, total: seen.append((done, total)))
        self.assertEqual([r.existed for r in made], [False] * len(DOCUMENTS))
        self.assertTrue(any(r.n_contexts for r in made))
        self.assertTrue(seen)
        again = self.model.precompute_texts(self.empty, DOCUMENTS, system="Be brief.", contexts=2)
        self.assertTrue(all(r.existed for r in again))
        self.assertIn("document 1", {info.label for info in self.empty.list()})
        with self.model.fuse_texts(self.empty, DOCUMENTS[::-1], QUESTION, system="Be brief.", on_miss="fail") as fusion:
            self.assertEqual(fusion.info.n_hits, len(DOCUMENTS) + 1)
        with self.assertRaises(libblend.NotFoundError):
            self.model.fuse_texts(self.empty, DOCUMENTS, QUESTION, system="Be long.", on_miss="fail")
        with self.assertRaises(libblend.NotFoundError):
            self.model.fuse_texts(self.empty, DOCUMENTS, QUESTION, system="Be brief.", on_miss="fail", tenant="x")

    def test_a_conversation(self):
        self.model.precompute_texts(self.empty, DOCUMENTS, template_source=TEMPLATE)
        turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ada."},
                 {"role": "user", "content": "And where?"}]
        for messages in (turns[:1], turns):
            with self.model.fuse_messages(self.empty, messages, DOCUMENTS, template_source=TEMPLATE,
                                          on_miss="compute") as fusion:
                found = [s for s in fusion.segments if s.source == libblend.Source.STORE
                         and s.kind == libblend.SegmentKind.CHUNK]
                self.assertEqual(len(found), len(DOCUMENTS))
        with self.assertRaisesRegex(libblend.NotFoundError, "template"):
            self.model.fuse_messages(self.empty, turns, DOCUMENTS)
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "no messages"):
            self.model.fuse_messages(self.empty, [], DOCUMENTS, template_source=TEMPLATE)

    def test_what_is_wrong_is_said(self):
        def fuse(*documents, **options):
            return self.model.fuse_texts(None, documents, QUESTION, **options)

        with self.assertRaisesRegex(libblend.InvalidArgumentError, "document 1 has no text"):
            fuse("a", " \n")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "document 1 has a NUL"):
            fuse("a", "b\0c")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "question has a NUL"):
            self.model.fuse_texts(None, ["a"], "b\0c")
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "title of document 0 has a NUL"):
            fuse({"text": "a", "title": "b\0c"})
        with self.assertRaisesRegex(libblend.InvalidArgumentError, "question"):
            fuse("a", question_template="Q:")
        with self.assertRaisesRegex(libblend.ContextLengthError, "5000 documents"):
            fuse(*["the cat sat on the mat"] * 5000)
        with self.assertRaises(TypeError):  # one str is a list of characters
            self.model.fuse_texts(None, "a document", QUESTION)
        cancel = libblend.Cancel()
        cancel.request()
        for call in (lambda: fuse("a", cancel=cancel),
                     lambda: self.model.text_prompt(["a"], "b", cancel=cancel),
                     lambda: self.model.precompute_texts(self.empty, ["a"], cancel=cancel)):
            with self.assertRaises(libblend.CancelledError):
                call()

    def test_the_command_stores_the_same_chunks(self):
        command = Path(libblend.__file__).parents[3] / "tools/blend/blend"
        if not command.exists():
            self.skipTest("the command is not in the build tree")
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, document in enumerate(DOCUMENTS):
                paths.append(f"{folder}/{i}.txt")
                Path(paths[-1]).write_text(document.strip() + "\n\n")
            model = self.model._name
            subprocess.run([command, "precompute", "--model", model, "--store", f"{folder}/store", "--docs", *paths,
                            "--profile", "none"], check=True, capture_output=True, timeout=120)
            with libblend.Store(self.ctx, f"{folder}/store", check_every=2**32 - 1) as store, \
                    self.model.fuse_texts(store, DOCUMENTS, QUESTION, on_miss="fail") as fusion:
                self.assertEqual(fusion.info.n_hits, len(DOCUMENTS) + 1)


if __name__ == "__main__":
    unittest.main()
