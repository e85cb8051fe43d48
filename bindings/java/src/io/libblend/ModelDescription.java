package io.libblend;

/** What libblend must know of a model that the host runs itself. For one thread. */
public final class ModelDescription {
  final RawModelDescription raw = new RawModelDescription();

  /** All numbers 0, but the defaults of blend_model_description. */
  public ModelDescription() {}

  // blend:setters model_description

  /**
   * Factors of the frequencies.
   *
   * @param factors [rotaryDim / 2]
   * @return this
   */
  public ModelDescription ropeFreqFactors(float... factors) {
    for (float factor : factors) {
      raw.addRopeFreqFactor(factor);
    }
    return this;
  }
}
