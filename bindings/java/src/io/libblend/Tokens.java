package io.libblend;

import java.nio.ByteOrder;
import java.nio.IntBuffer;

/** Token ids as the raw module takes them. */
final class Tokens {
  private Tokens() {}

  static Object of(int[] tokens) {
    return java.util.Objects.requireNonNull(tokens, "tokens");
  }

  /** From position to limit; without a copy if the buffer is direct and in native order. */
  static Object of(IntBuffer tokens) {
    if (tokens.isDirect() && tokens.order() == ByteOrder.nativeOrder()) {
      return tokens.slice();
    }
    int[] copy = new int[tokens.remaining()];
    tokens.duplicate().get(copy);
    return copy;
  }
}
