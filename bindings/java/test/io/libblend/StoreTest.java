package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.junit.Test;

public class StoreTest extends Fixture {
  @Test
  public void putListStatRemove() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    Stored first = model.precompute(store(), tokens);
    assertFalse(first.existed());
    assertEquals(64, first.id().length());
    assertEquals(new Stored(first.id(), true), model.precompute(store(), tokens));
    assertEquals(new Stored(first.id(), true), model.findChunk(store(), tokens, new PrecomputeOptions()));

    List<ChunkInfo> chunks = store().list(true);
    assertEquals(1, chunks.size());
    ChunkInfo chunk = chunks.get(0);
    assertEquals(first.id(), chunk.id());
    assertEquals("", chunk.problem());
    assertEquals(tokens.length, chunk.nTokens());
    assertEquals(model.info().fingerprint(), chunk.fingerprint());
    assertTrue(Duration.between(chunk.created(), Instant.now()).toMinutes() < 60);

    assertEquals(1, store().stat().nChunks());
    assertEquals(1, store().codecStat(Codec.NONE).nChunks());
    store().remove(first.id());
    assertEquals(0, store().stat().nChunks());
    assertThrows(NotFoundException.class, () -> store().remove(first.id()));
  }

  @Test
  public void tenantsPrefixesAndCodecs() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    String plain = model.precompute(store(), tokens).id();
    String other = model.precompute(store(), tokens, new PrecomputeOptions().tenant("t\u00e4nant")).id();
    String after =
        model.precompute(store(), tokens, new PrecomputeOptions().chunkPrefix(model.tokenizer().bos())).id();
    assertNotEquals(plain, other);
    assertNotEquals(plain, after);
    model.precompute(
        store(), tokens, new PrecomputeOptions().tenant("8").codec(Codec.INT8));
    assertEquals(1, store().codecStat(Codec.INT8).nChunks());
    assertEquals(4, store().list(false).size());
  }

  @Test
  public void aCorpusServesItselfAsContext() {
    int[] head = prompt().head();
    assertArrayEquals(model.tokenizer().bos(), head);
    assertEquals(0, Prompt.builder(model.tokenizer()).bos().build().head().length);
    List<CorpusChunk> chunks =
        PASSAGES.stream().map(p -> new CorpusChunk(model.tokenizer().tokenize(p), "label", null)).toList();
    AtomicInteger told = new AtomicInteger();
    CorpusOptions options =
        new CorpusOptions().chunkPrefix(head).contexts(1).progress((done, total) -> told.incrementAndGet());
    List<CorpusRecord> records = model.precomputeCorpus(store(), chunks, options);
    assertEquals(List.of(2, 2, 2), records.stream().map(CorpusRecord::contexts).toList());
    assertTrue(records.stream().noneMatch(CorpusRecord::existed));
    assertTrue(told.get() > 0);
    List<CorpusRecord> again = model.precomputeCorpus(store(), chunks, options);
    assertTrue(again.stream().allMatch(CorpusRecord::existed));
    assertEquals(records.get(2).id(), again.get(2).id());
    assertEquals(6, labels(store().list(false)).stream().filter("label"::equals).count());
    try (Fusion fusion = fusion()) {
      List<RecordKind> kinds =
          fusion.segments().stream().filter(s -> s.kind() == SegmentKind.CHUNK).map(SegmentInfo::record).toList();
      assertEquals(List.of(RecordKind.EXACT, RecordKind.CONTEXTUAL, RecordKind.CONTEXTUAL), kinds);
    }
    IllegalStateException own = new IllegalStateException("enough");
    CorpusOptions stopped =
        new CorpusOptions()
            .tenant("stopped")
            .progress(
                (done, total) -> {
                  throw own;
                });
    assertSame(own, assertThrows(IllegalStateException.class, () -> model.precomputeCorpus(store(), chunks, stopped)));
  }

  @Test
  public void aPredecessorCountsAsTheEndOfTheChunkPrefix() {
    int[] chunk = model.tokenizer().tokenize(PASSAGES.get(0));
    int[] head = prompt().head();
    int[] before = model.tokenizer().tokenize(PASSAGES.get(1));
    int[] whole = IntStream.concat(IntStream.of(head), IntStream.of(before)).toArray();
    PrecomputeOptions after = new PrecomputeOptions().chunkPrefix(head).predecessor(before);
    String made = model.precompute(store(), chunk, after).id();
    assertEquals(made, model.findChunk(store(), chunk, new PrecomputeOptions().chunkPrefix(whole)).id());
    after.context(model.tokenizer().tokenize(PASSAGES.get(2)));
    assertNotEquals(made, model.precompute(store(), chunk, after).id());
  }

  @Test
  public void contextPassagesMakeAnotherRecord() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    PrecomputeOptions with =
        new PrecomputeOptions()
            .context(model.tokenizer().tokenize(PASSAGES.get(1)))
            .context(model.tokenizer().tokenize(PASSAGES.get(2)));
    String contextual = model.precompute(store(), tokens, with).id();
    assertNotEquals(model.precompute(store(), tokens).id(), contextual);
    assertEquals(contextual, model.findChunk(store(), tokens, with).id());
  }

  @Test
  public void aChunkPrefixIsGivenNotGivenOrNothing() {
    int[] second = model.tokenizer().tokenize(PASSAGES.get(1));
    int[] head = prompt().head();
    String alone = model.findChunk(store(), second, new PrecomputeOptions()).id();
    String afterHead = model.findChunk(store(), second, new PrecomputeOptions().chunkPrefix(head)).id();
    for (int[] given : new int[][] {null, head, {}}) {
      boolean nothing = given != null && given.length == 0;
      try (Fusion fusion = model.fuse(store(), prompt(), new FuseOptions().onMiss(OnMiss.PRECOMPUTE).chunkPrefix(given))) {
        SegmentInfo segment =
            fusion.segments().stream().filter(s -> s.kind() == SegmentKind.CHUNK).skip(1).findFirst().orElseThrow();
        assertEquals(nothing ? alone : afterHead, segment.id());
        assertEquals(nothing ? RecordKind.ALONE : RecordKind.HEAD, segment.record());
      }
    }
  }

  private static List<String> labels(List<ChunkInfo> chunks) {
    return chunks.stream().map(ChunkInfo::label).sorted().toList();
  }

  @Test
  public void chunksAreFoundByWhatTheyAreCalled() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    String first =
        model
            .precompute(store(), tokens, new PrecomputeOptions().label("a.md#1").tags("lang=en draft"))
            .id();
    model.precompute(
        store(), model.tokenizer().tokenize(PASSAGES.get(1)), new PrecomputeOptions().label("a.md#2"));
    String acme =
        model.precompute(store(), tokens, new PrecomputeOptions().label("a.md#1").tenant("acme")).id();

    ChunkInfo chunk =
        store().list(false).stream().filter(c -> c.id().equals(first)).findFirst().orElseThrow();
    assertEquals("a.md#1", chunk.label());
    assertEquals("draft lang=en", chunk.tags());
    assertEquals(
        List.of("a.md#1", "a.md#1", "a.md#2"),
        labels(store().list(new FilterOptions().label("a.md"), true)));
    assertEquals(
        List.of("a.md#1", "a.md#2"),
        labels(store().list(new FilterOptions().label("a.md").tenant(""), false)));
    assertEquals(1, store().list(new FilterOptions().tags("lang=*"), false).size());
    String model8 = model.info().fingerprint().substring(0, 8);
    assertEquals(3, store().list(new FilterOptions().model(model8), false).size());
    assertEquals(0, store().list(new FilterOptions().unlabelled(true), false).size());

    store().setLabel(first, new LabelOptions().label("Gr\u00f6\u00dfe.pdf#7"));
    store().setLabel(first, new LabelOptions().tags(""));
    chunk = store().list(new FilterOptions().label("Gr\u00f6\u00dfe.pdf"), false).get(0);
    assertEquals(first, chunk.id());
    assertEquals("", chunk.tags());
    store().setLabel(acme, new LabelOptions().label("").tenant("acme"));
    store().setLabel(acme, new LabelOptions().tags("x").tenant("acme"));
    assertEquals("x", store().list(new FilterOptions().unlabelled(true), false).get(0).tags());
    LabelOptions evil = new LabelOptions().label("mine").tenant("evil");
    assertThrows(NotFoundException.class, () -> store().setLabel(acme, evil));

    for (String wrong : List.of("a\nb", "a\0b")) {
      LabelOptions label = new LabelOptions().label(wrong);
      assertThrows(InvalidArgumentException.class, () -> store().setLabel(first, label));
    }
    assertThrows(
        InvalidArgumentException.class,
        () -> store().list(new FilterOptions().model("model.gguf"), false));
    assertThrows(
        InvalidArgumentException.class, () -> store().removeMatching(new FilterOptions().tenant("acme")));
    assertEquals(List.of("a.md#2"), labels(store().removeMatching(new FilterOptions().label("a.md"))));
    assertEquals(2, store().removeMatching(new FilterOptions().label("*")).size());
    assertEquals(0, store().stat().nChunks());
  }

  @Test
  public void anotherTenantsChunkIsNotThere() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    String id = model.precompute(store(), tokens, new PrecomputeOptions().tenant("acme")).id();
    Prompt prompt = Prompt.builder(model.tokenizer()).chunkId(id).question("\nWho?").build();
    for (String tenant : new String[] {"", "evil"}) {
      assertThrows(
          NotFoundException.class,
          () -> model.fuse(store(), prompt, new FuseOptions().tenant(tenant)).close());
      assertEquals(0, store().list(new FilterOptions().tenant(tenant), false).size());
      assertThrows(NotFoundException.class, () -> store().remove(id, new TenantOptions().tenant(tenant)));
    }
    String saved;
    try (Fusion fusion = model.fuse(store(), prompt, new FuseOptions().tenant("acme"))) {
      saved = fusion.save(store(), new SaveOptions().tenant("acme"));
    }
    store().flush();
    assertThrows(NotFoundException.class, () -> model.restore(store(), saved, new RestoreOptions().reserveTokens(0)).close());
    model.restore(store(), saved, new RestoreOptions().tenant("acme").reserveTokens(0)).close();
    assertEquals(2, store().list(new FilterOptions().tenant("acme"), true).size());
    store().remove(id, new TenantOptions().tenant("acme"));
    store().remove(saved, new TenantOptions().tenant("acme"));
  }

  @Test
  public void negativeCountsAreRefused() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    assertThrows(
        InvalidArgumentException.class,
        () -> model.precompute(store(), tokens, new PrecomputeOptions().threads(-1)));
  }

  @Test
  public void options() {
    Store.Options options =
        new Store.Options().kvDtype(Dtype.F32).quotaBytes(1L << 33).queueBytes(1 << 20).readMode(ReadMode.MAPPED);
    try (Store store = Store.open(context, path("other"), options)) {
      assertEquals(1L << 33, store.stat().quotaBytes());
      assertEquals(ReadMode.MAPPED, store.stat().readMode());
      model.precompute(store, PASSAGES.get(0));
      assertEquals(Dtype.F32, store.list(false).get(0).kvDtype());
    }
    try (Store again = Store.open(context, path("other"), new Store.Options().readOnly(true).create(false))) {
      assertThrows(ReadOnlyException.class, () -> model.precompute(again, PASSAGES.get(1)));
    }
  }

  @Test
  public void pinEvictHintAndTenants() {
    try (Store store =
        Store.open(
            context,
            path("kept"),
            new Store.Options()
                .eviction(Eviction.FIFO)
                .ramBytes(1 << 22)
                .tenantQuotaBytes(1 << 20)
                .ttl(Duration.ofHours(1)))) {
      assertEquals(1 << 22, store.stat().ramBudgetBytes());
      String kept = model.precompute(store, PASSAGES.get(0)).id();
      String lost = model.precompute(store, PASSAGES.get(1)).id();
      store.setPinned(kept, true);
      assertEquals(1, store.stat().pinnedChunks());
      assertThrows(FullException.class, () -> store.evict(0));
      assertEquals(List.of(kept), store.list(false).stream().map(ChunkInfo::id).toList());
      assertTrue(store.list(false).get(0).pinned());
      assertThrows(NotFoundException.class, () -> store.setPinned(lost, true));
      store.setPinned(kept, false);
      assertEquals(1, store.evict(0));

      PrecomputeOptions tenant = new PrecomputeOptions().tenant("t");
      store.setTenantQuota("t", 1 << 20);
      model.precompute(store, model.tokenizer().tokenize(PASSAGES.get(0)), tenant);
      Store.TenantUse use = store.tenantUsage("t");
      assertEquals(1, use.nChunks());
      assertEquals(1 << 20, use.quotaBytes());
      assertTrue(use.storedBytes() > 0);
      store.prefetch(List.of(kept, lost));
      assertThrows(InvalidArgumentException.class, () -> store.prefetch(List.of("no id")));
      store.prefetch(List.of());
    }
  }

  @Test
  public void backgroundWritesAreAwaited() {
    int[] tokens = model.tokenizer().tokenize(PASSAGES.get(0));
    Stored stored = model.precompute(store(), tokens, new PrecomputeOptions().background(true));
    assertTrue(store().await(stored.id(), Duration.ofMinutes(1)));
    String none = "0".repeat(64);
    assertThrows(NotFoundException.class, () -> store().await(none, Duration.ofMinutes(1)));
  }

  @Test
  public void exportImportCopyCompactRepair() {
    Stored first = model.precompute(store(), PASSAGES.get(0));
    model.precompute(store(), PASSAGES.get(1));
    assertEquals(2, store().exportTo(path("all"), new TransferOptions()));
    assertEquals(1, store().exportTo(path("one"), new TransferOptions().ids(List.of(first.id()))));
    IllegalStateException mine = new IllegalStateException("mine");
    TransferOptions failing =
        new TransferOptions()
            .progress(
                (done, total) -> {
                  throw mine;
                });
    assertEquals(
        mine, assertThrows(IllegalStateException.class, () -> store().exportTo(path("no"), failing)));
    store().copy(path("copy"));
    try (Store other = Store.open(context, path("other"));
        Store copy = Store.open(context, path("copy"))) {
      assertEquals(1, other.importFrom(path("one"), new TransferOptions()));
      assertEquals(1, other.importFrom(path("all"), new TransferOptions()));
      assertEquals(2, other.importFrom(path("all"), new TransferOptions().replace(true)));
      assertEquals(2, copy.stat().nChunks());
      assertEquals(List.of(), copy.repair());
      BusyException busy = assertThrows(BusyException.class, () -> Store.compact(path("copy")));
      assertEquals(BusyException.CODE, busy.code());
    }
    Store.Compacted sizes = Store.compact(path("copy"));
    assertTrue(sizes.bytesAfter() > 0 && sizes.bytesAfter() <= sizes.bytesBefore());
  }

  @Test
  public void figuresForMetrics() {
    model.precompute(store(), PASSAGES.get(0));
    List<Store.Figure> figures = store().listMetrics();
    assertTrue(figures.size() > 5);
    assertTrue(figures.stream().anyMatch(Store.Figure::counter));
    assertTrue(figures.stream().allMatch(f -> !f.name().isEmpty() && !f.help().isEmpty()));
    String text = store().metrics("mine");
    assertTrue(text, text.contains(figures.get(0).name()) && text.contains("store=\"mine\""));
  }
}
