"""The main job of libblend: precompute, fuse, generate.

    python quickstart.py [MODEL.gguf [STORE_DIR [QUESTION]]]

Five passages stand for a corpus. Their KV caches are computed once, each after what the prompt
begins with and in the context of similar passages, and kept in STORE_DIR; the prompt made of them and the question is then fused from the store, and the answer is
streamed. Run it twice with a STORE_DIR: the second time nothing is stored again.
"""

import pathlib
import sys
import tempfile

import libblend

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


def main(model_path=EXAMPLES / "models" / "blend-qa.gguf", store_path=None, question=None):
    passages = [p.read_text() for p in sorted((EXAMPLES / "data" / "documents").glob("*.txt"))]
    question = question or (EXAMPLES / "data" / "question.txt").read_text().strip()

    with tempfile.TemporaryDirectory() as folder, libblend.Context() as ctx, \
            libblend.Model(ctx, model_path) as model, \
            libblend.Store(ctx, store_path or folder) as store:
        # A fuse does so by itself, one passage at a time, with those that it does not find; all of them at
        # once serve each other as context.
        for record in model.precompute_texts(store, passages):
            print(record.id[:16], "was there" if record.existed else "stored")

        with model.fuse_texts(store, passages, question, reserve_tokens=64) as fusion:
            for token in fusion.generate(64):
                print(token.text, end="", flush=True)
            info = fusion.info
            print(f"\n\nfirst token after {info.ttft_ns / 1e6:.2f} ms: {info.n_rows} rows, "
                  f"{info.n_rows_reused} from the store, {info.n_rows_selected} of them recomputed")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except libblend.BlendError as error:
        sys.exit(f"{error} ({type(error).__name__})")
