package dev.kvcache;

/** What the pages of a load get, as in {@link PrefixOptions}, and what computing would cost instead. */
public final class LoadOptions {
  private int priority;
  private long session;
  private long timeToLive;
  private long tokenNs;

  private LoadOptions() {}

  public static LoadOptions create() {
    return new LoadOptions();
  }

  /** 0 to 100. */
  public LoadOptions priority(int zeroToHundred) {
    priority = zeroToHundred;
    return this;
  }

  public LoadOptions session(long bits) {
    session = bits;
    return this;
  }

  public LoadOptions timeToLive(long duration) {
    timeToLive = duration;
    return this;
  }

  /**
   * What it costs to compute one token, in nanoseconds. By the measurements of the tiers, the load ends where computing is
   * faster. 0 = as the cache has measured it; Long.MAX_VALUE = load in any case.
   */
  public LoadOptions tokenNs(long nanoseconds) {
    tokenNs = nanoseconds;
    return this;
  }

  Mem write(Arena arena) {
    Mem options = arena.struct(Abi.PrefixLoadOptions.SIZE);
    options.putInt(Abi.PrefixLoadOptions.PRIORITY, priority);
    options.putLong(Abi.PrefixLoadOptions.SESSION, session);
    options.putLong(Abi.PrefixLoadOptions.TIME_TO_LIVE, timeToLive);
    options.putLong(Abi.PrefixLoadOptions.TOKEN_NS, tokenNs);
    return options;
  }
}
