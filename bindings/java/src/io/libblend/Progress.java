package io.libblend;

/** Called with the progress of a long call, on the thread that made it. */
@FunctionalInterface
public interface Progress {
  /**
   * What it throws stops the call and comes out of it.
   *
   * @param done of {@code total}
   * @param total layers, bytes, chunks or prefills, as the call says
   */
  void update(long done, long total);
}
