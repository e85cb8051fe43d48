#!/usr/bin/env python3
"""Compares libblend's token ids with those of the libraries that real vocabularies belong to, on files
that you have: none are in this repository.

    real_vocabularies.py [--library build/release/src/capi/libblend.so] [--verbose] PATH...

PATH: files, or folders that are searched for

    *.gguf                      against llama_cpp, and the .inp and .out files beside it
    *tokenizer.json             against tokenizers
    tiktoken's ranks            against tiktoken, as the tokenizer.json that transformers makes of them;
      (*.tiktoken, *.model)     which pattern they belong to is in the path: qwen, llama3
    tekken*.json                against tiktoken with the file's own pattern, in the same way
    SentencePiece's *.model*    against sentencepiece, as the GGUF vocabulary of a `llama`

Texts: the corpus of the tokenizer tests, with special tokens and without where the library can tell
them apart, the .inp file's, and this repository's documents and sources whole. A model of zeros is
written around each vocabulary. Exit status 1 where ids differ, except those that docs/models.md names.
"""
import argparse
import base64
import ctypes
import json
import pathlib
import struct
import sys
import tempfile
import unicodedata

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEPARATOR = "\n__ggml_vocab_test__\n"
BPE_PATTERNS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PLAIN, SPECIAL = 0, 2  # BLEND_TOKENIZE_SPECIAL


class Blend:
    """The library, by its C ABI."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.blend_error_message.restype = ctypes.c_char_p
        self.ctx = ctypes.c_void_p()
        self._call(self.lib.blend_ctx_create, ctypes.byref(self.ctx), None)

    def _call(self, function, *args):
        error = ctypes.c_void_p()
        if function(*args, ctypes.byref(error)) < 0:
            message = self.lib.blend_error_message(error).decode("utf-8", "replace")
            self.lib.blend_error_free(error)
            raise RuntimeError(message)

    def open(self, path):
        model = ctypes.c_void_p()
        self._call(self.lib.blend_model_open, ctypes.byref(model), self.ctx, str(path).encode(), None)
        return model

    def close(self, model):
        self.lib.blend_model_close(model)

    def tokenize(self, model, text, flags):
        data = text.encode("utf-8", "surrogatepass")
        ids = (ctypes.c_int32 * (len(data) + 16))()
        n = ctypes.c_size_t()
        self._call(self.lib.blend_model_tokenize, model, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(flags), ids,
                   ctypes.c_size_t(len(ids)), ctypes.byref(n))
        return list(ids[:n.value])


# ---- A model of zeros around a vocabulary.

WIDTH = 8


def gguf_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def write_gguf(path, tokenizer_keys, n_keys, n_vocab, architecture="llama"):
    """tokenizer_keys: their bytes as they stand in a file."""
    keys = [gguf_string("general.architecture") + struct.pack("<I", 8) + gguf_string(architecture)]
    for name, value in {"block_count": 1, "embedding_length": WIDTH, "feed_forward_length": WIDTH, "context_length": 1 << 20,
                        "attention.head_count": 1}.items():
        keys.append(gguf_string(f"{architecture}.{name}") + struct.pack("<II", 4, value))
    keys.append(gguf_string(f"{architecture}.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5))
    square = [WIDTH, WIDTH]
    tensors = {"token_embd.weight": [WIDTH, n_vocab], "output_norm.weight": [WIDTH]}
    for part, dims in {"attn_norm": [WIDTH], "attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square,
                       "ffn_norm": [WIDTH], "ffn_gate": square, "ffn_up": square, "ffn_down": square}.items():
        tensors[f"blk.0.{part}.weight"] = dims
    head, offset = b"", 0
    for name, dims in tensors.items():
        n = 4
        for d in dims:
            n *= d
        head += gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
        offset += (n + 31) // 32 * 32
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + n_keys) + b"".join(keys) + tokenizer_keys + head
    path.write_bytes(out + bytes(-len(out) % 32) + bytes(offset))


def write_directory(path, tokenizer_json):
    import numpy
    from safetensors.numpy import save_file
    data = json.loads(tokenizer_json)
    ids = [*data["model"]["vocab"].values(), *(a["id"] for a in data.get("added_tokens", []))]
    path.mkdir()
    (path / "tokenizer.json").write_text(tokenizer_json)
    config = {"model_type": "llama", "hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1,
              "num_attention_heads": 1, "vocab_size": max(ids) + 1, "max_position_embeddings": 1 << 20,
              "tie_word_embeddings": True}
    (path / "config.json").write_text(json.dumps(config))
    square = numpy.zeros((WIDTH, WIDTH), numpy.float16)
    line = numpy.zeros(WIDTH, numpy.float16)
    tensors = {"model.embed_tokens.weight": numpy.zeros((max(ids) + 1, WIDTH), numpy.float16), "model.norm.weight": line}
    for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                 "mlp.up_proj", "mlp.down_proj"):
        tensors[f"model.layers.0.{part}.weight"] = square.copy()
    for part in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{part}.weight"] = line.copy()
    save_file(tensors, path / "model.safetensors")


# ---- Each kind of file: writes a model into `folder`; gives what it is, its path and
# [(library, flags, text -> ids)].

class LlamaCpp:
    """renamed: tokens that llama.cpp takes for control tokens because of their names, against their types."""

    def __init__(self, llama, special, renamed):
        self.llama, self.special, self.renamed = llama, special, renamed

    def __call__(self, text):
        return self.llama.tokenize(text.encode(), add_bos=False, special=self.special)


def from_gguf(path, folder):
    import gguf
    import llama_cpp
    reader = gguf.GGUFReader(path)
    keys = [f for name, f in reader.fields.items() if name.startswith("tokenizer.")]
    n_vocab = len(reader.fields["tokenizer.ggml.tokens"].data)
    name = reader.fields["tokenizer.ggml.model"].contents()
    if "tokenizer.ggml.pre" in reader.fields:
        name += " " + reader.fields["tokenizer.ggml.pre"].contents()
    model = folder / "model.gguf"
    architecture = reader.fields["general.architecture"].contents()
    write_gguf(model, b"".join(part.tobytes() for f in keys for part in f.parts), len(keys), n_vocab,
               architecture if architecture == "phi3" else "llama")
    llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    renamed = {True: [], False: []}
    if "tokenizer.ggml.token_type" in reader.fields:
        types = reader.fields["tokenizer.ggml.token_type"].contents()
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        for i, (token, kind) in enumerate(zip(tokens, types)):
            if kind in (1, 4) and token.startswith("<") and token.endswith(">"):
                ids = {s: llama.tokenize(token.encode(), add_bos=False, special=s) for s in (True, False)}
                if ids[True] == [i] != ids[False]:
                    renamed[kind == 1].append(token)
    return name, model, [("llama_cpp", SPECIAL, LlamaCpp(llama, True, renamed[True])),
                         ("llama_cpp", PLAIN, LlamaCpp(llama, False, renamed[False]))]


def tokenizers_ids(tokenizer):
    def ids(special):
        def encode(text):
            tokenizer.encode_special_tokens = not special
            return tokenizer.encode(text, add_special_tokens=False).ids
        return encode
    return [("tokenizers", SPECIAL, ids(True)), ("tokenizers", PLAIN, ids(False))]


def from_tokenizer_json(path, folder):
    import tokenizers
    write_directory(folder / "model", path.read_text())
    return "tokenizer.json", folder / "model", tokenizers_ids(tokenizers.Tokenizer.from_file(str(path)))


def from_ranks(ranks, pattern, folder):
    import tiktoken
    import tokenizers
    from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode
    byte_encoder = bytes_to_unicode()
    converter = TikTokenConverter(vocab_file=None, pattern=pattern, add_prefix_space=False)
    converter.extract_vocab_merges_from_model = lambda _: merges_of(ranks, byte_encoder)
    tokenizer = converter.converted()
    # The converter's other settings are those of Llama 3, whose tokenizer.json takes known words whole.
    data = json.loads(tokenizer.to_str())
    data["model"]["ignore_merges"] = True
    data["post_processor"] = None
    write_directory(folder / "model", json.dumps(data))
    encoding = tiktoken.Encoding("real", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    again = tokenizers.Tokenizer.from_str(json.dumps(data))
    return folder / "model", [("tiktoken", PLAIN, encoding.encode_ordinary)] + tokenizers_ids(again)


def merges_of(ranks, byte_encoder):
    """As transformers' converter: every way to make a token of two, by the token's rank."""
    text = lambda b: "".join(byte_encoder[x] for x in b)
    merges = []
    for token, rank in ranks.items():
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(left, right, rank) for left, right in sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    merges.sort(key=lambda m: m[2])
    return {text(t): rank for t, rank in ranks.items()}, [(text(a), text(b)) for a, b, _ in merges]


def from_tiktoken(path, folder):
    family = next((f for f in BPE_PATTERNS if f in str(path)), None)
    if family is None:
        raise RuntimeError("which pattern? the path names none of " + ", ".join(BPE_PATTERNS))
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return (f"tiktoken {family}", *from_ranks(ranks, BPE_PATTERNS[family], folder))


def from_tekken(path, folder):
    data = json.loads(path.read_text())
    size = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in data["vocab"][:size]}
    return (f"tekken {data['config'].get('version', '')}", *from_ranks(ranks, data["config"]["pattern"], folder))


def from_sentencepiece(path, folder):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    n = sp.vocab_size()
    kind = lambda i: (2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 5 if sp.is_unused(i) else 6 if sp.is_byte(i)
                      else 4 if is_user_defined(sp, i) else 1)
    keys = gguf_string("tokenizer.ggml.model") + struct.pack("<I", 8) + gguf_string("llama")
    keys += gguf_string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, n) + b"".join(gguf_string(sp.id_to_piece(i)) for i in range(n))
    keys += gguf_string("tokenizer.ggml.scores") + struct.pack(f"<IIQ{n}f", 9, 6, n, *(sp.get_score(i) for i in range(n)))
    keys += gguf_string("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{n}i", 9, 5, n, *(kind(i) for i in range(n)))
    # Gemma's has no space in front; the file says so.
    prefix = sp.encode("a", out_type=str)[0].startswith("\u2581")
    keys += gguf_string("tokenizer.ggml.add_space_prefix") + struct.pack("<IB", 7, prefix)
    write_gguf(folder / "model.gguf", keys, 5, n)
    return "SentencePiece", folder / "model.gguf", [("sentencepiece", PLAIN, sp.encode)]


def is_user_defined(sp, i):
    """SentencePiece does not say it: such pieces are cut out of the text whatever stands around them."""
    piece = sp.id_to_piece(i)
    return sp.get_score(i) == 0 and not piece.startswith("<0x") and not sp.is_control(i) and sp.encode("a" + piece + "a")[-2:-1] == [i]


def kind_of(path):
    name = path.name
    if name.endswith(".gguf"):
        return from_gguf
    if name.startswith("tekken") and name.endswith(".json"):
        return from_tekken
    if name.endswith("tokenizer.json"):
        return from_tokenizer_json
    if name.endswith(".tiktoken") or ".model" in name:
        with path.open("rb") as f:
            start = f.read(64)
        return from_tiktoken if start.split(b"\n")[0].split(b" ")[-1].isdigit() else from_sentencepiece
    return None


# ---- Texts.

def texts_for(path):
    corpus = [("corpus", t) for t in json.loads((HERE / "tokenizers" / "corpus.json").read_text())]
    inp, expected = path.with_name(path.name + ".inp"), []
    if inp.is_file():
        expected = inp.read_text(encoding="utf-8").split(SEPARATOR)
        corpus += [("inp", t) for t in expected]
    whole = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "src" / "fusion").glob("*.cpp"), *(ROOT / "examples" / "python").glob("*.py")])
    return corpus + [(str(p.relative_to(ROOT)), p.read_text(encoding="utf-8")) for p in whole], expected


def named_in_the_documents(name, reference, text):
    """The differences that docs/models.md gives reasons for."""
    if not isinstance(reference, LlamaCpp):
        return False
    return (("qwen2" in name or "qwen35" in name) and unicodedata.normalize("NFC", text) != text
            or any(piece in text for piece in reference.renamed))


def compare(blend, path, verbose):
    with tempfile.TemporaryDirectory() as temporary:
        name, model_path, references = kind_of(path)(path, pathlib.Path(temporary))
        model = blend.open(model_path)
        try:
            texts, expected = texts_for(path)
            wrong = 0
            for library, flags, reference in references:
                n = same = known = 0
                for what, text in texts:
                    want, got = reference(text), blend.tokenize(model, text, flags)
                    n += 1
                    if want == got:
                        same += 1
                    elif named_in_the_documents(name, reference, text):
                        known += 1
                    elif verbose:
                        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
                        print(f"    {library} {flags} {what} {text[:50]!r} at {at}: {got[at:at + 6]}, they have {want[at:at + 6]}")
                wrong += n - same - known
                print(f"{path.name:44} {name:20} {library:14} {'special' if flags else 'plain':8} {same:4} of {n}"
                      + (f", {known} named" if known else "") + (f", {n - same - known} DIFFER" if n != same + known else ""), flush=True)
            out = path.with_name(path.name + ".out")
            if expected and out.is_file():
                want = [[int(x) for x in line.split()] for line in out.read_text().splitlines()]
                same = sum(w == blend.tokenize(model, t, PLAIN) for w, t in zip(want, expected))
                print(f"{path.name:44} {name:20} {'.out':14} {'plain':8} {same:4} of {len(want)}")
                wrong += len(want) - same
            return wrong
        finally:
            blend.close(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--library", default=str(ROOT / "build/release/src/capi/libblend.so"))
    parser.add_argument("--verbose", action="store_true", help="shows where ids differ")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    blend = Blend(args.library)
    files = [f for p in args.paths for f in (sorted(p.rglob("*")) if p.is_dir() else [p]) if f.is_file() and kind_of(f)]
    wrong = 0
    for path in files:
        try:
            wrong += compare(blend, path, args.verbose)
        except RuntimeError as e:  # what is not supported says so
            print(f"{path.name:44} {str(e).rsplit(chr(39) + ': ', 1)[-1]}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
