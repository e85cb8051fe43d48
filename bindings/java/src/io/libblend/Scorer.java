package io.libblend;

import java.nio.FloatBuffer;
import java.nio.IntBuffer;

/** The scores of {@link Policy#CALLBACK}; called on the thread that fuses, once a check layer. */
@FunctionalInterface
public interface Scorer {
  /**
   * Scores the rows of which some are to be recomputed. The buffers are valid during the call only. What
   * it throws stops the fuse and comes out of it.
   *
   * @param layer the check layer
   * @param rows places in the prompt, ascending; [n]
   * @param deviation of each row; [n]
   * @param scores to be written; the larger, the sooner the row goes on; [n], deviations at first
   */
  void score(int layer, IntBuffer rows, FloatBuffer deviation, FloatBuffer scores);
}
