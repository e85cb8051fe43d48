"""Documents and a question in, an answer out: python smallest.py [MODEL.gguf [STORE_DIR]]"""

import sys

import libblend


def main(model="examples/models/blend-qa.gguf", store="blend-store"):
    documents = ["Hugo Rask works at the south inn.", "There he guards the square anchor."]
    with libblend.Context() as ctx, libblend.Model(ctx, model) as model, libblend.Store(ctx, store) as store:
        fusion = model.fuse_texts(store, documents, "What does Hugo Rask guard?")
        for token in fusion.generate():
            print(token.text, end="", flush=True)
        print()


main(*sys.argv[1:])
