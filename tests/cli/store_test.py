"""`blend store`: lists, care and repair.

    python3 store_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import json
import os
import shutil
import subprocess
import unittest

from cli_case import ARGS, CliCase, run_tests


class StoreTest(CliCase):
    @unittest.skipIf(shutil.which("redis-server") is None, "redis-server is not installed")
    def test_a_key_that_others_may_read_is_told(self):
        key = self.dir / "client.key"
        key.write_text("no key\n")
        place = ["store", "push", "--store", self.store, "--remote", "redis://127.0.0.1:1", "--remote-key", key]
        for mode, told in ((0o644, True), (0o660, True), (0o600, False), (0o400, False)):
            key.chmod(mode)
            note = self.blend(*place, code=2).stderr  # for it names no certificate
            self.assertEqual(f"the key in '{key}' is open to others" in note, told, f"{mode:o}: {note}")

    def test_store_ls_stat_rm(self):
        made = [c["id"] for c in self.precompute()["chunks"]]
        at = ["--store", self.store]
        listed = self.json("store", "ls", *at)["chunks"]
        self.assertEqual([c["id"] for c in listed], sorted(made))
        stat = self.json("store", "stat", *at)
        self.assertEqual(stat["n_chunks"], len(made))
        self.assertEqual(stat["bytes"], sum(c["bytes"] for c in listed))
        self.assertIn(made[0], self.blend("store", "ls", *at).stdout)
        self.assertIn("chunks", self.blend("store", "stat", *at).stdout)
        self.assertEqual(stat["codecs"]["none"]["stored_bytes"], stat["bytes"])

        self.assertEqual(self.json("store", "rm", made[0][:12], *at)["removed"], [made[0]])
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], len(made) - 1)
        self.blend("store", "rm", made[0], *at, code=3)
        # A wrong id among right ones removes nothing.
        self.blend("store", "rm", made[1], made[0], *at, code=3)
        self.blend("store", "rm", "--all", *at, code=2)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], len(made) - 1)
        self.json("store", "rm", "--all", "--yes", *at)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], 0)

    def test_store_ls_and_rm_of_a_tenant(self):
        mine = sorted(c["id"] for c in self.precompute("--tenant", "acme")["chunks"])
        everyones = sorted(c["id"] for c in self.precompute()["chunks"])
        at = ["--store", self.store]
        listed = lambda *more: [c["id"] for c in self.json("store", "ls", *at, *more)["chunks"]]
        self.assertEqual(listed(), sorted(mine + everyones))
        self.assertEqual(listed("--tenant", "acme"), mine)
        self.assertEqual(listed("--tenant", ""), everyones)
        self.blend("store", "rm", mine[0], "--tenant", "evil", *at, code=3)
        self.json("store", "rm", "--all", "--yes", "--tenant", "acme", *at)
        self.assertEqual(listed(), everyones)

    def test_chunks_are_found_by_what_they_are_called(self):
        (self.docs / "b.md").write_text("the end of it\n")
        # A name that no label can have as it is.
        (self.docs / os.fsdecode(b"odd\xff\n.txt")).write_text("the sun was odd\n")
        made = self.precompute("--tag", "lang=en", "--tag", "draft", "--system", "be brief")["chunks"]
        place = str(self.docs)
        self.assertEqual([c["label"] for c in made if not c["prefix"]],
                         [f"{place}/a.txt#{i}" for i in (1, 2, 3)] + [f"{place}/b.md#1", f"{place}/odd\ufffd?.txt#1"])
        at = ["--store", self.store]
        def labels(*more):
            return sorted(c["label"] for c in self.json("store", "ls", *at, *more)["chunks"])

        self.assertEqual(labels(), sorted(c["label"] for c in made))
        self.assertEqual(labels("--label", f"{place}/a.txt"), [f"{place}/a.txt#{i}" for i in (1, 2, 3)])
        self.assertEqual(labels("--label", "*#2"), [f"{place}/a.txt#2"])
        self.assertEqual(len(labels("--tag", "lang=*", "--tag", "draft")), 5)
        self.assertEqual(labels("--tag", "lang=*", "--tag", "final"), [])
        self.assertEqual(labels("--label", "(prefix)"), ["(prefix)"])
        self.assertEqual(labels("--model", self.model), labels())
        every = self.json("store", "ls", *at)["chunks"]
        self.assertEqual(labels("--model", every[0]["fingerprint"][:8]), labels())
        self.assertEqual(every[0]["tags"] or ["draft", "lang=en"], ["draft", "lang=en"])
        self.assertEqual(labels("--model", "0" * 64), [])
        self.assertIn("none.gguf", self.blend("store", "ls", *at, "--model", "none.gguf", code=3).stderr)
        self.assertIn("b.md#1", self.blend("store", "ls", *at).stdout)

        # Another label for one of them, and none.
        b = next(c["id"] for c in made if c["label"].endswith("b.md#1"))
        self.json("store", "label", b[:12], *at, "--label", "manual.pdf#3", "--tag", "final")
        self.assertEqual(labels("--label", "manual.pdf", "--tag", "final"), ["manual.pdf#3"])
        self.json("store", "label", b, *at, "--label", "", "--no-tags")
        self.assertEqual(labels("--unlabelled"), [""])
        self.assertIn("control", self.blend("store", "label", b, *at, "--label", "a\nb", code=2).stderr)
        self.assertIn("one word", self.blend("store", "label", b, *at, "--tag", "a b", code=2).stderr)
        self.blend("store", "label", b, *at, code=2)
        # Precomputed again, it keeps its label, and nothing is computed.
        self.assertTrue(all(c["existed"] for c in self.precompute("--system", "be brief")["chunks"]))
        self.assertEqual(labels("--label", "*b.md"), [f"{place}/b.md#1"])

        doomed = ["store", "rm", *at, "--label", f"{place}/a.txt", "--tag", "draft"]
        would = self.json(*doomed, "--dry-run")["would_remove"]
        self.assertEqual(len(labels()), len(made))
        self.assertIn("a.txt#2", self.blend(*doomed, "--dry-run").stdout)
        self.assertEqual(self.json(*doomed)["removed"], would)
        self.assertEqual(len(would), 3)
        self.assertEqual(len(labels()), len(made) - 3)
        self.assertEqual(self.json(*doomed)["removed"], [])
        # Two ways at once, or none.
        self.blend("store", "rm", *at, code=2)
        self.blend("store", "rm", *at, "--all", "--yes", "--label", "*", code=2)
        self.blend("store", "rm", *at, b, "--tag", "draft", code=2)
        self.assertEqual(len(labels()), len(made) - 3)

    def test_looking_after_a_store(self):
        made = [c["id"] for c in self.precompute()["chunks"]]
        at = ["--store", self.store]
        self.assertEqual(self.json("store", "pin", made[0][:9], *at)["pinned"], [made[0]])
        stat = self.json("store", "stat", *at)
        self.assertEqual(stat["pinned_chunks"], 1)
        self.assertEqual(stat["evicted_chunks"], 0)
        self.assertGreater(stat["stored_bytes"], stat["bytes"])
        self.assertIn("pinned", self.blend("store", "stat", *at).stdout)
        text = self.blend("store", "stat", "--metrics", *at).stdout
        self.assertRegex(text, r"(?m)^blend_store_chunks\{store=\"[^\"]*\"\} %d$" % len(made))

        file = str(self.store) + ".chunks"
        self.assertEqual(self.json("store", "export", "--file", file, *at)["n_chunks"], len(made))
        self.assertIn("pinned", self.blend("store", "evict", "--to", "0", *at, code=1).stderr)
        self.assertEqual(self.json("store", "stat", *at)["n_chunks"], 1)
        self.json("store", "unpin", made[0], *at)
        self.assertEqual(self.json("store", "evict", "--to", "0", *at)["n_evicted"], 1)
        size = self.json("store", "compact", *at)
        self.assertLess(size["bytes_after"], size["bytes_before"])
        put = self.json("store", "import", "--file", file, *at)
        self.assertEqual(put["n_chunks"], len(made))
        self.assertEqual(self.json("store", "import", "--file", file, *at)["n_chunks"], 0)
        self.assertEqual(self.json("store", "repair", *at)["n_removed"], 0)
        copy = str(self.store) + ".copy"
        self.json("store", "compact", "--out", copy, *at)
        self.assertEqual(self.json("store", "stat", "--store", copy)["n_chunks"], len(made))
        self.blend("store", "import", "--file", file + ".none", *at, code=3)
        self.blend("store", "pin", *at, code=2)

    def test_verify_finds_flipped_bytes(self):
        made = self.precompute()["chunks"]
        at = ["--store", self.store]
        self.assertEqual(self.json("store", "verify", *at)["n_sound"], len(made))
        self.damage()
        run = self.blend("store", "verify", *at, "--json", code=4)
        out = json.loads(run.stdout)
        self.assertGreaterEqual(out["n_damaged"], 1)
        self.assertTrue(out["damaged"][0]["problem"])
        # A damaged chunk is a miss, not a wrong answer.
        answer = self.ask("--policy", "hkvd", "--ratio", "1", "--on-miss", "compute")
        self.assertEqual(answer["answer"], self.ask("--policy", "full")["answer"])
        self.assertGreater(answer["fusion"]["n_misses"], 0)

    def damage(self):
        """Flips bits in the middle of every sizable run of the data file's chunk bytes."""
        data = self.store / "data.mdb"
        if not data.exists():
            data = max((p for p in self.store.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        with open(data, "r+b") as file:
            file.seek(40)
            page = int.from_bytes(file.read(4), "little")
            size = os.fstat(file.fileno()).st_size
            # Overflow pages hold the chunks' bytes: a header of 16 bytes with flag 4, then data.
            position = 2 * page
            while position + page <= size:
                file.seek(position)
                head = file.read(16)
                flags = int.from_bytes(head[10:12], "little")
                pages = int.from_bytes(head[12:16], "little") if flags & 4 else 1
                if flags & 4 and pages > 1:
                    # Past the layers up to the check layer, which a fuse does not read.
                    file.seek(position + pages * page * 6 // 10)
                    byte = file.read(1)
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte[0] ^ 0x40]))
                position += max(pages, 1) * page

    def test_not_a_store(self):
        self.store.write_text("a file")
        run = subprocess.run(
            [ARGS.blend, "store", "ls", "--store", self.store], capture_output=True, text=True
        )
        self.assertIn(run.returncode, (1, 2, 3, 4))
        self.assertIn(str(self.store), run.stderr)


if __name__ == "__main__":
    run_tests()
