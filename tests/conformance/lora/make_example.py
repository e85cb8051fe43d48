#!/usr/bin/env python3
"""Writes blend-qa.gguf, a random LoRA adapter of examples/models/blend-qa.gguf, for tests of the command and of
the bindings. Needs numpy and gguf.

    make_example.py
"""
import pathlib

import gguf
import numpy

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[2] / "examples" / "models" / "blend-qa.gguf"
RANK = 2


def main():
    model = gguf.GGUFReader(MODEL)
    rng = numpy.random.default_rng(1)
    out = gguf.GGUFWriter(HERE / "blend-qa.gguf", "llama")
    out.add_type(gguf.GGUFType.ADAPTER)
    out.add_string(gguf.Keys.Adapter.TYPE, "lora")
    out.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 4)
    for tensor in model.tensors:
        if tensor.name not in ("blk.0.attn_v.weight", "blk.1.ffn_down.weight"):
            continue
        into, rows = (int(n) for n in tensor.shape)
        out.add_tensor(tensor.name + ".lora_a", rng.normal(0, into ** -0.5, (RANK, into)).astype(numpy.float16))
        out.add_tensor(tensor.name + ".lora_b", rng.normal(0, 1, (rows, RANK)).astype(numpy.float16))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
