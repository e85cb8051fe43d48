package io.libblend;

import java.util.function.Consumer;

/** Pulls the records of a context until everything of it is closed. */
final class LogPump implements Runnable {
  private final RawLogQueue queue;
  private final Consumer<LogRecord> consumer;

  private LogPump(RawLogQueue queue, Consumer<LogRecord> consumer) {
    this.queue = queue;
    this.consumer = consumer;
  }

  static void start(RawLogQueue queue, Consumer<LogRecord> consumer) {
    Thread thread = new Thread(new LogPump(queue, consumer), "libblend-log");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void run() {
    RawLogRecord record = new RawLogRecord();
    while (queue.next(-1, record) > 0) {
      try {
        consumer.accept(LogRecord.of(record));
      } catch (Throwable t) {
        Thread thread = Thread.currentThread();
        thread.getUncaughtExceptionHandler().uncaughtException(thread, t);
      }
    }
    record.delete();
    queue.delete();
  }
}
