package io.libblend;

/** Whom one call tells; each may be null. */
record Callbacks(Progress progress, Scorer scorer, java.util.function.Consumer<Measurement> measurement) {
  boolean none() {
    return progress == null && scorer == null && measurement == null;
  }
}
