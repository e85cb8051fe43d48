package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import org.junit.Test;

public class StoreTest extends Fixture {
  @Test
  public void putListStatRemove() {
    int[] tokens = model.tokenizer().encode(PASSAGES.get(0));
    Stored first = model.precompute(store(), tokens);
    assertFalse(first.existed());
    assertEquals(64, first.id().length());
    assertEquals(new Stored(first.id(), true), model.precompute(store(), tokens));
    assertEquals(new Stored(first.id(), true), model.find(store(), tokens, new PrecomputeOptions()));

    List<ChunkInfo> chunks = store().list(true);
    assertEquals(1, chunks.size());
    ChunkInfo chunk = chunks.get(0);
    assertEquals(first.id(), chunk.id());
    assertEquals("", chunk.problem());
    assertEquals(tokens.length, chunk.nTokens());
    assertEquals(model.info().fingerprint(), chunk.fingerprint());
    assertTrue(Duration.between(chunk.created(), Instant.now()).toMinutes() < 60);

    assertEquals(1, store().stat().nChunks());
    assertEquals(1, store().stat(Codec.NONE).nChunks());
    store().remove(first.id());
    assertEquals(0, store().stat().nChunks());
    assertThrows(NotFoundException.class, () -> store().remove(first.id()));
  }

  @Test
  public void tenantsPrefixesAndCodecs() {
    int[] tokens = model.tokenizer().encode(PASSAGES.get(0));
    String plain = model.precompute(store(), tokens).id();
    String other = model.precompute(store(), tokens, new PrecomputeOptions().tenant("t\u00e4nant")).id();
    String after =
        model.precompute(store(), tokens, new PrecomputeOptions().prefix(model.tokenizer().bos())).id();
    assertNotEquals(plain, other);
    assertNotEquals(plain, after);
    model.precompute(
        store(), tokens, new PrecomputeOptions().tenant("8").codec(Codec.INT8));
    assertEquals(1, store().stat(Codec.INT8).nChunks());
    assertEquals(4, store().list(false).size());
  }

  @Test
  public void options() {
    Store.Options options =
        new Store.Options().kvType(KvType.F32).quotaBytes(1L << 33).queueBytes(1 << 20).readMode(ReadMode.MAPPED);
    try (Store store = Store.open(context, path("other"), options)) {
      assertEquals(1L << 33, store.stat().quotaBytes());
      assertEquals(ReadMode.MAPPED, store.stat().readMode());
      model.precompute(store, PASSAGES.get(0));
      assertEquals(KvType.F32, store.list(false).get(0).kvDtype());
    }
    try (Store again = Store.open(context, path("other"), new Store.Options().readOnly(true).create(false))) {
      assertThrows(ReadOnlyException.class, () -> model.precompute(again, PASSAGES.get(1)));
    }
  }

  @Test
  public void whatAStoreKeeps() {
    Store.Options options =
        new Store.Options()
            .eviction(Eviction.FIFO)
            .ramBytes(1 << 22)
            .tenantQuotaBytes(1 << 20)
            .timeToLive(Duration.ofHours(1));
    try (Store store = Store.open(context, path("kept"), options)) {
      int[] tokens = model.tokenizer().encode(PASSAGES.get(0));
      model.precompute(store, tokens, new PrecomputeOptions().background(true));
      store.flush();
      assertEquals(1, store.stat().nChunks());
      assertEquals(1 << 22, store.stat().ramBudgetBytes());
    }
  }
}
