package io.libblend;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertSame;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.Test;

public class ProfileTest extends Fixture {
  @Test
  public void calibrateVerifyApply() {
    Path file = path("profile");
    List<Measurement> lines = new ArrayList<>();
    CalibrateOptions options =
        new CalibrateOptions()
            .ratios(0.3)
            .chunkPrefix(model.tokenizer().bos())
            .scoreTokens(2)
            .correction(Correction.OFF)
            .maxKl(100)
            .minTop1(0)
            .onMeasurement(lines::add);
    List<Prompt> samples = List.of(prompt(), prompt());
    assertTrue(model.calibrate(samples, options, file));
    try (Profile profile = Profile.open(model, file)) {
      ProfileInfo info = profile.info();
      assertTrue(info.trusted());
      assertEquals(0.3, info.ratio(), 0);
      assertEquals(lines.size(), profile.measurements().size());
      assertEquals(lines.get(0).klMean(), profile.measurements().get(0).klMean(), 0);
      assertArrayEquals(model.tokenizer().bos(), profile.chunkPrefix());
      assertThrows(NotFoundException.class, () -> profile.drift(2));
      assertThrows(NotFoundException.class, () -> profile.codecCost(Codec.ZSTD)); // it is lossless
      CodecCost cost = profile.codecCost(Codec.INT8);
      assertEquals(Codec.INT8, cost.codec());
      assertTrue(cost.toString(), cost.bits() > 7 && cost.bits() < 12 && cost.kl() >= 0 && cost.nMeasured() == 2);
      assertEquals(0, profile.layerSteps().length); // two prompts say nothing of them
      store().setCodecProfile(profile);
      Verdict verdict =
          model.verify(profile, samples, new VerifyOptions().ratios(0.3).scoreTokens(2));
      assertTrue(verdict.trusted());
      FuseOptions fuse = new FuseOptions().profile(profile);
      profile.close(); // the options keep it open
      try (Fusion fusion = model.fuse(store(), prompt(), fuse)) {
        assertEquals(0.3, fusion.info().ratio(), 0);
        assertFalse(fusion.info().flags().contains(FusionFlag.UNCALIBRATED));
      }
      fuse.ratio(0.1); // less than was measured
      try (Fusion fusion = model.fuse(store(), prompt(), fuse)) {
        assertTrue(fusion.info().flags().contains(FusionFlag.UNTRUSTED));
      }
      fuse.onUntrusted(OnUntrusted.FULL);
      try (Fusion fusion = model.fuse(store(), prompt(), fuse)) {
        assertEquals(Policy.FULL, fusion.info().policy());
        assertFalse(fusion.info().flags().contains(FusionFlag.UNTRUSTED));
      }
      fuse.onUntrusted(OnUntrusted.FAIL);
      assertThrows(UntrustedException.class, () -> model.fuse(store(), prompt(), fuse));
    }
    IllegalStateException mine = new IllegalStateException();
    options.onMeasurement(
        line -> {
          throw mine;
        });
    assertSame(
        mine,
        assertThrows(
            IllegalStateException.class,
            () -> model.calibrate(samples, options, path("not written"))));
    assertFalse(Files.exists(path("not written")));
  }

  @Test
  public void machineAndAdvice() {
    Path file = path("machine");
    Machine.Options options = new Machine.Options().maxTokens(64);
    try (Machine machine = Machine.open(model, file, options)) {
      assertFalse(machine.info().kept());
      assertEquals(machine.info().nPoints(), machine.points().size());
      assertTrue(machine.recomputeNs(64, 1) > machine.recomputeNs(64, 0.1));
      List<Advice> advices =
          machine.advise(
              List.of(new Machine.Storage(1e12, 5), new Machine.Storage(1e3, 1)),
              new Machine.AdviseOptions().tokens(512));
      assertEquals(2, advices.size());
      assertTrue(advices.get(0).flags().contains(AdviceFlag.CHEAPEST));
      assertTrue(advices.get(1).flags().contains(AdviceFlag.SLOWER_THAN_PREFILL));
      FuseOptions auto = new FuseOptions().ratio(FuseOptions.RATIO_AUTO).machine(machine);
      try (Fusion fusion = model.fuse(store(), prompt(), auto)) {
        assertTrue(fusion.info().ratio() >= 0.15);
      }
    }
    try (Machine again = Machine.open(model, file, options)) {
      assertTrue(again.info().kept());
    }
  }
}
