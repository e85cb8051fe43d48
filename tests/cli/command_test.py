"""The blend command as a whole: what it calls wrong, its help, and its smaller commands.

    python3 command_test.py --blend BLEND --make-model MAKE_RANDOM_MODEL [unittest arguments]
"""

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path

from cli_case import ARGS, CliCase, run_tests


class CommandTest(CliCase):
    def test_an_unknown_command_or_option_is_named(self):
        for args, named in ((["frobnicate"], "frobnicate"), (["store", "lsx"], "lsx"),
                            (["ask", "--frobnicate"], "--frobnicate"), (["store", "ls", "--foo=1"], "--foo"),
                            (["ask", "frobnicate", "--model", self.model], "frobnicate"),
                            (["store", "stat", "frobnicate"], "frobnicate")):
            said = self.blend(*args, code=2).stderr
            self.assertIn(named, said)
            self.assertNotIn("required", said)
        self.assertIn("precompute", self.blend("frobnicate", code=2).stderr)

    def test_advise_measures_once_and_chooses_a_device(self):
        machine = self.dir / "machine.txt"
        place = ["advise", "--model", self.model, "--machine", machine, "--max-tokens", "64"]
        first = self.json(*place)
        self.assertFalse(first["kept"])
        self.assertEqual([point["n_tokens"] for point in first["prefill"]], [64])
        self.assertEqual(first["storages"], [])
        # Without end fast, and a byte a second: the fast one adds no delay, whatever it costs.
        got = self.json(*place, "--tokens", "512", "--ratio", "0.2",
                        "--storage", "fast=1000T:5", "--storage", "slow=1")
        self.assertTrue(got["kept"])
        self.assertEqual(got["prefill"], first["prefill"])
        fast, slow = got["storages"]
        self.assertTrue(fast["cheapest"] and fast["no_delay"])
        self.assertEqual(fast["ratio"], 0.2)
        self.assertTrue(slow["slower_than_prefill"] and not slow["no_delay"])
        self.assertEqual(slow["ratio"], 1)
        self.assertEqual(fast["bytes_per_s"], 1e15)
        self.assertFalse(self.json(*place, "--measure")["kept"])
        text = self.blend(*place, "--storage", "fast=1000T:5").stdout
        self.assertIn("the cheapest without delay", text)
        self.assertIn("With --storage NAME=BYTES_PER_SECOND", self.blend(*place).stdout)

    def test_advise_refuses_devices_it_cannot_read(self):
        for device in ("nvme", "=3G", "nvme=fast", "nvme=3X", "nvme=3G:", "nvme=3G:1x", "nvme=0"):
            self.blend("advise", "--model", self.model, "--max-tokens", "8", "--storage", device,
                       code=2)

    def test_advise_measures_the_remote_tier(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
                                  stdout=subprocess.DEVNULL, cwd=self.dir)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        url = f"redis://127.0.0.1:{port}"
        place = ["advise", "--model", self.model, "--max-tokens", "8", "--remote", url]
        self.assertIn("no chunk yet", self.blend(*place, code=3).stderr)
        self.blend("precompute", "--docs", self.docs, "--model", self.model, "--store", self.dir / "shared", "--remote", url)
        (remote,) = self.json(*place, "--remote-cost", "0.5")["storages"]
        self.assertEqual((remote["name"], remote["cost_per_gb_hour"]), ("remote", 0.5))
        self.assertTrue(remote["bytes_per_s"] > 0 and remote["latency_s"] > 0)
        self.assertGreaterEqual(remote["load_ns"], remote["latency_s"] * 1e9 - 1)
        self.assertIn("before the first byte", self.blend(*place).stdout)

    def test_embed_writes_a_line_for_each_text(self):
        place = ["embed", "--model", self.model]
        lines = self.dir / "texts.txt"
        texts = ["the cat sat", "a dog"] * 40
        lines.write_text("\n".join(texts))
        made = [json.loads(line) for line in self.blend(*place, "--lines", lines).stdout.splitlines()]
        self.assertEqual([line["index"] for line in made], list(range(80)))
        self.assertEqual(made[0]["embedding"], made[2]["embedding"])
        self.assertNotEqual(made[0]["embedding"], made[1]["embedding"])
        self.assertAlmostEqual(sum(value * value for value in made[0]["embedding"]), 1, places=5)
        given = self.blend(*place, "--text", "the cat sat", "--text", "a dog", "--json").stdout.splitlines()
        self.assertEqual([json.loads(line) for line in given], made[:2])
        few = json.loads(self.blend(*place, "--text", "a dog", "--dimensions", 3, "--pooling", "last",
                                    "--unnormalized").stdout)
        self.assertEqual(len(few["embedding"]), 3)
        piped = subprocess.run([ARGS.blend, *map(str, place), "--lines", "-"], input="a dog\n",
                               capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(piped.stdout)["embedding"], made[1]["embedding"])

    def test_embed_refuses_what_cannot_be(self):
        place = ["embed", "--model", self.model]
        self.assertIn("--text", self.blend(*place, code=2).stderr)
        self.blend(*place, "--lines", self.dir / "none.txt", code=3)
        self.blend(*place, "--text", "x", "--pooling", "most", code=2)
        self.assertIn("n_dimensions", self.blend(*place, "--text", "x", "--dimensions", 100000, code=2).stderr)
        long = self.dir / "long.txt"
        long.write_text("the cat sat " * 2000)
        self.assertIn("text 0", self.blend(*place, "--lines", long, code=1).stderr)
        self.assertEqual(json.loads(self.blend(*place, "--lines", long, "--truncate").stdout)["n_tokens"], 512)

    def test_perplexity_compares_rotated_rows_with_computed_ones(self):
        got = self.json("perplexity", "--model", self.model, "--docs", self.docs,
                        "--window", "16", "--drop", "0.25")
        self.assertEqual((got["window"], got["drop"], got["keep"]), (16, 4, 1))
        self.assertEqual(got["n_documents"], 1)
        self.assertGreaterEqual(got["recomputed"]["n_truncations"], 2)
        self.assertEqual(got["rotated"]["n_truncations"], got["recomputed"]["n_truncations"])
        self.assertGreater(got["recomputed"]["perplexity"], 1)
        # A random model's rows say little of each other, but they do say something.
        self.assertNotEqual(got["rotated"]["perplexity"], got["recomputed"]["perplexity"])
        self.assertAlmostEqual(
            got["difference"], got["rotated"]["perplexity"] - got["recomputed"]["perplexity"])
        # Nothing but the last row left: its K and V depend on nothing that is gone.
        alone = self.json("perplexity", "--model", self.model, "--docs", self.docs,
                          "--window", "16", "--drop", "0.9375", "--keep", "0")
        self.assertAlmostEqual(alone["difference"] / alone["rotated"]["perplexity"], 0, places=4)
        text = self.blend("perplexity", "--model", self.model, "--docs", self.docs,
                          "--window", "16").stdout
        self.assertIn("recomputed", text)

    def test_perplexity_refuses_windows_that_cannot_be(self):
        place = ["perplexity", "--model", self.model, "--docs", self.docs]
        self.blend(*place, "--window", "100000", code=2)
        self.blend(*place, "--window", "16", "--drop", "0.01", code=2)
        self.blend(*place, "--window", "16", "--keep", "10", code=2)
        self.blend(*place, "--window", "400", code=3)  # the document is shorter

    def test_model_info(self):
        info = self.json("model", "info", "--model", self.model)
        self.assertEqual(info["architecture"], "llama")
        self.assertEqual(len(info["fingerprint"]), 64)
        self.assertRegex(info["backend"], r"^cpu \(.+\)$")
        self.assertIn("llama", self.blend("model", "info", "--model", self.model).stdout)

    def test_model_info_tells_what_the_chat_template_reads(self):
        conformance = Path(__file__).resolve().parents[1] / "conformance"
        model = self.dir / "hf"
        shutil.copytree(conformance / "hf/qwen2", model)
        shutil.copy(conformance / "tokenizers/qwen2.tokenizer.json", model / "tokenizer.json")
        place = ["model", "info", "--model", model]
        self.assertEqual(self.json(*place)["chat_template_reads"], [])
        self.assertRegex(self.blend(*place).stdout, "chat template +none")
        (model / "chat_template.jinja").write_text("{{ messages[0].content }}{% if tools %}{% endif %}{{ documents }}")
        self.assertEqual(self.json(*place)["chat_template_reads"], ["system", "tools", "documents"])
        self.assertIn("reads system, tools, documents (", self.blend(*place).stdout)
        (model / "chat_template.jinja").write_text("{% if %}")
        self.assertIn("cannot be read: ", self.blend(*place).stdout)

    def test_model_info_lists_adapters(self):
        root = Path(__file__).resolve().parents[2]
        model = root / "examples/models/blend-qa.gguf"
        adapter = root / "tests/conformance/lora/blend-qa.gguf"
        place = ["model", "info", "--model", model]
        plain = self.json(*place)
        self.assertEqual(plain["loras"], [])
        info = self.json(*place, "--lora", adapter, "--lora", f"{adapter}:-0.5")
        self.assertEqual(
            [(lora["path"], lora["scale"], lora["rank"]) for lora in info["loras"]],
            [(str(adapter), 1, 2), (str(adapter), -0.5, 2)],
        )
        self.assertNotEqual(info["fingerprint"], plain["fingerprint"])
        self.assertIn("scale -0.5", self.blend(*place, "--lora", f"{adapter}:-0.5").stdout)
        self.assertIn("scale", self.blend(*place, "--lora", f"{adapter}:0", code=2).stderr)
        # The whole is a file's name where no number follows.
        self.assertIn("x:y", self.blend(*place, "--lora", "x:y", code=3).stderr)
        run = self.blend("model", "info", "--model", self.model, "--lora", adapter, code=1)
        self.assertIn("blk.", run.stderr)

    def test_missing_things_are_not_found(self):
        absent = self.dir / "absent"
        run = self.blend("model", "info", "--model", absent, code=3)
        self.assertIn("absent", run.stderr)
        self.blend("ask", "--model", absent, "--store", self.store, "--question", "x", code=3)
        self.blend("precompute", *self.place, "--docs", absent, code=3)
        for command in ("ls", "stat", "verify"):
            self.blend("store", command, "--store", absent, code=3)
        self.assertFalse(absent.exists())
        self.ask_text("--on-miss", "fail", code=3)

    def test_garbage_models_are_damaged(self):
        garbage = self.dir / "garbage.gguf"
        whole = self.model.read_bytes()
        for content in (b"", b"GGUF", b"not a model at all" * 100, whole[: len(whole) // 2]):
            garbage.write_bytes(content)
            run = self.blend("model", "info", "--model", garbage, code=4)
            self.assertIn("garbage.gguf", run.stderr)

    def test_usage(self):
        self.ask_text("--ratio", "1.5", code=2)
        self.ask_text("--ratio", "nan", code=2)
        self.ask_text("--policy", "guess", code=2)
        self.ask_text("--policy", "hkvd", "--check-layer", "99", code=2)
        self.ask_text("--question-template", "no place", code=2)
        self.ask_text("--chunk-prefix", "eos", code=2)
        self.ask_text("--no-such-option", code=2)
        self.blend(code=2)
        self.blend("store", code=2)
        self.blend("store", "rm", "xyz", "--store", self.store, code=2)
        self.blend("ask", *self.place, code=2)  # no question

    def test_help_has_examples(self):
        for command in (["precompute"], ["ask"], ["store", "ls"], ["store", "stat"],
                        ["store", "verify"], ["store", "rm"], ["model", "info"]):
            text = self.blend(*command, "--help").stdout
            self.assertIn("Example:", text)
            self.assertIn("blend " + " ".join(command), text)
        self.assertRegex(self.blend("--version").stdout, r"^\d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    run_tests()
