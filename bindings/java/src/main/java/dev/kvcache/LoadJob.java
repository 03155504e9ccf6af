package dev.kvcache;

import java.time.Duration;
import java.util.OptionalLong;

/**
 * A load that runs. Any thread may call its methods. Until its end it holds one sequence and its pages, and the garbage collector
 * does not end it.
 *
 * <pre>{@code
 * try (LoadJob job = cache.loadPrefix(query, LoadOptions.create()).job()) {
 *   if (job != null) {
 *     job.await(); // or poll() between the steps of other sequences
 *   }
 * }
 * }</pre>
 */
public final class LoadJob implements AutoCloseable {
  private static final long LONGEST_PAUSE_NS = 1_000_000;

  private final Cache cache;
  private final long id;
  private OptionalLong tokens = OptionalLong.empty();

  LoadJob(Cache cache, long id) {
    this.cache = cache;
    this.id = id;
  }

  /** The number of tokens that were loaded, or empty while the job runs. It waits for nothing. */
  public synchronized OptionalLong poll() {
    if (tokens.isEmpty()) {
      Arena arena = cache.enter("LoadJob.poll");
      try {
        Mem info = arena.struct(Abi.JobInfo.SIZE);
        arena.check(cache.handle.calls.jobPoll(cache.handle.address, id, info.address, arena.error.address));
        if (info.getInt(Abi.JobInfo.DONE) != 0) {
          tokens = OptionalLong.of(info.getLong(Abi.JobInfo.TOKENS));
        }
      } finally {
        cache.leave(arena);
      }
    }
    return tokens;
  }

  /**
   * Waits for the end of the job.
   *
   * @return the number of tokens that were loaded
   * @throws InterruptedException the job runs on, and can be waited for again
   */
  public long await() throws InterruptedException {
    return await(Duration.ofNanos(Long.MAX_VALUE)).orElseThrow();
  }

  /**
   * The same for so long. Empty: the job runs on, and can be waited for again.
   *
   * @throws InterruptedException likewise
   */
  public OptionalLong await(Duration timeout) throws InterruptedException {
    long begin = System.nanoTime();
    long most = Checks.nanos(Checks.given("LoadJob.await", "timeout", timeout));
    for (long pause = 50_000; ; pause = Math.min(2 * pause, LONGEST_PAUSE_NS)) {
      if (Thread.interrupted()) {
        throw new InterruptedException("LoadJob.await");
      }
      OptionalLong ended = poll();
      long left = most - (System.nanoTime() - begin);
      if (ended.isPresent() || left <= 0) {
        return ended;
      }
      long nanos = Math.min(pause, left);
      Thread.sleep(nanos / 1_000_000, (int) (nanos % 1_000_000));
    }
  }

  /** A new sequence, and the number of tokens of its prefix: whole pages. */
  public record Attached(long sequence, long tokens) {}

  /**
   * Makes a new sequence with the prefix that the job loads, before it is loaded. Its steps can attend to each layer as soon as that
   * is loaded. Until the job has ended, the sequence is pending: it can only be used in steps, and removed. The job must still be
   * polled to its end. If a page cannot be loaded, calls of a step report {@link Status#IO} or {@link Status#CANCELLED}. After the
   * step was aborted and the job has ended, the sequence has the length of what was loaded. {@link Status#PENDING} of this call: a
   * tier still searches, so poll the job and try again.
   *
   * @param wait calls of a step wait until their layer is ready, instead of reporting {@link Status#PENDING}
   * @param timeout the job is cancelled so long after the call; zero: no limit
   */
  public Attached attach(boolean wait, Duration timeout) {
    Arena arena = cache.enter("LoadJob.attach");
    try {
      Mem options = arena.struct(Abi.PendingOptions.SIZE);
      options.putInt(Abi.PendingOptions.FLAGS, wait ? Abi.KVC_PENDING_WAIT : 0);
      options.putLong(Abi.PendingOptions.TIMEOUT_NS, Checks.nanos(Checks.given("LoadJob.attach", "timeout", timeout)));
      long numbers = arena.numbers.address;
      arena.check(cache.handle.calls.prefixAttachPending(
          cache.handle.address, id, options.address, numbers, numbers + Long.BYTES, arena.error.address));
      return new Attached(arena.numbers.getLong(0), arena.numbers.getLong(Long.BYTES));
    } finally {
      cache.leave(arena);
    }
  }

  /** Ends the job early. Pages that are being read are waited for: poll or await its end. It does nothing after the end. */
  public synchronized void cancel() {
    if (tokens.isPresent()) {
      return;
    }
    Arena arena = cache.enter("LoadJob.cancel");
    try {
      arena.check(cache.handle.calls.jobCancel(cache.handle.address, id, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /**
   * A file descriptor that is readable while some job of the cache has ended and was not polled since: for native event loops. It
   * is the cache's until the cache is closed: do not read or close it.
   */
  public int descriptor() {
    Arena arena = cache.enter("LoadJob.descriptor");
    try {
      arena.check(cache.handle.calls.cacheJobDescriptor(cache.handle.address, arena.numbers.address, arena.error.address));
      return arena.numbers.getInt(0);
    } finally {
      cache.leave(arena);
    }
  }

  /**
   * Cancels the job, and waits for the pages that are being read, also when the thread is interrupted. It does nothing after the
   * end of the job, and after that of its cache.
   */
  @Override
  public void close() {
    boolean interrupted = false;
    try {
      cancel();
      while (poll().isEmpty()) {
        try {
          await(Duration.ofSeconds(1));
        } catch (InterruptedException later) {
          interrupted = true;
        }
      }
    } catch (KvcacheException e) {
      if (e.status() != Status.STALE_ID && !cache.handle.isClosed()) {
        throw e;
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
