package io.libblend;

import java.util.List;

/** How chunks go to a file and back; its progress is chunks written, or bytes read. */
public final class TransferOptions extends CallOptions<TransferOptions> {
  private final RawTransferOptions raw = new RawTransferOptions();

  /** All sound chunks; those that are there already are left alone. */
  public TransferOptions() {}

  /**
   * Export only these.
   *
   * @param ids of chunks
   * @return this
   */
  public TransferOptions ids(List<String> ids) {
    RawChunkIds list = Store.ids(ids);
    raw.setIds(list);
    list.delete();
    return this;
  }

  /**
   * Import also chunks that are in the store already.
   *
   * @param on false by default
   * @return this
   */
  public TransferOptions replace(boolean on) {
    raw.setFlags(on ? RawConstants.IMPORT_REPLACE : 0);
    return this;
  }

  RawTransferOptions raw(RawCancel cancel, RawListener listener) {
    return prepare(new RawTransferOptions(raw), cancel, listener);
  }
}
