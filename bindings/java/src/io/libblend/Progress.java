package io.libblend;

/** Hears how far a long call is; on the thread that made the call, during it. */
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
