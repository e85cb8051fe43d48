package io.libblend;

import java.util.function.Consumer;

/** How a profile is measured; its progress is prefills and fuses. */
public final class CalibrateOptions extends CallOptions<CalibrateOptions> {
  final RawCalibrateOptions raw = new RawCalibrateOptions();
  private Consumer<Measurement> onMeasurement;

  /** The library's defaults. */
  public CalibrateOptions() {}

  // blend:setters calibrate_options

  /**
   * A chunk prefix that is tried; none added: no prefix, and BOS if the model has one.
   *
   * @param tokens copied; may be empty
   * @return this
   */
  public CalibrateOptions chunkPrefix(int... tokens) {
    raw.addChunkPrefix(Tokens.of(tokens));
    return this;
  }

  /**
   * Policies that are tried.
   *
   * @param policies HKVD, CASCADE and ATTENTION there are; by default those that fit the samples
   * @return this
   */
  public CalibrateOptions policies(Policy... policies) {
    for (Policy policy : policies) {
      raw.addPolicy(policy.code);
    }
    return this;
  }

  /**
   * Check layers that are tried.
   *
   * @param layers checkLayer by default
   * @return this
   */
  public CalibrateOptions checkLayers(int... layers) {
    for (int layer : layers) {
      raw.addCheckLayer(layer);
    }
    return this;
  }

  /**
   * Metrics that are tried.
   *
   * @param metrics V by default
   * @return this
   */
  public CalibrateOptions metrics(Metric... metrics) {
    for (Metric metric : metrics) {
      raw.addMetric(metric.code);
    }
    return this;
  }

  /**
   * Ratios that are tried.
   *
   * @param ratios 0, 0.05, 0.1, 0.15, 0.2, 0.3 by default
   * @return this
   */
  public CalibrateOptions ratios(double... ratios) {
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
  public CalibrateOptions onMeasurement(Consumer<Measurement> consumer) {
    onMeasurement = consumer;
    return this;
  }

  @Override
  Callbacks callbacks() {
    return new Callbacks(progress, null, onMeasurement);
  }
}
