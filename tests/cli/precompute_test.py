"""`blend precompute`: which records a folder of documents becomes.

    python3 precompute_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from cli_case import ARGS, CHUNK, CliCase, run_tests


class PrecomputeTest(CliCase):
    def test_ids_depend_on_prefix_tenant_and_dtype_but_not_on_neighbours(self):
        def ids(*args):
            return [c["id"] for c in self.precompute(*args)["chunks"] if not c["prefix"]]

        plain = ids()
        for other in (["--chunk-prefix", "none"], ["--chunk-prefix", "text:so "],
                      ["--tenant", "t"], ["--kv-dtype", "f32"]):
            self.assertFalse(set(plain) & set(ids(*other)), other)
        (self.docs / "0.md").write_text("a new text in front\n")
        self.assertEqual(ids()[1:], plain)

    # More than ten tokens each, so that they are context, and one chunk.
    LONG = [f"{first} the cat sat on the {second}\n\n"
            for first, second in (("so", "dog"), ("a", "bird"), ("in", "park"))]

    def kinds(self, made):
        return [c["kind"] for c in made["chunks"] if not c["prefix"]]

    def test_chunks_are_stored_after_the_head_and_in_context(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "4")
        self.assertEqual(self.kinds(made), ["contextual"] * 3)
        self.assertEqual([c["n_contexts"] for c in made["chunks"] if not c["prefix"]], [2] * 3)
        n_records = self.json("store", "stat", "--store", self.store)["n_chunks"]
        self.assertEqual(n_records, 1 + 2 * 3, "the prefix, and two records a chunk")
        self.assertEqual(self.precompute("--contexts", "4")["n_stored"], 0)
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "contextual", "contextual"])
        text = self.blend("ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who sat").stdout
        self.assertRegex(text, r"chunks stored\s+1 exact, 2 contextual")

    def test_eight_chunks_and_more_also_have_cluster_records(self):
        texts = [f"{first} the cat sat on the {second}\n\n"
                 for first in ("so", "a", "in") for second in ("dog", "bird", "park")]
        (self.docs / "a.txt").write_text("".join(texts))

        def n_records():
            return self.json("store", "stat", "--store", self.store)["n_chunks"]

        n_chunks = len(self.kinds(self.precompute("--contexts", "4", "--no-clusters")))
        self.assertGreaterEqual(n_chunks, 8)
        self.assertEqual(n_records(), 1 + 2 * n_chunks)
        self.precompute("--contexts", "4")
        self.assertEqual(n_records(), 1 + 3 * n_chunks)
        # Records that were there get the tags that their text has now.
        self.precompute("--contexts", "4", "--tag", "lang=en")
        self.json("store", "rm", "--store", self.store, "--tag", "lang=en")
        self.assertEqual(n_records(), 1)

    def test_without_contexts_there_are_head_records(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "0")
        self.assertEqual(self.kinds(made), ["head"] * 3)
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "head", "head"])
        self.assertEqual(self.kinds(self.precompute("--contexts", "1")), ["contextual"] * 3)

    def test_another_head_needs_other_records(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        self.precompute("--system", "be brief")
        told = self.ask("--system", "be brief", "--on-miss", "fail")["fusion"]
        self.assertEqual(told["n_misses"], 0)
        self.blend("ask", *self.place, "--docs", self.docs, *CHUNK, "--question", "who", "--system",
                   "be long", "--on-miss", "fail", code=3)
        self.assertEqual(self.precompute("--system", "be long")["n_existed"], 0)

    def test_a_new_document_refreshes_its_neighbors(self):
        (self.docs / "a.txt").write_text("".join(self.LONG[:2]))
        context = ["--contexts", "4"]
        self.precompute(*context)
        (self.docs / "b.txt").write_text(self.LONG[2])
        self.assertEqual(self.precompute(*context)["n_stored"], 1)
        self.assertEqual(self.precompute(*context, "--refresh")["n_stored"], 2, "those of a.txt")
        self.assertEqual(self.precompute(*context, "--refresh")["n_stored"], 0)

    def test_variants_are_bounded_and_counted(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        self.precompute("--contexts", "4", "--predecessors")
        stat = lambda: self.json("store", "stat", "--store", self.store)
        before = stat()
        self.assertEqual(before["n_texts"], 4)
        self.assertEqual(before["varied_texts"], 3)
        self.assertEqual(before["n_variants"], 3 + 2, "in context, and after the one before it")
        self.assertGreater(before["variant_bytes"], 0)
        # Room for one: each text keeps its plain record and the newest.
        self.precompute("--chunk-prefix", "text:so ", "--most-variants", "1")
        self.assertLessEqual(stat()["n_variants"], before["n_variants"])
        refused = self.blend("precompute", *self.place, "--docs", self.docs, "--most-variants", "0",
                             code=2).stderr
        self.assertIn("neither a whole number from 1 on nor all", refused)
        self.precompute("--most-variants", "all")
        self.assertIn("variants", self.blend("store", "stat", "--store", self.store).stdout)

    def test_chunks_after_the_one_before_them_are_found_there(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        made = self.precompute("--contexts", "4", "--predecessors")
        self.assertEqual(self.kinds(made), ["contextual"] * 3 + ["predecessor"] * 2)
        after = [c for c in made["chunks"] if c["kind"] == "predecessor"]
        self.assertEqual(after[0]["label"], made["chunks"][2]["label"], "named by its own place")
        segments = self.ask("--on-miss", "fail")["fusion"]["segments"]
        self.assertEqual([s["record"] for s in segments if s["kind"] == "chunk"],
                         ["exact", "exact", "predecessor"])
        self.assertEqual([s["id"] for s in segments if s["kind"] == "chunk"][1:],
                         [c["id"] for c in after])

    def test_a_predecessor_is_of_the_same_document(self):
        (self.docs / "a.txt").unlink()
        (self.docs / "b.txt").write_text("".join(self.LONG).replace("cat", "dog"))
        alone = self.precompute("--contexts", "0", "--predecessors")
        (self.docs / "a.txt").write_text("".join(self.LONG))
        beside = self.precompute("--contexts", "0", "--predecessors")
        after = [[c for c in made["chunks"] if c["kind"] == "predecessor"] for made in (alone, beside)]
        self.assertEqual([c["existed"] for c in after[1]], [False, False, True, True])
        self.assertEqual([c["id"] for c in after[1][2:]], [c["id"] for c in after[0]], "no passage is of another document")

    def test_a_record_after_the_predecessor_has_seen_what_precedes_that(self):
        (self.docs / "a.txt").write_text("".join(self.LONG))
        self.precompute("--contexts", "4", "--predecessors", "--kv-dtype", "f32")
        rows = self.ask("--compare", "--kv-dtype", "f32", "--on-miss", "fail")["compare"]
        reuse = [row for row in rows if row["policy"] == "reuse"][0]
        self.assertLess(reuse["kl_mean"], 1e-8, "all of the document precedes the last chunk, as it did")

    def test_chunk_prefix_must_match_to_hit(self):
        self.precompute("--chunk-prefix", "bos")
        fail = self.ask("--chunk-prefix", "bos", "--on-miss", "fail")
        self.assertEqual(fail["fusion"]["n_misses"], 0)

    def test_documents_below_a_directory_in_order(self):
        (self.docs / "sub").mkdir()
        (self.docs / "sub" / "z.md").write_text("the end\n")
        (self.docs / "b.txt").write_text("\ufeffin the middle\r\n")
        (self.docs / "ignored.pdf").write_text("not text")
        names = [Path(c["document"]).name for c in self.precompute()["chunks"] if not c["prefix"]]
        self.assertEqual(sorted(set(names), key=names.index), ["a.txt", "b.txt", "z.md"])

    def test_codecs_are_chosen_and_seen(self):
        made = self.precompute()["chunks"]
        at = ["--store", self.store]
        want = self.ask("--policy", "hkvd", "--ratio", "0.2")
        for codec in ("zstd", "int8", "int4", "rans"):
            self.json("store", "rm", "--all", "--yes", *at)
            self.precompute("--codec", codec)
            chunks = self.json("store", "ls", *at)["chunks"]
            self.assertEqual({c["codec"] for c in chunks}, {codec})
            if codec == "int4":  # these chunks are too small for the others' headers and steps
                self.assertTrue(all(c["stored_bytes"] < c["bytes"] for c in chunks
                                    if c["n_tokens"] >= 8))
            stat = self.json("store", "stat", *at)["codecs"]
            self.assertEqual(list(stat), [codec])
            self.assertEqual(stat[codec]["n_chunks"], len(made))
            self.assertEqual(stat[codec]["stored_bytes"], sum(c["stored_bytes"] for c in chunks))
            self.assertIn("times smaller", self.blend("store", "stat", *at).stdout)
            self.json("store", "verify", *at)
            got = self.ask("--policy", "hkvd", "--ratio", "0.2")
            if codec == "zstd":
                self.assertEqual(got["answer"], want["answer"])
        self.blend("precompute", "--codec", "gzip", code=2)

    def test_no_bar_is_left_on_a_terminal(self):
        """On a terminal of its own: what is shown at the end has no trace of a bar."""
        import pty
        documents = self.dir / "many"
        documents.mkdir()
        for i in range(40):
            (documents / f"{i}.txt").write_text("\n\n".join(f"{n} {n * n} the cat {n * i}" for n in range(i, i + 12)))
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(ARGS.blend, [str(a) for a in (
                ARGS.blend, "precompute", *self.place, "--docs", documents, *CHUNK, "--threads", "1")])
        shown = b""
        try:
            while block := os.read(terminal, 65536):
                shown += block
        except OSError:
            pass
        os.waitpid(pid, 0)
        os.close(terminal)
        self.assertTrue(b"Precomputing [" in shown, "the work is too short to show a bar")
        lines = []
        for line in shown.decode("utf-8", "replace").split("\n"):
            line = line.rstrip("\r")
            lines.append(line.split("\r\x1b[K")[-1])
        self.assertNotIn("[#", "".join(lines))
        self.assertNotIn("...]", "".join(lines))

    def test_a_full_store_says_so(self):
        run = self.blend(
            "precompute", *self.place, "--docs", self.docs, *CHUNK, "--quota", "1KiB", code=1
        )
        self.assertIn("BLEND_E_FULL", run.stderr)

    def test_ctrl_c_cancels_and_leaves_the_store_sound(self):
        # More work than anyone waits for: every paragraph is a chunk of its own.
        words = ["red", "green", "blue", "old", "new", "big", "tiny", "kind"]
        paragraphs = [f"{a} {b} {c} {d}" for a in words for b in words for c in words for d in words]
        (self.docs / "a.txt").write_text("\n\n".join(paragraphs))
        process = subprocess.Popen(
            [ARGS.blend, "precompute", *self.place, "--docs", self.docs, "--chunk-tokens", "12"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            self.assertIn("stored", process.stdout.readline())  # it is at work
            time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, error)
        self.assertIn("BLEND_E_CANCELLED", error)
        out = self.json("store", "verify", "--store", self.store)
        self.assertEqual(out["n_damaged"], 0)
        self.assertGreater(out["n_sound"], 0)
        self.assertLess(out["n_sound"], len(paragraphs))


if __name__ == "__main__":
    run_tests()
