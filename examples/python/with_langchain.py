"""LangChain: a retriever's documents go to the model as chunks, not as pasted text.

    python with_langchain.py [--model MODEL.gguf] [--store DIR] [--question TEXT]
"""

import argparse
import pathlib
import tempfile
from typing import Any, List

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from libblend.langchain import ChatBlend, answering
from retrieval import Bm25, Chunk

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


class Passages(BaseRetriever):
    """Any retriever of LangChain will do."""

    index: Any
    n: int = 5

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> List[Document]:
        return [Document(page_content=chunk.text) for chunk in self.index.best(query, self.n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=str(EXAMPLES / "models" / "blend-qa.gguf"))
    parser.add_argument("--store", help="directory to keep the chunks in; default: a temporary one")
    parser.add_argument("--question", default=(EXAMPLES / "data" / "question.txt").read_text().strip())
    args = parser.parse_args()
    index = Bm25()
    for path in sorted((EXAMPLES / "data" / "documents").glob("*.txt")):
        index.add(Chunk(path.name, path.read_text(), np.empty(0, np.int32)))
    retriever = Passages(index=index)
    with tempfile.TemporaryDirectory() as scratch:
        llm = ChatBlend(model=args.model, store=args.store or scratch,
                        generate_options={"max_tokens": 32})
        llm.precompute([chunk.text for chunk in index.chunks])
        chain = (lambda question: f"Question: {question}\nAnswer:") | answering(llm, retriever)
        for piece in chain.stream(args.question):
            print(piece.content, end="", flush=True)
        print()
        account = chain.invoke(args.question).response_metadata
        print(f"{account['rows_reused']} rows reused, {account['rows_recomputed']} of them recomputed, "
              f"first token after {account['ttft_ms']:.1f} ms")


if __name__ == "__main__":
    main()
