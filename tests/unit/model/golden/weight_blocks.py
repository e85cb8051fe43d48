"""Writes weight_blocks.txt: blocks of every quantized type that libblend reads and what gguf-py's
dequantize makes of them. Run with gguf and numpy installed:

    python3 tests/unit/model/golden/weight_blocks.py > tests/unit/model/golden/weight_blocks.txt

A line: type, the blocks in hex, the values as little-endian f32 in hex. The blocks are random bytes,
so that every bit of a block matters, but for their scales, which are random numbers of a sane size.
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

# Byte offsets of the halves that are scales. The scales of MXFP4 and NVFP4 are bytes, and any will do.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108],
          "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": [], "IQ2_XXS": [0], "IQ2_XS": [0],
          "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": None,
          "TQ1_0": [52], "TQ2_0": [64]}
N_BLOCKS = 3


def put_scale(blocks, at, values):
    """Puts halves at byte `at`; None: in the upper four bits of the last four 16-bit words (IQ1_M)."""
    if at is not None:
        blocks[:, at:at + 2] = values.view(np.uint8).reshape(-1, 2)
        return
    words = blocks[:, 48:].view("<u2")
    for i in range(4):
        words[:, i] = words[:, i] & 0x0FFF | (values.view("<u2") >> 4 * i & 15) << 12


def main():
    rng = np.random.default_rng(1)
    for name, scales in SCALES.items():
        kind = GGMLQuantizationType[name]
        _, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
        for at in [None] if scales is None else scales:
            put_scale(blocks, at, (rng.normal(size=N_BLOCKS) * 0.05).astype(np.float16))
        values = dequantize(blocks.reshape(-1), kind).astype("<f4")
        print(name.lower(), blocks.tobytes().hex(), values.tobytes().hex())


if __name__ == "__main__":
    main()
