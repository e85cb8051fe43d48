package io.libblend;

/**
 * A chunk that was stored, or looked for.
 *
 * @param id 64 hexadecimal digits, of the model, the tokens and what they were prefilled after
 * @param existed whether it was in the store already
 */
public record Stored(String id, boolean existed) {
  static Stored of(RawStored raw) {
    try {
      return new Stored(raw.getId(), raw.getExisted());
    } finally {
      raw.delete();
    }
  }
}
