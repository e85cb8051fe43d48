package io.libblend;

/**
 * A line of a calibration's table: one kind of fusing over all measured prompts. Immutable but for the
 * array.
 *
 * @param metric deviations were measured on
 * @param corrected whether the drift correction was applied
 * @param ratio of recomputed rows
 * @param klMean KL(full || fused) of the next token's distribution, nats
 * @param klP95 its 95th percentile
 * @param top1 share of positions whose likeliest token is full prefill's
 * @param nPositions compared
 * @param chunkPrefix that chunks were prefilled after
 */
public record Measurement(
    Metric metric,
    boolean corrected,
    double ratio,
    double klMean,
    double klP95,
    double top1,
    long nPositions,
    int[] chunkPrefix) {
  static Measurement of(RawMeasurement raw) {
    int[] prefix = new int[(int) raw.nChunkPrefix()];
    for (int i = 0; i < prefix.length; ++i) {
      prefix[i] = raw.chunkPrefix(i);
    }
    return new Measurement(
        Metric.of(raw.getMetric()),
        raw.getCorrected() != 0,
        raw.getRatio(),
        raw.getKlMean(),
        raw.getKlP95(),
        raw.getTop1(),
        raw.getNPositions(),
        prefix);
  }
}
