package io.libblend;

/** Whose chunk a call means; what is not set means whoever's. For one thread while it is set. */
public final class TenantOptions {
  final RawTenantOptions raw = new RawTenantOptions();

  /** Whoever's. */
  public TenantOptions() {}

  /**
   * Only this tenant's: another's chunk is not there.
   *
   * @param name as given to precompute; "" is the one without a name
   * @return this
   */
  public TenantOptions tenant(String name) {
    raw.setTenant(name);
    return this;
  }
}
