"""Prefill time of llama.cpp on a GGUF file, for bench_ttft and bench_prefill. Prints one JSON object.

usage: llama_cpp_prefill.py MODEL TOKENS THREADS REPEAT [FLASH]

FLASH: on, off, or both (the default): the faster of the two is the peer. Exits 3 with a sentence on
stderr where the llama_cpp package is not installed.
"""

import json
import os
import sys
import time


def peak_resident_bytes() -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    model, tokens, threads, repeat = sys.argv[1], *map(int, sys.argv[2:5])
    flash_settings = {"on": (True,), "off": (False,), "both": (False, True)}[(sys.argv[5:] or ["both"])[0]]
    try:
        from llama_cpp import Llama, llama_print_system_info
    except ImportError:
        print("llama.cpp skipped: no Python package llama_cpp for", sys.executable, file=sys.stderr)
        return 3
    threads = threads or len(os.sched_getaffinity(0))
    best = None
    for flash in flash_settings:
        llm = Llama(model_path=model, n_ctx=tokens + 8, n_batch=512, n_threads=threads,
                    n_threads_batch=threads, flash_attn=flash, verbose=False)
        prompt = [259 + (i * 7919) % (llm.n_vocab() - 259) for i in range(tokens)]
        times = []
        for i in range(repeat + 1):
            llm.reset()
            begin = time.perf_counter()
            llm.eval(prompt if i > 0 else prompt[:512])  # the first warms up
            if i > 0:
                times.append((time.perf_counter() - begin) * 1e3)
        median = sorted(times)[len(times) // 2]
        if best is None or median < best["ttft_ms"]:
            best = {"name": "llama.cpp" + (" (flash)" if flash else ""), "ttft_ms": median,
                    "all_ms": times, "rows": tokens, "rows_always": tokens}
        del llm
    best["system_info"] = llama_print_system_info().decode()  # what it was built for
    best["peak_bytes"] = peak_resident_bytes()  # of whichever setting took more
    print(json.dumps(best))
    return 0


if __name__ == "__main__":
    sys.exit(main())
