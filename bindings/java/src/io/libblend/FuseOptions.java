package io.libblend;

import java.util.List;

/** How a prompt is fused. Options that are not set have the library's defaults. */
public final class FuseOptions extends CallOptions<FuseOptions> {
  /** A ratio that lets the controller choose; see BLEND_RATIO_AUTO in blend.h. */
  public static final double RATIO_AUTO = -1.0;

  /** The default: a ratio that keeps an agreement with full prefill; see BLEND_RATIO_FIDELITY in blend.h. */
  public static final double RATIO_FIDELITY = -2.0;

  final RawFuseOptions raw = new RawFuseOptions();
  private Scorer scorer;

  /** ATTENTION where the prompt asks a question, else HKVD; the ratio keeps the agreement target. */
  public FuseOptions() {}

  // blend:setters fuse_options

  /**
   * Gradual filtering: several layers at which rows are chosen, instead of one.
   *
   * @param layers rising, their ratios not; see {@link Model#defaultCheckLayers}
   * @return this
   */
  public FuseOptions checkLayers(List<CheckLayer> layers) {
    RawCheckLayers made = CheckLayer.raw(layers);
    raw.setCheckLayers(made);
    made.delete();
    return this;
  }

  /**
   * A policy of {@link Policy#UNION}, after those added before.
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
   * What the chunks were prefilled after, as given to precompute. By default the prompt's head: all tokens
   * before its first chunk.
   *
   * @param tokens copied; of length 0: nothing, as for chunks that were prefilled alone; null: the default
   * @return this
   */
  public FuseOptions chunkPrefix(int[] tokens) {
    if (tokens == null) {
      raw.clearChunkPrefix();
    } else {
      raw.setChunkPrefix(Tokens.of(tokens));
    }
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
   * All settings of a profile: policy, metric, check layer, ratio, chunk prefix, correction. Options set
   * afterwards override it. Give the same prefix to precompute. The options keep it open.
   *
   * @param profile of the same model
   * @return this
   */
  public FuseOptions profile(Profile profile) {
    raw.setProfile(profile.raw);
    return this;
  }

  @Override
  Callbacks callbacks() {
    return new Callbacks(progress, scorer, null);
  }
}
