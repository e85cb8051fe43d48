#!/usr/bin/env python3
"""What would a store gain that kept two forms of a chunk, the one it was computed in and a small one?

    bench/two_forms.py --full-ms 360 > table.md

By the arithmetic of src/control/pass_cost.*, for the prompt of bench_controller (4 chunks of 192 tokens, 32 of a
question, shape 30m, hkvd at 15 %, the first chunk exact): for each chunk of what the store has of it, load a form or
compute; the soonest set, and of sets that are as soon the one that rounds fewest rows. A store of one form has that
form; one of two has both. A form's bytes are bits an element of 16, as `blend eval --codecs` measures them.
"""
import argparse
import itertools

LAYERS, D, FF, KV, Q = 16, 384, 1024, 128, 384
CHUNK, CHUNKS, QUESTION, RATIO, CHECK = 192, 4, 32, 0.15, 1
FORMS = {"f16": 16.0, "int8": 9.2, "int4": 5.26, "rans": 3.41}
AS_SOON = 1.005


def costs_of_a_row(full_s):
    n = CHUNK * CHUNKS + QUESTION
    kv = 2 * D * 2 * KV
    rest = 2 * (2 * D * Q + 3 * D * FF) + n / 2 * 4 * Q
    whole = n * (LAYERS * kv + (LAYERS - 1) * rest) + rest
    return full_s * kv / whole, full_s * rest / whole


def seconds(choice, rate, full_s):
    """choice: for each chunk its bits, or None where it is computed."""
    kv_s, rest_s = costs_of_a_row(full_s)
    layer_s = [0 if bits is None else CHUNK * 2 * KV * bits / 8 / rate for bits in choice]
    stale = [i for i in range(1, CHUNKS) if choice[i] is not None]
    always = QUESTION + CHUNK * sum(bits is None for bits in choice)
    reused = CHUNK * sum(bits is not None for bits in choice)
    rows = CHUNK * len(stale)
    loaded = computed = 0.0
    for layer in range(LAYERS):
        load = layer_s[0] + (sum(layer_s[i] for i in stale) if layer >= CHECK else 0)
        computed += (always + rows) * kv_s  # before the stored layer is waited for
        if load:
            loaded += load
            computed = max(computed, loaded)
        if layer == CHECK:
            rows = min(rows, -(-RATIO * reused // 1))
        computed += (1 if layer + 1 == LAYERS else always + rows) * rest_s
    return computed


def best(forms, rate, full_s):
    """The soonest seconds, and the share of the chunks' rows that are loaded rounded then."""
    sets = [(seconds(c, rate, full_s), sum(b is not None and b < 16 for b in c) / CHUNKS)
            for c in itertools.product([None] + forms, repeat=CHUNKS)]
    soonest = min(sets)[0]
    return soonest, min(rounded for s, rounded in sets if s <= soonest * AS_SOON)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--full-ms", type=float, required=True, help="of computing all, as bench_controller prints it")
    parser.add_argument("--gb", default="0.002,0.005,0.01,0.02,0.05,0.2,1,2,5", help="GB/s of the devices")
    args = parser.parse_args()
    full_s = args.full_ms * 1e-3
    print("| GB/s | " + " | ".join(f"{name} alone" for name in FORMS) + " | f16 and rans | rounded then |")
    print("|---" * (len(FORMS) + 3) + "|")
    for gb in map(float, args.gb.split(",")):
        cells = [f"{best([bits], gb * 1e9, full_s)[0] * 1e3:.0f}" for bits in FORMS.values()]
        both, rounded = best([16.0, FORMS["rans"]], gb * 1e9, full_s)
        print(f"| {gb:g} | " + " | ".join(cells) + f" | {both * 1e3:.0f} | {rounded * 100:.0f} % |")


if __name__ == "__main__":
    main()
