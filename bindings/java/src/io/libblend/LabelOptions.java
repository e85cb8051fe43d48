package io.libblend;

/** What a chunk is called; what is not set stays as it is. For one thread while it is set. */
public final class LabelOptions {
  final RawLabelOptions raw = new RawLabelOptions();

  /** Everything stays as it is. */
  public LabelOptions() {}

  /**
   * The label.
   *
   * @param label by custom "document#part"; "" removes it
   * @return this
   */
  public LabelOptions label(String label) {
    raw.setLabel(label);
    return this;
  }

  /**
   * The tags.
   *
   * @param tags words with one space between, such as "lang=en draft"; "" removes them
   * @return this
   */
  public LabelOptions tags(String tags) {
    raw.setTags(tags);
    return this;
  }

  /**
   * Only this tenant's chunk: another's is not there.
   *
   * @param name as given to precompute; "" is the one without a name
   * @return this
   */
  public LabelOptions tenant(String name) {
    raw.setTenant(name);
    return this;
  }
}
