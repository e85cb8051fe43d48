package io.libblend;

import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Consumer;

/**
 * The tokens of one generation, as they are computed; nothing is computed that was not asked for. While
 * it is open its fusion refuses other calls ({@link InUseException}). It closes itself after the last token;
 * a stream that is left before that must be closed. For one thread at a time; {@link #close()} may come from any.
 */
public final class TokenStream implements Iterator<Token>, AutoCloseable {
  private final RawTokenStream raw;
  private final Running running;
  private final Consumer<FloatBuffer> logits;
  private Token ahead;
  private boolean ended;
  private volatile boolean closed;

  TokenStream(RawFusion fusion, GenerateOptions options) {
    logits = options.logits;
    running = new Running(options.cancel);
    RawGenerateOptions call = options.raw(running.cancel);
    RawTokenStream made = null;
    try {
      made = fusion.generate(call);
    } finally {
      call.delete();
      if (made == null) {
        running.delete();
      }
    }
    raw = made;
  }

  /**
   * Computes the next token, if there is one.
   *
   * @throws CancelledException by {@link Cancel}, or when the thread is interrupted
   */
  @Override
  public boolean hasNext() {
    if (closed) {
      throw new ClosedException(0, "the stream of tokens is closed");
    }
    if (ahead == null && !ended) {
      boolean more = false;
      try {
        more = pull() == 1;
      } finally {
        ended = !more;
      }
      if (more) {
        ahead = new Token(raw.token(), raw.text(), logprobs());
      } else {
        raw.close(); // the fusion is free for other calls
      }
    }
    return ahead != null;
  }

  private int pull() {
    for (; ; ) {
      int came = running.during(() -> raw.next(-1));
      if (came != 3) {
        return came;
      }
      boolean changed = false;
      try {
        logits.accept(raw.logitsBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer());
        changed = true;
      } finally {
        if (!changed) {
          raw.close();
        }
      }
    }
  }

  private List<Token.Logprob> logprobs() {
    List<Token.Logprob> found = new ArrayList<>();
    for (long i = 0; i < raw.nLogprobs(); i++) {
      found.add(new Token.Logprob(raw.logprobToken(i), raw.logprob(i)));
    }
    return List.copyOf(found);
  }

  @Override
  public Token next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the generation has ended");
    }
    Token token = ahead;
    ahead = null;
    return token;
  }

  /**
   * Tokens so far.
   *
   * @return how many were computed
   */
  public long count() {
    return raw.nTokens();
  }

  /**
   * At the end: why.
   *
   * @return true for EOS, a stop token or a stop text, false for the greatest number of tokens
   */
  public boolean byStopToken() {
    return raw.byStopToken();
  }

  /** Ends the generation; waits for about the time of one layer. */
  @Override
  public void close() {
    closed = true;
    raw.close();
    running.leave();
  }
}
