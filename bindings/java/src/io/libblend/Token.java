package io.libblend;

import java.util.List;

/**
 * One generated token.
 *
 * @param id of it; -1: none, only text that was held back for a stop text and that the end lets go
 * @param text that it completes: whole characters, or "" while one is incomplete, or a stop text may have begun
 * @param logprobs with {@code topLogprobs}: its own, then those of the likeliest, falling; else empty
 */
public record Token(int id, String text, List<Logprob> logprobs) {
  /**
   * How likely a token was.
   *
   * @param token which
   * @param logprob natural logarithm of its probability, as the model gave it: before penalties, bias and
   *     temperature
   */
  public record Logprob(int token, float logprob) {}

  /**
   * Without probabilities.
   *
   * @param id of it
   * @param text that it completes
   */
  public Token(int id, String text) {
    this(id, text, List.of());
  }
}
