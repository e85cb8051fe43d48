"""libblend.llama_index with the real package."""

import asyncio
import importlib.util
import unittest
from typing import Literal

import libblend
from support import ANSWER, DOCUMENTS, QUESTION, Case, run_example

HAS = bool(importlib.util.find_spec("llama_index") and importlib.util.find_spec("llama_index.core"))
if HAS:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.core.tools import FunctionTool
    from pydantic import BaseModel
    from libblend.llama_index import BlendEmbedding, BlendLLM, BlendSynthesizer

    class Town(BaseModel):
        """A town."""

        name: Literal["Wien", "Graz"]
        small: bool

    def weather(town: Literal["Wien", "Graz"], hour: Literal[6, 18]) -> str:
        """The weather there and then."""
        return f"rain in {town} at {hour}"

    TOOLS = [FunctionTool.from_defaults(weather)]

    class Retriever(BaseRetriever):
        def _retrieve(self, query):
            return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in DOCUMENTS]

ASKED = f"Question: {QUESTION}\nAnswer:"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"


@unittest.skipUnless(HAS, "llama-index-core is not installed for this Python")
class LlamaIndex(Case):
    def llm(self, **options):
        options.setdefault("generate_options", {"max_tokens": 16})
        return BlendLLM(model=self.model, store=self.store, **options)

    def chatting(self, n=200):
        return self.llm(generate_options={"max_tokens": n}, chat_options={"template_source": TEMPLATE})

    def nodes(self):
        return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in DOCUMENTS]

    def test_a_completion_out_of_nodes(self):
        self.llm().precompute(self.nodes())
        done = self.llm(fuse={"ratio": 0.15}).complete(ASKED, documents=self.nodes())
        self.assertIn(ANSWER, done.text)
        self.assertGreater(done.additional_kwargs["rows_reused"], 100)
        pieces = list(self.llm(fuse={"ratio": 0.15}).stream_complete(ASKED, documents=DOCUMENTS))
        self.assertEqual("".join(piece.delta for piece in pieces), done.text)
        self.assertEqual(pieces[-1].text, done.text)
        self.assertGreater(len(pieces), 2)
        self.assertEqual(asyncio.run(self.llm().acomplete(ASKED, documents=DOCUMENTS)).text, done.text)

    def test_a_query_engine(self):
        for streaming in (False, True):
            with self.subTest(streaming=streaming):
                synthesizer = BlendSynthesizer(self.llm(), streaming=streaming, question="Question: {query}\nAnswer:")
                response = RetrieverQueryEngine(Retriever(), response_synthesizer=synthesizer).query(QUESTION)
                self.assertIn(ANSWER, "".join(response.response_gen) if streaming else str(response))
                self.assertEqual(len(response.source_nodes), len(DOCUMENTS))

    def test_a_corpus_is_stored_as_answers_look_for_it(self):
        store = libblend.Store(self.ctx, self.folder / "corpus")
        llm = BlendLLM(model=self.model, store=store, generate_options={"max_tokens": 2})
        self.assertEqual(llm.precompute([node.node for node in self.nodes()]), len(DOCUMENTS))
        self.assertEqual(llm.precompute(self.nodes()), 0)
        before = store.stat().n_chunks
        llm.complete(ASKED, documents=self.nodes())
        self.assertLessEqual(store.stat().n_chunks - before, 1)  # BOS
        store.close()

    def test_messages_go_through_the_template(self):
        llm = self.llm(chat_options={"template_source": TEMPLATE})
        self.assertTrue(llm.metadata.is_chat_model)
        messages = [ChatMessage(role=MessageRole.SYSTEM, content="Be brief."),
                    ChatMessage(role=MessageRole.USER, content="Who?")]
        done = llm.chat(messages, documents=["the cat sat"])
        said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}]
        prompt = self.model.chat(said, documents=["the cat sat\n"], template_source=TEMPLATE)
        self.assertEqual(done.additional_kwargs["prompt_tokens"], prompt.n_tokens)
        stream = list(llm.stream_chat(messages, documents=["the cat sat"]))
        self.assertEqual(stream[-1].message.content, done.message.content)
        engine = RetrieverQueryEngine(Retriever(), response_synthesizer=BlendSynthesizer(llm, system="Be brief."))
        self.assertTrue(str(engine.query("Who?")))

    def test_a_call_that_is_required_fits_its_schema(self):
        llm = self.chatting()
        self.assertTrue(llm.metadata.is_function_calling_model)
        response = llm.chat_with_tools(TOOLS, user_msg="What is the weather?", tool_required=True, documents=["It rains.\n"])
        (call,) = llm.get_tool_calls_from_response(response)
        self.assertEqual((call.tool_name, response.message.content), ("weather", ""))
        self.assertIn("rain in", weather(**call.tool_kwargs))
        self.assertEqual(response.additional_kwargs["finish_reason"], "tool_calls")
        *_, last = llm.stream_chat_with_tools(TOOLS, user_msg="What is the weather?", tool_required=True, documents=["It rains.\n"])
        self.assertEqual([c.tool_kwargs for c in llm.get_tool_calls_from_response(last)], [call.tool_kwargs])
        called = llm.predict_and_call(TOOLS, user_msg="What is the weather?", tool_required=True)
        self.assertTrue(called.response.startswith("rain in"), called.response)
        # The result goes back into the template.
        said = [ChatMessage(role=MessageRole.USER, content="What is the weather?"), response.message,
                ChatMessage(role=MessageRole.TOOL, content="rain", additional_kwargs={"tool_call_id": call.tool_id})]
        answer = llm.chat(said)
        wanted = self.model.chat_text([{"role": "user", "content": said[0].content},
                                       {"role": "assistant", "content": "", **said[1].additional_kwargs},
                                       {"role": "tool", "content": "rain"}], template_source=TEMPLATE)
        self.assertEqual(answer.additional_kwargs["prompt_tokens"], len(self.model.tokenize(wanted, special=True)))
        self.assertIn("<tool_response>\nrain", wanted)

    def test_a_corpus_for_answers_with_tools(self):
        store = libblend.Store(self.ctx, self.folder / "tools")
        llm = BlendLLM(model=self.model, store=store, generate_options={"max_tokens": 2},
                       chat_options={"template_source": TEMPLATE})
        self.assertEqual(llm.precompute(self.nodes(), tools=TOOLS), len(DOCUMENTS))
        with_tools = llm.chat_with_tools(TOOLS, user_msg="Who?", documents=self.nodes())
        without = llm.chat([ChatMessage(role=MessageRole.USER, content="Who?")], documents=self.nodes())  # after another head
        self.assertGreater(with_tools.additional_kwargs["rows_reused"], 100)
        self.assertEqual(without.additional_kwargs["rows_reused"], 0)
        store.close()

    def test_an_answer_without_a_call(self):
        llm = self.chatting(3)
        response = llm.chat_with_tools(TOOLS, user_msg="Who?")
        self.assertEqual(llm.get_tool_calls_from_response(response, error_on_no_tool_call=False), [])
        with self.assertRaisesRegex(ValueError, "no call"):
            llm.get_tool_calls_from_response(llm.chat_with_tools(TOOLS, user_msg="Who?", tool_required=True))  # it is cut
        with self.assertRaisesRegex(ValueError, "chat template"):
            self.llm().chat_with_tools(TOOLS, user_msg="Who?")

    def test_structured_output(self):
        made = self.chatting().structured_predict(Town, PromptTemplate("Which town is {size}?"), size="small")
        self.assertIsInstance(made, Town)

    def test_embeddings(self):
        made = BlendEmbedding(model=self.model, query_instruction="Query: ", options={"n_dimensions": 6})
        self.assertEqual(made.get_text_embedding_batch(DOCUMENTS[:3]),
                         self.model.embed(DOCUMENTS[:3], n_dimensions=6).tolist())
        self.assertEqual(made.get_query_embedding("who"), self.model.embed(["Query: who"], n_dimensions=6)[0].tolist())

    def test_what_it_says_of_itself_and_what_is_wrong(self):
        llm = self.llm()
        self.assertFalse(llm.metadata.is_chat_model)
        self.assertEqual(llm.metadata.context_window, self.model.info.context_length)
        with self.assertRaisesRegex(ValueError, "chatbot"):
            llm.chat([ChatMessage(role=MessageRole.CHATBOT, content="x")])
        with self.assertRaises(libblend.InvalidArgumentError):
            llm.complete(ASKED, fuse={"ratio": 7.0})
        with self.assertRaisesRegex(ValueError, "question"):
            BlendSynthesizer(llm).update_prompts({"text_qa_template": None})

    def test_the_example(self):
        self.assertIn(ANSWER, run_example("with_llama_index.py"))


if __name__ == "__main__":
    unittest.main(verbosity=2)  # says why it is skipped
