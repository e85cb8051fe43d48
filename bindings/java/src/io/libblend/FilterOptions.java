package io.libblend;

/**
 * Which chunks of a store are meant; what is not set means every one. In patterns {@code *} stands for any
 * characters, {@code ?} for one. For one thread while it is set.
 */
public final class FilterOptions {
  final RawFilterOptions raw = new RawFilterOptions();

  /** Every chunk. */
  public FilterOptions() {}

  // blend:setters filter_options

  /**
   * Only one tenant's chunks.
   *
   * @param name as given to precompute; "" is the one without a name
   * @return this
   */
  public FilterOptions tenant(String name) {
    raw.setTenant(name);
    return this;
  }
}
