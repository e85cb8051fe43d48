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
    return options.call(
        new RawMachineOptions(options.raw),
        call -> new Machine(RawMachine.open(model.raw, file == null ? "" : file.toString(), call)));
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
  public record Storage(double bytesPerS, double costPerGbHour) {}

  /**
   * The cheapest of several storages that adds no delay, and the ratio that each allows.
   *
   * @param storages to choose from
   * @param options of the prompt
   * @return one a storage, in their order
   */
  public List<Advice> advise(List<Storage> storages, AdviseOptions options) {
    RawStorages list = new RawStorages();
    storages.forEach(storage -> list.add(storage.bytesPerS, storage.costPerGbHour));
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
    final RawMachineOptions raw = new RawMachineOptions();

    /** The library's defaults. */
    public Options() {}

    // blend:setters machine_options Options
  }

  /** The prompt that advice is for. For one thread. */
  public static final class AdviseOptions {
    private final RawAdviseOptions raw = new RawAdviseOptions();

    /** The library's defaults. */
    public AdviseOptions() {}

    // blend:setters advise_options
  }
}
