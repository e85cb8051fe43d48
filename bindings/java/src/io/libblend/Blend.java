package io.libblend;

/** The library itself. */
public final class Blend {
  private Blend() {}

  /**
   * Loads the library if it is not loaded yet.
   *
   * @return "major.minor.patch" of it
   */
  public static String version() {
    return Raw.version();
  }
}
