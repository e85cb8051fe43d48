package io.libblend;

/**
 * What a generated text must be: any JSON object, or what a schema, a regular expression or a grammar says.
 * Compiled for a model's tokenizer, for any number of generations. Thread-safe.
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
