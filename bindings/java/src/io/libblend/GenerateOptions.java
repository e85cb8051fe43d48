package io.libblend;

/** How tokens are generated. Not thread-safe while it is set. */
public final class GenerateOptions {
  private final RawGenerateOptions raw = new RawGenerateOptions();
  Cancel cancel;

  /** Greedy, 128 tokens. */
  public GenerateOptions() {}

  /**
   * How many at most; fewer if the rows that were reserved end sooner.
   *
   * @param count 128 by default
   * @return this
   */
  public GenerateOptions maxTokens(int count) {
    raw.setMaxTokens(count);
    return this;
  }

  /**
   * Sampling.
   *
   * @param value 0, the default, is greedy
   * @return this
   */
  public GenerateOptions temperature(float value) {
    raw.setTemperature(value);
    return this;
  }

  /**
   * Nucleus.
   *
   * @param value 1, the default, is off
   * @return this
   */
  public GenerateOptions topP(float value) {
    raw.setTopP(value);
    return this;
  }

  /**
   * The likeliest ones.
   *
   * @param value 0, the default, is off
   * @return this
   */
  public GenerateOptions topK(int value) {
    raw.setTopK(value);
    return this;
  }

  /**
   * Generates past EOS.
   *
   * @param on false by default
   * @return this
   */
  public GenerateOptions ignoreEos(boolean on) {
    raw.setIgnoreEos(on ? 1 : 0);
    return this;
  }

  /**
   * Of the sampler: same seed, same tokens.
   *
   * @param value any
   * @return this
   */
  public GenerateOptions seed(long value) {
    raw.setSeed(value);
    return this;
  }

  /**
   * The most threads that compute at a time.
   *
   * @param count 0, the default: as many as the fusion has
   * @return this
   */
  public GenerateOptions threads(int count) {
    raw.setNThreads(count);
    return this;
  }

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
