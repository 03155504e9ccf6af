package dev.kvcache;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A {@link ParallelFor}, and how C calls it. C has its number, under which it is found as long as a context or a cache of C may call
 * it. So no object of Java has a reference from C. native/shim.h makes sure that each item runs once.
 */
final class HostPool {
  private static final Map<Long, HostPool> POOLS = new ConcurrentHashMap<>();
  private static final AtomicLong LAST = new AtomicLong();
  private static final AtomicInteger WAITING = new AtomicInteger(); // of THROWN
  private static final ThreadLocal<Throwable> THROWN = new ThreadLocal<>(); // by a function, in the call that this thread makes now

  /** Set up once, when the first context needs it. */
  private static final class OfC {
    static final NativeCalls CALLS = Library.calls();
    static final long PARALLEL_FOR = CALLS.parallelFor();
  }

  final long number = LAST.incrementAndGet();
  private volatile ParallelFor function;
  private final AtomicInteger users = new AtomicInteger(1); // handles of these contexts and caches

  HostPool(ParallelFor function) {
    this.function = function;
    POOLS.put(number, this);
  }

  /** Address of the function of C that calls run(). */
  static long parallelForOfC() {
    return OfC.PARALLEL_FOR;
  }

  /** The same pool for another handle; null of null. */
  static HostPool share(HostPool pool) {
    if (pool != null) {
      pool.users.incrementAndGet();
    }
    return pool;
  }

  static void release(HostPool pool) {
    if (pool != null && pool.users.decrementAndGet() == 0) {
      POOLS.remove(pool.number);
      pool.function = null; // closed handles are reachable as long as their contexts
    }
  }

  static int count() {
    return POOLS.size();
  }

  /** What C calls, on the thread that has called C. */
  private static void run(long user, long job, long number, int n) {
    try {
      HostPool pool = POOLS.get(user);
      if (pool != null && (WAITING.get() == 0 || THROWN.get() == null)) { // after an exception the call goes on alone
        pool.function.run(n, i -> OfC.CALLS.runItem(job, number, i));
      }
    } catch (Throwable thrown) {
      THROWN.set(thrown);
      WAITING.incrementAndGet();
    }
  }

  static void checkThrown() {
    ParallelForException thrown = thrown();
    if (thrown != null) {
      throw thrown;
    }
  }

  /** What a function threw in the call that this thread has just made, once; null = nothing. */
  static ParallelForException thrown() {
    if (WAITING.get() == 0) {
      return null;
    }
    Throwable thrown = THROWN.get();
    if (thrown == null) {
      return null;
    }
    THROWN.remove();
    WAITING.decrementAndGet();
    return new ParallelForException(thrown);
  }
}
