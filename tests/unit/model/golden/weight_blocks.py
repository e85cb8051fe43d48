"""Writes weight_blocks.txt: blocks of every quantized type that libblend reads and what gguf-py's
dequantize makes of them. Run with gguf and numpy installed:

    python3 tests/unit/model/golden/weight_blocks.py > tests/unit/model/golden/weight_blocks.txt

A line: type, the blocks in hex, the values as little-endian f32 in hex. The blocks are random bytes,
so that every bit of a block matters, but for their scales, which are random numbers of a sane size.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets of the halves that are scales.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
N_BLOCKS = 3


def main():
    rng = np.random.default_rng(1)
    for name, scales in SCALES.items():
        kind = GGMLQuantizationType[name]
        _, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
        for at in scales:
            values = (rng.normal(size=N_BLOCKS) * 0.05).astype(np.float16)
            blocks[:, at:at + 2] = values.view(np.uint8).reshape(N_BLOCKS, 2)
        values = dequantize(blocks.reshape(-1), kind).astype("<f4")
        print(name.lower(), blocks.tobytes().hex(), values.tobytes().hex())


if __name__ == "__main__":
    main()
