#!/usr/bin/env python3
"""What bench_real asks llama.cpp's `llama-bench`, answered by its Python package xllamacpp.

usage: llama_bench.py -m MODEL -t THREADS -p PROMPT -n TOKENS [-d CONTEXT] [-fa 0|1] [-r RUNS] [-o json]

For machines that have the package and not the program: bench_real MODEL --llama-bench bench/llama_bench.py
Either -p (a prefill of so many tokens) or -n (so many tokens decoded after CONTEXT others) is measured, the
other is 0. The times are those that llama.cpp itself reports.
"""

import argparse
import json
import statistics
import sys


def server_of(xllamacpp, args, n_ctx):
    params = xllamacpp.CommonParams()
    params.model.path = args.m
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.t
    params.n_ctx = n_ctx
    params.n_parallel = 1
    params.verbosity = -1
    flash = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = (flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.fa
                              else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    return xllamacpp.Server(params)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", required=True)
    for name, usual in (("-t", 1), ("-p", 0), ("-n", 0), ("-d", 0), ("-fa", 1), ("-r", 3)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("-o", choices=["json"], default="json")
    args = parser.parse_args()
    try:
        import xllamacpp
    except ImportError:
        print("llama.cpp skipped: no Python package xllamacpp for", sys.executable, file=sys.stderr)
        return 3
    n_prompt = args.p or max(args.d, 1)
    n_decoded = args.n or 1
    server = server_of(xllamacpp, args, n_prompt + n_decoded + 64)
    rates = []
    for run in range(args.r + 1):
        # The first token differs, so that no run finds the prompt of the one before in its cache.
        prompt = [300 + run] + [300 + i * 7919 % 20000 for i in range(1, n_prompt)]
        times = server.handle_completions({"prompt": prompt, "n_predict": n_decoded, "temperature": 0,
                                           "ignore_eos": True, "cache_prompt": False})["timings"]
        if run > 0:  # the first one opens the file
            rates.append(times["predicted_per_second" if args.n else "prompt_per_second"])
    print(json.dumps([{"avg_ts": statistics.mean(rates), "n_prompt": args.p, "n_gen": args.n,
                       "n_depth": args.d, "n_threads": args.t, "by": "xllamacpp"}]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
