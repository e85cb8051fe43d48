package io.libblend;

import java.nio.ByteBuffer;

/**
 * K and V of consecutive rows of one layer in the host's memory: [rows, n_kv_heads, head_dim] from each
 * buffer's position on, up to its limit, unless strides say otherwise. Immutable but for the memory, which
 * must not change while a call has it.
 *
 * @param k direct, in native order
 * @param v direct, in native order
 * @param type of elements: F32, F16 or BF16
 * @param unrotated whether K is before RoPE
 * @param rowStride elements from row to row; 0: n_kv_heads * head_dim
 * @param headStride elements from head to head; 0: head_dim
 */
public record KvView(
    ByteBuffer k, ByteBuffer v, Dtype type, boolean unrotated, long rowStride, long headStride) {
  /**
   * Keeps positions and limits as they are now.
   *
   * @param k direct, in native order
   * @param v direct, in native order
   * @param type of elements: F32, F16 or BF16
   * @param unrotated whether K is before RoPE
   * @param rowStride elements from row to row; 0: n_kv_heads * head_dim
   * @param headStride elements from head to head; 0: head_dim
   */
  public KvView {
    if (!k.isDirect() || !v.isDirect()) {
      throw new IllegalArgumentException(
          "k and v must be direct buffers (ByteBuffer.allocateDirect): the library works in their memory");
    }
    k = k.slice().order(k.order());
    v = v.slice().order(v.order());
  }

  /**
   * Rotated K and V without gaps.
   *
   * @param k direct
   * @param v direct
   * @param type of elements
   */
  public KvView(ByteBuffer k, ByteBuffer v, Dtype type) {
    this(k, v, type, false, 0, 0);
  }

  RawKvView raw() {
    RawKvView raw = new RawKvView(k, v);
    raw.setFlags(unrotated ? RawConstants.KV_VIEW_UNROTATED : 0);
    raw.setDtype(type.code);
    raw.setRowStride(rowStride);
    raw.setHeadStride(headStride);
    return raw;
  }
}
