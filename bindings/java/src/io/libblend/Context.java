package io.libblend;

import java.util.function.Consumer;

/** Owns the compute threads; one a process is the usual choice. Thread-safe. */
public final class Context implements AutoCloseable {
  final RawContext raw;

  private Context(RawContext raw) {
    this.raw = raw;
  }

  /**
   * Computes on all CPUs that this process may use.
   *
   * @return to be closed
   */
  public static Context create() {
    return create(new Options());
  }

  /**
   * Starts the threads.
   *
   * @param options how many and where
   * @return to be closed
   * @throws InvalidArgumentException for a backend or number of threads that cannot be
   * @throws NoDeviceException if the GPU asked for, or what it needs, is not here
   */
  public static Context create(Options options) {
    if (options.onEvent == null) {
      return new Context(RawContext.create(options.raw));
    }
    RawEvents events = new RawEvents();
    RawContextOptions telling = new RawContextOptions(options.raw);
    try {
      telling.setEvents(events);
      Context made = new Context(RawContext.create(telling));
      EventPump.start(events, options.onEvent);
      return made;
    } finally {
      telling.delete();
    }
  }

  /**
   * What computes.
   *
   * @return such as "cpu (AVX-512, VNNI)", "cpu (NEON)" or "cuda:0 (NAME)"
   */
  public String backend() {
    return raw.backend();
  }

  @Override
  public void close() {
    raw.close();
  }

  /**
   * Something worth a log line that is not the failure of a call: a damaged chunk, a write that failed.
   *
   * @param code a BLEND_* code of blend.h
   * @param message one sentence
   */
  public record Event(int code, String message) {}

  /** How a context is made. For one thread. */
  public static final class Options {
    private final RawContextOptions raw = new RawContextOptions();
    private Consumer<Event> onEvent;

    /** All CPUs of this process. */
    public Options() {}

    // blend:setters ctx_options Options

    /**
     * What is called with each event, on a daemon thread of its own, one at a time; it may call the
     * library. What it throws goes to that thread's handler of uncaught exceptions.
     *
     * @param consumer of events
     * @return this
     */
    public Options onEvent(Consumer<Event> consumer) {
      onEvent = consumer;
      return this;
    }
  }
}
