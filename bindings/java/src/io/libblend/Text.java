package io.libblend;

import java.nio.charset.StandardCharsets;

/** Strings as the library has them: UTF-8. */
final class Text {
  private Text() {}

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static String of(byte[] bytes) {
    return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
  }
}
