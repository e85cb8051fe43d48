package io.libblend;

import java.nio.IntBuffer;

/** The segments of a prompt, in their order. Immutable, thread-safe. */
public final class Prompt {
  final RawPrompt raw;

  Prompt(RawPrompt raw) {
    this.raw = raw;
  }

  /**
   * A prompt of tokens.
   *
   * @return empty
   */
  public static Builder builder() {
    return new Builder(null);
  }

  /**
   * A prompt of tokens and text.
   *
   * @param tokenizer of the model that it is for
   * @return empty
   */
  public static Builder builder(Tokenizer tokenizer) {
    return new Builder(java.util.Objects.requireNonNull(tokenizer));
  }

  /**
   * Segments.
   *
   * @return how many
   */
  public int size() {
    return (int) raw.size();
  }

  /**
   * Tokens of the segments that were given as such.
   *
   * @return how many
   */
  public long tokens() {
    return raw.nTokens();
  }

  /**
   * The tokens before the first chunk: chunks are precomputed after them.
   *
   * @return none where there is no chunk
   */
  public int[] head() {
    return Views.ints(raw.head());
  }

  /** Collects segments. For one thread. */
  public static final class Builder {
    private final Tokenizer tokenizer;
    private RawPrompt raw = new RawPrompt();

    private Builder(Tokenizer tokenizer) {
      this.tokenizer = tokenizer;
    }

    /**
     * A segment; empty ones are left out.
     *
     * @param kind what it is
     * @param tokens copied
     * @return this
     */
    public Builder add(SegmentKind kind, int[] tokens) {
      if (tokens.length > 0) {
        raw.add(kind.code, Tokens.of(tokens));
      }
      return this;
    }

    /**
     * A segment, from a buffer's position to its limit; empty ones are left out.
     *
     * @param kind what it is
     * @param tokens copied by the library; the position stays
     * @return this
     */
    public Builder add(SegmentKind kind, IntBuffer tokens) {
      if (tokens.hasRemaining()) {
        raw.add(kind.code, Tokens.of(tokens));
      }
      return this;
    }

    /**
     * A segment of text, tokenized by itself.
     *
     * @param kind what it is
     * @param text of it
     * @return this
     */
    public Builder add(SegmentKind kind, String text) {
      if (tokenizer == null) {
        throw new IllegalStateException("this builder has no tokenizer: make it by Prompt.builder(tokenizer)");
      }
      return add(kind, tokenizer.tokenize(text));
    }

    /**
     * BOS as a prefix, where the model expects it ({@link ModelInfo#addBos}); else nothing.
     *
     * @return this
     */
    public Builder bos() {
      if (tokenizer == null) {
        throw new IllegalStateException("this builder has no tokenizer: make it by Prompt.builder(tokenizer)");
      }
      int[] bos = tokenizer.bos();
      return bos.length == 0 ? this : add(SegmentKind.PREFIX, bos);
    }

    /**
     * What is reused exactly, before all other kinds: a system prompt.
     *
     * @param tokens of it
     * @return this
     */
    public Builder prefix(int[] tokens) {
      return add(SegmentKind.PREFIX, tokens);
    }

    /**
     * The same as text.
     *
     * @param text of it
     * @return this
     */
    public Builder prefix(String text) {
      return add(SegmentKind.PREFIX, text);
    }

    /**
     * A chunk, found by its tokens.
     *
     * @param tokens of it
     * @return this
     */
    public Builder chunk(int[] tokens) {
      return add(SegmentKind.CHUNK, tokens);
    }

    /**
     * A chunk, found by its text's tokens. White space at its ends is part of it: "Ada.\n" is another chunk than
     * "Ada.". {@link Model#fuseTexts} takes that away.
     *
     * @param text of it
     * @return this
     */
    public Builder chunk(String text) {
      return add(SegmentKind.CHUNK, text);
    }

    /**
     * A stored chunk. If the id is not one, the call that takes the prompt throws.
     *
     * @param id 64 hexadecimal digits
     * @return this
     */
    public Builder chunkId(String id) {
      raw.addChunkId(id);
      return this;
    }

    /**
     * New text, which is computed and not stored.
     *
     * @param tokens of it
     * @return this
     */
    public Builder text(int[] tokens) {
      return add(SegmentKind.TEXT, tokens);
    }

    /**
     * The same as text.
     *
     * @param text of it
     * @return this
     */
    public Builder text(String text) {
      return add(SegmentKind.TEXT, text);
    }

    /**
     * The question; it comes last.
     *
     * @param tokens of it
     * @return this
     */
    public Builder question(int[] tokens) {
      return add(SegmentKind.QUESTION, tokens);
    }

    /**
     * The same as text.
     *
     * @param text of it
     * @return this
     */
    public Builder question(String text) {
      return add(SegmentKind.QUESTION, text);
    }

    /**
     * The prompt; the builder is empty again.
     *
     * @return of all that was added
     */
    public Prompt build() {
      Prompt prompt = new Prompt(raw);
      raw = new RawPrompt();
      return prompt;
    }
  }
}
