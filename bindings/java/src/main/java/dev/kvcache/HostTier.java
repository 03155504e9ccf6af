package dev.kvcache;

/** Memory of this process that keeps published pages, for {@link Cache#addHostTier}. Without a change: all that is published. */
public final class HostTier {
  private final long capacityBytes;
  private DiskTier.Store store = DiskTier.Store.PUBLISHED;
  private long minTokens;
  private String medium;
  private boolean pinned;

  private HostTier(long capacityBytes) {
    this.capacityBytes = capacityBytes;
  }

  /** The objects used least recently are removed beyond it. At least 4096. Memory is taken when objects fill it. */
  public static HostTier of(long capacityBytes) {
    return new HostTier(capacityBytes);
  }

  public HostTier store(DiskTier.Store which) {
    store = which;
    return this;
  }

  /** A publish of fewer tokens is not stored. */
  public HostTier minTokens(long tokens) {
    minTokens = tokens;
    return this;
  }

  /**
   * The name of the tier in messages of events, which no other tier has. Without it: "HOST", or "CPU" if the cache is on a GPU; with a number if that is
   * taken.
   */
  public HostTier medium(String name) {
    medium = name;
    return this;
  }

  /**
   * For a cache on a GPU, which then copies pages to and from this memory directly. The capacity is at least 65536, and all of it
   * is allocated and locked when the tier is added, which can take seconds.
   */
  public HostTier pinned() {
    pinned = true;
    return this;
  }

  Mem write(String function, Arena arena) {
    Mem config = arena.struct(Abi.TierConfig.SIZE);
    config.putInt(Abi.TierConfig.FLAGS, Abi.KVC_TIER_HOST | (pinned ? Abi.KVC_TIER_PINNED : 0));
    config.putLong(Abi.TierConfig.CAPACITY_BYTES, capacityBytes);
    config.putInt(Abi.TierConfig.STORE, Checks.given(function, "store", store).value);
    config.putLong(Abi.TierConfig.MIN_TOKENS, minTokens);
    config.putLong(Abi.TierConfig.MEDIUM, arena.text(medium));
    return config;
  }
}
