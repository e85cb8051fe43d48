package io.libblend;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/**
 * A directory of chunks, which several processes may share (never on a network file system). Thread-safe.
 */
public final class Store implements AutoCloseable {
  private static final long SLICE_MS = 50; // how soon a wait sees an interrupt

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
    return list(new FilterOptions(), verify);
  }

  /**
   * The chunks that a filter means.
   *
   * @param filter which
   * @param verify reads and checks every byte; damaged chunks have a problem then
   * @return as they were at one moment
   * @throws InvalidArgumentException if the filter's model is not of hexadecimal digits
   */
  public List<ChunkInfo> list(FilterOptions filter, boolean verify) {
    return chunks(raw.list(filter.raw, verify));
  }

  /**
   * Removes the chunks that a filter means.
   *
   * @param filter which
   * @return what was removed
   * @throws InvalidArgumentException if the filter says nothing; the label "*" means every chunk
   */
  public List<ChunkInfo> removeMatching(FilterOptions filter) {
    return chunks(raw.removeMatching(filter.raw));
  }

  /**
   * What a chunk is called from now on. The rows are not touched.
   *
   * @param id of it
   * @param options label, tags, and whose it must be
   * @throws NotFoundException if there is no such chunk, or it is another tenant's
   * @throws InvalidArgumentException if a text is too long, or more than a line
   */
  public void setLabel(String id, LabelOptions options) {
    raw.setLabel(id, options.raw);
  }

  private static List<ChunkInfo> chunks(RawChunks chunks) {
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
    remove(id, new TenantOptions());
  }

  /**
   * Removes a chunk.
   *
   * @param id of it
   * @param options whose it must be
   * @throws NotFoundException if there is none, or it is another tenant's
   */
  public void remove(String id, TenantOptions options) {
    raw.remove(id, options.raw);
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
  public CodecStat codecStat(Codec codec) {
    return CodecStat.of(raw.codecStat(codec.code));
  }

  // ---- Upkeep

  /**
   * Waits for the background write of one chunk.
   *
   * @param id of it
   * @param timeout how long
   * @return whether it is on disk
   * @throws NotFoundException if it is neither stored nor on its way
   * @throws CancelledException if the thread is interrupted, and stays so
   */
  public boolean await(String id, Duration timeout) {
    long end = System.nanoTime() + timeout.toNanos();
    while (true) {
      long left = Math.max(0, end - System.nanoTime());
      if (raw.wait(id, Math.min(SLICE_MS, left / 1_000_000))) {
        return true;
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new CancelledException(0, "the thread was interrupted while it waited for a chunk's write");
      }
      if (left == 0) {
        return false;
      }
    }
  }

  /**
   * Has chunks of the profile's model that are put from here on with codec RANS rounded as the
   * profile says: its layers' steps times codecStep. For as long as the store is open.
   *
   * @param profile of the model
   */
  public void setCodecProfile(Profile profile) {
    raw.setCodecProfile(profile.raw);
  }

  /**
   * The chunks that coming prompts need: they are read ahead into memory, and are not evicted for others.
   * A list takes the place of the one before. Returns at once.
   *
   * @param ids in the order of need; none lets all go
   */
  public void prefetch(List<String> ids) {
    RawChunkIds list = ids(ids);
    try {
      raw.prefetch(list);
    } finally {
      list.delete();
    }
  }

  static RawChunkIds ids(List<String> ids) {
    RawChunkIds list = new RawChunkIds();
    ids.forEach(list::add);
    return list;
  }

  /**
   * Keeps a chunk from being evicted and from expiring, for all processes.
   *
   * @param id of it
   * @param pinned false lets it go again
   */
  public void setPinned(String id, boolean pinned) {
    raw.setPinned(id, pinned);
  }

  /**
   * Evicts until at most this much is stored.
   *
   * @param targetBytes that may stay
   * @return how many chunks left
   * @throws FullException if pinned or needed chunks are in the way; all others are gone then
   */
  public long evict(long targetBytes) {
    return raw.evict(targetBytes);
  }

  /**
   * What a tenant's chunks may take, for all processes.
   *
   * @param tenant as given to precompute
   * @param bytes 0: what the options of the store say
   */
  public void setTenantQuota(String tenant, long bytes) {
    raw.setTenantQuota(tenant, bytes);
  }

  /**
   * What one tenant takes.
   *
   * @param nChunks stored
   * @param storedBytes of them
   * @param quotaBytes that they may take; 0: no bound but the store's
   */
  public record TenantUse(long nChunks, long storedBytes, long quotaBytes) {}

  /**
   * What a tenant's chunks take and may take.
   *
   * @param name of the tenant
   * @return as it is now
   */
  public TenantUse tenantUsage(String name) {
    RawTenantUse use = raw.tenantUsage(name);
    try {
      return new TenantUse(use.getNChunks(), use.getStoredBytes(), use.getQuotaBytes());
    } finally {
      use.delete();
    }
  }

  /**
   * Reads and checks every byte and removes what is damaged.
   *
   * @return what was removed, with its problem
   */
  public List<ChunkInfo> repair() {
    return chunks(raw.repair());
  }

  /**
   * Writes a consistent copy, as small as the chunks; others may read and write meanwhile.
   *
   * @param directory of the new store
   */
  public void copy(Path directory) {
    raw.copy(directory.toString());
  }

  /**
   * Writes chunks to a file, which appears whole or not at all.
   *
   * @param file to be made
   * @param options which
   * @return how many
   */
  public long exportTo(Path file, TransferOptions options) {
    return options.call(
        new RawTransferOptions(options.raw),
        call -> raw.exportTo(file.toString(), call));
  }

  /**
   * Puts the chunks of such a file. Ids are taken on trust: import files of those whose chunks you would
   * use.
   *
   * @param file of exportTo
   * @param options how
   * @return how many were put
   */
  public long importFrom(Path file, TransferOptions options) {
    return options.call(
        new RawTransferOptions(options.raw),
        call -> raw.importFrom(file.toString(), call));
  }

  // ---- The remote tier

  /**
   * Asks whether the remote tier's servers answer, and take us.
   *
   * @throws IoException with their words
   * @throws InvalidArgumentException if the store has no remote tier; so do the following
   */
  public void remoteCheck() {
    raw.remoteCheck();
  }

  /**
   * Puts chunks into the remote tier that it does not have.
   *
   * @param options which; its progress is chunks
   * @return how many
   */
  public long remotePush(TransferOptions options) {
    return options.call(new RawTransferOptions(options.raw), raw::remotePush);
  }

  /**
   * Brings chunks from the remote tier that are not here.
   *
   * @param options which; its progress is chunks
   * @return how many
   */
  public long remotePull(TransferOptions options) {
    return options.call(new RawTransferOptions(options.raw), raw::remotePull);
  }

  /**
   * A chunk of the remote tier.
   *
   * @param id null: its key there does not tell it
   * @param problem null: it is sound
   */
  public record RemoteChunk(String id, String problem) {}

  /**
   * Reads and checks chunks of the remote tier.
   *
   * @param options which; its progress is chunks
   * @return each, with its problem if it is damaged
   */
  public List<RemoteChunk> remoteVerify(TransferOptions options) {
    return options.call(
        new RawTransferOptions(options.raw),
        call -> {
          RawChunks chunks = raw.remoteVerify(call);
          try {
            List<RemoteChunk> list = new ArrayList<>();
            for (long i = 0; i < chunks.size(); ++i) {
              RawChunkInfo chunk = chunks.at(i);
              String id = chunk.getId();
              String problem = chunk.getProblem();
              list.add(
                  new RemoteChunk(id.isEmpty() ? null : id, problem.isEmpty() ? null : problem));
              chunk.delete();
            }
            return list;
          } finally {
            chunks.delete();
          }
        });
  }

  /**
   * Removes a chunk from the remote tier; the store's own stays.
   *
   * @param id of it
   * @throws NotFoundException if there is none
   */
  public void remoteRemove(String id) {
    raw.remoteRemove(id);
  }

  /**
   * What compacting did to the data file.
   *
   * @param bytesBefore of it
   * @param bytesAfter of it
   */
  public record Compacted(long bytesBefore, long bytesAfter) {}

  /**
   * Makes the data file of a store as small as its chunks, whole or not at all.
   *
   * @param directory of a store that nobody has open
   * @return sizes
   * @throws BusyException if a process, this one included, has it open
   */
  public static Compacted compact(Path directory) {
    RawCompacted sizes = RawStore.compact(directory.toString());
    try {
      return new Compacted(sizes.getBytesBefore(), sizes.getBytesAfter());
    } finally {
      sizes.delete();
    }
  }

  /**
   * One figure of a store, for a metrics system of the host's own.
   *
   * @param name as Prometheus has it
   * @param labels such as {@code tier="ram"}, or ""
   * @param help a line
   * @param counter whether it only grows while the store is open
   * @param value now
   */
  public record Figure(String name, String labels, String help, boolean counter, double value) {}

  /**
   * Every figure of {@link #stat()}.
   *
   * @return those of one name together
   */
  public List<Figure> listMetrics() {
    RawMetrics metrics = raw.listMetrics();
    try {
      List<Figure> list = new ArrayList<>();
      for (long i = 0; i < metrics.size(); ++i) {
        RawMetric m = metrics.at(i);
        list.add(new Figure(m.getName(), m.getLabels(), m.getHelp(), m.getCounter(), m.getValue()));
        m.delete();
      }
      return list;
    } finally {
      metrics.delete();
    }
  }

  /**
   * The same as the text that Prometheus scrapes.
   *
   * @param name each line's label {@code store}
   * @return exposition format 0.0.4
   */
  public String metrics(String name) {
    return raw.metrics(name);
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

    // blend:setters store_options Options

    /**
     * User and password for the remote tier, and the key that seals its values. Without this call they
     * come from the environment.
     *
     * @param user that the server knows, or null
     * @param password of that user, or null
     * @param sealKey 32 bytes, or null
     * @return this
     */
    public Options remoteSecrets(String user, String password, byte[] sealKey) {
      raw.setSecrets(
          user == null ? "" : user,
          password == null ? "" : password,
          sealKey == null ? "" : HexFormat.of().formatHex(sealKey));
      return this;
    }

  }
}
