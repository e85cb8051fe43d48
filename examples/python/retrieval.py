"""Documents to chunks, and BM25 over them: what stands in for a retriever of your own."""

import collections
import math
import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Chunk:
    """A piece of a document, small enough to be stored by itself."""

    document: str
    text: str
    tokens: np.ndarray  # int32 [n]


def split(text):
    """Paragraphs, which are cut at blank lines."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    return [paragraph for paragraph in paragraphs if paragraph]


def chunks_of(model, name, text, max_tokens=96):
    """Packs paragraphs, in order, into chunks of at most max_tokens; a paragraph that is longer goes
    by sentences, and a sentence that is longer is cut between tokens."""
    pieces = []
    for paragraph in split(text):
        if len(model.tokenize(paragraph + "\n")) <= max_tokens:
            pieces.append(paragraph + "\n")
        else:
            pieces += [sentence + "\n" for sentence in re.split(r"(?<=[.!?])\s+", paragraph)]
    chunks = []
    packed = ""
    for piece in pieces:
        if packed and len(model.tokenize(packed + piece)) > max_tokens:
            chunks.append(packed)
            packed = ""
        packed += piece
    if packed:
        chunks.append(packed)
    out = []
    for chunk in chunks:
        tokens = model.tokenize(chunk)
        for begin in range(0, len(tokens), max_tokens):
            part = tokens[begin:begin + max_tokens]
            out.append(Chunk(name, chunk if len(part) == len(tokens) else model.detokenize(part), part))
    return out


def words(text):
    return re.findall(r"\w+", text.lower())


class Bm25:
    """Okapi BM25. Not thread-safe while chunks are added."""

    K1 = 1.2
    B = 0.75

    def __init__(self):
        self.chunks = []
        self._counts = []
        self._lengths = []
        self._with_word = collections.Counter()

    def add(self, chunk):
        counts = collections.Counter(words(chunk.text))
        self.chunks.append(chunk)
        self._counts.append(counts)
        self._lengths.append(sum(counts.values()))
        self._with_word.update(counts.keys())

    def score(self, i, query):
        n = len(self.chunks)
        mean = sum(self._lengths) / n or 1.0
        total = 0.0
        for word in query:
            f = self._counts[i][word]
            if f:
                df = self._with_word[word]
                idf = math.log(1 + (n - df + 0.5) / (df + 0.5))
                total += idf * f * (self.K1 + 1) / (
                    f + self.K1 * (1 - self.B + self.B * self._lengths[i] / mean))
        return total

    def best(self, query, top):
        """The `top` chunks of the highest score, in the order they were added."""
        query = words(query)
        ranked = sorted(range(len(self.chunks)), key=lambda i: (-self.score(i, query), i))
        return [self.chunks[i] for i in sorted(ranked[:top])]


def store_chunks(model, store, chunks):
    """Precomputes chunks after what prompts begin with, in the context of similar ones. How many were
    new to the store."""
    records = model.precompute_corpus(store, [chunk.tokens for chunk in chunks],
                                      chunk_prefix=model.tokenize("", bos=True))
    return sum(not record.existed for record in records)


def prompt_of(model, chunks, question):
    """BOS, the chunks, the question."""
    prompt = model.prompt().bos()
    for chunk in chunks:
        prompt.chunk(chunk.tokens)
    return prompt.question(f"Question: {question}\nAnswer:")
