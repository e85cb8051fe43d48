"""Time of a generated token of llama.cpp on a GGUF file, for bench_decode. Prints one JSON object.

usage: llama_cpp_decode.py MODEL CONTEXT THREADS TOKENS

Decoding alone, through the C interface: nothing is sampled, no Python object made of the logits.
Exits 3 with a sentence on stderr where the llama_cpp package is not installed.
"""

import ctypes
import json
import os
import sys
import time


def main() -> int:
    model, context, threads, tokens = sys.argv[1], *map(int, sys.argv[2:5])
    try:
        import llama_cpp
    except ImportError:
        print("llama.cpp skipped: no Python package llama_cpp for", sys.executable, file=sys.stderr)
        return 3
    threads = threads or len(os.sched_getaffinity(0))
    best = None
    for flash in (False, True):  # its better setting is the peer
        llm = llama_cpp.Llama(model_path=model, n_ctx=context + tokens + 8, n_batch=512,
                              n_threads=threads, n_threads_batch=threads, flash_attn=flash,
                              verbose=False)
        llm.eval([259 + (i * 7919) % (llm.n_vocab() - 259) for i in range(context)])
        token = (ctypes.c_int32 * 1)()
        times = []
        for i in range(tokens):
            token[0] = 259 + (i * 104729) % (llm.n_vocab() - 259)
            begin = time.perf_counter()
            if llama_cpp.llama_decode(llm.ctx, llama_cpp.llama_batch_get_one(token, 1)) != 0:
                print("llama.cpp failed to decode", file=sys.stderr)
                return 1
            llama_cpp.llama_get_logits(llm.ctx)  # waits for the result
            times.append((time.perf_counter() - begin) * 1e3)
        median = sorted(times)[len(times) // 2]
        if best is None or median < best["token_ms"]:
            best = {"token_ms": median, "flash": flash}
        del llm
    best["system_info"] = llama_cpp.llama_print_system_info().decode()  # what it was built for
    print(json.dumps(best))
    return 0


if __name__ == "__main__":
    sys.exit(main())
