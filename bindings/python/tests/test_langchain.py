"""libblend.langchain with the real package."""

import asyncio
import importlib.util
import unittest

import libblend
from support import ANSWER, DOCUMENTS, MODEL, QUESTION, Case, run_example

HAS = bool(importlib.util.find_spec("langchain_core"))
if HAS:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
    from langchain_core.retrievers import BaseRetriever
    from libblend.langchain import BlendEmbeddings, ChatBlend, answering

    class Retriever(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(page_content=text) for text in DOCUMENTS]

ASKED = f"Question: {QUESTION}\nAnswer:"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


@unittest.skipUnless(HAS, "langchain-core is not installed for this Python")
class LangChain(Case):
    def llm(self, **options):
        options.setdefault("generate_options", {"max_tokens": 16})
        return ChatBlend(model=self.model, store=self.store, **options)

    def documents(self):
        return [Document(page_content=text) for text in DOCUMENTS]

    def test_an_answer_out_of_documents(self):
        llm = self.llm(fuse={"ratio": 0.15})
        llm.precompute(self.documents())
        message = llm.invoke(ASKED, documents=self.documents())
        self.assertIn(ANSWER, message.content)
        reused = message.response_metadata["rows_reused"]
        self.assertGreater(reused, 100)
        usage = message.usage_metadata
        self.assertEqual(usage["input_token_details"]["cache_read"], reused)
        self.assertGreater(usage["input_tokens"], reused)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + usage["output_tokens"])
        self.assertEqual(message.response_metadata["finish_reason"], "stop")
        # The same as the library's own calls.
        prompt = self.model.prompt().bos()
        for text in DOCUMENTS:
            prompt.chunk(text if text.endswith("\n") else text + "\n")
        with self.model.fuse(self.store, prompt.question(ASKED), ratio=0.15) as fusion:
            self.assertEqual(fusion.info.n_rows, usage["input_tokens"])
            self.assertEqual(fusion.generate(16).text(), message.content)

    def test_a_stream_is_the_answer_in_pieces(self):
        llm, told = self.llm(), []

        class Handler(BaseCallbackHandler):
            def on_llm_new_token(self, token, **kwargs):
                told.append(token)
        pieces = list(llm.stream(ASKED, documents=DOCUMENTS, config={"callbacks": [Handler()]}))
        whole = llm.invoke(ASKED, documents=DOCUMENTS)
        self.assertEqual("".join(piece.content for piece in pieces), whole.content)
        self.assertEqual("".join(told), whole.content)
        self.assertGreater(len([piece for piece in pieces if piece.content]), 1)
        total = pieces[0]
        for piece in pieces[1:]:
            total += piece
        self.assertEqual(total.usage_metadata, whole.usage_metadata)

    def test_a_stream_that_is_left_holds_nothing(self):
        stream = self.llm().stream(ASKED, documents=DOCUMENTS)
        next(stream)
        stream.close()
        self.assertIn(ANSWER, self.llm().invoke(ASKED, documents=DOCUMENTS).content)

    def test_a_chain_from_a_question(self):
        chain = (lambda question: f"Question: {question}\nAnswer:") | answering(self.llm(), Retriever())
        self.assertIn(ANSWER, chain.invoke(QUESTION).content)
        self.assertIn(ANSWER, "".join(piece.content for piece in chain.stream(QUESTION)))
        self.assertIn(ANSWER, asyncio.run(chain.ainvoke(QUESTION)).content)
        self.assertEqual([ANSWER in m.content for m in chain.batch([QUESTION] * 3)], [True] * 3)

    def test_a_corpus_is_stored_as_answers_look_for_it(self):
        for options, system, asked in (({}, "", ASKED), ({"chat_options": {"template_source": TEMPLATE}}, "Be brief.",
                                                          [SystemMessage("Be brief."), HumanMessage("Who?")])):
            store = libblend.Store(self.ctx, self.folder / f"corpus{len(system)}")
            llm = ChatBlend(model=self.model, store=store, generate_options={"max_tokens": 2}, **options)
            self.assertEqual(llm.precompute(self.documents(), system=system), len(DOCUMENTS))
            self.assertEqual(llm.precompute(DOCUMENTS, system=system), 0)
            before = store.stat().n_chunks
            llm.invoke(asked, documents=self.documents())
            self.assertLessEqual(store.stat().n_chunks - before, 1)  # BOS
            store.close()

    def test_messages_go_through_the_template(self):
        llm = self.llm(chat_options={"template_source": TEMPLATE})
        messages = [SystemMessage("Be brief."), HumanMessage("Who?")]
        n_rows = llm.invoke(messages, documents=[" the cat sat\n\n"]).usage_metadata["input_tokens"]  # the ends do not count
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
        prompt = self.model.chat(said, documents=["the cat sat\n"], template_source=TEMPLATE)
        self.assertEqual(n_rows, prompt.n_tokens)

    def test_embeddings(self):
        made = BlendEmbeddings(self.model, query_prefix="Query: ", n_dimensions=6)
        self.assertEqual(made.embed_documents(DOCUMENTS[:2]), self.model.embed(DOCUMENTS[:2], n_dimensions=6).tolist())
        self.assertEqual(made.embed_query("who"), self.model.embed(["Query: who"], n_dimensions=6)[0].tolist())
        self.assertEqual(BlendEmbeddings(str(MODEL)).embed_documents(["x"]), self.model.embed(["x"]).tolist())

    def test_stop_and_what_is_wrong(self):
        llm = self.llm()
        first = ANSWER.split()[1]
        self.assertNotIn(first, llm.invoke(ASKED, documents=DOCUMENTS, stop=[first]).content)
        self.assertNotIn(first, self.llm(stop=[first]).invoke(ASKED, documents=DOCUMENTS).content)
        with self.assertRaisesRegex(ValueError, "tool"):
            llm.invoke([ToolMessage("x", tool_call_id="1")])
        with self.assertRaises(libblend.InvalidArgumentError):
            llm.invoke(ASKED, documents=DOCUMENTS, fuse={"ratio": 7.0})

    def test_it_opens_files_by_itself(self):
        llm = ChatBlend(model=str(MODEL), store=str(self.folder / "own"), generate_options={"max_tokens": 16})
        self.assertIn(ANSWER, llm.invoke(ASKED, documents=DOCUMENTS).content)
        with self.assertRaises(FileNotFoundError):
            ChatBlend(model="/nowhere.gguf", store=str(self.folder / "own2"))

    def test_the_example(self):
        self.assertIn(ANSWER, run_example("with_langchain.py"))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # says why it is skipped
