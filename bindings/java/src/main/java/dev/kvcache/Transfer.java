package dev.kvcache;

import java.time.Duration;
import java.util.concurrent.locks.LockSupport;

/**
 * A sequence on its way to another cache, or from one. Both sides poll it until it is done. Any thread may call its methods. The
 * garbage collector does not end it.
 *
 * <pre>{@code
 * try (Transfer incoming = cache.receive(prompt.length, ReceiveOptions.create())) {
 *   channel.write(incoming.describe()); // to the sender, in any way
 *   long sequence = incoming.await().sequence(); // or poll() between the steps of other sequences
 * }
 * }</pre>
 */
public final class Transfer implements AutoCloseable {
  private static final int BUSY_ROUNDS = 100;
  private static final long PAUSE_NS = 200_000;

  private final Cache cache;
  private final long id;
  private TransferProgress end; // null until it is done

  Transfer(Cache cache, long id) {
    this.cache = cache;
    this.id = id;
  }

  /** What the receiver expects and where to send it: bytes for {@link Cache#send} of the other side. They are for one sender. */
  public byte[] describe() {
    Arena arena = cache.enter("Transfer.describe");
    try {
      NativeCalls calls = cache.handle.calls;
      long count = arena.numbers.address;
      arena.check(calls.transferDescribe(cache.handle.address, id, 0, 0, count, arena.error.address));
      byte[] bytes = new byte[Math.toIntExact(arena.numbers.getLong(0))];
      Mem buffer = arena.alloc(bytes.length);
      arena.check(calls.transferDescribe(cache.handle.address, id, buffer.address, bytes.length, count, arena.error.address));
      buffer.buffer.get(buffer.at, bytes);
      return bytes;
    } finally {
      cache.leave(arena);
    }
  }

  /**
   * Moves the transfer on, and says how far it is. It waits for nothing. An exception ends the transfer: a receiver has freed its
   * pages, and a sender's sequence is as it was.
   */
  public synchronized TransferProgress poll() {
    if (end != null) {
      return end;
    }
    Arena arena = cache.enter("Transfer.poll");
    try {
      Mem info = arena.struct(Abi.TransferInfo.SIZE);
      arena.check(cache.handle.calls.transferPoll(cache.handle.address, id, info.address, arena.error.address));
      TransferProgress progress = TransferProgress.of(info);
      if (progress.done()) {
        end = progress;
      }
      return progress;
    } finally {
      cache.leave(arena);
    }
  }

  /**
   * Polls until the transfer is done.
   *
   * @throws InterruptedException the transfer runs on, and can be waited for again
   */
  public TransferProgress await() throws InterruptedException {
    return await(Duration.ofNanos(Long.MAX_VALUE));
  }

  /**
   * The same for so long. If the progress is not done, the transfer runs on, and can be waited for again.
   *
   * @throws InterruptedException likewise
   */
  public TransferProgress await(Duration timeout) throws InterruptedException {
    long begin = System.nanoTime();
    long most = Checks.nanos(Checks.given("Transfer.await", "timeout", timeout));
    for (int round = 0; ; round++) {
      if (Thread.interrupted()) {
        throw new InterruptedException("Transfer.await");
      }
      TransferProgress progress = poll();
      long left = most - (System.nanoTime() - begin);
      if (progress.done() || left <= 0) {
        return progress;
      }
      if (round > BUSY_ROUNDS) {
        LockSupport.parkNanos(Math.min(PAUSE_NS, left));
      }
    }
  }

  /** Ends the transfer. The peer learns of it. It does nothing after the end. */
  public synchronized void cancel() {
    if (end != null) {
      return;
    }
    Arena arena = cache.enter("Transfer.cancel");
    try {
      arena.check(cache.handle.calls.transferCancel(cache.handle.address, id, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Cancels the transfer. It does nothing after the end of the transfer, and after that of its cache. */
  @Override
  public void close() {
    try {
      cancel();
    } catch (KvcacheException e) {
      if (e.status() != Status.STALE_ID && !cache.handle.isClosed()) {
        throw e;
      }
    }
  }
}
