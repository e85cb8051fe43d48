package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Test;

/** Documents and a question as text. */
public class TextsTest extends Fixture {
  private static final String ASKED = "What does Hugo Rask look after?";
  private static final String TEMPLATE =
      "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]";

  private static FuseOptions found() {
    return new FuseOptions().onMiss(OnMiss.FAIL);
  }

  private static String answer(Fusion fusion) {
    try (Stream<String> text = fusion.stream(new GenerateOptions().maxTokens(16))) {
      return text.collect(Collectors.joining()).strip();
    }
  }

  @Test
  public void anAnswerFromDocuments() {
    try (Fusion fusion = model.fuseTexts(store(), PASSAGES, ASKED)) {
      assertEquals("square anchor", answer(fusion));
    }
    store().flush();
    List<String> others = PASSAGES.stream().map(p -> " " + p.strip() + "\r\n\n").toList();
    try (Fusion fusion = model.fuseTexts(store(), Document.of(others), ASKED, new TextOptions(), found())) {
      assertEquals(PASSAGES.size() + 1, fusion.info().nHits());
    }
    try (Fusion fusion = model.fuseTexts(null, PASSAGES, ASKED)) {
      assertEquals("square anchor", answer(fusion));
    }
  }

  @Test
  public void vectorsOfTexts() {
    float[][] made = model.embed(PASSAGES);
    assertEquals(PASSAGES.size(), made.length);
    assertEquals(model.info().dModel(), made[0].length);
    double length = 0;
    for (float value : made[1]) {
      length += (double) value * value;
    }
    assertEquals(1, length, 1e-5);
    EmbedOptions few = new EmbedOptions().pooling(Pooling.LAST).dimensions(5).unnormalized(true);
    List<int[]> tokens = new ArrayList<>();
    for (String passage : PASSAGES) {
      tokens.add(model.tokenizer().tokenize(passage, Tokenize.BOS));
    }
    float[][] texts = model.embed(PASSAGES, few);
    float[][] same = model.embedTokens(tokens, few);
    for (int i = 0; i < texts.length; i++) {
      assertEquals(5, texts[i].length);
      assertArrayEquals(texts[i], same[i], 0);
    }
    assertEquals(0, model.embed(List.of()).length);
    assertThrows(InvalidArgumentException.class, () -> model.embedTokens(List.of(new int[0]), few));
    Cancel cancel = new Cancel();
    cancel.request();
    assertThrows(CancelledException.class, () -> model.embed(PASSAGES, new EmbedOptions().cancel(cancel)));
  }

  @Test
  public void whatWasStoredIsFound() {
    TextOptions texts = new TextOptions().system("Be brief.").templateSource(TEMPLATE).tenant("ada");
    List<Document> documents = new ArrayList<>();
    PASSAGES.forEach(p -> documents.add(new Document(p, "title " + documents.size())));
    List<CorpusRecord> made = model.precomputeTexts(store(), documents, texts, new CorpusOptions().contexts(2));
    assertEquals(PASSAGES.size(), made.size());
    assertFalse(made.get(0).existed());
    assertTrue(model.precomputeTexts(store(), documents, texts, new CorpusOptions().contexts(2)).get(2).existed());
    List<Document> turned = new ArrayList<>(documents);
    Collections.reverse(turned);
    try (Fusion fusion = model.fuseTexts(store(), turned, ASKED, texts, found())) {
      assertEquals(PASSAGES.size() + 1, fusion.info().nHits()); // the prefix too
      assertEquals(
          fusion.info().nRows(), model.textPrompt(turned, ASKED, texts).tokens());
    }
    List<Model.Message> turns =
        List.of(
            new Model.Message("user", ASKED),
            new Model.Message("assistant", "The square anchor."),
            new Model.Message("user", "Where?"));
    try (Fusion fusion = model.fuseMessages(store(), turns, documents, texts, found())) {
      assertEquals(PASSAGES.size(), fusion.info().nHits());
    }
    assertThrows(
        NotFoundException.class,
        () -> model.fuseTexts(store(), documents, ASKED, new TextOptions(), found()));
  }

  @Test
  public void thePromptIsThatOfSegments() {
    Prompt prompt = model.textPrompt(Document.of(PASSAGES), ASKED, new TextOptions());
    Prompt.Builder builder = Prompt.builder(model.tokenizer()).bos();
    PASSAGES.forEach(builder::chunk);
    Prompt own = builder.question("Question: " + ASKED + "\nAnswer:").build();
    assertEquals(own.size(), prompt.size());
    assertArrayEquals(own.head(), prompt.head());
    try (Fusion one = model.fuse(null, own, new FuseOptions().policy(Policy.FULL));
        Fusion other = model.fuse(null, prompt, new FuseOptions().policy(Policy.FULL))) {
      assertEquals(answer(one), answer(other));
    }
  }

  @Test
  public void bosOnlyWhereTheModelExpectsIt() throws IOException {
    byte[] bytes = Files.readAllBytes(MODEL);
    String key = "tokenizer.ggml.add_bos_token";
    int at = new String(bytes, StandardCharsets.ISO_8859_1).indexOf(key) + key.length() + 4; // past the type
    assertEquals(1, bytes[at]);
    bytes[at] = 0;
    write(path("no-bos.gguf"), bytes);
    try (Model without = Model.open(context, path("no-bos.gguf"))) {
      assertFalse(without.info().addBos());
      assertEquals(0, without.tokenizer().bos().length);
      assertEquals(0, Prompt.builder(without.tokenizer()).bos().build().size());
      assertEquals(2, without.textPrompt(Document.of(PASSAGES.subList(0, 1)), ASKED, new TextOptions()).size());
    }
  }

  @Test
  public void whatIsWrongIsSaid() {
    InvalidArgumentException thrown =
        assertThrows(
            InvalidArgumentException.class, () -> model.fuseTexts(null, List.of("a", " \n"), ASKED));
    assertTrue(thrown.getMessage(), thrown.getMessage().contains("document 1 has no text"));
    assertThrows(InvalidArgumentException.class, () -> model.fuseTexts(null, List.of("a\0b"), ASKED));
    assertThrows(
        NotFoundException.class,
        () -> model.fuseMessages(null, List.of(new Model.Message("user", "x")), List.of(), new TextOptions(), found()));
    Cancel cancel = new Cancel();
    cancel.request();
    assertThrows(
        CancelledException.class,
        () ->
            model.fuseTexts(
                null, Document.of(PASSAGES), ASKED, new TextOptions(), new FuseOptions().cancel(cancel)));
  }
}
