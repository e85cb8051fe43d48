package io.libblend;

import java.util.List;

/** How chunks go to a file and back; its progress is chunks written, or bytes read. */
public final class TransferOptions extends CallOptions<TransferOptions> {
  final RawTransferOptions raw = new RawTransferOptions();

  /** All sound chunks; those that are there already are left alone. */
  public TransferOptions() {}

  // blend:setters transfer_options

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
}
