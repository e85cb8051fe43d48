"""Retrieval-augmented generation: documents in, an answer out, and what fusing saved.

    python rag.py [--docs FOLDER] [--question TEXT] [--model MODEL.gguf] [--store DIR]

The table compares three ways to the first token of the same prompt: full prefill, the stored caches
as they are, and those with the rows of highest KV deviation recomputed. Agreement is the share of
full prefill's answer tokens that are also the likeliest there; KL is of the distributions at those
tokens, in nats.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import numpy as np

import libblend
from retrieval import Bm25, chunks_of, prompt_of, store_chunks

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def follow(fusion, tokens):
    """Log probabilities before each of the tokens, [n_tokens, n_vocab]; decodes them."""
    rows = []
    for token in tokens:
        rows.append(log_softmax(fusion.logits))
        fusion.decode([token])
    return np.array(rows)


def compare(model, store, prompt, ratio, max_tokens, repeats=3):
    """A line a policy: name, median TTFT in ms, recomputed rows, agreement, KL, the answer."""
    lines = []
    reference = None
    for name, options in (("full", {"policy": "full"}), ("reuse", {"policy": "reuse"}),
                          ("hkvd", {"policy": "hkvd", "ratio": ratio})):
        options["reserve_tokens"] = max_tokens
        times = [model.fuse(store, prompt, **options).info.ttft_ns / 1e6 for _ in range(repeats)]
        fusion = model.fuse(store, prompt, **options)
        tokens = [token.id for token in fusion.generate(max_tokens)]
        selected = fusion.info.n_rows_selected
        fusion = model.fuse(store, prompt, **options)
        if reference is None:
            answer = tokens or [model.info.eos_token]
            reference = (answer, follow(fusion, answer))
            logs = reference[1]
        else:
            logs = follow(fusion, reference[0])
        agreement = float((logs.argmax(1) == reference[1].argmax(1)).mean())
        kl = float((np.exp(reference[1]) * (reference[1] - logs)).sum(1).mean())
        lines.append((name, statistics.median(times), selected, agreement, kl,
                      model.detokenize(tokens).strip()))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=EXAMPLES / "models" / "blend-qa.gguf")
    parser.add_argument("--docs", type=pathlib.Path, default=EXAMPLES / "data" / "documents")
    parser.add_argument("--question")
    parser.add_argument("--store", help="kept between runs; a temporary folder without it")
    parser.add_argument("--chunk-tokens", type=int, default=96)
    parser.add_argument("--top", type=int, default=6)
    parser.add_argument("--ratio", type=float, default=0.15)
    parser.add_argument("--max-tokens", type=int, default=32)
    args = parser.parse_args()
    question = args.question or (EXAMPLES / "data" / "question.txt").read_text().strip()
    files = sorted(args.docs.glob("*.txt")) + sorted(args.docs.glob("*.md"))
    if not files:
        sys.exit(f"no .txt or .md files in {args.docs}")

    with tempfile.TemporaryDirectory() as folder, libblend.Context() as ctx, \
            libblend.Model(ctx, args.model) as model, \
            libblend.Store(ctx, args.store or folder) as store:
        index = Bm25()
        for path in files:
            for chunk in chunks_of(model, path.name, path.read_text(), args.chunk_tokens):
                index.add(chunk)
        stored = store_chunks(model, store, index.chunks)
        print(f"{len(files)} documents, {len(index.chunks)} chunks, {stored} stored now")

        found = index.best(question, args.top)
        print("found in", ", ".join(dict.fromkeys(chunk.document for chunk in found)))
        prompt = prompt_of(model, found, question)
        print(f"\n{question}\n", end="", flush=True)
        with model.fuse(store, prompt, ratio=args.ratio, reserve_tokens=args.max_tokens) as fusion:
            for token in fusion.generate(args.max_tokens):
                print(token.text, end="", flush=True)
            info = fusion.info
        print(f"\n\n{info.n_rows} rows, {info.n_rows_reused} of them from the store\n")
        print(f"{'policy':8} {'TTFT ms':>8} {'recomputed':>11} {'agreement':>10} {'KL':>8}  answer")
        for name, ms, selected, agreement, kl, answer in compare(
                model, store, prompt, args.ratio, args.max_tokens):
            print(f"{name:8} {ms:8.2f} {selected:11d} {agreement:10.0%} {kl:8.4f}  {answer}")


if __name__ == "__main__":
    try:
        main()
    except libblend.BlendError as error:
        sys.exit(f"{error} ({type(error).__name__})")
