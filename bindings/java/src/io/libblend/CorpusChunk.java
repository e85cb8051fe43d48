package io.libblend;

/**
 * One text of a corpus, with what it is called.
 *
 * @param tokens of the chunk
 * @param label by custom "document#part"; null leaves the one that it has, "" removes it
 * @param tags words with one space between; likewise
 */
public record CorpusChunk(int[] tokens, String label, String tags) {
  /**
   * A text whose label and tags stay as they are.
   *
   * @param tokens of the chunk
   */
  public CorpusChunk(int[] tokens) {
    this(tokens, null, null);
  }
}
