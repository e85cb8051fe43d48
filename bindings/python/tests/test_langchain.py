"""libblend.langchain with the real package."""

import asyncio
import importlib.util
import json
import unittest
from typing import Literal

import libblend
from support import ANSWER, DOCUMENTS, MODEL, QUESTION, Case, run_example

HAS = bool(importlib.util.find_spec("langchain_core"))
if HAS:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.documents import Document
    from langchain_core.exceptions import OutputParserException
    from langchain_core.messages import AIMessage, FunctionMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.tools import tool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic import BaseModel
    from libblend.langchain import BlendEmbeddings, ChatBlend, _said, answering

    class Town(BaseModel):
        """A town."""

        name: Literal["Wien", "Graz"]
        small: bool

    @tool
    def weather(town: Literal["Wien", "Graz"], hour: Literal[6, 18]) -> str:
        """The weather there and then."""
        return f"rain in {town} at {hour}"

    @tool
    def clock() -> str:
        """The time."""
        return "noon"

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

    def test_a_call_that_is_required_fits_its_schema(self):
        llm = self.llm(generate_options={"max_tokens": 200}, chat_options={"template_source": TEMPLATE})
        for choice in ("any", True, "required", "weather", {"type": "function", "function": {"name": "weather"}}):
            tools = [weather, clock] if isinstance(choice, (str, dict)) and "weather" in str(choice) else [weather]
            bound = llm.bind_tools(tools, tool_choice=choice)
            message = bound.invoke("What is the weather?", documents=["It rains in Wien.\n"])
            (call,) = message.tool_calls
            self.assertEqual((call["name"], message.content, message.response_metadata["finish_reason"]),
                             ("weather", "", "tool_calls"))
            self.assertIn("rain in", weather.invoke(call).content)  # its arguments fit
            total = None
            for piece in bound.stream("What is the weather?", documents=["It rains in Wien.\n"]):
                total = piece if total is None else total + piece
            self.assertEqual([(c["name"], c["args"]) for c in total.tool_calls], [(call["name"], call["args"])])
        # The result goes back into the template, and the tools were in it.
        said = [HumanMessage("What is the weather?"), message, weather.invoke(call)]
        self.assertTrue(bound.invoke(said).tool_calls)
        prompt = self.model.chat([_said(m) for m in said], template_source=TEMPLATE, must_call=True,
                                 tools=json.dumps([convert_to_openai_tool(weather), convert_to_openai_tool(clock)]))
        self.assertEqual(bound.invoke(said).usage_metadata["input_tokens"], prompt.n_tokens)

    def test_a_call_that_is_cut_is_text(self):
        llm = self.llm(generate_options={"max_tokens": 3}, chat_options={"template_source": TEMPLATE})
        message = llm.bind_tools([weather], tool_choice="any").invoke("What?")
        self.assertEqual(message.tool_calls, [])
        self.assertTrue(message.content.startswith("{"))
        self.assertEqual(message.response_metadata["finish_reason"], "length")

    def test_a_corpus_for_answers_with_tools(self):
        store = libblend.Store(self.ctx, self.folder / "tools")
        llm = ChatBlend(model=self.model, store=store, generate_options={"max_tokens": 2},
                        chat_options={"template_source": TEMPLATE})
        self.assertEqual(llm.precompute(self.documents(), tools=[weather, clock]), len(DOCUMENTS))
        with_tools = llm.bind_tools([weather, clock]).invoke("Who?", documents=self.documents())
        without = llm.invoke("Who?", documents=self.documents())  # after another head
        self.assertGreater(with_tools.response_metadata["rows_reused"], 100)
        self.assertEqual(without.response_metadata["rows_reused"], 0)
        store.close()

    def test_messages_of_tools_are_as_the_api_has_them(self):
        call = AIMessage("", tool_calls=[{"name": "clock", "args": {"a": 1}, "id": "c1"}])
        self.assertEqual(_said(call), {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"a": 1}'}}]})
        self.assertEqual(_said(ToolMessage("noon", tool_call_id="c1", name="clock")),
                         {"role": "tool", "content": "noon", "tool_call_id": "c1", "name": "clock"})

    def test_an_answer_that_may_call(self):
        llm = self.llm(chat_options={"template_source": TEMPLATE}).bind_tools([weather, clock])
        message = llm.invoke("Who?")
        self.assertEqual(message.tool_calls, [])  # this model knows none
        without = self.llm(chat_options={"template_source": TEMPLATE}).bind_tools([weather], tool_choice="none")
        self.assertLess(without.invoke("Who?").usage_metadata["input_tokens"], message.usage_metadata["input_tokens"])
        with self.assertRaisesRegex(ValueError, "chat template"):
            self.llm().bind_tools([weather]).invoke("Who?")
        with self.assertRaisesRegex(ValueError, "moon"):
            self.llm(chat_options={"template_source": TEMPLATE}).bind_tools([weather], tool_choice="moon").invoke("Who?")

    def test_structured_output(self):
        for options in ({}, {"chat_options": {"template_source": TEMPLATE}}):
            llm = self.llm(generate_options={"max_tokens": 100}, **options)
            self.assertIsInstance(llm.with_structured_output(Town).invoke("Which town?", documents=["Graz.\n"]), Town)
            made = llm.with_structured_output(Town.model_json_schema()).invoke("Which town?")
            self.assertEqual(Town(**made).model_dump(), made)
            raw = llm.with_structured_output(Town, include_raw=True).invoke("Which town?")
            self.assertEqual((Town.model_validate_json(raw["raw"].content), raw["parsing_error"]), (raw["parsed"], None))
        self.assertIsInstance(llm.with_structured_output(Town, method="function_calling").invoke("Which town?"), Town)
        cut = self.llm(generate_options={"max_tokens": 3})
        with self.assertRaisesRegex(OutputParserException, "max_tokens"):
            cut.with_structured_output(Town).invoke("Which town?")
        raw = cut.with_structured_output(Town, include_raw=True).invoke("Which town?")
        self.assertIsNone(raw["parsed"])
        self.assertIsInstance(raw["parsing_error"], OutputParserException)
        with self.assertRaisesRegex(ValueError, "method"):
            llm.with_structured_output(Town, method="json_mode")

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
        with self.assertRaisesRegex(ValueError, "function"):
            llm.invoke([FunctionMessage("x", name="old")])
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
