package io.libblend;

/** How tokens are generated. Not thread-safe while it is set. */
public final class GenerateOptions {
  private final RawGenerateOptions raw = new RawGenerateOptions();
  Cancel cancel;

  /** Greedy, 128 tokens. */
  public GenerateOptions() {}

  // blend:setters generate_options

  /**
   * What ends it besides EOS.
   *
   * @param tokens added to those there are
   * @return this
   */
  public GenerateOptions stopTokens(int... tokens) {
    for (int token : tokens) {
      raw.addStopToken(token);
    }
    return this;
  }

  /**
   * What stops it, besides an interrupt of the thread that waits for a token.
   *
   * @param token null: nothing else
   * @return this
   */
  public GenerateOptions cancel(Cancel token) {
    cancel = token;
    return this;
  }

  RawGenerateOptions raw(RawCancel call) {
    RawGenerateOptions copy = new RawGenerateOptions(raw);
    copy.setCancel(call);
    return copy;
  }
}
