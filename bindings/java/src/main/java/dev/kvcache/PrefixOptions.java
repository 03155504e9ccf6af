package dev.kvcache;

/** How long published tokens should stay, and whose they are. Without a change: the lowest priority, no session and no limit. */
public final class PrefixOptions {
  private int priority;
  private long session;
  private long timeToLive;
  private boolean keepPrivate;

  private PrefixOptions() {}

  public static PrefixOptions create() {
    return new PrefixOptions();
  }

  /** 0 to 100: prefixes of lower priority are evicted first. */
  public PrefixOptions priority(int zeroToHundred) {
    priority = zeroToHundred;
    return this;
  }

  /** {@link Cache#dropSession} drops what one session alone published; 0 = no session. */
  public PrefixOptions session(long bits) {
    session = bits;
    return this;
  }

  /**
   * The tokens are expired so long after now, in the unit of {@link Cache#setTime}. They are still found, but evicted before all
   * others. 0 = no limit.
   */
  public PrefixOptions timeToLive(long duration) {
    timeToLive = duration;
    return this;
  }

  /** No tier stores what this publish adds. */
  public PrefixOptions keepPrivate() {
    keepPrivate = true;
    return this;
  }

  Mem write(Arena arena) {
    Mem options = arena.struct(Abi.PrefixOptions.SIZE);
    options.putInt(Abi.PrefixOptions.PRIORITY, priority);
    options.putLong(Abi.PrefixOptions.SESSION, session);
    options.putLong(Abi.PrefixOptions.TIME_TO_LIVE, timeToLive);
    options.putInt(Abi.PrefixOptions.FLAGS, keepPrivate ? Abi.KVC_PREFIX_KEEP_PRIVATE : 0);
    return options;
  }
}
