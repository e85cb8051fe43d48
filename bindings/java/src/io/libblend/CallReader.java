package io.libblend;

import java.util.ArrayList;
import java.util.List;

/**
 * Finds the calls of functions in one answer while it is generated, in the form that a chat template tells. For
 * one thread at a time, otherwise {@link InUseException}.
 */
public final class CallReader implements AutoCloseable {
  private final RawCallReader raw;

  private CallReader(RawCallReader raw) {
    this.raw = raw;
  }

  /**
   * Begins an answer.
   *
   * @param model whose answer it is; it may be closed then
   * @param options which functions there are
   * @return to be closed
   * @throws NotFoundException if there is no template
   * @throws InvalidArgumentException if the tools are no list of functions
   */
  public static CallReader open(Model model, Options options) {
    return new CallReader(RawCallReader.open(model.raw, options.raw));
  }

  /**
   * Takes the next piece of the answer.
   *
   * @param token generated with its text
   * @return what is now known to be no part of a call; text that may become a call is held back, and what
   *     turns out to be none is returned later as it was written
   */
  public String add(Token token) {
    return add(token.id(), token.text());
  }

  /**
   * The same of any text.
   *
   * @param token that of the piece, or -1
   * @param piece of the answer
   * @return what is now known to be no part of a call
   */
  public String add(int token, String piece) {
    return raw.add(token, piece);
  }

  /**
   * The same at the end of the answer, after which nothing is added.
   *
   * @param isCut the model did not end it, so that the last call may be cut
   * @return what is left of the answer and is no part of a call
   */
  public String end(boolean isCut) {
    return raw.end(isCut);
  }

  /**
   * The calls so far.
   *
   * @return in their order
   */
  public List<CallInfo> calls() {
    List<CallInfo> list = new ArrayList<>();
    long n = raw.nCalls();
    for (long i = 0; i < n; ++i) {
      list.add(CallInfo.of(raw.call(i)));
    }
    return list;
  }

  @Override
  public void close() {
    raw.close();
  }

  /** Which functions an answer may call. For one thread. */
  public static final class Options {
    final RawCallReaderOptions raw = new RawCallReaderOptions();

    /** Any function, by the model's own template. */
    public Options() {}

    // blend:setters call_reader_options Options
  }
}
