package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.Test;

public class CancelTest extends Fixture {
  private static final GenerateOptions ENDLESS = new GenerateOptions().maxTokens(900).ignoreEos(true);

  private Fusion roomy() {
    return model.fuse(store(), prompt(), new FuseOptions().reserveTokens(900));
  }

  @Test
  public void anotherThreadStopsAFuse() {
    Cancel cancel = new Cancel();
    // The first layer's progress stands for the other thread: it comes in the middle of the call.
    FuseOptions options =
        new FuseOptions()
            .cancel(cancel)
            .progress(
                (done, total) -> {
                  Thread other = new Thread(cancel::request);
                  other.start();
                  join(other);
                });
    assertThrows(CancelledException.class, () -> model.fuse(store(), prompt(), options));
    FuseOptions quiet = new FuseOptions().cancel(cancel);
    assertThrows(CancelledException.class, () -> model.fuse(store(), prompt(), quiet));
    cancel.reset();
    model.fuse(store(), prompt(), new FuseOptions().cancel(cancel)).close();
  }

  private static void join(Thread thread) {
    try {
      thread.join();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  public void oneCancelStopsTwoGenerations() throws Exception {
    Cancel cancel = new Cancel();
    CountDownLatch started = new CountDownLatch(2);
    AtomicReference<Throwable> wrong = new AtomicReference<>();
    Thread[] threads = new Thread[2];
    for (int i = 0; i < 2; ++i) {
      threads[i] =
          new Thread(
              () -> {
                try (Fusion fusion = roomy()) {
                  assertThrows(
                      CancelledException.class,
                      () ->
                          fusion.generate(
                              new GenerateOptions().maxTokens(900).ignoreEos(true).cancel(cancel),
                              token -> started.countDown()));
                } catch (Throwable t) {
                  wrong.set(t);
                  started.countDown();
                }
              });
      threads[i].start();
    }
    started.await();
    cancel.request();
    for (Thread thread : threads) {
      thread.join();
    }
    assertEquals(null, wrong.get());
    assertEquals("calls that are over are remembered", 0, cancel.running.size());
  }

  @Test
  public void whatIsCancelledChangesNothing() {
    Cancel cancel = new Cancel();
    cancel.request();
    java.nio.IntBuffer token = java.nio.IntBuffer.wrap(new int[] {5});
    try (Fusion fusion = roomy()) {
      int[] before = fusion.tokens();
      assertThrows(CancelledException.class, () -> fusion.decode(token, cancel));
      assertThrows(CancelledException.class, () -> fusion.replace(1, 1, token, cancel));
      assertThrows(CancelledException.class, () -> fusion.erase(1, 1, cancel));
      assertThrows(CancelledException.class, () -> fusion.save(store(), new SaveOptions().cancel(cancel)));
      org.junit.Assert.assertArrayEquals(before, fusion.tokens());
      cancel.reset();
      fusion.replace(1, 1, token, cancel);
      fusion.erase(2, 1, cancel);
      assertEquals(before.length - 1, fusion.tokens().length);
      assertEquals(5, fusion.tokens()[1]);
      String id = fusion.save(store(), new SaveOptions().cancel(cancel));
      model.restore(store(), id, new RestoreOptions().reserveTokens(0).cancel(cancel)).close();
      cancel.request();
      RestoreOptions restore = new RestoreOptions().reserveTokens(0).cancel(cancel);
      assertThrows(CancelledException.class, () -> model.restore(store(), id, restore));
    }
    assertEquals("calls that are over are remembered", 0, cancel.running.size());
  }

  @Test
  public void anInterruptStopsWhatTheThreadWaitsFor() throws Exception {
    CountDownLatch started = new CountDownLatch(1);
    AtomicReference<Throwable> seen = new AtomicReference<>();
    AtomicReference<Boolean> still = new AtomicReference<>();
    Thread worker =
        new Thread(
            () -> {
              try (Fusion fusion = roomy()) {
                fusion.generate(ENDLESS, token -> started.countDown());
              } catch (Throwable t) {
                seen.set(t);
                started.countDown();
              }
              still.set(Thread.currentThread().isInterrupted());
            });
    worker.start();
    started.await();
    worker.interrupt();
    worker.join();
    assertEquals(CancelledException.class, seen.get().getClass());
    assertTrue("the interrupt was swallowed", still.get());
  }

  @Test
  public void aThreadThatWasInterruptedBeforeDoesNotBegin() {
    Thread.currentThread().interrupt();
    try {
      assertThrows(CancelledException.class, () -> model.fuse(store(), prompt()));
      assertTrue(Thread.currentThread().isInterrupted());
    } finally {
      assertTrue(Thread.interrupted());
    }
    model.fuse(store(), prompt()).close();
    assertFalse(Thread.currentThread().isInterrupted());
  }
}
