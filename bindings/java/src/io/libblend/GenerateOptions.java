package io.libblend;

import java.nio.FloatBuffer;
import java.util.function.Consumer;

/** How tokens are generated. Not thread-safe while it is set. */
public final class GenerateOptions {
  private final RawGenerateOptions raw = new RawGenerateOptions();
  Cancel cancel;
  Consumer<FloatBuffer> logits;

  /** Greedy, 128 tokens. */
  public GenerateOptions() {}

  // blend:setters generate_options

  /**
   * What ends it besides EOS.
   *
   * @param tokens added to those there are
   * @return this
   */
  public GenerateOptions stopTokens(int... tokens) {
    for (int token : tokens) {
      raw.addStopToken(token);
    }
    return this;
  }

  /**
   * Texts before the first of which the text ends, wherever tokens end.
   *
   * @param texts added to those there are
   * @return this
   */
  public GenerateOptions stop(String... texts) {
    for (String text : texts) {
      raw.addStopText(text);
    }
    return this;
  }

  /**
   * What is added to the logit of a token; several of one token add up.
   *
   * @param token the token
   * @param bias negative infinity: never this token
   * @return this
   */
  public GenerateOptions logitBias(int token, float bias) {
    raw.addLogitBias(token, bias);
    return this;
  }

  /**
   * What may change the logits that the next token is sampled from, after penalties and bias: negative
   * infinity forbids a token. Called on the thread that asks for the token; what it throws ends the generation.
   *
   * @param change given the logits of all tokens, which it must not keep; null: nothing changes them
   * @return this
   */
  public GenerateOptions logits(Consumer<FloatBuffer> change) {
    logits = change;
    return this;
  }

  /**
   * What the text must be; it has the last word on every token.
   *
   * @param grammar kept open by the options
   * @return this
   */
  public GenerateOptions grammar(Grammar grammar) {
    raw.setGrammar(grammar.raw);
    return this;
  }

  /**
   * What stops it, besides an interrupt of the thread that waits for a token.
   *
   * @param token null: nothing else
   * @return this
   */
  public GenerateOptions cancel(Cancel token) {
    cancel = token;
    return this;
  }

  RawGenerateOptions raw(RawCancel call) {
    RawGenerateOptions copy = new RawGenerateOptions(raw);
    copy.setCancel(call);
    copy.setShowsLogits(logits != null);
    return copy;
  }
}
