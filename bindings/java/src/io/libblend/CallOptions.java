package io.libblend;

import java.util.function.Function;

/**
 * Common options of long calls. Not thread-safe while they are set; after that any number of calls
 * may be given the same ones.
 *
 * @param <T> the options themselves
 */
public abstract class CallOptions<T extends CallOptions<T>> {
  Cancel cancel;
  Progress progress;

  CallOptions() {}

  @SuppressWarnings("unchecked")
  private T self() {
    return (T) this;
  }

  /**
   * Stops the calls, besides an interrupt of their thread.
   *
   * @param token null: nothing else
   * @return this
   */
  public T cancel(Cancel token) {
    cancel = token;
    return self();
  }

  /**
   * What is called with the progress of a call.
   *
   * @param listener null: none
   * @return this
   */
  public T progress(Progress listener) {
    progress = listener;
    return self();
  }

  Callbacks callbacks() {
    return new Callbacks(progress, null, null);
  }

  static void prepare(RawCall call, RawCancel cancel, RawListener listener) {
    call.setCancel(cancel);
    if (listener != null) {
      call.setListener(listener);
    }
  }

  /** Runs a call with a copy of the raw options, to which its cancel token and its listener are added. */
  <R extends RawCall, V> V call(R copy, Function<R, V> body) {
    try {
      return Running.call(
          cancel,
          callbacks(),
          (token, listener) -> {
            prepare(copy, token, listener);
            return body.apply(copy);
          });
    } finally {
      copy.delete();
    }
  }
}
