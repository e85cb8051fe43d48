package io.libblend;

import java.lang.ref.Cleaner;
import java.util.function.LongConsumer;

/** Frees C++ objects whose raw objects are gone. Thread-safe. */
final class NativeMemory {
  private static final Cleaner CLEANER = Cleaner.create();

  private NativeMemory() {}

  static Cleaner.Cleanable register(Object owner, long address, LongConsumer destroy) {
    return CLEANER.register(owner, new Destruction(address, destroy));
  }

  /** Keeps {@code kept} until {@code owner} is gone. */
  static void keep(Object owner, Object kept) {
    CLEANER.register(owner, new Keeping(kept));
  }

  private record Destruction(long address, LongConsumer destroy) implements Runnable {
    @Override
    public void run() {
      destroy.accept(address);
    }
  }

  private record Keeping(Object kept) implements Runnable {
    @Override
    public void run() {}
  }
}
