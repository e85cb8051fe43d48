package io.libblend;

import java.nio.IntBuffer;

/** A model's tokenizer. Closed with its model. Thread-safe. */
public final class Tokenizer {
  private final RawModel raw;

  Tokenizer(RawModel raw) {
    this.raw = raw;
  }

  /**
   * Tokens of a text. A chunk's must not depend on what stands before it, so tokenize each by itself.
   *
   * @param text what Java cannot write as UTF-8 (half a surrogate pair) becomes '?'
   * @param options none: no BOS, special tokens are plain text
   * @return ids
   */
  public int[] tokenize(String text, Tokenize... options) {
    return tokenize(Text.bytes(text), options);
  }

  /**
   * Tokens of bytes; those that are not UTF-8 become byte tokens.
   *
   * @param text UTF-8
   * @param options as above
   * @return ids
   */
  public int[] tokenize(byte[] text, Tokenize... options) {
    return Views.ints(raw.tokenize(text, Tokenize.bits(options)));
  }

  /**
   * BOS where the model wants one in front of a prompt: its first prefix.
   *
   * @return one token, or none
   */
  public int[] bos() {
    return tokenize("", Tokenize.BOS);
  }

  /**
   * Text of tokens. A sequence of UTF-8 that they cut becomes U+FFFD: {@link #detokenizeBytes} keeps it.
   *
   * @param tokens ids
   * @param options none: control tokens give nothing
   * @return text
   * @throws InvalidArgumentException for an id outside the vocabulary
   */
  public String detokenize(int[] tokens, Tokenize... options) {
    return Text.of(detokenizeBytes(tokens, options));
  }

  /**
   * The same from a buffer's position to its limit, not copied if it is direct and in native order.
   *
   * @param tokens ids; its position stays
   * @param options as above
   * @return text
   */
  public String detokenize(IntBuffer tokens, Tokenize... options) {
    return Text.of(raw.detokenize(Tokens.of(tokens), Tokenize.bits(options)));
  }

  /**
   * Text of tokens, byte for byte.
   *
   * @param tokens ids
   * @param options as above
   * @return UTF-8, possibly cut inside a sequence
   */
  public byte[] detokenizeBytes(int[] tokens, Tokenize... options) {
    return raw.detokenize(Tokens.of(tokens), Tokenize.bits(options));
  }
}
