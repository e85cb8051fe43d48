/** libblend for Java: fused KV caches of retrieved chunks. */
module io.libblend {
  exports io.libblend;
}
