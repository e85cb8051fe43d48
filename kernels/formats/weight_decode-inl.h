// A run of quantized blocks. Included after weight_blocks-inl.h and weight_codes-inl.h.

// Blocks of `type` (not none) from `at` on, until n elements are written.
inline void decode_run(BlockType type, const uint8_t* at, size_t n, float* out) {
  const auto each = [&](auto decode) {
    const size_t elements = block_elements(type), bytes = block_bytes(type);
    for (size_t i = 0; i < n; i += elements, at += bytes) decode(at, out + i);
  };
  switch (type) {
    case BlockType::none:
      return;
    case BlockType::q4_0:
      return each(q4_0);
    case BlockType::q4_1:
      return each(q4_1);
    case BlockType::q5_0:
      return each(q5_0);
    case BlockType::q5_1:
      return each(q5_1);
    case BlockType::q8_0:
      return each(q8_0);
    case BlockType::q4_k:
      return each(q4_k);
    case BlockType::q5_k:
      return each(q5_k);
    case BlockType::q6_k:
      return each(q6_k);
    default:
      with_codes(type, [&](auto codes) { each(decode_codes<decltype(codes)>); });
  }
}
