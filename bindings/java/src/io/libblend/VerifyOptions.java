package io.libblend;

import java.util.function.Consumer;

/** How a profile is verified; its progress is prefills and fuses. */
public final class VerifyOptions extends CallOptions<VerifyOptions> {
  final RawVerifyOptions raw = new RawVerifyOptions();
  private Consumer<Measurement> onMeasurement;

  /** The library's defaults: the profile's limits. */
  public VerifyOptions() {}

  // blend:setters verify_options

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
   * What is called with each line as it is measured. What it throws stops the call, which throws it.
   *
   * @param consumer null: none
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
}
