package io.libblend;

/** Options of {@link Model#restore}. */
public final class RestoreOptions {
  String tenant = "";
  int reserveTokens = 256;
  Cancel cancel;

  /** No tenant, 256 rows for what follows. */
  public RestoreOptions() {}

  /**
   * Whose it is.
   *
   * @param name as given to {@link Fusion#save}
   * @return this
   */
  public RestoreOptions tenant(String name) {
    tenant = name;
    return this;
  }

  /**
   * Rows for what follows.
   *
   * @param rows as {@link FuseOptions#reserveTokens}
   * @return this
   */
  public RestoreOptions reserveTokens(int rows) {
    reserveTokens = rows;
    return this;
  }

  /**
   * Lets another thread stop the call.
   *
   * @param token of the call
   * @return this
   */
  public RestoreOptions cancel(Cancel token) {
    cancel = token;
    return this;
  }
}
