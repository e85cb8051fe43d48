package io.libblend;

import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.util.function.LongToIntFunction;
import java.util.stream.LongStream;

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

  /** {@code n} of them, asked for one by one. */
  static int[] of(long n, LongToIntFunction at) {
    return LongStream.range(0, n).mapToInt(at).toArray();
  }
}
