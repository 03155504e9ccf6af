package dev.kvcache;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongConsumer;

/**
 * Counts who uses a context, a cache or a plan of C: its owner, until close, and each call that is inside it. The last one
 * destroys it, so no call races the destruction, whatever threads do.
 */
final class Handle {
  final NativeCalls calls;
  final long address;
  private final LongConsumer destroy;
  private final AtomicInteger state = new AtomicInteger(1); // twice the calls inside, and 1 while it is open
  private Object kept; // what must live as long as C's object: buffers that it adopted
  private final HostPool pool; // what C's object may call as long as it lives; or null

  Handle(NativeCalls calls, long address, LongConsumer destroy, Object kept) {
    this(calls, address, destroy, kept, null);
  }

  Handle(NativeCalls calls, long address, LongConsumer destroy, Object kept, HostPool pool) {
    this.calls = calls;
    this.address = address;
    this.destroy = destroy;
    this.kept = kept;
    this.pool = pool;
  }

  HostPool pool() {
    return pool;
  }

  Object kept() {
    return kept;
  }

  /** Whether it may be used until leave(). */
  boolean enter() {
    for (int now = state.get(); (now & 1) != 0; now = state.get()) {
      if (state.compareAndSet(now, now + 2)) {
        return true;
      }
    }
    return false;
  }

  /** The same for what must reach a closed one too, as long as a call is inside it. */
  boolean join() {
    for (int now = state.get(); now != 0; now = state.get()) {
      if (state.compareAndSet(now, now + 2)) {
        return true;
      }
    }
    return false;
  }

  void leave() {
    if (state.addAndGet(-2) == 0) {
      release();
    }
  }

  void close() {
    for (int now = state.get(); (now & 1) != 0; now = state.get()) {
      if (state.compareAndSet(now, now - 1)) {
        if (now == 1) {
          release();
        }
        return;
      }
    }
  }

  boolean isClosed() {
    return (state.get() & 1) == 0;
  }

  private void release() {
    destroy.accept(address);
    kept = null;
    HostPool.release(pool);
  }
}
