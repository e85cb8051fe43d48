package io.libblend;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;

/** Copies of raw views, which are let go at once. */
final class Views {
  private Views() {}

  static IntBuffer asInts(ByteBuffer bytes) {
    return bytes.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asIntBuffer();
  }

  static FloatBuffer asFloats(ByteBuffer bytes) {
    return bytes.asReadOnlyBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer();
  }

  static int[] ints(RawView raw) {
    try {
      int[] copy = new int[(int) raw.size()];
      asInts(raw.buffer()).get(copy);
      return copy;
    } finally {
      raw.delete();
    }
  }

  static float[] floats(RawView raw) {
    try {
      float[] copy = new float[(int) raw.size()];
      asFloats(raw.buffer()).get(copy);
      return copy;
    } finally {
      raw.delete();
    }
  }
}
