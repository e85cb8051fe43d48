package io.libblend;

/** What the raw module calls to make an exception of a call's outcome; see typemaps.i. */
final class RawErrors {
  private RawErrors() {}

  static RuntimeException make(int code, long detail, byte[] message) {
    return Exceptions.of(code, detail, Text.of(message));
  }
}
