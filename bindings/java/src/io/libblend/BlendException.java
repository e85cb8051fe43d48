package io.libblend;

/**
 * A failure that the library told of; each code has a subclass. The message is one sentence that names
 * the thing and the way out.
 */
public class BlendException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The library's code. */
  private final int code;

  /** The errno, or 0. */
  private final long detail;

  BlendException(int code, long detail, String message) {
    super(message);
    this.code = code;
    this.detail = detail;
  }

  /**
   * The library's code.
   *
   * @return a BLEND_E_* of blend.h
   */
  public int code() {
    return code;
  }

  /**
   * More about it.
   *
   * @return the system's errno for {@link IoException}, otherwise 0
   */
  public long detail() {
    return detail;
  }
}
