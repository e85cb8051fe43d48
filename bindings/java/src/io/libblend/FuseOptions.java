package io.libblend;

import java.util.List;

/** How a prompt is fused. What is not set is the library's default. */
public final class FuseOptions extends CallOptions<FuseOptions> {
  /** A ratio that lets the controller choose; see BLEND_RATIO_AUTO in blend.h. */
  public static final double RATIO_AUTO = -1.0;

  private final RawFuseOptions raw = new RawFuseOptions();
  private Scorer scorer;

  /** HKVD on V at layer 1, ratio 0.15. */
  public FuseOptions() {}

  /**
   * How the rows that are recomputed are chosen.
   *
   * @param policy HKVD by default
   * @return this
   */
  public FuseOptions policy(Policy policy) {
    raw.setPolicy(policy.code);
    return this;
  }

  /**
   * Recomputed share of the reused rows.
   *
   * @param ratio 0 .. 1, or {@link #RATIO_AUTO}; 0.15 by default
   * @return this
   */
  public FuseOptions ratio(double ratio) {
    raw.setRatio(ratio);
    return this;
  }

  /**
   * What deviations are measured on.
   *
   * @param metric V by default
   * @return this
   */
  public FuseOptions metric(Metric metric) {
    raw.setMetric(metric.code);
    return this;
  }

  /**
   * How they are summed up.
   *
   * @param norm L2 by default
   * @param relative whether divided by the stored row's own sum
   * @return this
   */
  public FuseOptions norm(Norm norm, boolean relative) {
    raw.setNorm(norm.code);
    raw.setRelative(relative ? 1 : 0);
    return this;
  }

  /**
   * Where deviations are measured.
   *
   * @param layer 1 by default
   * @return this
   */
  public FuseOptions checkLayer(int layer) {
    raw.setCheckLayer(layer);
    return this;
  }

  /**
   * Gradual filtering: several layers at which rows are chosen, instead of one.
   *
   * @param layers rising, their ratios not; see {@link Model#fallingCheckLayers}
   * @return this
   */
  public FuseOptions checkLayers(List<CheckLayer> layers) {
    RawCheckLayers made = CheckLayer.raw(layers);
    raw.setCheckLayers(made);
    made.delete();
    return this;
  }

  /**
   * A policy of {@link Policy#UNION}, behind those added before.
   *
   * @param policy HKVD .. CALLBACK
   * @param share of the budget, relative to the other shares
   * @return this
   */
  public FuseOptions term(Policy policy, double share) {
    raw.addTerm(policy.code, share);
    return this;
  }

  /**
   * The scores of {@link Policy#CALLBACK}.
   *
   * @param scorer called on the thread that fuses
   * @return this
   */
  public FuseOptions scorer(Scorer scorer) {
    this.scorer = scorer;
    return this;
  }

  /**
   * What to do with a missing chunk.
   *
   * @param onMiss PRECOMPUTE by default
   * @return this
   */
  public FuseOptions onMiss(OnMiss onMiss) {
    raw.setOnMiss(onMiss.code);
    return this;
  }

  /**
   * Rows kept free behind the prompt.
   *
   * @param rows 256 by default
   * @return this
   */
  public FuseOptions reserveTokens(int rows) {
    raw.setReserveTokens(rows);
    return this;
  }

  /**
   * What the chunks were prefilled after: as given to precompute.
   *
   * @param tokens copied
   * @return this
   */
  public FuseOptions chunkPrefix(int[] tokens) {
    raw.setChunkPrefix(Tokens.of(tokens));
    return this;
  }

  /**
   * Whose chunks.
   *
   * @param name as given to precompute
   * @return this
   */
  public FuseOptions tenant(String name) {
    raw.setTenant(name);
    return this;
  }

  /**
   * Of {@link Policy#RANDOM}.
   *
   * @param seed same seed, same rows
   * @return this
   */
  public FuseOptions seed(long seed) {
    raw.setSeed(seed);
    return this;
  }

  /**
   * Of {@link Policy#APE}: how rows of chunks are attended to.
   *
   * @param temperature as blend_fuse_options has it
   * @param scale as blend_fuse_options has it
   * @return this
   */
  public FuseOptions ape(double temperature, double scale) {
    raw.setApeTemperature(temperature);
    raw.setApeScale(scale);
    return this;
  }

  /**
   * Whether the profile's drift correction is applied.
   *
   * @param correction AUTO by default
   * @return this
   */
  public FuseOptions correction(Correction correction) {
    raw.setCorrection(correction.code);
    return this;
  }

  /**
   * Of the context's compute threads, the most that the call and later ones on the fusion have at a time.
   * Calls whose threads add up to no more than the context's compute side by side.
   *
   * @param count 0, the default: all; of a fusion that is extended its own
   * @return this
   */
  public FuseOptions threads(int count) {
    raw.setNThreads(count);
    return this;
  }

  /**
   * How fast this machine is, for {@link #RATIO_AUTO}. The options keep it open.
   *
   * @param machine of the same model
   * @return this
   */
  public FuseOptions machine(Machine machine) {
    raw.setMachine(machine.raw);
    return this;
  }

  /**
   * A profile, of which nothing but the correction is taken. The options keep it open.
   *
   * @param profile of the same model
   * @return this
   */
  public FuseOptions profile(Profile profile) {
    raw.setProfile(profile.raw);
    return this;
  }

  /**
   * All that a profile says: policy, metric, check layer, ratio, chunk prefix, correction. What is set
   * afterwards holds against it. Give the same prefix to precompute.
   *
   * @param profile of the same model
   * @return this
   */
  public FuseOptions apply(Profile profile) {
    raw.apply(profile.raw);
    return this;
  }

  @Override
  Callbacks callbacks() {
    return new Callbacks(progress, scorer, null);
  }

  RawFuseOptions raw(RawCancel cancel, RawListener listener) {
    return prepare(new RawFuseOptions(raw), cancel, listener);
  }
}
