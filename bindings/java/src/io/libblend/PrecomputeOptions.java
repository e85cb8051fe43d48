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
   * @param tokens copied: the head of the prompts that will hold the chunk, {@link Prompt#head}
   * @return this
   */
  public PrecomputeOptions chunkPrefix(int[] tokens) {
    raw.setChunkPrefix(Tokens.of(tokens));
    return this;
  }

  /**
   * A context passage, besides those added before; add the most similar first. Each stands before the chunk in one of
   * the prefills. The record keeps the mean of the chunk's K and V over them. {@link Model#precomputeCorpus} finds passages.
   *
   * @param tokens copied
   * @return this
   */
  public PrecomputeOptions context(int[] tokens) {
    raw.addContext(Tokens.of(tokens));
    return this;
  }

  /**
   * What stands directly before the chunk in the prompts that the record is for: it follows the chunk prefix and the
   * context passages, is not stored, and is part of the id. A fuse takes the record where these tokens stand directly
   * before the chunk. Give other texts of such prompts as {@link #context}: if the predecessor is short, the chunk is
   * prefilled after some of them too.
   *
   * @param tokens copied: the chunk before it and what stands between
   * @return this
   */
  public PrecomputeOptions predecessor(int[] tokens) {
    raw.setPredecessor(Tokens.of(tokens));
    return this;
  }
}
