package io.libblend;

import java.util.function.Consumer;

/** How a profile is measured; its progress is prefills and fuses. */
public final class CalibrateOptions extends CallOptions<CalibrateOptions> {
  private final RawCalibrateOptions raw = new RawCalibrateOptions();
  private Consumer<Measurement> onMeasurement;

  /** The library's defaults. */
  public CalibrateOptions() {}

  /**
   * Where deviations are measured.
   *
   * @param layer 1 by default
   * @return this
   */
  public CalibrateOptions checkLayer(int layer) {
    raw.setCheckLayer(layer);
    return this;
  }

  /**
   * A chunk prefix that is tried; none added: no prefix, and BOS if the model has one.
   *
   * @param tokens copied; may be none
   * @return this
   */
  public CalibrateOptions chunkPrefix(int... tokens) {
    raw.addChunkPrefix(Tokens.of(tokens));
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
   * What chunks are rounded to.
   *
   * @param type AUTO by default
   * @return this
   */
  public CalibrateOptions kvType(KvType type) {
    raw.setKvDtype(type.code);
    return this;
  }

  /**
   * The drift correction.
   *
   * @param correction OFF: no maps are fitted
   * @param rank of the maps at most; 0: whole matrices
   * @param ridge of each input's own power; 0.001 by default
   * @param inputs of the maps; none: all three
   * @return this
   */
  public CalibrateOptions drift(Correction correction, int rank, double ridge, DriftInput... inputs) {
    raw.setCorrection(correction.code);
    raw.setDriftRank(rank);
    raw.setRidge(ridge);
    if (inputs.length > 0) {
      raw.setDriftInputs(DriftInput.bits(inputs));
    }
    return this;
  }

  /**
   * Tokens of full prefill's greedy answer that are compared.
   *
   * @param count 16 by default
   * @return this
   */
  public CalibrateOptions scoreTokens(int count) {
    raw.setScoreTokens(count);
    return this;
  }

  /**
   * Limits of trust.
   *
   * @param maxKl 0.02 nats by default
   * @param minTop1 0.95 by default
   * @return this
   */
  public CalibrateOptions limits(double maxKl, double minTop1) {
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
  public CalibrateOptions threads(int count) {
    raw.setNThreads(count);
    return this;
  }

  /**
   * Who gets each line as it is measured; what it throws stops the call and comes out of it.
   *
   * @param consumer null: nobody
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

  RawCalibrateOptions raw(RawCancel cancel, RawListener listener) {
    return prepare(new RawCalibrateOptions(raw), cancel, listener);
  }
}
