package io.libblend;

/** How a chunk is prefilled and stored. */
public final class PrecomputeOptions extends CallOptions<PrecomputeOptions> {
  private final RawPrecomputeOptions raw = new RawPrecomputeOptions();

  /** The library's defaults: no chunk prefix, the store's codec. */
  public PrecomputeOptions() {}

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

  /**
   * Salt of the id, so that tenants never share chunks.
   *
   * @param name "" by default
   * @return this
   */
  public PrecomputeOptions tenant(String name) {
    raw.setTenant(name);
    return this;
  }

  /**
   * How its bytes are kept.
   *
   * @param codec the store's by default
   * @return this
   */
  public PrecomputeOptions codec(Codec codec) {
    raw.setCodec(codec.code);
    return this;
  }

  /**
   * Returns once the chunk is queued; {@link Store#await} tells when it is on disk.
   *
   * @param on false by default
   * @return this
   */
  public PrecomputeOptions background(boolean on) {
    raw.setFlags(on ? RawConstants.PUT_BACKGROUND : 0);
    return this;
  }

  /**
   * Of the context's compute threads, the most that the call has at a time.
   *
   * @param count 0, the default: all
   * @return this
   */
  public PrecomputeOptions threads(int count) {
    raw.setNThreads(count);
    return this;
  }

  RawPrecomputeOptions raw(RawCancel cancel, RawListener listener) {
    return prepare(new RawPrecomputeOptions(raw), cancel, listener);
  }
}
