package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.Test;

public class CallbacksTest extends Fixture {
  private static final class Mine extends Error {
    private static final long serialVersionUID = 1L;
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> void sneak(Throwable t) throws T {
    throw (T) t;
  }

  @Test
  public void whatACallbackThrowsComesBackItself() {
    for (Throwable thrown : List.of(new Mine(), new IllegalStateException("x"), new IOException("checked"))) {
      Progress progress = (done, total) -> CallbacksTest.<RuntimeException>sneak(thrown);
      FuseOptions options = new FuseOptions().progress(progress);
      assertSame(thrown, assertThrows(Throwable.class, () -> model.fuse(store(), prompt(), options)));
      assertSame(
          thrown,
          assertThrows(
              Throwable.class, () -> Model.open(context, MODEL, new Model.Options().progress(progress))));
      assertSame(
          thrown,
          assertThrows(
              Throwable.class,
              () ->
                  model.precompute(
                      store(), new int[] {300, 301}, new PrecomputeOptions().progress(progress))));
    }
    try (Fusion fusion = fusion()) {
      assertTrue(fusion.generate(new GenerateOptions().maxTokens(2)).length() > 0);
    }
  }

  @Test
  public void aConsumerThatThrowsFreesTheFusion() {
    Mine mine = new Mine();
    try (Fusion fusion = fusion()) {
      assertSame(
          mine,
          assertThrows(
              Mine.class,
              () ->
                  fusion.generate(
                      new GenerateOptions(),
                      token -> {
                        throw mine;
                      })));
      fusion.decode(5);
    }
  }

  @Test
  public void progressReachesItsTotal() {
    List<Long> seen = new ArrayList<>();
    try (Fusion fusion =
        model.fuse(store(), prompt(), new FuseOptions().progress((done, total) -> seen.add(total - done)))) {
      assertEquals(Long.valueOf(0), seen.get(seen.size() - 1));
      assertTrue(seen.size() >= fusion.info().nLayers());
    }
  }

  @Test
  public void scoresChooseTheRows() {
    FuseOptions last =
        new FuseOptions()
            .policy(Policy.CALLBACK)
            .onMiss(OnMiss.PRECOMPUTE)
            .ratio(0.1)
            .scorer(
                (layer, rows, deviation, scores) -> {
                  assertEquals(1, layer);
                  assertEquals(rows.remaining(), deviation.remaining());
                  assertThrows(ReadOnlyBufferException.class, () -> rows.put(0, 0));
                  for (int i = 0; i < rows.remaining(); ++i) {
                    scores.put(i, rows.get(i));
                  }
                });
    try (Fusion fusion = model.fuse(store(), prompt(), last)) {
      int[] selected = fusion.selected();
      assertTrue(selected.length > 1);
      for (int i = 1; i < selected.length; ++i) {
        assertEquals(selected[i - 1] + 1, selected[i]);
      }
    }
  }

  @Test
  public void recordsGoToALoggerOfThePlatform() throws Exception {
    LinkedBlockingQueue<java.util.logging.LogRecord> logged = new LinkedBlockingQueue<>();
    java.util.logging.Logger sink = java.util.logging.Logger.getLogger("io.libblend.test");
    sink.setUseParentHandlers(false);
    sink.addHandler(
        new java.util.logging.Handler() {
          @Override
          public void publish(java.util.logging.LogRecord record) {
            logged.add(record);
          }

          @Override
          public void flush() {}

          @Override
          public void close() {}
        });
    LinkedBlockingQueue<LogRecord> told = new LinkedBlockingQueue<>();
    Consumer<LogRecord> logger = LogRecord.to(System.getLogger("io.libblend.test"));
    try (Context own = Context.create(new Context.Options().threads(1).log(logger.andThen(told::add)));
        Model opened = Model.open(own, MODEL)) {
      LogRecord record = told.poll(30, TimeUnit.SECONDS);
      while (!record.name().equals("BLEND_EVENT_MODEL_OPENED")) {
        record = told.poll(30, TimeUnit.SECONDS);
      }
      assertEquals(LogLevel.INFO, record.level());
      assertEquals("model", record.component());
      assertEquals(MODEL.toString(), record.fields().get("path"));
      assertEquals((long) opened.info().nLayers(), record.fields().get("layers"));
      assertTrue(record.fields().get("seconds") instanceof Double);
      assertTrue(record.time().isAfter(java.time.Instant.parse("2020-01-01T00:00:00Z")));
      java.util.logging.LogRecord last = null;
      for (java.util.logging.LogRecord one : logged) {
        last = one;
      }
      assertEquals(record.toString(), last.getMessage());
      assertEquals(java.util.logging.Level.INFO, last.getLevel());
    }
  }

  @Test
  public void recordsComeOnAThreadOfTheirOwn() throws Exception {
    LinkedBlockingQueue<LogRecord> records = new LinkedBlockingQueue<>();
    Context.Options options =
        new Context.Options()
            .threads(1)
            .backend("auto")
            .logLevel(LogLevel.WARNING)
            .log(
                record -> {
                  records.add(record);
                  throw new IllegalStateException("a test's consumer that fails");
                });
    try (Context told = Context.create(options)) {
      if (told.backend().startsWith("cpu")) {
        // No GPU, which "auto" tells.
        LogRecord record = records.poll(30, TimeUnit.SECONDS);
        assertEquals(NoDeviceException.CODE, record.code());
        assertEquals(LogLevel.WARNING, record.level());
      }
    }
  }
}
