package io.libblend;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * A directory of chunks, which several processes may share (never on a network file system). Thread-safe.
 */
public final class Store implements AutoCloseable {
  private static final class None {
    static final RawStore RAW = RawStore.none();
  }

  final RawStore raw;

  private Store(RawStore raw) {
    this.raw = raw;
  }

  static RawStore raw(Store store) {
    return store == null ? None.RAW : store.raw;
  }

  /**
   * Opens or makes a store with the defaults.
   *
   * @param context that its work is done by
   * @param directory made if it is not there
   * @return to be closed
   */
  public static Store open(Context context, Path directory) {
    return open(context, directory, new Options());
  }

  /**
   * Opens or makes a store.
   *
   * @param context that its work is done by
   * @param directory of the store
   * @param options how
   * @return to be closed
   * @throws NotFoundException if there is none and it must not be made
   * @throws MismatchException if it is of another version
   * @throws IoException if the system refuses
   */
  public static Store open(Context context, Path directory, Options options) {
    return new Store(RawStore.open(context.raw, directory.toString(), options.raw));
  }

  /** Waits until background writes are on disk, and throws what became of those that failed. */
  public void flush() {
    raw.flush();
  }

  /**
   * All chunks.
   *
   * @param verify reads and checks every byte; damaged chunks have a problem then
   * @return as they were at one moment
   */
  public List<ChunkInfo> list(boolean verify) {
    RawChunks chunks = raw.list(verify);
    try {
      List<ChunkInfo> list = new ArrayList<>();
      for (long i = 0; i < chunks.size(); ++i) {
        list.add(ChunkInfo.of(chunks.at(i)));
      }
      return list;
    } finally {
      chunks.delete();
    }
  }

  /**
   * Removes a chunk; fuses that read it go on.
   *
   * @param id of it
   * @throws NotFoundException if there is none
   */
  public void remove(String id) {
    raw.remove(id);
  }

  /**
   * Figures of the store.
   *
   * @return as they are now
   */
  public StoreStat stat() {
    return StoreStat.of(raw.stat());
  }

  /**
   * What one codec holds.
   *
   * @param codec not DEFAULT
   * @return as it is now
   */
  public CodecStat stat(Codec codec) {
    return CodecStat.of(raw.codecStat(codec.code));
  }

  /** Waits until background writes are on disk, unless a call that still runs needs the store. */
  @Override
  public void close() {
    raw.close();
  }

  /** How a store is opened. For one thread. */
  public static final class Options {
    final RawStoreOptions raw = new RawStoreOptions();

    /** The library's defaults. */
    public Options() {}

    private Options flag(int flag, boolean on) {
      raw.setFlags(on ? raw.getFlags() | flag : raw.getFlags() & ~flag);
      return this;
    }

    /**
     * Whether nothing may be written.
     *
     * @param on false by default
     * @return this
     */
    public Options readOnly(boolean on) {
      return flag(RawConstants.STORE_READ_ONLY, on);
    }

    /**
     * Whether a store that is not there is made.
     *
     * @param on true by default
     * @return this
     */
    public Options create(boolean on) {
      return flag(RawConstants.STORE_NO_CREATE, !on);
    }

    /**
     * What new chunks are stored as; part of their ids.
     *
     * @param type of elements
     * @return this
     */
    public Options kvType(KvType type) {
      raw.setKvDtype(type.code);
      return this;
    }

    /**
     * How many bytes of chunks there may be; a put past it evicts.
     *
     * @param bytes 16 GiB by default
     * @return this
     */
    public Options quotaBytes(long bytes) {
      raw.setQuotaBytes(bytes);
      return this;
    }

    /**
     * Background writes in flight; a full queue slows the writer down.
     *
     * @param bytes 256 MiB by default
     * @return this
     */
    public Options queueBytes(long bytes) {
      raw.setQueueBytes(bytes);
      return this;
    }

    /**
     * The codec of what is put without one.
     *
     * @param codec none by default
     * @return this
     */
    public Options codec(Codec codec) {
      raw.setCodec(codec.code);
      return this;
    }

    /**
     * Which chunk leaves first when a put needs room.
     *
     * @param policy LRU by default
     * @return this
     */
    public Options eviction(Eviction policy) {
      raw.setEviction(policy.code);
      return this;
    }

    /**
     * How long a chunk that nobody uses stays.
     *
     * @param time whole seconds; 0, the default: for ever
     * @return this
     */
    public Options timeToLive(Duration time) {
      raw.setTtlS(time.toSeconds());
      return this;
    }

    /**
     * What the chunks of any one tenant may take.
     *
     * @param bytes 0, the default: no bound but the store's
     * @return this
     */
    public Options tenantQuotaBytes(long bytes) {
      raw.setTenantQuotaBytes(bytes);
      return this;
    }

    /**
     * Host memory for layers that were read: a hit there costs a copy.
     *
     * @param bytes none by default
     * @return this
     */
    public Options ramBytes(long bytes) {
      raw.setRamBytes(bytes);
      return this;
    }

    /**
     * How layers are read.
     *
     * @param mode the first that works by default
     * @return this
     */
    public Options readMode(ReadMode mode) {
      raw.setReadMode(mode.code);
      return this;
    }
  }
}
