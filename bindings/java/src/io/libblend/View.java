package io.libblend;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.function.Function;

/**
 * The library's own memory, shown without a copy by a read-only direct buffer. It keeps the memory, even
 * of a fusion that was closed, until it is closed itself; and meanwhile the fusion refuses what would
 * change it ({@link ViewHeldException}). A view that is forgotten keeps all that until its buffer is
 * collected, so close it:
 *
 * <pre>{@code
 * try (View<FloatBuffer> logits = fusion.viewLogits()) {
 *   use(logits.buffer());
 * }
 * }</pre>
 *
 * The buffer must not be used after that: its memory may be gone. Thread-safe, unlike buffers' positions.
 *
 * @param <B> FloatBuffer or IntBuffer
 */
public final class View<B extends Buffer> implements AutoCloseable {
  private final RawView raw;
  private volatile B buffer;

  View(RawView raw, Function<ByteBuffer, B> as) {
    this.raw = raw;
    ByteBuffer memory = raw.buffer();
    buffer = as.apply(memory);
    // Buffers made of it refer to it, so whoever has one of them keeps the memory.
    NativeMemory.keep(memory, raw);
  }

  /**
   * The memory.
   *
   * @return the same buffer every time, position 0 at first
   * @throws ClosedException if the view is closed
   */
  public B buffer() {
    B shown = buffer;
    if (shown == null) {
      throw new ClosedException(0, "the view is closed");
    }
    return shown;
  }

  @Override
  public void close() {
    buffer = null;
    raw.release();
  }
}
