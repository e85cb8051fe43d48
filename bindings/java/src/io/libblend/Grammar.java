package io.libblend;

/**
 * What a generated text must be: any JSON object, what a schema, a regular expression or a grammar says, or a call of
 * a function. Compiled for a model's tokenizer, for any number of generations. Thread-safe.
 */
public final class Grammar implements AutoCloseable {
  final RawGrammar raw;

  private Grammar(RawGrammar raw) {
    this.raw = raw;
  }

  /**
   * Compiles one.
   *
   * @param model whose tokenizer it is for
   * @param options what it is
   * @return to be closed
   * @throws InvalidArgumentException if the text cannot be used, or nothing satisfies it
   * @throws UnsupportedException if it has what cannot be kept, or this build has no grammars
   * @throws CancelledException if it was cancelled
   * @throws NotFoundException of a call: if the model has no chat template
   * @throws FormatException of a call: if the chat template cannot be parsed
   */
  public static Grammar open(Model model, Options options) {
    return options.call(
        new RawGrammarOptions(options.raw),
        call -> new Grammar(RawGrammar.open(model.raw, call)));
  }

  @Override
  public void close() {
    raw.close();
  }

  /** What a grammar is. For one thread. */
  public static final class Options extends CallOptions<Options> {
    final RawGrammarOptions raw = new RawGrammarOptions();

    /** Any JSON object. */
    public Options() {}

    // blend:setters grammar_options Options
  }
}
