package dev.kvcache;

import java.nio.file.Path;

/** A folder that keeps published pages, for {@link Cache#addDiskTier}. Without a change: no limit, and all that is published. */
public final class DiskTier {
  /** When a page that is stored is on the disk. */
  public enum Sync {
    /** Before it becomes visible. */
    DATA(Abi.KVC_TIER_SYNC_DATA),
    /** When the system writes it. After a loss of power it can be missing, and is never wrong. */
    NONE(Abi.KVC_TIER_SYNC_NONE),
    /** As DATA, and its name too: what was stored survives a loss of power. */
    FULL(Abi.KVC_TIER_SYNC_FULL);

    final int value;

    Sync(int value) {
      this.value = value;
    }
  }

  /** Which published pages are stored. */
  public enum Store {
    PUBLISHED(Abi.KVC_TIER_STORE_PUBLISHED),
    /** Those that the index had before the publish: a request came back to them. */
    REUSED(Abi.KVC_TIER_STORE_REUSED),
    /** None: the folder is read only. */
    NOTHING(Abi.KVC_TIER_STORE_NOTHING),
    /** Those that the pools will evict next. */
    EVICTED(Abi.KVC_TIER_STORE_EVICTED);

    final int value;

    Store(int value) {
      this.value = value;
    }
  }

  /** How the threads of the tier read files. */
  public enum Reads {
    /** As IO_URING where the kernel allows it, else as BLOCKING. */
    ANY(0),
    /** Each thread reads one file at a time. */
    BLOCKING(Abi.KVC_TIER_BLOCKING),
    /** A thread reads several small files at once, by io_uring. */
    IO_URING(Abi.KVC_TIER_IO_URING);

    final int value;

    Reads(int value) {
      this.value = value;
    }
  }

  private final Path directory;
  private long capacityBytes;
  private Sync sync = Sync.DATA;
  private Store store = Store.PUBLISHED;
  private long minTokens;
  private String medium;
  private Reads reads = Reads.ANY;

  private DiskTier(Path directory) {
    this.directory = directory;
  }

  /** The folder is made if it does not exist. Several processes may share it. */
  public static DiskTier in(Path directory) {
    return new DiskTier(directory);
  }

  /** The objects used least recently are removed beyond it; 0 = no limit. */
  public DiskTier capacityBytes(long bytes) {
    capacityBytes = bytes;
    return this;
  }

  public DiskTier sync(Sync when) {
    sync = when;
    return this;
  }

  public DiskTier store(Store which) {
    store = which;
    return this;
  }

  /** A publish of fewer tokens is not stored. */
  public DiskTier minTokens(long tokens) {
    minTokens = tokens;
    return this;
  }

  /**
   * The name of the tier in messages of events, which no other tier has. Without it: "STORAGE"; with a number if that is
   * taken.
   */
  public DiskTier medium(String name) {
    medium = name;
    return this;
  }

  public DiskTier reads(Reads how) {
    reads = how;
    return this;
  }

  Mem write(String function, Arena arena) {
    Mem config = arena.struct(Abi.TierConfig.SIZE);
    config.putLong(Abi.TierConfig.DIRECTORY, arena.text(Checks.given(function, "directory", directory).toString()));
    config.putLong(Abi.TierConfig.CAPACITY_BYTES, capacityBytes);
    config.putInt(Abi.TierConfig.SYNC, Checks.given(function, "sync", sync).value);
    config.putInt(Abi.TierConfig.STORE, Checks.given(function, "store", store).value);
    config.putLong(Abi.TierConfig.MIN_TOKENS, minTokens);
    config.putLong(Abi.TierConfig.MEDIUM, arena.text(medium));
    config.putInt(Abi.TierConfig.FLAGS, Checks.given(function, "reads", reads).value);
    return config;
  }
}
