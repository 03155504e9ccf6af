package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class ThreadsTest {
  /** Runs it on n threads at once; what one throws is thrown. */
  private static void together(int n, Callable<?> work) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(n);
    List<Future<?>> all = new ArrayList<>();
    for (int i = 0; i < n; i++) {
      all.add(pool.submit(work));
    }
    for (Future<?> each : all) {
      each.get();
    }
    pool.shutdown();
  }

  @Test
  void manyThreadsOneCache() throws Exception {
    try (Cache cache = cache(c -> c.capacityTokens(4096).maxOpenForwards(16))) {
      Tokens tokens = new Tokens(new Random(1), 5);
      step(cache, cache.add(), tokens);
      float[] expected = floats(tokens.out);
      together(8, () -> {
        Tokens own = new Tokens(new Random(1), 5);
        for (int i = 0; i < 200; i++) {
          long sequence = cache.add();
          step(cache, sequence, own);
          assertArrayEquals(expected, floats(own.out));
          long child = cache.fork(sequence);
          assertEquals(5, cache.length(child));
          cache.remove(sequence, child);
        }
        return null;
      });
      assertEquals(1, cache.stats().sequences());
      cache.checkInvariants();
    }
  }

  @Test
  void closeLetsOthersFinish() throws Exception {
    for (int round = 0; round < 50; round++) {
      Cache cache = cache();
      long sequence = cache.add();
      CountDownLatch started = new CountDownLatch(4);
      AtomicInteger closed = new AtomicInteger();
      Thread closer = new Thread(() -> {
        try {
          started.await();
        } catch (InterruptedException e) {
          throw new AssertionError(e);
        }
        cache.close();
      });
      closer.start();
      together(4, () -> {
        started.countDown();
        for (;;) {
          try {
            cache.length(sequence);
          } catch (KvcacheException e) {
            assertEquals(Status.NULL_ARGUMENT, e.status());
            closed.incrementAndGet();
            return null;
          }
        }
      });
      closer.join();
      assertEquals(4, closed.get());
    }
  }

  @Test
  void theLastOneOutDestroys() {
    List<Long> destroyed = new ArrayList<>();
    Handle handle = new Handle(null, 42, destroyed::add, "kept");
    assertTrue(handle.enter() && handle.enter());
    handle.close();
    handle.close();
    assertTrue(handle.isClosed() && !handle.enter());
    assertTrue(handle.join()); // a cancel reaches calls that are inside
    handle.leave();
    handle.leave();
    assertEquals(List.of(), destroyed);
    assertEquals("kept", handle.kept());
    handle.leave();
    assertEquals(List.of(42L), destroyed);
    assertEquals(null, handle.kept());
    assertTrue(!handle.join());
    handle.close();
    assertEquals(List.of(42L), destroyed);
  }

  @Test
  void oneStepIsForOneThread() throws Exception {
    try (Cache cache = cache(c -> c.capacityTokens(1 << 15).maxBatchTokens(4096)); Step step = cache.begin(Batch.of(cache.add(), 4096))) {
      AtomicInteger done = new AtomicInteger();
      AtomicInteger busy = new AtomicInteger();
      together(4, () -> {
        Tokens tokens = new Tokens(new Random(1), 4096);
        try {
          step.attend(0, tokens.attend());
          done.incrementAndGet();
        } catch (KvcacheException e) {
          assertTrue(e.status() == Status.BUSY || e.status() == Status.ORDER, e.getMessage());
          busy.incrementAndGet();
        }
        return null;
      });
      assertEquals(1, done.get());
      assertEquals(3, busy.get());
    }
  }

  @Test
  void cancelStopsAStepThatComputes() throws Exception {
    try (Cache cache = cache(c -> c.capacityTokens(1 << 15).maxBatchTokens(1 << 14))) {
      long sequence = cache.add();
      Step step = cache.begin(Batch.of(sequence, 1 << 14));
      Tokens tokens = new Tokens(new Random(1), 1 << 14);
      Thread canceller = new Thread(() -> {
        try {
          Thread.sleep(20);
        } catch (InterruptedException e) {
          throw new AssertionError(e);
        }
        step.cancel();
      });
      canceller.start();
      refused(Status.CANCELLED, () -> step.attend(0, tokens.attend()));
      canceller.join();
      refused(Status.CANCELLED, step::end);
      step.close();
      assertEquals(0, cache.stats().pagesUsed());
    }
  }

  @Test
  void closeCancelsAStepThatComputes() throws Exception {
    try (Cache cache = cache(c -> c.capacityTokens(1 << 15).maxBatchTokens(1 << 14))) {
      Step step = cache.begin(Batch.of(cache.add(), 1 << 14));
      Support.closeWhileItAttends(step, 1 << 14, Status.STALE_ID);
      assertEquals(0, cache.stats().pagesUsed());
    }
  }
}
