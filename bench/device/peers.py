"""Full prefill by transformers (SDPA), attention by torch SDPA, and the card's own rates, for the
shapes that bench_device ran; prints them beside its figures.

  python3 bench/device/peers.py --shape 8b --tokens 1024,4096 --ours device.json --json peers.json
"""
import argparse
import json
import statistics
import sys

SHAPES = {  # layers, d_model, heads, kv heads, d_ff, vocabulary: as bench/device/device.cpp
    "8b": (32, 4096, 32, 8, 14336, 32000),
    "1b": (16, 2048, 32, 8, 8192, 32000),
    "tiny": (4, 64, 4, 2, 192, 512),
}


def timed_ms(torch, work, repeat):
    """Median time of `work` on the device, by events."""
    work()
    times = []
    for _ in range(repeat):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def card_rates(torch, repeat):
    n = 8192
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    gemm = 2 * n**3 / timed_ms(torch, lambda: a @ b, repeat) * 1e3
    big = torch.empty(1 << 31, device="cuda", dtype=torch.uint8)
    copy = 2 * (big.numel() // 2) / timed_ms(
        torch, lambda: big[: 1 << 30].copy_(big[1 << 30 :]), repeat) * 1e3
    host = torch.empty(1 << 29, dtype=torch.uint8, pin_memory=True)
    bus = host.numel() / timed_ms(
        torch, lambda: big[: host.numel()].copy_(host, non_blocking=True), repeat) * 1e3
    return {"bf16_gemm_per_s": gemm, "device_copy_bytes_per_s": copy, "pinned_copy_bytes_per_s": bus}


def sdpa_prefill(torch, shape, tokens, repeat):
    """Milliseconds of one full prefill up to the last row's logits; None without transformers."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        print(f"transformers is not installed ({error}): its prefill is left out")
        return {}
    layers, d, heads, kv_heads, d_ff, vocab = SHAPES[shape]
    config = LlamaConfig(
        hidden_size=d, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=d_ff, vocab_size=vocab,
        max_position_embeddings=40960, rope_theta=500000.0, attn_implementation="sdpa")
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    out = {}
    with torch.inference_mode():
        for n in tokens:
            ids = torch.randint(3, vocab, (1, n), device="cuda")
            out[n] = timed_ms(
                torch, lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1), repeat)
    del model
    torch.cuda.empty_cache()
    torch.set_default_dtype(torch.float32)
    return out


def sdpa_attention(torch, shape, tokens, repeat):
    _, d, heads, kv_heads, _, _ = SHAPES[shape]
    dim = d // heads
    out = {}
    for n in tokens:
        make = lambda h: torch.randn(1, h, n, dim, device="cuda", dtype=torch.bfloat16)
        q, k, v = make(heads), make(kv_heads), make(kv_heads)
        out[n] = timed_ms(torch, lambda: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True), repeat)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="8b", choices=sorted(SHAPES))
    parser.add_argument("--tokens", default="1024,4096,16384")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ours", help="what bench_device wrote")
    parser.add_argument("--json")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"PyTorch is not installed ({error}): there is nothing to compare with")
        return 0
    if not torch.cuda.is_available():
        print("PyTorch sees no CUDA device")
        return 0
    tokens = [int(t) for t in args.tokens.split(",")]
    rates = card_rates(torch, args.repeat)
    prefill = sdpa_prefill(torch, args.shape, tokens, args.repeat)
    attention = sdpa_attention(torch, args.shape, tokens, args.repeat)
    ours = json.load(open(args.ours)) if args.ours else {"ttft": [], "kernels": []}

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"bf16 GEMM {rates['bf16_gemm_per_s'] * 1e-12:.0f} TFLOP/s, device copy "
          f"{rates['device_copy_bytes_per_s'] * 1e-12:.2f} TB/s, pinned to device "
          f"{rates['pinned_copy_bytes_per_s'] * 1e-9:.1f} GB/s\n")
    print(f"{'tokens':>7} {'from':<6} {'policy':<14} {'TTFT ms':>9} {'x below transformers':>21}")
    for n in tokens:
        if n in prefill:
            print(f"{n:>7} {'-':<5} {'transformers':<14} {prefill[n]:>9.2f} {1:>20.2f}x")
        for row in ours["ttft"]:
            if row["tokens"] != n:
                continue
            times = f"{prefill[n] / row['ttft_ms']:>20.2f}x" if n in prefill else ""
            print(f"{n:>7} {row['from']:<6} {row['policy']:<14} {row['ttft_ms']:>9.2f} {times}")
    _, d, _, _, _, _ = SHAPES[args.shape]
    print(f"\n{'tokens':>7} {'attention, all rows':<22} {'ms':>9} {'TFLOP/s':>9} {'of GEMM':>8}")
    for n in tokens:
        flops = 2 * n * (n + 1) * d  # the unmasked half, both products
        lines = [("torch SDPA", attention[n])]
        lines += [("ours", row["ms"]) for row in ours["kernels"]
                  if row["kernel"] == "attention, all rows" and row["tokens"] == n]
        for name, ms in lines:
            rate = flops / ms * 1e3
            print(f"{n:>7} {name:<22} {ms:>9.3f} {rate * 1e-12:>9.1f} "
                  f"{rate / rates['bf16_gemm_per_s']:>7.0%}")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "rates": rates, "sdpa_prefill_ms": prefill,
                       "sdpa_attention_ms": attention}, out, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
