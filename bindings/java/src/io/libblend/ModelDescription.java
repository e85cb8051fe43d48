package io.libblend;

/** What libblend must know of a model that the host runs itself. For one thread. */
public final class ModelDescription {
  final RawModelDescription raw = new RawModelDescription();

  /** All numbers 0, but the defaults of blend_model_description. */
  public ModelDescription() {}

  /**
   * Shape of the model.
   *
   * @param layers of it
   * @param heads query heads, a multiple of kvHeads
   * @param kvHeads key/value heads
   * @param headDim elements of a head
   * @return this
   */
  public ModelDescription shape(int layers, int heads, int kvHeads, int headDim) {
    raw.setNLayers(layers);
    raw.setNHeads(heads);
    raw.setNKvHeads(kvHeads);
    raw.setHeadDim(headDim);
    return this;
  }

  /**
   * Tokens there are, and rows a plan may have.
   *
   * @param vocabulary tokens
   * @param contextLength rows
   * @return this
   */
  public ModelDescription limits(int vocabulary, int contextLength) {
    raw.setNVocab(vocabulary);
    raw.setContextLength(contextLength);
    return this;
  }

  /**
   * What KvType.AUTO goes by.
   *
   * @param type of the weights; F32 by default
   * @return this
   */
  public ModelDescription weightType(KvType type) {
    raw.setWeightDtype(type.code);
    return this;
  }

  /**
   * Rotary position embedding.
   *
   * @param layout HALF_SPLIT by default
   * @param rotaryDim elements of a head that rotate; 0: all
   * @param theta 10000 by default
   * @param linearScale 1 by default
   * @return this
   */
  public ModelDescription rope(RopeLayout layout, int rotaryDim, double theta, double linearScale) {
    raw.setRopeLayout(layout.code);
    raw.setRotaryDim(rotaryDim);
    raw.setRopeTheta(theta);
    raw.setRopeLinearScale(linearScale);
    return this;
  }

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

  /**
   * Names the weights: models that differ must differ in it, or in their fingerprints.
   *
   * @param name such as "org/model@revision"
   * @return this
   */
  public ModelDescription name(String name) {
    raw.setName(name);
    return this;
  }

  /**
   * What tells models apart.
   *
   * @param hex 64 hexadecimal digits; "", the default: made of the name and the numbers
   * @return this
   */
  public ModelDescription fingerprint(String hex) {
    raw.setFingerprint(hex);
    return this;
  }
}
