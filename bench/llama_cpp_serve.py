"""Tokens a second of N sequences that llama.cpp decodes together, for bench_serve. Prints one JSON object.

usage: llama_cpp_serve.py MODEL CONTEXT THREADS TOKENS AT_ONCE[,AT_ONCE...]

As its server does with as many slots, without HTTP and sampling: the prompts each in its own sequence,
then one llama_decode() of a token of every sequence, again and again, through the C interface.
Exits 3 with a sentence on stderr where the llama_cpp package is not installed.
"""

import json
import os
import sys
import time


def main() -> int:
    model, context, threads, tokens = sys.argv[1], *map(int, sys.argv[2:5])
    at_once = [int(n) for n in sys.argv[5].split(",")]
    try:
        import llama_cpp
    except ImportError:
        print("llama.cpp skipped: no Python package llama_cpp for", sys.executable, file=sys.stderr)
        return 3
    threads = threads or len(os.sched_getaffinity(0))
    llama_cpp.llama_backend_init()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, None)
    loaded = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
    if not loaded:
        print("llama.cpp cannot load", model, file=sys.stderr)
        return 1
    n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(loaded))

    def put(batch, token, place, sequence, logits):
        i = batch.n_tokens
        batch.token[i], batch.pos[i], batch.logits[i] = token, place, logits
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        batch.n_tokens += 1

    def rate(n, flash, unified):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n * (context + tokens + 8)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = n
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = 1 if flash else 0
        params.kv_unified = unified
        ctx = llama_cpp.llama_init_from_model(loaded, params)
        batch = llama_cpp.llama_batch_init(max(512, n), 0, 1)
        try:
            for s in range(n):
                for first in range(0, context, 512):
                    batch.n_tokens = 0
                    for i in range(first, min(context, first + 512)):
                        put(batch, 259 + (i * 7919 + s) % (n_vocab - 259), i, s, i + 1 == context)
                    if llama_cpp.llama_decode(ctx, batch) != 0:
                        raise RuntimeError("llama.cpp failed to prefill")
            llama_cpp.llama_synchronize(ctx)
            begin = time.perf_counter()
            for t in range(tokens):
                batch.n_tokens = 0
                for s in range(n):
                    put(batch, 259 + (t * 104729 + s) % (n_vocab - 259), context + t, s, True)
                if llama_cpp.llama_decode(ctx, batch) != 0:
                    raise RuntimeError("llama.cpp failed to decode")
                llama_cpp.llama_get_logits_ith(ctx, n - 1)  # waits for the results
            return n * tokens / (time.perf_counter() - begin)
        finally:
            llama_cpp.llama_batch_free(batch)
            llama_cpp.llama_free(ctx)

    out = []
    for n in at_once:  # its best setting is the peer
        settings = [(flash, unified) for flash in (False, True) for unified in ((False, True) if n > 1
                                                                               else (True,))]
        best, flash, unified = max((rate(n, *s), *s) for s in settings)
        out.append({"at_once": n, "tokens_per_s": best, "flash": flash, "unified": unified})
    print(json.dumps({"rows": out, "system_info": llama_cpp.llama_print_system_info().decode()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
