package io.libblend;

import java.util.function.Consumer;

/** Pulls the events of a context until everything of it is closed. */
final class EventPump implements Runnable {
  private final RawEvents events;
  private final Consumer<Context.Event> consumer;

  private EventPump(RawEvents events, Consumer<Context.Event> consumer) {
    this.events = events;
    this.consumer = consumer;
  }

  static void start(RawEvents events, Consumer<Context.Event> consumer) {
    Thread thread = new Thread(new EventPump(events, consumer), "libblend-events");
    thread.setDaemon(true);
    thread.start();
  }

  @Override
  public void run() {
    RawEvent event = new RawEvent();
    while (events.next(-1, event) > 0) {
      try {
        consumer.accept(new Context.Event(event.getCode(), RawErrors.spoken(event.getMessage())));
      } catch (Throwable t) {
        Thread thread = Thread.currentThread();
        thread.getUncaughtExceptionHandler().uncaughtException(thread, t);
      }
    }
    event.delete();
    events.delete();
  }
}
