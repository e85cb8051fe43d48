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
    if (options.log == null) {
      return new Context(RawContext.create(options.raw));
    }
    RawLogQueue queue = new RawLogQueue();
    RawContextOptions telling = new RawContextOptions(options.raw);
    try {
      telling.setLog(queue);
      Context made = new Context(RawContext.create(telling));
      LogPump.start(queue, options.log);
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

  /** How a context is made. For one thread. */
  public static final class Options {
    private final RawContextOptions raw = new RawContextOptions();
    private Consumer<LogRecord> log;

    /** All CPUs of this process. */
    public Options() {}

    // blend:setters ctx_options Options

    /**
     * What is called with each record of the library, on a daemon thread of its own, one at a time; it may call
     * the library. What it throws goes to that thread's handler of uncaught exceptions. If more than 1024 records
     * wait, the oldest are dropped. {@link LogRecord#to} gives them to a logger.
     *
     * @param consumer of records
     * @return this
     */
    public Options log(Consumer<LogRecord> consumer) {
      log = consumer;
      return this;
    }
  }
}
