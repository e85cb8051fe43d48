package io.libblend;

import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Consumer;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * One prompt's fused KV cache, its account, and the text that follows.
 *
 * <p>Any thread may call it at any time. Calls that read may run together; one that changes the fusion
 * while another call runs throws {@link InUseException}, and while a {@link View} of it is open {@link
 * ViewHeldException}: nothing waits, nothing has changed then.
 */
public final class Fusion implements AutoCloseable {
  private final RawFusion raw;

  Fusion(RawFusion raw) {
    this.raw = raw;
  }

  // ---- The account

  /**
   * What the fuse took.
   *
   * @return the whole fuse
   */
  public FusionInfo info() {
    return FusionInfo.of(raw.info());
  }

  /**
   * How loading and computing overlapped.
   *
   * @return one a layer
   */
  public List<LayerInfo> layers() {
    List<LayerInfo> list = new ArrayList<>();
    int n = info().nLayers();
    for (int i = 0; i < n; ++i) {
      list.add(LayerInfo.of(raw.layer(i)));
    }
    return list;
  }

  /**
   * What became of each segment.
   *
   * @return in the prompt's order
   */
  public List<SegmentInfo> segments() {
    List<SegmentInfo> list = new ArrayList<>();
    long n = info().nSegments();
    for (long i = 0; i < n; ++i) {
      list.add(SegmentInfo.of(raw.segment(i)));
    }
    return list;
  }

  // ---- Copies and views

  /**
   * Logits of the last row, copied.
   *
   * @return [n_vocab]
   */
  public float[] logits() {
    return Views.floats(raw.logits());
  }

  /**
   * Logits of the last row, not copied.
   *
   * @return [n_vocab], to be closed
   */
  public View<FloatBuffer> viewLogits() {
    return new View<>(raw.logits(), Views::asFloats);
  }

  /**
   * Tokens of all rows there are, copied.
   *
   * @return [n_rows]
   */
  public int[] tokens() {
    return Views.ints(raw.tokens());
  }

  /**
   * Tokens of all rows there are, not copied.
   *
   * @return [n_rows], to be closed
   */
  public View<IntBuffer> viewTokens() {
    return new View<>(raw.tokens(), Views::asInts);
  }

  /**
   * Rows that the policy selected, copied.
   *
   * @return ascending
   */
  public int[] selected() {
    return Views.ints(raw.selected());
  }

  /**
   * Rows that the policy selected, not copied.
   *
   * @return ascending, to be closed
   */
  public View<IntBuffer> viewSelected() {
    return new View<>(raw.selected(), Views::asInts);
  }

  /**
   * Deviation of every prompt row, copied.
   *
   * @return [n_rows]; 0 where none was measured
   */
  public float[] deviation() {
    return Views.floats(raw.deviation());
  }

  /**
   * Deviation of every prompt row, not copied.
   *
   * @return [n_rows], to be closed
   */
  public View<FloatBuffer> viewDeviation() {
    return new View<>(raw.deviation(), Views::asFloats);
  }

  // ---- Generating

  /**
   * Text that follows.
   *
   * @param options how
   * @return all of it
   */
  public String generate(GenerateOptions options) {
    StringBuilder text = new StringBuilder();
    generate(options, token -> text.append(token.text()));
    return text.toString();
  }

  /**
   * Tokens that follow, each given to {@code consumer} on this thread as soon as it is there. What it
   * throws ends the generation and comes out of this call; the tokens so far are appended.
   *
   * @param options how
   * @param consumer of tokens
   * @return whether EOS or a stop token ended it
   */
  public boolean generate(GenerateOptions options, Consumer<? super Token> consumer) {
    try (TokenStream stream = generateTokens(options)) {
      while (stream.hasNext()) {
        consumer.accept(stream.next());
      }
      return stream.byStopToken();
    }
  }

  /**
   * Tokens that follow, pulled.
   *
   * @param options how
   * @return to be closed unless it is used to its end
   */
  public TokenStream generateTokens(GenerateOptions options) {
    return new TokenStream(raw, options);
  }

  /**
   * Text that follows, in pieces of whole characters as they are computed.
   *
   * @param options how
   * @return lazy, sequential; to be closed unless it is used to its end
   */
  public Stream<String> stream(GenerateOptions options) {
    TokenStream tokens = generateTokens(options);
    return StreamSupport.stream(
            Spliterators.spliteratorUnknownSize(
                tokens, Spliterator.ORDERED | Spliterator.NONNULL | Spliterator.IMMUTABLE),
            false)
        .map(Token::text)
        .filter(text -> !text.isEmpty())
        .onClose(tokens::close);
  }

  // ---- Changing

  /**
   * Appends tokens and computes the logits of the last of them. A call that fails changes nothing.
   *
   * @param tokens to append
   * @throws ContextLengthException if more rows are needed than were reserved
   */
  public void decode(int... tokens) {
    decode(Tokens.of(tokens), null);
  }

  /**
   * The same from a buffer's position to its limit, not copied if it is direct and in native order.
   *
   * @param tokens to append; the position stays
   * @param cancel may be null
   */
  public void decode(IntBuffer tokens, Cancel cancel) {
    decode(Tokens.of(tokens), cancel);
  }

  private void decode(Object tokens, Cancel cancel) {
    Running.call(
        cancel,
        call -> {
          raw.decode(tokens, call);
          return null;
        });
  }

  /**
   * Replaces K and V of all rows by those of full prefill, and appends those of the tokens that greedy
   * decoding gives, up to the first that it does not. So an answer can be shown at once, from a {@link
   * #fork}, and corrected a moment later: generating at temperature 0 goes on from there, and the
   * answer is full prefill's. Costs a full prefill, once. A call that fails in it changes nothing.
   *
   * @param tokens of the answer that was shown; may be empty
   * @return how many of them were appended
   * @throws ContextLengthException if more rows are needed than were reserved
   */
  public int makeExact(int... tokens) {
    return makeExact(Tokens.of(tokens), null);
  }

  /**
   * The same from a buffer's position to its limit, not copied if it is direct and in native order.
   *
   * @param tokens of the answer that was shown; the position stays
   * @param cancel may be null
   * @return how many of them were appended
   */
  public int makeExact(IntBuffer tokens, Cancel cancel) {
    return makeExact(Tokens.of(tokens), cancel);
  }

  private int makeExact(Object tokens, Cancel cancel) {
    return Math.toIntExact(Running.call(cancel, call -> raw.makeExact(tokens, call)));
  }

  /**
   * Fuses further segments after the present rows: a next turn, with passages of its own.
   *
   * @param store may be null where nothing is looked up
   * @param prompt without prefixes
   * @param options as of {@link Model#fuse}
   */
  public void extend(Store store, Prompt prompt, FuseOptions options) {
    options.call(
        new RawFuseOptions(options.raw),
        call -> {
          raw.extend(Store.raw(store), prompt.raw, call);
          return null;
        });
  }

  /**
   * Replaces rows with tokens; either may be empty. See blend_fusion_replace in blend.h for what
   * this is not.
   *
   * @param firstRow that goes
   * @param rows how many go
   * @param tokens that come
   */
  public void replace(long firstRow, long rows, int... tokens) {
    replace(firstRow, rows, Tokens.of(tokens), null);
  }

  /**
   * The same with a buffer's tokens from its position to its limit, not copied if it is direct and in
   * native order.
   *
   * @param firstRow that goes
   * @param rows how many go
   * @param tokens that come; the position stays
   * @param cancel may be null
   */
  public void replace(long firstRow, long rows, IntBuffer tokens, Cancel cancel) {
    replace(firstRow, rows, Tokens.of(tokens), cancel);
  }

  private void replace(long firstRow, long rows, Object tokens, Cancel cancel) {
    Running.call(
        cancel,
        call -> {
          raw.replace(firstRow, rows, tokens, call);
          return null;
        });
  }

  /**
   * Takes rows out.
   *
   * @param firstRow that goes
   * @param rows how many go
   */
  public void erase(long firstRow, long rows) {
    erase(firstRow, rows, null);
  }

  /**
   * The same, to be cancelled.
   *
   * @param firstRow that goes
   * @param rows how many go
   * @param cancel may be null
   */
  public void erase(long firstRow, long rows, Cancel cancel) {
    Running.call(
        cancel,
        call -> {
          raw.erase(firstRow, rows, call);
          return null;
        });
  }

  /**
   * A second fusion with what this one has now, for several answers to one prompt: K and V are shared
   * until one of them is written to, so that it costs the rows that come. Any of them may be closed
   * first.
   *
   * @return to be closed
   */
  public Fusion fork() {
    return new Fusion(raw.fork());
  }

  /**
   * Keeps the fusion in a store until the conversation goes on; {@link Model#restore} brings it back.
   *
   * @param store where
   * @param options whose it is
   * @return its id; {@link Store#flush()} tells whether it is on disk
   */
  public String save(Store store, SaveOptions options) {
    return Running.call(options.cancel, call -> raw.save(Store.raw(store), options.tenant, call));
  }

  @Override
  public void close() {
    raw.close();
  }
}
