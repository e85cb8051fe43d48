package io.libblend;

/**
 * What all options of long calls have. Not thread-safe while they are set; after that any number of calls
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
   * What stops the calls, besides an interrupt of their thread.
   *
   * @param token null: nothing else
   * @return this
   */
  public T cancel(Cancel token) {
    cancel = token;
    return self();
  }

  /**
   * Who hears how far a call is.
   *
   * @param listener null: nobody
   * @return this
   */
  public T progress(Progress listener) {
    progress = listener;
    return self();
  }

  Callbacks callbacks() {
    return new Callbacks(progress, null, null);
  }

  static <R extends RawCall> R prepare(R call, RawCancel cancel, RawListener listener) {
    call.setCancel(cancel);
    if (listener != null) {
      call.setListener(listener);
    }
    return call;
  }
}
