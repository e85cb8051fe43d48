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
public class PlanTest extends Fixture {
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

  private static WeakReference<KvView> fetched(Plan plan, int layer) {
    KvView rows = new KvView(memory(2), memory(2), Dtype.F32);
    plan.fetch(layer, rows);
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
  public void aPlanKeepsWhatItWritesToUntilThatIsDone() throws Exception {
    ModelDescription description = described("test/kept");
    Prompt prompt = Prompt.builder().question(new int[] {21, 22}).build();
    FuseOptions options = new FuseOptions().policy(Policy.FULL).onMiss(OnMiss.COMPUTE);
    try (Model host = Model.describe(context, description);
        Plan plan = Plan.create(host, null, prompt, options)) {
      String early =
          assertThrows(InvalidArgumentException.class, () -> plan.synchronize(0)).getMessage();
      assertTrue(early, early.contains("Plan.fetch of layer 0"));
      assertFalse(early, early.contains("blend_"));
      WeakReference<KvView> rows = fetched(plan, 0);
      assertFalse("the library may write to it", isCollected(rows, 5));
      plan.synchronize(0);
      assertTrue("nothing is written any more", isCollected(rows, 1000));
    }
  }

  private WeakReference<KvView> fetchedOfTheModel(Plan plan, int rows, int layer) {
    int bytes = 4 * rows * model.info().nKvHeads() * model.info().headDim();
    KvView view = new KvView(ByteBuffer.allocateDirect(bytes), ByteBuffer.allocateDirect(bytes), Dtype.F32);
    plan.fetch(layer, view);
    return new WeakReference<>(view);
  }

  @Test
  public void aPlanKeepsWhatAProbeWritesToAgain() throws Exception {
    int[] chunk = java.util.Arrays.copyOf(model.tokenizer().encode(PASSAGES.get(0)), 10);
    model.precompute(store(), chunk, new PrecomputeOptions());
    Prompt prompt = Prompt.builder().text(new int[] {99}).chunk(chunk).question(new int[] {5, 6}).build();
    FuseOptions options = new FuseOptions().policy(Policy.PROBE).onMiss(OnMiss.FAIL);
    try (Plan plan = Plan.create(model, store(), prompt, options)) {
      fetchedOfTheModel(plan, 13, 0);
      plan.synchronize(0);
      plan.commit(0);
      WeakReference<KvView> rows = fetchedOfTheModel(plan, 13, 1);
      plan.synchronize(1);
      assertFalse("the library will write to it", isCollected(rows, 5));
      plan.probe(new float[13]);
      assertFalse("the library writes to it", isCollected(rows, 5));
      for (int l = 0; l < 2; ++l) {
        plan.synchronize(l);
        plan.commit(l);
      }
      assertTrue("nothing is written any more", isCollected(rows, 1000));
    }
  }

  @Test
  public void theQuestionChoosesFirst() {
    // The host's K, V and attention are made up: the question attends to rows 3 and 5, so those go on.
    int[] chunk = java.util.Arrays.copyOf(model.tokenizer().encode(PASSAGES.get(0)), 10);
    model.precompute(store(), chunk, new PrecomputeOptions());
    Prompt prompt = Prompt.builder().text(new int[] {99}).chunk(chunk).question(new int[] {5, 6}).build();
    FuseOptions options = new FuseOptions().policy(Policy.PROBE).ratio(0.2).onMiss(OnMiss.FAIL);
    int bytes = 4 * 13 * model.info().nKvHeads() * model.info().headDim();
    try (Plan plan = Plan.create(model, store(), prompt, options)) {
      float[] attention = new float[13];
      attention[3] = 0.25f;
      attention[5] = 0.5f;
      for (int l = 0; l < 2; ++l) {
        ByteBuffer k = ByteBuffer.allocateDirect(bytes);
        ByteBuffer v = ByteBuffer.allocateDirect(bytes);
        plan.fetch(l, new KvView(k, v, Dtype.F32));
        String early =
            assertThrows(InvalidArgumentException.class, () -> plan.probe(attention)).getMessage();
        assertTrue(early, early.contains("due now is Plan.synchronize"));
        plan.synchronize(l);
        if (l == 0) {
          plan.commit(l);
        }
      }
      assertThrows(InvalidArgumentException.class, () -> plan.probe(new float[12]));
      assertThrows(NullPointerException.class, () -> plan.probe(null));
      assertArrayEquals(new int[] {0, 3, 5, 11, 12}, plan.probe(attention));
      assertArrayEquals(new int[] {3, 5}, plan.selected());
    }
  }

  @Test
  public void storedRowsArriveInTheHostsBuffers() {
    ModelDescription description = described("test/plan");
    try (Model host = Model.describe(context, description);
        Store store = Store.open(context, path("kv"), new Store.Options().kvDtype(Dtype.F32))) {
      int[] chunk = {11, 12, 13, 14};
      List<KvView> layers = new ArrayList<>();
      for (int l = 0; l < LAYERS; ++l) {
        layers.add(new KvView(filled(4, l + 1), filled(4, l + 10), Dtype.F32, true, 0, 0));
      }
      String id = host.putKv(store, chunk, layers, 0, new PrecomputeOptions());
      assertEquals(new Stored(id, true), host.find(store, chunk, new PrecomputeOptions()));
      assertThrows(
          InvalidArgumentException.class,
          () -> host.putKv(store, chunk, layers.subList(0, 1), 0, new PrecomputeOptions()));

      Prompt prompt = Prompt.builder().chunk(chunk).question(new int[] {21, 22}).build();
      FuseOptions options = new FuseOptions().policy(Policy.REUSE).onMiss(OnMiss.FAIL);
      try (Plan plan = Plan.create(host, store, prompt, options)) {
        assertEquals(6, plan.tokens().length);
        for (int l = 0; l < LAYERS; ++l) {
          ByteBuffer k = filled(6, -1);
          ByteBuffer v = filled(6, -1);
          plan.fetch(l, new KvView(k, v, Dtype.F32, true, 0, 0));
          int[] rows = plan.rows();
          plan.synchronize(l);
          for (int row = 0; row < 6; ++row) {
            int wanted = row;
            boolean fresh = java.util.Arrays.stream(rows).anyMatch(r -> r == wanted);
            float stored = k.order(ByteOrder.nativeOrder()).getFloat(4 * row * KV_DIM);
            assertEquals("layer " + l + " row " + row, fresh ? -1 : l + 1, stored, 1e-6);
            assertEquals(
                fresh ? -1 : l + 10, v.order(ByteOrder.nativeOrder()).getFloat(4 * row * KV_DIM), 1e-6);
          }
          KvView fresh = new KvView(filled(rows.length, 0), filled(rows.length, 0), Dtype.F32, true, 0, 0);
          plan.select(l, fresh);
          plan.commit(l);
        }
        assertEquals(2, plan.segments().size());
        assertTrue(plan.info().bytesLoaded() > 0);
      }
      Plan closed = Plan.create(host, store, prompt, options);
      closed.close();
      closed.close();
      assertThrows(IllegalStateException.class, closed::rows);
      try (Plan early = Plan.create(host, store, prompt, options)) {
        assertThrows(InvalidArgumentException.class, () -> early.commit(0));
        KvView small = new KvView(memory(2), memory(2), Dtype.F32);
        assertThrows(InvalidArgumentException.class, () -> early.fetch(0, small));
      }
    }
  }
}
