package io.libblend;

/** How a chunk is prefilled and stored. */
public final class PrecomputeOptions extends CallOptions<PrecomputeOptions> {
  final RawPrecomputeOptions raw = new RawPrecomputeOptions();

  /** The library's defaults: no chunk prefix, the store's codec. */
  public PrecomputeOptions() {}

  // blend:setters precompute_options

  /**
   * What is prefilled before the chunk, and not stored; part of its id.
   *
   * @param tokens copied
   * @return this
   */
  public PrecomputeOptions prefix(int[] tokens) {
    raw.setPrefix(Tokens.of(tokens));
    return this;
  }
}
