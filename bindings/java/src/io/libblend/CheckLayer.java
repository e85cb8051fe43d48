package io.libblend;

/**
 * A layer at which rows are chosen.
 *
 * @param layer of the model
 * @param ratio share of the reused rows that goes on after it, 0 .. 1
 */
public record CheckLayer(int layer, double ratio) {
  static RawCheckLayers raw(java.util.List<CheckLayer> layers) {
    RawCheckLayers raw = new RawCheckLayers();
    layers.forEach(check -> raw.add(check.layer, check.ratio));
    return raw;
  }
}
