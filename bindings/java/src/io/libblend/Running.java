package io.libblend;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.spi.AbstractInterruptibleChannel;
import java.util.HashMap;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;

/**
 * One blocking call, with its cancel token and its listener. It is a channel because only channels learn
 * of Thread.interrupt(): the interrupting thread closes the channel, which cancels the call. Belongs to the calling thread.
 */
final class Running extends AbstractInterruptibleChannel {
  final RawCancel cancel = new RawCancel();
  private final Cancel users;
  private final Map<RawCancel, Cancel> others = new HashMap<>();

  Running(Cancel users) {
    this.users = users;
    if (users != null) {
      users.join(cancel);
    }
  }

  /** Runs a call without callbacks, which can be cancelled. */
  static <T> T call(Cancel users, Function<RawCancel, T> call) {
    Running running = new Running(users);
    try {
      return running.during(() -> call.apply(running.cancel));
    } finally {
      running.delete();
    }
  }

  /** Runs a call that has callbacks; the listener that it is given is null if none are set. */
  static <T> T call(Cancel users, Callbacks callbacks, BiFunction<RawCancel, RawListener, T> call) {
    if (callbacks.none()) {
      return call(users, cancel -> call.apply(cancel, null));
    }
    Relay relay = new Relay(callbacks);
    try {
      return call(users, cancel -> call.apply(cancel, relay));
    } catch (CallbackException e) {
      throw relay.thrown(e);
    } finally {
      relay.delete(); // also keeps it reachable: C++ holds it weakly
    }
  }

  /** Another cancel, of a part of the call; before during(). */
  RawCancel more(Cancel users) {
    RawCancel other = new RawCancel();
    others.put(other, users);
    if (users != null) {
      users.join(other);
    }
    return other;
  }

  /** Runs a part of the call in which an interrupt cancels. */
  <T> T during(java.util.function.Supplier<T> part) {
    begin();
    try {
      return part.get();
    } finally {
      try {
        end(true);
      } catch (ClosedByInterruptException e) {
        // The library answered, or it threw CancelledException; the thread stays interrupted.
      } catch (IOException e) {
        throw new AssertionError(e); // end(true) throws nothing else
      }
    }
  }

  /** The user's cancel need not reach this call any more. */
  void leave() {
    if (users != null) {
      users.leave(cancel);
    }
    others.forEach(
        (other, user) -> {
          if (user != null) {
            user.leave(other);
          }
        });
  }

  void delete() {
    leave();
    cancel.delete();
    others.keySet().forEach(RawCancel::delete);
  }

  @Override
  protected void implCloseChannel() {
    cancel.request();
    others.keySet().forEach(RawCancel::request);
  }
}
