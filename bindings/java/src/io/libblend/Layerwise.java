package io.libblend;

import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * The step API, for hosts that run the model themselves: the stored K and V of a prompt come layer by
 * layer into the host's buffers, which the host computes the other rows of. docs/step-api.md tells the
 * order of calls; any other is refused with a sentence that names the call that is due.
 *
 * <p>For one thread at a time, otherwise {@link InUseException}. Buffers given to {@link #fetchKv} are kept
 * until they are not written any more.
 */
public final class Layerwise implements AutoCloseable {
  /** State that must outlive reads under way, even of a layerwise fuse that was forgotten. */
  private static final class State implements Runnable {
    final Running running;
    final Relay relay;
    RawLayerwise raw;
    final Map<Integer, KvView> fetching = new ConcurrentHashMap<>();

    State(Running running, Relay relay) {
      this.running = running;
      this.relay = relay;
    }

    @Override
    public void run() {
      if (raw != null) {
        raw.close(); // waits for a read under way
      }
      fetching.clear();
      running.leave();
    }
  }

  private static final Cleaner CLEANER = Cleaner.create();

  private final State state;
  private final RawLayerwise raw;

  /** The layer at which {@link #probe} is due, and which is written to again after it; 0: none. */
  private final int probed;

  private Layerwise(State state) {
    this.state = state;
    this.raw = state.raw;
    CLEANER.register(this, state);
    this.probed = info().lastAskedLayer();
  }

  /**
   * Looks the segments up and starts loading.
   *
   * @param model described or with weights
   * @param store of the chunks; may be null as in {@link Model#fuse}
   * @param prompt segments in their order
   * @param options as of {@link Model#fuse}; the cancel and the callbacks are those of the layerwise fuse's calls
   * @return to be closed
   */
  public static Layerwise create(Model model, Store store, Prompt prompt, FuseOptions options) {
    Callbacks callbacks = options.callbacks();
    State state =
        new State(new Running(options.cancel), callbacks.none() ? null : new Relay(callbacks));
    RawFuseOptions call = new RawFuseOptions(options.raw);
    CallOptions.prepare(call, state.running.cancel, state.relay);
    try {
      state.raw = RawLayerwise.create(model.raw, Store.raw(store), prompt.raw, call);
      return new Layerwise(state);
    } finally {
      call.delete();
    }
  }

  private <T> T guarded(Supplier<T> call) {
    try {
      return state.running.during(call);
    } catch (CallbackException e) {
      throw state.relay == null ? e : state.relay.thrown(e);
    } finally {
      java.lang.ref.Reference.reachabilityFence(this);
    }
  }

  /** Starts again at layer 0, which a damaged chunk makes necessary. */
  public void restart() {
    guarded(
        () -> {
          raw.restart();
          return null;
        });
    state.fetching.clear();
  }

  /**
   * Says where a layer's K and V go, and lets loading start. Returns at once.
   *
   * @param layer in order, as early as the memory is there
   * @param rows all rows of the prompt
   */
  public void fetchKv(int layer, KvView rows) {
    RawKvView view = rows.raw();
    KvView before = state.fetching.put(layer, rows);
    try {
      guarded(
          () -> {
            raw.fetchKv(layer, view);
            return null;
          });
    } catch (Throwable t) {
      if (before != null) {
        state.fetching.put(layer, before);
      } else {
        state.fetching.remove(layer);
      }
      throw t;
    } finally {
      view.delete();
    }
  }

  /**
   * Waits until the stored rows of a layer are in place.
   *
   * @param layer of them
   * @throws CorruptException if a chunk is damaged: {@link #restart}
   */
  public void synchronize(int layer) {
    guarded(
        () -> {
          raw.synchronize(layer);
          return null;
        });
    if (layer != probed || probed == 0) {
      state.fetching.remove(layer);
    }
  }

  /**
   * The rows to begin layer 0 with, where the question chooses ({@link Policy#CASCADE}, {@link
   * Policy#PROBE}, {@link Policy#ATTENTION}): due at layer lastAskedLayer of {@link #info}, once it is
   * synchronized.
   *
   * @param attention what the question's rows attend to, mean over heads, these rows and the layers
   *     firstAskedLayer to lastAskedLayer of {@link #info}, by row of the prompt
   * @return ascending
   */
  public int[] probe(float[] attention) {
    return Views.ints(guarded(() -> raw.probe(attention)));
  }

  /**
   * The rows to go on with.
   *
   * @param layer whose K and V are fresh
   * @param fresh rows of the last {@link #rows}; null where nothing is measured
   * @return ascending
   */
  public int[] select(int layer, KvView fresh) {
    RawKvView view = fresh == null ? new RawKvView() : fresh.raw();
    try {
      return Views.ints(guarded(() -> raw.select(layer, view)));
    } finally {
      view.delete();
      java.lang.ref.Reference.reachabilityFence(fresh);
    }
  }

  /**
   * The layer is finished.
   *
   * @param layer of the model
   */
  public void commit(int layer) {
    guarded(
        () -> {
          raw.commit(layer);
          return null;
        });
    state.fetching.remove(layer);
  }

  /**
   * Rows that the host computes at this point.
   *
   * @return ascending
   */
  public int[] rows() {
    return Views.ints(raw.rows());
  }

  /**
   * Tokens of the prompt.
   *
   * @return [n_rows]
   */
  public int[] tokens() {
    return Views.ints(raw.tokens());
  }

  /**
   * Rows that the policy selected.
   *
   * @return ascending
   */
  public int[] selected() {
    return Views.ints(raw.selected());
  }

  /**
   * Deviation of every row.
   *
   * @return [n_rows]
   */
  public float[] deviation() {
    return Views.floats(raw.deviation());
  }

  /**
   * The account so far.
   *
   * @return complete when the last layer is committed
   */
  public FusionInfo info() {
    return FusionInfo.of(raw.info());
  }

  /**
   * The account of every layer.
   *
   * @return so far
   */
  public List<LayerInfo> layers() {
    List<LayerInfo> list = new ArrayList<>();
    int n = info().nLayers();
    for (int i = 0; i < n; ++i) {
      list.add(LayerInfo.of(raw.layer(i)));
    }
    return list;
  }

  /**
   * What became of each segment.
   *
   * @return in the prompt's order
   */
  public List<SegmentInfo> segments() {
    List<SegmentInfo> list = new ArrayList<>();
    long n = info().nSegments();
    for (long i = 0; i < n; ++i) {
      list.add(SegmentInfo.of(raw.segment(i)));
    }
    return list;
  }

  /** Waits for a read under way; the buffers given to fetchKv are not written any more. */
  @Override
  public void close() {
    state.run();
  }
}
