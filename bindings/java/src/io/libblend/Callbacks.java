package io.libblend;

/** Callbacks of one call; each may be null. */
record Callbacks(Progress progress, Scorer scorer, java.util.function.Consumer<Measurement> measurement) {
  boolean none() {
    return progress == null && scorer == null && measurement == null;
  }
}
