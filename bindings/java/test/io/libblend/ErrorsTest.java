package io.libblend;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;

/** Every class of the table, raised by what a user can do wherever there is such a thing. */
public class ErrorsTest extends Fixture {
  private static void raises(Class<? extends BlendException> type, ThrowingRunnable call) throws Exception {
    BlendException e = assertThrows(type, call);
    assertEquals(type, e.getClass());
    assertEquals(type.getField("CODE").getInt(null), e.code());
    assertTrue("says nothing", e.getMessage().length() > 10);
  }

  private Path copy(byte[] bytes) {
    write(path("model.gguf"), bytes);
    return path("model.gguf");
  }

  private static int find(byte[] in, String what) {
    byte[] bytes = what.getBytes(StandardCharsets.US_ASCII);
    for (int i = 0; i + bytes.length <= in.length; ++i) {
      if (Arrays.equals(in, i, i + bytes.length, bytes, 0, bytes.length)) {
        return i;
      }
    }
    throw new AssertionError(what);
  }

  @Test
  public void ofModels() throws Exception {
    byte[] file = Files.readAllBytes(MODEL);
    raises(NotFoundException.class, () -> Model.open(context, path("none.gguf")));
    raises(FormatException.class, () -> Model.open(context, copy(Arrays.copyOf(file, 1000))));
    byte[] odd = file.clone();
    System.arraycopy("qqqqq".getBytes(StandardCharsets.US_ASCII), 0, odd, find(odd, "llama"), 5);
    raises(UnsupportedException.class, () -> Model.open(context, copy(odd)));
    byte[] nan = file.clone();
    ByteBuffer.wrap(nan).putShort(nan.length - 64, (short) 0xff7f); // an f16 NaN, little endian
    raises(NumericException.class, () -> Model.open(context, copy(nan)));
    raises(NoDeviceException.class, () -> Context.create(new Context.Options().backend("cuda")));
    raises(InvalidArgumentException.class, () -> Context.create(new Context.Options().backend("abacus")));
  }

  @Test
  public void ofStores() throws Exception {
    Store.Options tiny = new Store.Options().quotaBytes(20000);
    try (Store full = Store.open(context, path("tiny"), tiny)) {
      int[] tokens = new int[200];
      Arrays.fill(tokens, 300);
      raises(FullException.class, () -> model.precompute(full, tokens));
    }
    raises(NotFoundException.class, () -> Store.open(context, path("no"), new Store.Options().create(false)));
    model.precompute(store(), PASSAGES.get(0));
    store().close();
    try (Store closed = Store.open(context, path("store"), new Store.Options().readOnly(true))) {
      raises(ReadOnlyException.class, () -> model.precompute(closed, PASSAGES.get(1)));
    }
  }

  @Test
  public void ofFuses() throws Exception {
    raises(InvalidArgumentException.class, () -> model.fuse(store(), prompt(), new FuseOptions().ratio(2)));
    raises(InvalidArgumentException.class, () -> model.fuse(store(), Prompt.builder().chunkId("no").build()));
    raises(NotFoundException.class, () -> model.fuse(store(), prompt(), new FuseOptions().onMiss(OnMiss.FAIL)));
    int[] many = new int[2000];
    Arrays.fill(many, 300);
    raises(
        ContextLengthException.class,
        () -> model.fuse(null, Prompt.builder().question(many).build(), new FuseOptions().policy(Policy.FULL)));
    Stored chunk = model.precompute(store(), PASSAGES.get(0));
    ModelDescription description =
        new ModelDescription()
            .name("another")
            .layers(6)
            .heads(4)
            .kvHeads(2)
            .headDim(32)
            .vocab(1536)
            .contextLength(1024);
    try (Model another = Model.createFromDescription(context, description)) {
      Prompt prompt = Prompt.builder().chunkId(chunk.id()).question(new int[] {5}).build();
      raises(
          MismatchException.class,
          () -> Layerwise.create(another, store(), prompt, new FuseOptions().onMiss(OnMiss.FAIL)));
    }
    Cancel cancel = new Cancel();
    cancel.request();
    raises(CancelledException.class, () -> model.fuse(store(), prompt(), new FuseOptions().cancel(cancel)));
  }

  @Test
  public void ofDamagedFiles() throws Exception {
    Path file = path("profile");
    CalibrateOptions options =
        new CalibrateOptions().ratios(0.2).chunkPrefix().scoreTokens(2).correction(Correction.OFF);
    java.util.List<Prompt> samples = java.util.List.of(prompt(), prompt());
    raises(IoException.class, () -> model.calibrate(samples, options, path("no/such/folder")));
    model.calibrate(samples, options, file);
    byte[] bytes = Files.readAllBytes(file);
    bytes[bytes.length / 2] ^= 0x10;
    write(file, bytes);
    raises(CorruptException.class, () -> Profile.open(model, file));
  }

  @Test
  public void everyCodeHasItsClass() throws IOException {
    // Those that no call of Java can bring about here come from the same factory.
    int[] codes = {
      InvalidArgumentException.CODE, InvalidStructException.CODE, BufferTooSmallException.CODE,
      ContextLengthException.CODE, NotFoundException.CODE, FormatException.CODE, UnsupportedException.CODE,
      MismatchException.CODE, CorruptException.CODE, IoException.CODE, FullException.CODE,
      ReadOnlyException.CODE, NoDeviceException.CODE, BusyException.CODE, OutOfMemoryException.CODE, CancelledException.CODE,
      CallbackException.CODE, ForkedException.CODE, NumericException.CODE, UntrustedException.CODE,
      InternalException.CODE
    };
    for (int code : codes) {
      BlendException e = (BlendException) RawErrors.make(code, 7, Text.bytes("gr\u00fcn"));
      assertEquals(code, e.code());
      assertEquals(7, e.detail());
      assertEquals("gr\u00fcn", e.getMessage());
      assertTrue(e.getClass() != BlendException.class);
    }
    for (int code : new int[] {ClosedException.CODE, InUseException.CODE, ViewHeldException.CODE}) {
      assertTrue(RawErrors.make(code, 0, new byte[0]) instanceof IllegalStateException);
    }
    assertEquals(BlendException.class, RawErrors.make(-999, 0, new byte[0]).getClass());
  }

  @Test
  public void nullIsRefusedBeforeTheLibrarySeesIt() {
    assertThrows(NullPointerException.class, () -> model.precompute(null, new int[] {1}));
    assertThrows(NullPointerException.class, () -> model.precompute(store(), (int[]) null));
    assertThrows(NullPointerException.class, () -> model.tokenizer().tokenize((byte[]) null));
    assertThrows(NullPointerException.class, () -> model.fuse(store(), null));
  }
}
