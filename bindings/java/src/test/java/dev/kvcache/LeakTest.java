package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

class LeakTest {
  private static final int ROUNDS = 10_000;

  private static long status(String key) throws IOException {
    Path file = Path.of("/proc/self/status");
    Assumptions.assumeTrue(Files.exists(file), "no /proc");
    for (String line : Files.readAllLines(file)) {
      if (line.startsWith(key)) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    throw new AssertionError(key);
  }

  @Test
  void tenThousandCachesLeaveNothing() throws IOException {
    Tokens tokens = new Tokens(new Random(1), 5);
    rounds(1000, tokens);
    System.gc();
    long kib = status("VmRSS");
    long threads = status("Threads");
    rounds(ROUNDS, tokens);
    System.gc();
    long grown = status("VmRSS") - kib;
    assertTrue(grown < 10_000, "grown by " + grown + " KiB: a KiB a round"); // one kvc_cache has tens of KiB
    assertTrue(status("Threads") <= threads + 2, "threads: " + threads + ", then " + status("Threads")); // the JVM's own may come
  }

  private static void rounds(int n, Tokens tokens) {
    for (int i = 0; i < n; i++) { // one thread: what is counted is memory; a context of its own: that is destroyed too
      try (Context context = Context.builder().threads(1).build();
          Cache cache = cache(c -> c.context(context).capacityTokens(64).maxSequences(4).maxBatchTokens(8).maxTreeNodes(4))) {
        step(cache, cache.add(), tokens);
        cache.fork(cache.add());
        cache.begin(Batch.of(cache.add(), 1)); // left open
      }
    }
  }

  /** What is only dropped is released by the collector, whole caches only. */
  @Test
  void droppedCachesAreReleased() throws Exception {
    Tokens tokens = new Tokens(new Random(1), 1000); // 256 KiB of pages are touched
    drops(50, tokens);
    long kib = status("VmRSS");
    drops(400, tokens);
    long grown = status("VmRSS") - kib;
    assertTrue(grown < 50_000, "grown by " + grown + " KiB of 100000 and more"); // the JVM's own heap may grow
  }

  private static void drops(int n, Tokens tokens) throws InterruptedException {
    for (int i = 1; i <= n; i++) {
      Cache cache = cache(c -> c.capacityTokens(1024));
      step(cache, cache.add(), tokens);
      if (i % 25 == 0) {
        System.gc();
        Thread.sleep(50);
      }
    }
  }

  @Test
  void aDroppedStepKeepsItsTokensReserved() throws Exception {
    try (Cache cache = cache()) {
      drop(cache);
      for (int i = 0; i < 3; i++) {
        System.gc();
        Thread.sleep(20);
      }
      assertEquals(2, cache.stats().pagesUsed()); // a collector ends no step
      assertEquals(1, cache.stats().sequences());
    }
  }

  private static void drop(Cache cache) {
    cache.begin(Batch.of(cache.add(), 8));
  }

  @Test
  void viewsAndExportsAreGivenBack() throws Exception {
    try (Cache cache = cache(c -> c.capacityTokens(4096))) {
      long sequence = cache.add();
      step(cache, sequence, new Tokens(new Random(1), 2000));
      exports(cache, sequence, 200);
      System.gc();
      Thread.sleep(100);
      long kib = status("VmRSS");
      for (int i = 0; i < 10; i++) {
        exports(cache, sequence, 100); // 512 KB each
        System.gc();
        Thread.sleep(20);
      }
      long grown = status("VmRSS") - kib;
      assertTrue(grown < 200_000, "grown by " + grown + " KiB of 512000");
    }
  }

  private static void exports(Cache cache, long sequence, int n) {
    for (int i = 0; i < n; i++) {
      cache.export(sequence, 0);
      cache.viewPool(0, Cache.Pool.K, false);
    }
  }
}
