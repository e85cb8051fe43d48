package io.libblend;

/**
 * How documents and a question, all of them text, become a prompt. Give the same to {@link Model#precomputeTexts}
 * and {@link Model#fuseTexts}. Not thread-safe while it is set.
 */
public final class TextOptions {
  final RawTextOptions raw = new RawTextOptions();

  /** The model's chat template where it has one, else plain text; no system text. */
  public TextOptions() {}

  // blend:setters text_options
}
