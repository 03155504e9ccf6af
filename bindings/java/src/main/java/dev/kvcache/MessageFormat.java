package dev.kvcache;

/** How a message of events is written: {@code docs/reference/events.md} has the bytes. */
public final class MessageFormat {
  private double timestamp;
  private int rank = -1;
  private int flags;
  int maxBytes = 1 << 20;

  /** Seconds; by default 0. */
  public MessageFormat timestamp(double seconds) {
    timestamp = seconds;
    return this;
  }

  /** The engine's data-parallel rank; by default none. */
  public MessageFormat dataParallelRank(int n) {
    rank = n;
    return this;
  }

  /** Events as arrays, as older consumers read them; by default as maps. */
  public MessageFormat arrays() {
    flags |= Abi.KVC_EVENTS_ARRAYS;
    return this;
  }

  /** Keys as integers of 64 bits; by default as 32 bytes. */
  public MessageFormat shortHashes() {
    flags |= Abi.KVC_EVENTS_SHORT_HASHES;
    return this;
  }

  /** Bytes of a message that {@link Events#message} writes at most; by default 2^20. */
  public MessageFormat maxBytes(int n) {
    if (n < 1) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, "MessageFormat.maxBytes: " + n + " is below 1");
    }
    maxBytes = n;
    return this;
  }

  void write(Mem args) {
    args.putInt(Abi.EventsArgs.FLAGS, flags);
    args.putDouble(Abi.EventsArgs.TIMESTAMP, timestamp);
    args.putInt(Abi.EventsArgs.DATA_PARALLEL_RANK, rank);
  }
}
