package io.libblend;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** What calibration found out about one model. Immutable, thread-safe. */
public final class Profile implements AutoCloseable {
  final RawProfile raw;

  private Profile(RawProfile raw) {
    this.raw = raw;
  }

  /**
   * Opens a profile.
   *
   * @param model that it is of
   * @param file of it
   * @return to be closed
   * @throws MismatchException if it is of another model
   * @throws CorruptException if its checksum fails
   */
  public static Profile open(Model model, Path file) {
    return new Profile(RawProfile.open(model.raw, file.toString()));
  }

  /**
   * Opens the profile that lies beside the model: FILE.profile of a file, DIRECTORY/blend.profile of a
   * directory.
   *
   * @param model that it is of
   * @return to be closed
   * @throws NotFoundException if there is none
   */
  public static Profile open(Model model) {
    return new Profile(RawProfile.open(model.raw, ""));
  }

  /**
   * What it says.
   *
   * @return the choice and how it was made
   */
  public ProfileInfo info() {
    return ProfileInfo.of(raw.info());
  }

  /**
   * The chosen chunk prefix: for precompute.
   *
   * @return tokens; may be empty
   */
  public int[] chunkPrefix() {
    return Views.ints(raw.chunkPrefix());
  }

  /**
   * How much coarser or finer than others codec RANS is to round each layer: for {@link
   * Store#setCodecProfile}.
   *
   * @return one a layer; none: all layers alike
   */
  public float[] layerSteps() {
    return Views.floats(raw.layerSteps());
  }

  /**
   * The table that the choice was made from.
   *
   * @return in the order of measuring
   */
  public List<Measurement> measurements() {
    List<Measurement> list = new ArrayList<>();
    long n = info().nMeasurements();
    for (long i = 0; i < n; ++i) {
      RawMeasurement line = raw.measurement(i);
      list.add(Measurement.of(line));
    }
    return list;
  }

  /**
   * Shares of the squared drift that a layer's map took away.
   *
   * @param k of K
   * @param v of V
   */
  public record Drift(double k, double v) {}

  /**
   * What the map of a layer does.
   *
   * @param layer of the model
   * @return where it was fitted
   * @throws NotFoundException for a layer without a map
   */
  public Drift drift(int layer) {
    RawDrift shares = raw.drift(layer);
    try {
      return new Drift(shares.getK(), shares.getV());
    } finally {
      shares.delete();
    }
  }

  /**
   * What storing chunks with a codec that rounds costs, beside the fuse itself.
   *
   * @param codec that rounds
   * @return what was measured
   * @throws NotFoundException for a codec that was not measured: one that is lossless, one that cannot keep a
   *     value of this model, and every codec where the profile recomputes everything
   */
  public CodecCost codecCost(Codec codec) {
    return CodecCost.of(raw.codecCost(codec.code));
  }

  @Override
  public void close() {
    raw.close();
  }
}
