package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import org.junit.Test;

public class BuffersTest extends Fixture {
  private static IntBuffer[] around(int[] tokens) {
    ByteBuffer direct = ByteBuffer.allocateDirect(4 * (tokens.length + 5));
    IntBuffer[] buffers = {
      direct.order(ByteOrder.nativeOrder()).asIntBuffer(),
      ByteBuffer.allocateDirect(4 * (tokens.length + 5)).order(ByteOrder.BIG_ENDIAN).asIntBuffer(),
      IntBuffer.allocate(tokens.length + 5)
    };
    for (IntBuffer buffer : buffers) {
      while (buffer.hasRemaining()) {
        buffer.put(-77); // no token: whoever reads past position and limit fails
      }
      buffer.position(2);
      buffer.put(tokens);
      buffer.limit(buffer.position()).position(2);
    }
    return buffers;
  }

  @Test
  public void positionAndLimitAreHonoured() {
    int[] tokens = model.tokenizer().tokenize("the square anchor");
    for (IntBuffer buffer : around(tokens)) {
      assertEquals("the square anchor", model.tokenizer().detokenize(buffer));
      assertEquals(2, buffer.position());
      try (Fusion fusion =
          model.fuse(
              null,
              Prompt.builder().add(SegmentKind.QUESTION, buffer).build(),
              new FuseOptions().policy(Policy.FULL))) {
        assertArrayEquals(tokens, fusion.tokens());
        fusion.decode(buffer, null);
        assertEquals(2 * tokens.length, fusion.tokens().length);
      }
    }
  }

  @Test
  public void kAndVMustBeDirect() {
    ByteBuffer heap = ByteBuffer.allocate(64);
    assertThrows(IllegalArgumentException.class, () -> new KvView(heap, heap, Dtype.F32));
  }
}
