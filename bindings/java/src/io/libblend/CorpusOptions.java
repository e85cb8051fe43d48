package io.libblend;

/** How a corpus is stored; its progress is chunks, head and contextual records counted apart. */
public final class CorpusOptions extends CallOptions<CorpusOptions> {
  final RawCorpusOptions raw = new RawCorpusOptions();

  /** The library's defaults: no chunk prefix, four similar chunks each. */
  public CorpusOptions() {}

  // blend:setters corpus_options

  /**
   * What is prefilled before every chunk, and not stored; part of the ids.
   *
   * @param tokens copied: the head of the prompts that will hold the chunks, {@link Prompt#head}
   * @return this
   */
  public CorpusOptions chunkPrefix(int[] tokens) {
    raw.setChunkPrefix(Tokens.of(tokens));
    return this;
  }
}
