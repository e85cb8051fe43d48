package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import org.junit.Test;

/** Conversations by a chat template, and numbers that Java alone lets be negative. */
public class ChatTest extends Fixture {
  private static final String TEMPLATE =
      "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
          + "{% if add_generation_prompt %}[assistant]{{ more }}{% endif %}";

  private static ChatOptions options() {
    return new ChatOptions().templateSource(TEMPLATE);
  }

  @Test
  public void messagesAndDocuments() {
    Stored stored = model.precompute(store(), PASSAGES.get(1));
    Chat chat =
        new Chat()
            .message("system", "Be brief.")
            .message("user", QUESTION)
            .document(PASSAGES.get(0))
            .storedDocument(stored.id());
    Prompt prompt = model.chat(chat, options());
    assertEquals(5, prompt.size());
    try (Fusion fusion = model.fuse(store(), prompt)) {
      assertTrue(fusion.info().nHits() >= 1);
    }
    String text = model.chatText(new Chat().message("user", "é"), options().variables("{\"more\": \"!\"}"));
    assertEquals("[user] é\n[assistant]!", text);
  }

  @Test
  public void toolsAndTheirCalls() {
    Chat chat =
        new Chat()
            .message("user", "Who?")
            .message("assistant", "", "{\"tool_calls\": [{\"function\": {\"name\": \"find\", \"arguments\": \"{}\"}}]}")
            .message("tool", "Ada.", "{\"tool_call_id\": \"c1\"}");
    String text = model.chatText(chat, options().tools("[{\"function\": {\"name\": \"find\"}}]"));
    assertTrue(text, text.startsWith("[system] # Tools\n"));
    assertTrue(text, text.contains("[assistant] <tool_call>\n{\"name\": \"find\", \"arguments\": {}}\n</tool_call>"));
    assertTrue(text, text.contains("[user] <tool_response>\nAda.\n</tool_response>"));
  }

  @Test
  public void whatATemplateReads() {
    TemplateInfo info = model.templateInfo("{{ tools }}{{ messages[0].content }}[TOOL_CALLS]");
    assertTrue(info.readsTools() && info.readsSystem());
    assertTrue(!info.readsDocuments() && !info.readsToolCalls() && !info.readsGenerationPrompt());
    assertEquals("[TOOL_CALLS] [", info.callBegin());
    assertEquals("", info.callClose());
    assertEquals(9, info.callIdLength());
    assertThrows(NotFoundException.class, () -> model.templateInfo());
    assertThrows(FormatException.class, () -> model.templateInfo("{% if %}"));
  }

  @Test
  public void callsInAnAnswer() {
    CallReader.Options options =
        new CallReader.Options()
            .templateSource("{{ tools }}{{ messages[0].content }}<tool_call>")
            .tools("[{\"function\": {\"name\": \"find\"}}]");
    try (CallReader reader = CallReader.open(model, options)) {
      assertEquals("Gr\u00fc\u00dfe.", reader.add(new Token(5, "Gr\u00fc\u00dfe. <tool_")));
      assertEquals("", reader.add(-1, "call>{\"name\": \"find\", \"arguments\": {\"b\": 1.50}}</tool_call>"));
      assertEquals("<tool_call>x</tool_call>", reader.add(-1, "<tool_call>x</tool_call>"));
      assertEquals("", reader.add(-1, "<tool_call>{\"name\": \"find\", \"argum"));
      assertEquals("", reader.end(true));
      assertEquals(2, reader.calls().size());
      assertEquals("find", reader.calls().get(0).name());
      assertEquals("{\"b\": 1.50}", reader.calls().get(0).arguments());
      assertTrue(!reader.calls().get(0).isCut() && reader.calls().get(1).isCut());
      assertThrows(InvalidArgumentException.class, () -> reader.add(-1, "more"));
    }
    assertThrows(NotFoundException.class, () -> CallReader.open(model, new CallReader.Options()));
    assertThrows(InvalidArgumentException.class, () -> CallReader.open(model, options.tools("{}")));
  }

  @Test
  public void anAnswerThatMustBeACall() {
    String tools =
        "[{\"function\": {\"name\": \"find\", \"parameters\": {\"properties\": {\"who\": {\"const\": \"Ada\"}},"
            + " \"required\": [\"who\"]}}}, {\"name\": \"time\"}]";
    Chat chat = new Chat().message("user", "Who?");
    ChatOptions options = options().tools(tools).mustCall(true);
    String text = model.chatText(chat, options);
    assertTrue(text, text.endsWith("[assistant]<tool_call>\n"));
    Grammar.Options how =
        new Grammar.Options().language(GrammarLanguage.CALL).text(tools).function("find").templateSource(TEMPLATE);
    Grammar grammar;
    try {
      grammar = Grammar.open(model, how);
    } catch (UnsupportedException error) {
      assertTrue(error.getMessage(), error.getMessage().contains("BLEND_GRAMMAR"));
      return;
    }
    FuseOptions fuse = new FuseOptions().policy(Policy.FULL).reserveTokens(60);
    try (grammar; Fusion fusion = model.fuse(store(), model.chat(chat, options), fuse)) {
      String call = fusion.generate(new GenerateOptions().maxTokens(60).grammar(grammar));
      assertEquals("{\"name\": \"find\", \"arguments\": {\"who\": \"Ada\"}}", call);
    }
    assertThrows(InvalidArgumentException.class, () -> Grammar.open(model, how.function("moon")));
  }

  @Test
  public void whatIsWrongIsSaid() {
    Chat chat = new Chat().message("user", "x");
    assertThrows(NotFoundException.class, () -> model.chat(chat));
    UnsupportedException thrown =
        assertThrows(
            UnsupportedException.class,
            () -> model.chat(chat, new ChatOptions().templateSource("{{ lipsum() }}")));
    assertTrue(thrown.getMessage(), thrown.getMessage().contains("lipsum"));
    InvalidArgumentException reserved =
        assertThrows(
            InvalidArgumentException.class, () -> model.chat(chat, options().variables("{\"messages\": []}")));
    assertTrue(reserved.getMessage(), reserved.getMessage().contains("'messages'"));
  }

  @Test
  public void aCancelStopsIt() {
    Cancel cancel = new Cancel();
    cancel.request();
    Chat chat = new Chat().message("user", "x");
    assertThrows(CancelledException.class, () -> model.chat(chat, options().cancel(cancel)));
  }

  @Test
  public void negativeNumbersAreRefusedByName() {
    InvalidArgumentException thrown =
        assertThrows(InvalidArgumentException.class, () -> new GenerateOptions().maxTokens(-5));
    assertTrue(thrown.getMessage(), thrown.getMessage().contains("maxTokens(-5)"));
    assertThrows(InvalidArgumentException.class, () -> new FuseOptions().threads(-1));
    new GenerateOptions().seed(-1);
  }
}
