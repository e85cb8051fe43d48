"""LlamaIndex: a query engine whose nodes go to the model as chunks, not as pasted text.

    python with_llama_index.py [--model MODEL.gguf] [--store DIR] [--question TEXT]
"""

import argparse
import pathlib
import tempfile
from typing import List

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from libblend.llama_index import BlendLLM, BlendSynthesizer
from retrieval import Bm25

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]


class Passages(BaseRetriever):
    """Any retriever of LlamaIndex will do, that of an index as well."""

    def __init__(self, nodes: List[TextNode], n: int = 5) -> None:
        super().__init__()
        self._index, self._n = Bm25(), n
        for node in nodes:
            self._index.add(node)

    def _retrieve(self, query_bundle: QueryBundle) -> List[NodeWithScore]:
        return [NodeWithScore(node=node, score=1.0) for node in self._index.best(query_bundle.query_str, self._n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=str(EXAMPLES / "models" / "blend-qa.gguf"))
    parser.add_argument("--store", help="directory to keep the chunks in; default: a temporary one")
    parser.add_argument("--question", default=(EXAMPLES / "data" / "question.txt").read_text().strip())
    args = parser.parse_args()
    nodes = [TextNode(text=path.read_text()) for path in sorted((EXAMPLES / "data" / "documents").glob("*.txt"))]
    with tempfile.TemporaryDirectory() as scratch:
        llm = BlendLLM(model=args.model, store=args.store or scratch,
                       generate_options={"max_tokens": 32})
        llm.precompute(nodes)
        synthesizer = BlendSynthesizer(llm, question="Question: {query}\nAnswer:")
        engine = RetrieverQueryEngine(Passages(nodes), response_synthesizer=synthesizer)
        response = engine.query(args.question)
        print(str(response).strip())
        for node in response.source_nodes:
            print("  from:", node.get_content()[:60].strip())


if __name__ == "__main__":
    main()
