package io.libblend;

import java.util.function.Consumer;

/** How a profile is verified; its progress is prefills and fuses. */
public final class VerifyOptions extends CallOptions<VerifyOptions> {
  private final RawVerifyOptions raw = new RawVerifyOptions();
  private Consumer<Measurement> onMeasurement;

  /** The library's defaults: the profile's limits. */
  public VerifyOptions() {}

  /**
   * Ratios besides the profile's own.
   *
   * @param ratios 0, 0.05, 0.1, 0.15, 0.2, 0.3 by default
   * @return this
   */
  public VerifyOptions ratios(double... ratios) {
    for (double ratio : ratios) {
      raw.addRatio(ratio);
    }
    return this;
  }

  /**
   * Tokens of full prefill's greedy answer that are compared.
   *
   * @param count 16 by default
   * @return this
   */
  public VerifyOptions scoreTokens(int count) {
    raw.setScoreTokens(count);
    return this;
  }

  /**
   * Limits of trust.
   *
   * @param maxKl negative: the profile's
   * @param minTop1 negative: the profile's
   * @return this
   */
  public VerifyOptions limits(double maxKl, double minTop1) {
    raw.setMaxKl(maxKl);
    raw.setMinTop1(minTop1);
    return this;
  }

  /**
   * Of the context's compute threads, the most that the call has at a time.
   *
   * @param count 0, the default: all
   * @return this
   */
  public VerifyOptions threads(int count) {
    raw.setNThreads(count);
    return this;
  }

  /**
   * Who gets each line as it is measured; what it throws stops the call and comes out of it.
   *
   * @param consumer null: nobody
   * @return this
   */
  public VerifyOptions onMeasurement(Consumer<Measurement> consumer) {
    onMeasurement = consumer;
    return this;
  }

  @Override
  Callbacks callbacks() {
    return new Callbacks(progress, null, onMeasurement);
  }

  RawVerifyOptions raw(RawCancel cancel, RawListener listener) {
    return prepare(new RawVerifyOptions(raw), cancel, listener);
  }
}
