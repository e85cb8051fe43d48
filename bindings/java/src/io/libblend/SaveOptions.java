package io.libblend;

/** Options of {@link Fusion#save}. */
public final class SaveOptions {
  String tenant = "";
  Cancel cancel;

  /** No tenant. */
  public SaveOptions() {}

  /**
   * Whose it is.
   *
   * @param name as given to precompute
   * @return this
   */
  public SaveOptions tenant(String name) {
    tenant = name;
    return this;
  }

  /**
   * Lets another thread stop the call.
   *
   * @param token of the call
   * @return this
   */
  public SaveOptions cancel(Cancel token) {
    cancel = token;
    return this;
  }
}
