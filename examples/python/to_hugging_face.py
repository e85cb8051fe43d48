#!/usr/bin/env python3
"""Makes the Hugging Face directory of the example model from its GGUF file: the same weights, to the bit.

    python3 examples/python/to_hugging_face.py FOLDER

examples/models/blend-qa-hf has the configuration and the tokenizer; the weights are in the tree once. Reads
what tools/train/export.py writes (GGUF v3, F16 matrices, F32 norms), and needs no package.
"""

import json
import pathlib
import shutil
import struct
import sys
import tempfile

MODELS = pathlib.Path(__file__).resolve().parents[1] / "models"
GGUF = MODELS / "blend-qa.gguf"
FILES = MODELS / "blend-qa-hf"

# GGUF's name of a layer's tensor, and Hugging Face's.
LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}
NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
F32, F16 = 0, 1


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        n = self.number("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode(errors="replace")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            kind, n = self.number("<I"), self.number("<Q")
            return [self.value(kind) for _ in range(n)]
        return self.number(NUMBERS[kind])


def read_gguf(path):
    """The keys, and of each tensor its type, shape (rows first) and bytes."""
    data = path.read_bytes()
    r = Reader(data)
    if data[:4] != b"GGUF":
        sys.exit(f"{path} is not a GGUF file")
    r.at = 8
    n_tensors, n_keys = r.number("<Q"), r.number("<Q")
    keys = {}
    for _ in range(n_keys):
        name = r.string()
        keys[name] = r.value(r.number("<I"))
    tensors = {}
    for _ in range(n_tensors):
        name = r.string()
        shape = [r.number("<Q") for _ in range(r.number("<I"))][::-1]
        tensors[name] = (r.number("<I"), shape, r.number("<Q"))
    unit = keys.get("general.alignment", 32)
    base = (r.at + unit - 1) // unit * unit
    result = {}
    for name, (kind, shape, offset) in tensors.items():
        size = {F32: 4, F16: 2}[kind]
        for n in shape:
            size *= n
        result[name] = (kind, shape, data[base + offset:base + offset + size])
    return keys, result


def split_halves(data, shape, heads):
    """Rows of Q or K from GGUF's neighbouring pairs to Hugging Face's halves."""
    rows, row = shape[0], len(data) // shape[0]
    per_head = rows // heads
    order = [h * per_head + 2 * i + half for h in range(heads) for half in (0, 1) for i in range(per_head // 2)]
    return b"".join(data[r * row:(r + 1) * row] for r in order)


def convert(folder):
    keys, tensors = read_gguf(GGUF)
    heads = {"attn_q": keys["llama.attention.head_count"], "attn_k": keys["llama.attention.head_count_kv"]}
    found = {}
    for name, (kind, shape, data) in tensors.items():
        parts = name.removesuffix(".weight").split(".")
        if parts[0] == "blk":
            theirs = f"model.layers.{parts[1]}.{LAYER[parts[2]]}.weight"
            if parts[2] in heads:
                data = split_halves(data, shape, heads[parts[2]])
        else:
            theirs = f"{WHOLE[parts[0]]}.weight"
        found[theirs] = (kind, shape, data)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    names = sorted(found, key=lambda name: (found[name][0] != F32, name))  # as safetensors does
    for name in names:
        kind, shape, data = found[name]
        header[name] = {"dtype": {F32: "F32", F16: "F16"}[kind], "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES.glob("*.json"):
        shutil.copyfile(file, folder / file.name)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.writelines(found[name][2] for name in names)


SCRATCH = []  # removed when the program ends


def example_model():
    """A directory of the example model, for as long as this program runs."""
    SCRATCH.append(tempfile.TemporaryDirectory())
    folder = pathlib.Path(SCRATCH[-1].name, "blend-qa-hf")
    convert(folder)
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    convert(pathlib.Path(sys.argv[1]))
