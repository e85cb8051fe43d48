package io.libblend;

import java.nio.ByteOrder;

/** Passes the library's callbacks on, and keeps what one throws until the call has returned. */
final class Relay extends RawListener {
  private final Callbacks callbacks;
  private Throwable thrown;

  Relay(Callbacks callbacks) {
    this.callbacks = callbacks;
  }

  private boolean guarded(Runnable callback) {
    try {
      callback.run();
      return true;
    } catch (Throwable t) { // whatever it is, it must not cross the C++ frames
      thrown = t;
      return false;
    }
  }

  @Override
  public boolean progress(long done, long total) {
    return callbacks.progress() == null || guarded(() -> callbacks.progress().update(done, total));
  }

  @Override
  public boolean score(RawScoring candidates) {
    return callbacks.scorer() == null
        || guarded(
            () ->
                callbacks
                    .scorer()
                    .score(
                        candidates.layer(),
                        candidates.rowsBuffer().asReadOnlyBuffer()
                            .order(ByteOrder.nativeOrder()).asIntBuffer(),
                        candidates.deviationBuffer().asReadOnlyBuffer()
                            .order(ByteOrder.nativeOrder()).asFloatBuffer(),
                        candidates.scoresBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer()));
  }

  @Override
  public boolean measurement(RawMeasurement line) {
    return callbacks.measurement() == null
        || guarded(() -> callbacks.measurement().accept(Measurement.of(line)));
  }

  /** What the callback threw, if it did. */
  Throwable failure(CallbackException otherwise) {
    return thrown == null ? otherwise : thrown;
  }

  /** What to throw for a call that a callback stopped: what the callback threw, if it did. */
  RuntimeException thrown(CallbackException otherwise) {
    if (thrown == null) {
      return otherwise;
    }
    return Relay.<RuntimeException>as(thrown);
  }

  @SuppressWarnings("unchecked")
  private static <T extends Throwable> T as(Throwable t) throws T {
    throw (T) t; // checked ones too: it is the callback's own
  }
}
