package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.lang.ref.WeakReference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

/** The step API with a host that only moves numbers: K and V of row r at layer l are made of r and l. */
public class LayerwiseTest extends Fixture {
  private static final int LAYERS = 3;
  private static final int KV_DIM = 2 * 8;

  private static ByteBuffer memory(int rows) {
    return ByteBuffer.allocateDirect(4 * rows * KV_DIM + 12).order(ByteOrder.nativeOrder()).position(12).slice();
  }

  private static ByteBuffer filled(int rows, float value) {
    ByteBuffer bytes = memory(rows);
    FloatBuffer floats = bytes.order(ByteOrder.nativeOrder()).asFloatBuffer();
    while (floats.hasRemaining()) {
      floats.put(value);
    }
    return bytes;
  }

  private static WeakReference<KvView> fetched(Layerwise layerwise, int layer) {
    KvView rows = new KvView(memory(2), memory(2), Dtype.F32);
    layerwise.fetchKv(layer, rows);
    return new WeakReference<>(rows);
  }

  private static boolean isCollected(WeakReference<?> reference, int tries) throws Exception {
    for (int i = 0; i < tries && reference.get() != null; ++i) {
      System.gc();
      Thread.sleep(10);
    }
    return reference.get() == null;
  }

  private static ModelDescription described(String name) {
    return new ModelDescription()
        .name(name)
        .layers(LAYERS)
        .heads(4)
        .kvHeads(2)
        .headDim(8)
        .vocab(1000)
        .contextLength(128);
  }

  @Test
  public void aLayerwiseFuseKeepsWhatItWritesToUntilThatIsDone() throws Exception {
    ModelDescription description = described("test/kept");
    Prompt prompt = Prompt.builder().question(new int[] {21, 22}).build();
    FuseOptions options = new FuseOptions().policy(Policy.FULL).onMiss(OnMiss.COMPUTE);
    try (Model host = Model.createFromDescription(context, description);
        Layerwise layerwise = Layerwise.create(host, null, prompt, options)) {
      String early =
          assertThrows(InvalidArgumentException.class, () -> layerwise.synchronize(0)).getMessage();
      assertTrue(early, early.contains("Layerwise.fetchKv of layer 0"));
      assertFalse(early, early.contains("blend_"));
      WeakReference<KvView> rows = fetched(layerwise, 0);
      assertFalse("the library may write to it", isCollected(rows, 5));
      layerwise.synchronize(0);
      assertTrue("nothing is written any more", isCollected(rows, 1000));
    }
  }

  private WeakReference<KvView> fetchedOfTheModel(Layerwise layerwise, int rows, int layer) {
    int bytes = 4 * rows * model.info().nKvHeads() * model.info().headDim();
    KvView view = new KvView(ByteBuffer.allocateDirect(bytes), ByteBuffer.allocateDirect(bytes), Dtype.F32);
    layerwise.fetchKv(layer, view);
    return new WeakReference<>(view);
  }

  @Test
  public void aLayerwiseFuseKeepsWhatAProbeWritesToAgain() throws Exception {
    int[] chunk = java.util.Arrays.copyOf(model.tokenizer().tokenize(PASSAGES.get(0)), 10);
    model.precompute(store(), chunk, new PrecomputeOptions());
    Prompt prompt = Prompt.builder().text(new int[] {99}).chunk(chunk).question(new int[] {5, 6}).build();
    FuseOptions options = new FuseOptions().policy(Policy.PROBE).onMiss(OnMiss.FAIL);
    try (Layerwise layerwise = Layerwise.create(model, store(), prompt, options)) {
      fetchedOfTheModel(layerwise, 13, 0);
      layerwise.synchronize(0);
      layerwise.commit(0);
      WeakReference<KvView> rows = fetchedOfTheModel(layerwise, 13, 1);
      layerwise.synchronize(1);
      assertFalse("the library will write to it", isCollected(rows, 5));
      layerwise.probe(new float[13]);
      assertFalse("the library writes to it", isCollected(rows, 5));
      for (int l = 0; l < 2; ++l) {
        layerwise.synchronize(l);
        layerwise.commit(l);
      }
      assertTrue("nothing is written any more", isCollected(rows, 1000));
    }
  }

  @Test
  public void theQuestionChoosesFirst() {
    // The host's K, V and attention are made up: the question attends to rows 3 and 5, so those go on.
    int[] chunk = java.util.Arrays.copyOf(model.tokenizer().tokenize(PASSAGES.get(0)), 10);
    model.precompute(store(), chunk, new PrecomputeOptions());
    Prompt prompt = Prompt.builder().text(new int[] {99}).chunk(chunk).question(new int[] {5, 6}).build();
    FuseOptions options = new FuseOptions().policy(Policy.PROBE).ratio(0.2).onMiss(OnMiss.FAIL);
    int bytes = 4 * 13 * model.info().nKvHeads() * model.info().headDim();
    try (Layerwise layerwise = Layerwise.create(model, store(), prompt, options)) {
      float[] attention = new float[13];
      attention[3] = 0.25f;
      attention[5] = 0.5f;
      for (int l = 0; l < 2; ++l) {
        ByteBuffer k = ByteBuffer.allocateDirect(bytes);
        ByteBuffer v = ByteBuffer.allocateDirect(bytes);
        layerwise.fetchKv(l, new KvView(k, v, Dtype.F32));
        String early =
            assertThrows(InvalidArgumentException.class, () -> layerwise.probe(attention)).getMessage();
        assertTrue(early, early.contains("due now is Layerwise.synchronize"));
        layerwise.synchronize(l);
        if (l == 0) {
          layerwise.commit(l);
        }
      }
      assertThrows(InvalidArgumentException.class, () -> layerwise.probe(new float[12]));
      assertThrows(NullPointerException.class, () -> layerwise.probe(null));
      assertArrayEquals(new int[] {0, 3, 5, 11, 12}, layerwise.probe(attention));
      assertArrayEquals(new int[] {3, 5}, layerwise.selected());
    }
  }

  @Test
  public void storedRowsArriveInTheHostsBuffers() {
    ModelDescription description = described("test/layerwise");
    try (Model host = Model.createFromDescription(context, description);
        Store store = Store.open(context, path("kv"), new Store.Options().kvDtype(Dtype.F32))) {
      int[] chunk = {11, 12, 13, 14};
      List<KvView> layers = new ArrayList<>();
      for (int l = 0; l < LAYERS; ++l) {
        layers.add(new KvView(filled(4, l + 1), filled(4, l + 10), Dtype.F32, true, 0, 0));
      }
      String id = host.putChunk(store, chunk, layers, 0, new PrecomputeOptions());
      assertEquals(new Stored(id, true), host.findChunk(store, chunk, new PrecomputeOptions()));
      assertThrows(
          InvalidArgumentException.class,
          () -> host.putChunk(store, chunk, layers.subList(0, 1), 0, new PrecomputeOptions()));

      Prompt prompt = Prompt.builder().chunk(chunk).question(new int[] {21, 22}).build();
      FuseOptions options = new FuseOptions().policy(Policy.REUSE).onMiss(OnMiss.FAIL);
      try (Layerwise layerwise = Layerwise.create(host, store, prompt, options)) {
        assertEquals(6, layerwise.tokens().length);
        for (int l = 0; l < LAYERS; ++l) {
          ByteBuffer k = filled(6, -1);
          ByteBuffer v = filled(6, -1);
          layerwise.fetchKv(l, new KvView(k, v, Dtype.F32, true, 0, 0));
          int[] rows = layerwise.rows();
          layerwise.synchronize(l);
          for (int row = 0; row < 6; ++row) {
            int wanted = row;
            boolean fresh = java.util.Arrays.stream(rows).anyMatch(r -> r == wanted);
            float stored = k.order(ByteOrder.nativeOrder()).getFloat(4 * row * KV_DIM);
            assertEquals("layer " + l + " row " + row, fresh ? -1 : l + 1, stored, 1e-6);
            assertEquals(
                fresh ? -1 : l + 10, v.order(ByteOrder.nativeOrder()).getFloat(4 * row * KV_DIM), 1e-6);
          }
          KvView fresh = new KvView(filled(rows.length, 0), filled(rows.length, 0), Dtype.F32, true, 0, 0);
          layerwise.select(l, fresh);
          layerwise.commit(l);
        }
        assertEquals(2, layerwise.segments().size());
        assertTrue(layerwise.info().bytesLoaded() > 0);
      }
      Layerwise closed = Layerwise.create(host, store, prompt, options);
      closed.close();
      closed.close();
      assertThrows(IllegalStateException.class, closed::rows);
      try (Layerwise early = Layerwise.create(host, store, prompt, options)) {
        assertThrows(InvalidArgumentException.class, () -> early.commit(0));
        KvView small = new KvView(memory(2), memory(2), Dtype.F32);
        assertThrows(InvalidArgumentException.class, () -> early.fetchKv(0, small));
      }
    }
  }
}
