package io.libblend;

import java.util.HashSet;
import java.util.Set;

/**
 * Stops the calls whose options have it: they throw {@link CancelledException} within about the time of
 * one layer. One may serve many calls, at once and in turn. Thread-safe.
 */
public final class Cancel {
  final Set<RawCancel> running = new HashSet<>();
  private boolean requested;

  /** One that nobody has requested yet. */
  public Cancel() {}

  /** Stops the calls that run and all that come, until {@link #reset()}. Returns at once. */
  public synchronized void request() {
    requested = true;
    running.forEach(RawCancel::request);
  }

  /** Lets calls run again. Those that were stopped stay so. */
  public synchronized void reset() {
    requested = false;
  }

  /**
   * Whether it was requested.
   *
   * @return true until {@link #reset()}
   */
  public synchronized boolean isRequested() {
    return requested;
  }

  synchronized void join(RawCancel call) {
    if (requested) {
      call.request();
    }
    running.add(call);
  }

  synchronized void leave(RawCancel call) {
    running.remove(call);
  }
}
