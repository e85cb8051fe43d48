package io.libblend;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** How fast this machine prefills a model, measured once and kept. Thread-safe. */
public final class Machine implements AutoCloseable {
  final RawMachine raw;

  private Machine(RawMachine raw) {
    this.raw = raw;
  }

  /**
   * Takes what a file holds, if it is of this machine and model, otherwise measures and writes it.
   *
   * @param model measured
   * @param file null: nothing is kept
   * @param options how
   * @return to be closed
   */
  public static Machine open(Model model, Path file, Options options) {
    return Running.call(
        options.cancel,
        options.callbacks(),
        (cancel, listener) -> {
          RawMachineOptions call = CallOptions.prepare(new RawMachineOptions(options.raw), cancel, listener);
          try {
            return new Machine(RawMachine.open(model.raw, file == null ? "" : file.toString(), call));
          } finally {
            call.delete();
          }
        });
  }

  /**
   * The measurement.
   *
   * @return the same every time
   */
  public MachineInfo info() {
    return MachineInfo.of(raw.info());
  }

  /**
   * A length that was measured.
   *
   * @param tokens of the prompt
   * @param prefillNs its full prefill
   */
  public record Point(long tokens, long prefillNs) {}

  /**
   * The lengths that were measured.
   *
   * @return ascending
   */
  public List<Point> points() {
    List<Point> list = new ArrayList<>();
    long n = info().nPoints();
    for (long i = 0; i < n; ++i) {
      RawMachinePoint point = raw.point(i);
      list.add(new Point(point.getNTokens(), point.getPrefillNs()));
      point.delete();
    }
    return list;
  }

  /**
   * Estimated time of recomputing.
   *
   * @param tokens of the prompt
   * @param ratio 1: the whole prefill
   * @return nanoseconds
   */
  public long recomputeNs(long tokens, double ratio) {
    return raw.recomputeNs(tokens, ratio);
  }

  /**
   * A place where chunks could be stored.
   *
   * @param bytesPerS reading
   * @param costPerGbHour of 1e9 bytes, in any currency
   */
  public record Device(double bytesPerS, double costPerGbHour) {}

  /**
   * Of several devices the cheapest that adds no delay, and the ratio that each allows.
   *
   * @param devices to choose from
   * @param options of the prompt
   * @return one a device, in their order
   */
  public List<Advice> advise(List<Device> devices, AdviseOptions options) {
    RawDevices list = new RawDevices();
    devices.forEach(device -> list.add(device.bytesPerS, device.costPerGbHour));
    RawAdvices advices = null;
    try {
      advices = raw.advise(list, options.raw);
      List<Advice> result = new ArrayList<>();
      for (long i = 0; i < advices.size(); ++i) {
        result.add(Advice.of(advices.at(i)));
      }
      return result;
    } finally {
      list.delete();
      if (advices != null) {
        advices.delete();
      }
    }
  }

  @Override
  public void close() {
    raw.close();
  }

  /** How a machine is measured; its progress is prefills. */
  public static final class Options extends CallOptions<Options> {
    private final RawMachineOptions raw = new RawMachineOptions();

    /** The library's defaults. */
    public Options() {}

    /**
     * Measures anew, whatever the file holds.
     *
     * @param on false by default
     * @return this
     */
    public Options measure(boolean on) {
      raw.setFlags(on ? RawConstants.MACHINE_MEASURE : 0);
      return this;
    }

    /**
     * The threads that are timed.
     *
     * @param count 0, the default: all; for fuses with threads: theirs
     * @return this
     */
    public Options threads(int count) {
      raw.setNThreads(count);
      return this;
    }

    /**
     * Longest prefill that is timed.
     *
     * @param tokens 1024 by default
     * @return this
     */
    public Options maxTokens(long tokens) {
      raw.setMaxTokens(tokens);
      return this;
    }
  }

  /** Of which prompt advice is asked. For one thread. */
  public static final class AdviseOptions {
    private final RawAdviseOptions raw = new RawAdviseOptions();

    /** The library's defaults. */
    public AdviseOptions() {}

    /**
     * Tokens of the prompt's chunks.
     *
     * @param count 4096 by default
     * @return this
     */
    public AdviseOptions tokens(long count) {
      raw.setNTokens(count);
      return this;
    }

    /**
     * Recomputed share.
     *
     * @param ratio 0.15 by default
     * @return this
     */
    public AdviseOptions ratio(double ratio) {
      raw.setRatio(ratio);
      return this;
    }

    /**
     * Layers before it are computed for all rows.
     *
     * @param layer 1 by default
     * @return this
     */
    public AdviseOptions checkLayer(int layer) {
      raw.setCheckLayer(layer);
      return this;
    }

    /**
     * What chunks are stored as.
     *
     * @param type AUTO by default
     * @return this
     */
    public AdviseOptions kvType(KvType type) {
      raw.setKvDtype(type.code);
      return this;
    }
  }
}
