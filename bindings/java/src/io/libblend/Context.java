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
      return new Context(
          RawContext.create(
              options.threads, options.pin, options.cacheType.code, options.backend));
    }
    RawEvents events = new RawEvents();
    RawContext raw =
        RawContext.createWithEvents(
            options.threads, options.pin, options.cacheType.code, options.backend, events);
    EventPump.start(events, options.onEvent);
    return new Context(raw);
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
   * Something worth a log line that is no call's failure: a damaged chunk, a write that failed.
   *
   * @param code a BLEND_* code of blend.h
   * @param message one sentence
   */
  public record Event(int code, String message) {}

  /** How a context is made. For one thread. */
  public static final class Options {
    private int threads;
    private boolean pin;
    private KvType cacheType = KvType.AUTO;
    private String backend = "cpu";
    private Consumer<Event> onEvent;

    /** All CPUs of this process. */
    public Options() {}

    /**
     * How many compute.
     *
     * @param count the calling thread included; 0: as many as this process has CPUs
     * @return this
     */
    public Options threads(int count) {
      threads = count;
      return this;
    }

    /**
     * Whether each thread that the context starts keeps to one CPU of those that the calling thread may
     * run on; the first of them is left to the callers.
     *
     * @param on false by default
     * @return this
     */
    public Options pinThreads(boolean on) {
      pin = on;
      return this;
    }

    /**
     * What the K and V of prompts are kept as.
     *
     * @param type AUTO, the default: F32 on a CPU, where F16 halves their memory, and BF16 on a GPU
     * @return this
     */
    public Options cacheType(KvType type) {
      cacheType = java.util.Objects.requireNonNull(type);
      return this;
    }

    /**
     * What computes.
     *
     * @param name "cpu", "cuda", "cuda:N" or "auto"
     * @return this
     */
    public Options backend(String name) {
      backend = java.util.Objects.requireNonNull(name);
      return this;
    }

    /**
     * Who hears of events, on a daemon thread of its own, one after the other; it may call the library.
     * What it throws goes to that thread's handler of uncaught exceptions, and the next event follows.
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
