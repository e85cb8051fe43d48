"""Writes hf_tensors.json: weights as quantized directories hold them, and what transformers and
compressed-tensors make of them. Run with torch, transformers, safetensors and compressed-tensors installed:

    python3 tests/unit/model/golden/hf_tensors.py > tests/unit/model/golden/hf_tensors.json

A case: quantization_config, the dtype of config.json, the safetensors file in hex, the name of a matrix that
the model asks for, its shape, its values as little-endian f32 in hex. Codes are random, so that every bit of
them matters.
"""

import json

import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors


def case(name, config, dtype, tensors, values):
    values = values.to(torch.float32).contiguous()
    return {"name": name, "dtype": dtype, "quantization_config": config,
            "file": save(tensors, metadata={"format": "pt"}).hex(), "shape": list(values.shape),
            "values": values.numpy().astype("<f4").tobytes().hex()}


def fp8(rows, cols, block, dtype, scale_dtype=torch.float32):
    """Every code there is but NaN; scales of which no two are alike."""
    codes = torch.randint(0, 256, (rows, cols), dtype=torch.uint8)
    codes.view(-1)[:256] = torch.arange(256)
    codes[codes & 0x7F == 0x7F] = 3
    weight = codes.view(torch.float8_e4m3fn)
    grid = (-(-rows // block[0]), -(-cols // block[1]))
    scales = (torch.rand(grid) * 0.01 + 1e-3).to(scale_dtype)
    # transformers wants whole blocks: it sees the matrix padded.
    padded = torch.zeros(grid[0] * block[0], grid[1] * block[1])
    padded[:rows, :cols] = weight.to(torch.float32)
    values = Fp8Dequantize(None)._dequantize_one(padded, scales, getattr(torch, dtype))[:rows, :cols]
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": list(block), "modules_to_not_convert": ["lm_head"]}
    return case(f"fp8 {rows} x {cols} {dtype}", config, dtype,
                {"m.weight": weight, "m.weight_scale_inv": scales}, values)


def packed(bits, rows, cols, group, scale_dtype):
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=True, group_size=group,
                            strategy="group" if group else "channel")
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    scales = (torch.rand(rows, cols // (group or cols)) * 0.02 + 1e-3).to(scale_dtype)
    half = 2 ** (bits - 1)
    wanted = torch.randint(-half, half, (rows, cols))
    weight = wanted * scales.repeat_interleave(cols // scales.shape[1], 1).to(torch.float32)
    state = {"weight": weight, "weight_scale": scales.to(torch.float32)}
    files = PackedQuantizationCompressor.compress(state, scheme)
    values = PackedQuantizationCompressor.decompress(files, scheme)["weight"]
    assert values.dtype == torch.float32
    files["weight_scale"] = scales
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
              "kv_cache_scheme": None, "quantization_status": "compressed",
              "config_groups": {"group_0": scheme.model_dump(mode="json")}}
    return case(f"int{bits} {rows} x {cols} by {group} {scale_dtype}", config, "bfloat16",
                {f"m.{k}": v.contiguous() for k, v in files.items()}, values)


def mxfp4():
    blocks = torch.randint(0, 256, (3, 8, 2, 16), dtype=torch.uint8)
    scales = torch.randint(118, 130, (3, 8, 2), dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)  # [count, cols, rows]
    values = values.transpose(1, 2)
    gate_first = torch.cat([values[:, ::2], values[:, 1::2]], 1)
    return case("mxfp4", {"quant_method": "mxfp4"}, "bfloat16",
                {"m.experts_blocks": blocks, "m.experts_scales": scales}, gate_first)


def main():
    torch.manual_seed(1)
    cases = [fp8(16, 32, (8, 8), "float32"), fp8(20, 30, (8, 8), "bfloat16"),
             fp8(20, 30, (8, 8), "float16", torch.bfloat16),
             packed(4, 5, 128, 64, torch.float16), packed(4, 3, 96, 32, torch.bfloat16),
             packed(4, 3, 96, None, torch.bfloat16), packed(4, 4, 40, 8, torch.float16),
             packed(8, 3, 64, 32, torch.float16), packed(8, 3, 36, None, torch.bfloat16),
             packed(4, 3, 64, 32, torch.float32), mxfp4()]
    print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")


if __name__ == "__main__":
    main()
