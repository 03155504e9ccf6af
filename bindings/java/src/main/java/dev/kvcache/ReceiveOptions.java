package dev.kvcache;

import java.time.Duration;

/** What a transfer that is received may have. Nothing need be given. */
public final class ReceiveOptions {
  private long prefix;
  private Duration timeout;

  private ReceiveOptions() {}

  public static ReceiveOptions create() {
    return new ReceiveOptions();
  }

  /** A sequence with the first tokens, as {@link Cache#attachPrefix} gives it: only the others travel. */
  public ReceiveOptions prefix(long sequence) {
    prefix = sequence;
    return this;
  }

  /** How long the peer may be silent; otherwise 30 seconds. Both sides use it. */
  public ReceiveOptions timeout(Duration silence) {
    timeout = Checks.given("ReceiveOptions.timeout", "silence", silence);
    return this;
  }

  Mem write(Arena arena, long tokens) {
    Mem args = arena.struct(Abi.ReceiveArgs.SIZE);
    args.putInt(Abi.ReceiveArgs.TIMEOUT_MS, millis(timeout));
    args.putLong(Abi.ReceiveArgs.NUM_TOKENS, tokens);
    args.putLong(Abi.ReceiveArgs.PREFIX, prefix);
    return args;
  }

  /** 0: the default. The library refuses what is less. */
  private static int millis(Duration timeout) {
    if (timeout == null) {
      return 0;
    }
    if (timeout.isNegative() || timeout.isZero()) {
      return -1;
    }
    return timeout.compareTo(Duration.ofMillis(Integer.MAX_VALUE)) > 0 ? Integer.MAX_VALUE : (int) Math.max(1, timeout.toMillis());
  }
}
