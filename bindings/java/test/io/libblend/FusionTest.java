package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.Test;

public class FusionTest extends Fixture {
  private static final GenerateOptions SHORT = new GenerateOptions().maxTokens(16);

  @Test
  public void answersLikeFullPrefillAndTellsWhatItTook() {
    try (Fusion fused = fusion();
        Fusion full = model.fuse(null, prompt(), new FuseOptions().policy(Policy.FULL))) {
      assertEquals(full.generate(SHORT), fused.generate(SHORT));
      FusionInfo info = fused.info();
      assertEquals(Policy.ATTENTION, info.policy()); // what AUTO takes
      assertEquals(4, info.nMisses()); // BOS is a prefix, stored too
      assertTrue(info.flags().contains(FusionFlag.UNCALIBRATED));
      assertEquals(model.info().nLayers(), fused.layers().size());
      List<SegmentInfo> segments = fused.segments();
      assertEquals(5, segments.size());
      assertEquals(SegmentKind.PREFIX, segments.get(0).kind());
      assertEquals(SegmentKind.QUESTION, segments.get(4).kind());
      assertEquals("", segments.get(4).id());
      assertEquals(SegmentSource.PRECOMPUTED, segments.get(1).source());
      assertEquals(info.nRowsSelected(), fused.selected().length);
      assertEquals(info.nRows(), fused.deviation().length);
    }
  }

  @Test
  public void ratioOneEqualsFullPrefill() {
    try (Fusion fused = model.fuse(store(), prompt(), new FuseOptions().ratio(1));
        Fusion full = model.fuse(null, prompt(), new FuseOptions().policy(Policy.FULL))) {
      assertArrayEquals(full.logits(), fused.logits(), 1e-2f); // the first chunk is exact: it is reused as it is stored, in 16 bits
    }
  }

  @Test
  public void theFourWaysToGenerateAgree() {
    String text;
    try (Fusion fusion = fusion()) {
      text = fusion.generate(SHORT);
    }
    assertTrue(text, text.contains("square anchor"));
    try (Fusion fusion = fusion();
        Stream<String> stream = fusion.stream(SHORT)) {
      assertEquals(text, stream.collect(Collectors.joining()));
    }
    try (Fusion fusion = fusion()) {
      StringBuilder pieces = new StringBuilder();
      assertTrue(fusion.generate(SHORT, token -> pieces.append(token.text())));
      assertEquals(text, pieces.toString());
    }
    try (Fusion fusion = fusion();
        TokenStream tokens = fusion.generateTokens(SHORT)) {
      int before = fusionRows(fusion);
      List<Integer> ids = new ArrayList<>();
      tokens.forEachRemaining(token -> ids.add(token.id()));
      assertEquals(ids.size(), tokens.count());
      assertEquals(before + ids.size(), fusionRows(fusion));
      assertEquals(text, model.tokenizer().detokenize(ids.stream().mapToInt(i -> i).toArray(), Tokenize.RAW));
    }
  }

  private List<Token> tokens(GenerateOptions options) {
    List<Token> found = new ArrayList<>();
    try (Fusion fusion = fusion();
        TokenStream tokens = fusion.generateTokens(options.maxTokens(6).ignoreEos(true))) {
      tokens.forEachRemaining(found::add);
    }
    return found;
  }

  @Test
  public void samplingDoesWhatItsOptionsSay() {
    List<Token> plain = tokens(new GenerateOptions());
    String text = plain.stream().map(Token::text).collect(Collectors.joining());
    String stop = text.substring(text.length() / 2, text.length() / 2 + 2);
    try (Fusion fusion = fusion();
        TokenStream tokens =
            fusion.generateTokens(new GenerateOptions().maxTokens(6).ignoreEos(true).stop("\0", stop))) {
      StringBuilder got = new StringBuilder();
      tokens.forEachRemaining(token -> got.append(token.text()));
      assertEquals(text.substring(0, text.indexOf(stop)), got.toString());
      assertTrue(tokens.byStopToken());
    }
    int first = plain.get(0).id();
    for (Token token : tokens(new GenerateOptions().logitBias(first, Float.NEGATIVE_INFINITY))) {
      assertTrue(token.id() != first);
    }
    Token likely = tokens(new GenerateOptions().topLogprobs(2)).get(0);
    assertEquals(3, likely.logprobs().size());
    assertEquals(likely.id(), likely.logprobs().get(0).token());
    assertEquals(likely.logprobs().get(0), likely.logprobs().get(1));
    assertTrue(likely.logprobs().get(1).logprob() >= likely.logprobs().get(2).logprob());
    assertTrue(plain.get(0).logprobs().isEmpty());
  }

  @Test
  public void logitsAreTheHostsToChange() {
    int[] calls = {0};
    List<Token> changed =
        tokens(
            new GenerateOptions()
                .logits(
                    logits -> {
                      for (int i = 0; i < logits.remaining(); i++) {
                        logits.put(i, i == 100 + calls[0] ? 1 : Float.NEGATIVE_INFINITY);
                      }
                      calls[0]++;
                    }));
    assertEquals(6, calls[0]);
    for (int i = 0; i < 6; i++) {
      assertEquals(100 + i, changed.get(i).id());
    }
    try (Fusion fusion = fusion()) {
      GenerateOptions fails =
          new GenerateOptions()
              .logits(
                  logits -> {
                    throw new IllegalStateException("own");
                  });
      assertEquals(
          "own", assertThrows(IllegalStateException.class, () -> fusion.generate(fails)).getMessage());
      fusion.decode(5); // free again
    }
  }

  @Test
  public void anAnswerKeepsToItsGrammar() {
    Grammar grammar;
    try {
      grammar = Grammar.open(model, new Grammar.Options().language(GrammarLanguage.REGEX).text("[xy]{3}"));
    } catch (UnsupportedException error) {
      assertTrue(error.getMessage(), error.getMessage().contains("BLEND_GRAMMAR"));
      return;
    }
    GenerateOptions options = new GenerateOptions().maxTokens(8).grammar(grammar);
    grammar.close(); // the options keep it
    try (Fusion fusion = fusion()) {
      String text = fusion.generate(options);
      assertTrue(text, text.matches("[xy]{3}"));
    }
    assertThrows(
        BlendException.class,
        () -> Grammar.open(model, new Grammar.Options().language(GrammarLanguage.JSON_SCHEMA).text("{")));
  }

  private static int fusionRows(Fusion fusion) {
    return fusion.tokens().length;
  }

  @Test
  public void aStreamThatIsLeftEarlyFreesTheFusionWhenClosed() {
    try (Fusion fusion = fusion()) {
      try (Stream<String> stream = fusion.stream(SHORT)) {
        assertTrue(stream.findFirst().isPresent());
        assertThrows(InUseException.class, () -> fusion.decode(5));
      }
      fusion.decode(5);
    }
  }

  @Test
  public void nothingIsGeneratedBeforeItIsAskedFor() {
    try (Fusion fusion = fusion()) {
      int rows = fusionRows(fusion);
      try (Stream<String> stream = fusion.stream(SHORT)) {
        assertNotNull(stream);
      }
      assertEquals(rows, fusionRows(fusion));
    }
  }

  @Test
  public void decodeExtendEraseAndReplace() {
    try (Fusion fusion = fusion()) {
      int rows = fusionRows(fusion);
      fusion.decode(model.tokenizer().tokenize(" square"));
      assertTrue(fusionRows(fusion) > rows);
      int[] now = fusion.tokens();
      fusion.erase(1, 3);
      assertEquals(now.length - 3, fusionRows(fusion));
      fusion.replace(1, 0, now[1], now[2], now[3]);
      assertArrayEquals(now, fusion.tokens());
      assertTrue(fusion.info().flags().contains(FusionFlag.EDITED));
      Prompt turn = Prompt.builder(model.tokenizer()).chunk(PASSAGES.get(0)).question("\nAnd?").build();
      fusion.extend(store(), turn, new FuseOptions());
      assertEquals(now.length, fusion.info().nRowsResident());
      assertTrue(fusionRows(fusion) > now.length);
    }
  }

  @Test
  public void forksGoOnByThemselves() {
    String wanted;
    try (Fusion alone = fusion()) {
      wanted = alone.generate(SHORT).toString();
    }
    Fusion fusion = fusion();
    try (Fusion fork = fusion.fork()) {
      fusion.decode(5);
      assertEquals(fusionRows(fusion) - 1, fusionRows(fork));
      fusion.close();
      assertEquals(wanted, fork.generate(SHORT).toString());
    }
  }

  @Test
  public void exactAfterAMoment() {
    int[] wanted;
    int begin;
    try (Fusion full = model.fuse(store(), prompt(), new FuseOptions().policy(Policy.FULL))) {
      begin = fusionRows(full);
      full.generate(SHORT).toString();
      wanted = Arrays.copyOfRange(full.tokens(), begin, fusionRows(full));
    }
    try (Fusion fusion = model.fuse(store(), prompt(), new FuseOptions().policy(Policy.REUSE))) {
      assertEquals(0, fusion.makeExact());
      assertTrue(fusion.info().flags().contains(FusionFlag.EXACT));
      int[] shown = wanted.clone();
      shown[1] = (shown[1] + 1) % 100; // none of full prefill's
      assertEquals(1, fusion.makeExact(shown));
      fusion.generate(SHORT).toString();
      int[] now = Arrays.copyOfRange(fusion.tokens(), begin, begin + wanted.length);
      assertArrayEquals(wanted, now);
    }
  }

  // Tests in C check what the calls keep of it; here, that it arrives, and that the answers are the same.
  @Test
  public void callsOfFewerThreadsGiveTheSame() {
    model.precompute(store(), new int[] {5, 6, 7}, new PrecomputeOptions().threads(1));
    try (Fusion all = fusion();
        Fusion one = model.fuse(store(), prompt(), new FuseOptions().threads(1))) {
      assertArrayEquals(all.logits(), one.logits(), 0f);
      GenerateOptions generate = new GenerateOptions().maxTokens(4).threads(1);
      assertEquals(one.generate(generate), all.generate(generate));
    }
    for (int count : new int[] {1, 2, 9}) {
      Machine.Options timed = new Machine.Options().maxTokens(64).threads(count);
      try (Machine machine = Machine.open(model, null, timed)) {
        assertEquals(Math.min(count, 2), machine.info().nThreads());
      }
    }
    Context.create(new Context.Options().pinThreads(true).deviceBytes(1 << 20)).close();
    assertThrows(
        InvalidArgumentException.class,
        () -> Context.create(new Context.Options().threads(1024).pinThreads(true)));
    try (Context small = Context.create(new Context.Options().cacheDtype(Dtype.F16));
        Model halved = Model.open(small, MODEL)) {
      assertEquals(model.info().kvBytesPerToken(), 2 * halved.info().kvBytesPerToken());
    }
  }

  @Test
  public void savedAndRestoredGoesOnTheSame() {
    String id;
    String text;
    try (Fusion fusion = fusion()) {
      id = fusion.save(store(), new SaveOptions());
      text = fusion.generate(SHORT);
    }
    store().flush();
    try (Fusion fusion = model.restore(store(), id, new RestoreOptions().reserveTokens(64))) {
      assertTrue(fusion.info().flags().contains(FusionFlag.RESTORED));
      assertEquals(text, fusion.generate(SHORT));
    }
  }

  @Test
  public void aBatchEqualsSingleFuses() {
    float[] alone;
    try (Fusion fusion = fusion()) {
      alone = fusion.logits();
    }
    Prompt missing = Prompt.builder(model.tokenizer()).chunk("never stored\n").question("Why?").build();
    List<Model.FuseResult> results =
        model.fuseBatch(
            store(),
            List.of(
                new Model.FuseRequest(prompt(), new FuseOptions()),
                new Model.FuseRequest(missing, new FuseOptions().onMiss(OnMiss.FAIL)),
                new Model.FuseRequest(
                    prompt(),
                    new FuseOptions()
                        .progress(
                            (done, total) -> {
                              throw new ArithmeticException("mine");
                            }))));
    try (Fusion first = results.get(0).fusion()) {
      assertNull(results.get(0).failure());
      assertArrayEquals(alone, first.logits(), 0);
    }
    assertEquals(NotFoundException.class, results.get(1).failure().getClass());
    assertEquals("mine", results.get(2).failure().getMessage());
    assertNull(results.get(2).fusion());
  }

  @Test
  public void viewsShowTheSameAndHoldTheMemory() {
    try (Fusion fusion = fusion()) {
      View<FloatBuffer> view = fusion.viewLogits();
      FloatBuffer logits = view.buffer();
      assertTrue(logits.isDirect() && logits.isReadOnly());
      assertEquals(model.info().nVocab(), logits.remaining());
      float[] copy = new float[logits.remaining()];
      logits.duplicate().get(copy);
      assertArrayEquals(fusion.logits(), copy, 0);
      assertThrows(ViewHeldException.class, () -> fusion.decode(5));
      fusion.close();
      assertEquals(copy[3], logits.get(3), 0); // the view keeps what it shows
      view.close();
      assertThrows(IllegalStateException.class, view::buffer);
    }
  }

  @Test
  public void aClosedViewHoldsNothing() {
    try (Fusion fusion = fusion()) {
      fusion.viewTokens().close();
      fusion.viewLogits().close();
      fusion.decode(5);
    }
  }

  @Test
  public void gradualFilteringAndUnions() {
    List<CheckLayer> layers = model.defaultCheckLayers(0.2, 1, 3);
    assertEquals(3, layers.size());
    assertTrue(layers.get(0).ratio() > layers.get(2).ratio());
    try (Fusion fusion = model.fuse(store(), prompt(), new FuseOptions().checkLayers(layers))) {
      assertEquals(3, fusion.info().nCheckLayers());
    }
    FuseOptions union =
        new FuseOptions().onMiss(OnMiss.PRECOMPUTE).policy(Policy.UNION).term(Policy.HKVD, 1).term(Policy.RANDOM, 1).seed(7).ratio(0.5);
    try (Fusion fusion = model.fuse(store(), prompt(), union)) {
      assertEquals(Policy.UNION, fusion.info().policy());
      assertTrue(fusion.selected().length > 0);
    }
  }

  @Test
  public void chunksById() {
    Stored stored = model.precompute(store(), PASSAGES.get(0));
    Prompt byId = Prompt.builder(model.tokenizer()).chunkId(stored.id()).question("Who?").build();
    try (Fusion fusion = model.fuse(store(), byId)) {
      assertEquals(stored.id(), fusion.segments().get(0).id());
      assertEquals(SegmentSource.STORE, fusion.segments().get(0).source());
    }
    assertFalse(stored.existed());
  }

  @Test
  public void textThatIsNotInTheBasicPlane() {
    Tokenizer tokenizer = model.tokenizer();
    String text = "na\u00efve \ud83d\ude00 \u0000 end";
    assertEquals(text, tokenizer.detokenize(tokenizer.tokenize(text)));
  }

  @Test
  public void adaptersAreListedAndMakeAnotherModel() {
    Path adapter = MODEL.resolveSibling("../../tests/conformance/lora/blend-qa.gguf").normalize();
    Model.Options options = new Model.Options().lora(adapter).lora(adapter, -0.25);
    try (Model adapted = Model.open(context, MODEL, options)) {
      List<LoraInfo> loras = adapted.loras();
      assertEquals(2, loras.size());
      assertEquals(adapter.toString(), loras.get(0).path());
      assertEquals(1.0, loras.get(0).scale(), 0);
      assertEquals(-0.25, loras.get(1).scale(), 0);
      assertNotEquals(model.info().fingerprint(), adapted.info().fingerprint());
    }
    assertTrue(model.loras().isEmpty());
    assertThrows(IllegalArgumentException.class, () -> new Model.Options().lora(adapter, 0));
    Model.Options wrong = new Model.Options().lora(MODEL);
    assertThrows(FormatException.class, () -> Model.open(context, MODEL, wrong));
  }
}
