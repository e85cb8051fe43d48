package io.libblend;

/** How texts become vectors; the progress is texts. */
public final class EmbedOptions extends CallOptions<EmbedOptions> {
  final RawEmbedOptions raw = new RawEmbedOptions();

  /** The pooling that the model's file names, all dimensions, vectors of length 1. */
  public EmbedOptions() {}

  // blend:setters embed_options
}
