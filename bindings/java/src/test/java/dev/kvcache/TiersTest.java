package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.expectAttention;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import java.util.Random;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tiers: what was evicted, or was computed by an earlier cache, is loaded instead of computed. */
class TiersTest {
  @TempDir Path folder;

  private static Cache withoutTier() {
    return cache(c -> c.prefixIndex().fingerprint(new byte[32]));
  }

  private Cache tiered() {
    Cache cache = withoutTier();
    cache.addDiskTier(DiskTier.in(folder.resolve("tier")));
    return cache;
  }

  private static PrefixQuery prompt(int n) {
    return PrefixQuery.of(IntStream.range(0, n).toArray());
  }

  /** Computes and publishes a prompt, and waits until the tier has it. */
  private static Tokens store(Cache cache, int n, PrefixOptions options) throws InterruptedException {
    long sequence = cache.add();
    Tokens tokens = new Tokens(new Random(9), n);
    step(cache, sequence, tokens);
    cache.publishPrefix(sequence, prompt(n), options);
    cache.remove(sequence);
    while (cache.tierTraffic().pagesWaiting() > 0) {
      Thread.sleep(1);
    }
    return tokens;
  }

  private Tokens storeInAnotherCache(int n) throws InterruptedException {
    try (Cache first = tiered()) {
      return store(first, n, PrefixOptions.create());
    }
  }

  private static LoadJob load(Cache cache, int n) {
    return cache.loadPrefix(prompt(n), LoadOptions.create().tokenNs(Long.MAX_VALUE)).job();
  }

  @Test
  void aLaterCacheLoadsWhatThisOneComputed() throws InterruptedException {
    Tokens computed;
    try (Cache first = tiered()) {
      computed = store(first, 30, PrefixOptions.create());
      assertEquals(new TierTraffic(1, 0, 7, 0, 0, 0, 0, 0, 0), first.tierTraffic());
    }
    try (Cache cache = tiered()) {
      Cache.StartedLoad load = cache.loadPrefix(prompt(30), LoadOptions.create());
      assertEquals(0, load.hit().tokens());
      assertEquals(28, load.hit().loadTokens());
      assertEquals(List.of(28L), load.hit().tierTokens());
      assertEquals(0, load.hit().tokenNs());
      LoadJob job = load.job();
      assertTrue(job.descriptor() >= 0);
      assertEquals(28, job.await());
      assertEquals(OptionalLong.of(28), job.poll());
      job.cancel(); // it has ended: nothing happens
      Cache.AttachedPrefix attached = cache.attachPrefix(prompt(30));
      assertEquals(28, attached.hit().tokens());
      Tokens next = new Tokens(new Random(10), 2);
      step(cache, attached.sequence(), next); // attends to the K and V of the first cache
      expectAttention(concat(first(28, computed.k), floats(next.k)), concat(first(28, computed.v), floats(next.v)),
          floats(next.q), floats(next.out), floats(next.lse), 1 << 30);
      assertNull(load(cache, 30));
      assertEquals(7, cache.tierTraffic().pagesLoaded());
      cache.checkInvariants();
    }
  }

  @Test
  void aSequenceIsAttachedToALoadThatRuns() throws InterruptedException {
    Tokens computed = storeInAnotherCache(30);
    try (Cache cache = tiered()) {
      LoadJob job = load(cache, 30);
      LoadJob.Attached attached = job.attach(true, Duration.ofMinutes(1));
      long sequence = attached.sequence();
      assertEquals(28, attached.tokens());
      assertEquals(28, cache.length(sequence));
      PendingLoad waiting = cache.pending(sequence).orElseThrow(); // until a step or a poll has seen the end of the load
      assertEquals(28, waiting.tokens());
      assertEquals(7, waiting.pages());
      assertTrue(!waiting.failed() && waiting.pagesLoaded() <= 7 && waiting.readyLayers() >= 0);
      refused(Status.PENDING, () -> cache.fork(sequence));
      Tokens next = new Tokens(new Random(10), 2);
      step(cache, sequence, next);
      expectAttention(concat(first(28, computed.k), floats(next.k)), concat(first(28, computed.v), floats(next.v)),
          floats(next.q), floats(next.out), floats(next.lse), 1 << 30);
      assertTrue(cache.pending(sequence).isEmpty());
      assertEquals(28, job.await());
      KvcacheException error = refused(Status.STALE_ID, () -> job.attach(false, Duration.ZERO));
      assertTrue(error.getMessage().startsWith("LoadJob.attach: job"), error.getMessage());
      refused(Status.OUT_OF_RANGE, () -> job.attach(false, Duration.ofNanos(-1)));
      refused(Status.STALE_ID, () -> cache.pending(12345));
      cache.checkInvariants();
    }
  }

  @Test
  void aResumedSequenceGoesOn() throws InterruptedException {
    try (Cache cache = withoutTier()) {
      cache.addHostTier(HostTier.of(1 << 20));
      long sequence = cache.add();
      Tokens tokens = new Tokens(new Random(9), 30);
      step(cache, sequence, tokens);
      assertEquals(30, cache.suspend(sequence).await());
      assertEquals(1, cache.tierTraffic().sequencesSuspended());
      assertEquals(0, cache.stats().pagesUsed());
      refused(Status.SUSPENDED, () -> cache.fork(sequence));
      step(cache, cache.add(), new Tokens(new Random(8), 30)); // writes into its pages
      assertEquals(30, cache.resume(sequence).await());
      Tokens next = new Tokens(new Random(10), 2);
      step(cache, sequence, next);
      expectAttention(concat(floats(tokens.k), floats(next.k)), concat(floats(tokens.v), floats(next.v)), floats(next.q),
          floats(next.out), floats(next.lse), 1 << 30);
      KvcacheException error = refused(Status.ORDER, () -> cache.resume(sequence));
      assertTrue(error.getMessage().startsWith("Cache.resume: "), error.getMessage());
      error = refused(Status.INVALID_ARGUMENT, () -> cache.addHostTier(HostTier.of(10)));
      assertTrue(error.getMessage().startsWith("Cache.addHostTier: capacityBytes is 10"), error.getMessage());
      refused(Status.UNSUPPORTED, () -> cache.addHostTier(HostTier.of(1 << 20).pinned())); // it is on the CPU
      cache.checkInvariants();
    }
  }

  private static float[] first(int tokens, Tensor tensor) {
    return Arrays.copyOf(floats(tensor), tokens * Support.KV_HEADS * Support.DIM);
  }

  @Test
  void nothingCrossesSaltsAndPrivatePrefixesStay() throws InterruptedException {
    try (Cache cache = tiered()) {
      store(cache, 16, PrefixOptions.create().keepPrivate());
      assertEquals(0, cache.tierTraffic().pagesStored());
      cache.dropPrefix(PrefixQuery.of());
      store(cache, 16, PrefixOptions.create());
      cache.dropPrefix(PrefixQuery.of());
      assertNull(cache.loadPrefix(prompt(16).salt(1), LoadOptions.create()).job());
      try (LoadJob job = load(cache, 16)) {
        assertEquals(OptionalLong.of(16), job.await(Duration.ofSeconds(60)));
      }
    }
  }

  @Test
  void optionsOfATier() throws InterruptedException {
    DiskTier[] tiers = {
      DiskTier.in(folder.resolve("0")).sync(DiskTier.Sync.NONE).minTokens(16),
      DiskTier.in(folder.resolve("1")).sync(DiskTier.Sync.FULL).minTokens(17),
      DiskTier.in(folder.resolve("2")).store(DiskTier.Store.REUSED), // the index had none of it
      DiskTier.in(folder.resolve("3")).store(DiskTier.Store.NOTHING),
      DiskTier.in(folder.resolve("4")).store(DiskTier.Store.EVICTED), // the pool has enough free pages
    };
    for (int i = 0; i < tiers.length; i++) {
      try (Cache cache = withoutTier()) {
        cache.addDiskTier(tiers[i]);
        store(cache, 16, PrefixOptions.create());
        assertEquals(i == 0 ? 4 : 0, cache.tierTraffic().pagesStored(), "tier " + i);
      }
    }
  }

  /** A job that is cancelled twice, or closed, gives its pages and its sequence back. */
  @Test
  void cancelledAndClosedJobs() throws InterruptedException {
    storeInAnotherCache(64);
    for (boolean closed : new boolean[] {false, true}) {
      try (Cache cache = tiered()) {
        LoadJob job = load(cache, 64);
        if (closed) {
          job.close();
          job.close();
        } else {
          job.cancel();
          job.cancel();
          long loaded = job.await();
          assertEquals(loaded, cache.matchPrefix(prompt(64).allowAll()).tokens());
        }
        assertEquals(0, cache.stats().sequences());
        assertEquals(cache.stats().pagesIdle(), cache.stats().pagesUsed());
        assertEquals(0, cache.tierTraffic().pagesLoading());
        cache.clear(); // BUSY while a load runs
        cache.checkInvariants();
      }
    }
  }

  @Test
  void aThreadIsInterrupted() throws InterruptedException {
    storeInAnotherCache(64);
    try (Cache cache = tiered()) {
      LoadJob job = load(cache, 64);
      Thread.currentThread().interrupt();
      assertThrows(InterruptedException.class, job::await);
      assertEquals(64, job.await()); // it ran on
    }
    try (Cache cache = tiered()) {
      LoadJob job = load(cache, 64);
      Thread.currentThread().interrupt();
      job.close(); // to its end
      assertTrue(Thread.interrupted());
      cache.clear();
    }
  }

  @Test
  void jobsOfCachesThatAreGone() throws InterruptedException {
    storeInAnotherCache(32);
    Cache cache = tiered();
    LoadJob job = load(cache, 32);
    LoadJob unknown = new LoadJob(cache, 99);
    refused(Status.STALE_ID, unknown::poll, "LoadJob.poll: job 99");
    refused(Status.STALE_ID, unknown::cancel, "LoadJob.cancel: job 99");
    unknown.close();
    cache.close();
    refused(Status.NULL_ARGUMENT, job::poll, "LoadJob.poll: the Cache is closed");
    refused(Status.NULL_ARGUMENT, job::await, "the Cache is closed");
    refused(Status.NULL_ARGUMENT, job::cancel, "the Cache is closed");
    refused(Status.NULL_ARGUMENT, job::descriptor, "the Cache is closed");
    refused(Status.NULL_ARGUMENT, () -> load(cache, 32), "the Cache is closed");
    refused(Status.NULL_ARGUMENT, () -> cache.addDiskTier(DiskTier.in(folder)), "the Cache is closed");
    refused(Status.NULL_ARGUMENT, cache::tierTraffic, "the Cache is closed");
    job.close();
  }

  @Test
  void refusedCalls() throws IOException {
    try (Cache plain = cache(c -> c); Cache cache = withoutTier(); Cache tiered = tiered()) {
      refused(Status.UNSUPPORTED, () -> plain.addDiskTier(DiskTier.in(folder)), "Cache.addDiskTier: a tier needs prefixIndex");
      refused(Status.UNSUPPORTED, () -> load(cache, 4), "Cache.loadPrefix: the cache has no tier");
      refused(Status.OUT_OF_RANGE, () -> cache.addDiskTier(DiskTier.in(folder).capacityBytes(-1)), "capacityBytes -1");
      refused(Status.OUT_OF_RANGE, () -> cache.addDiskTier(DiskTier.in(folder).minTokens(-1)), "minTokens -1");
      refused(Status.NULL_ARGUMENT, () -> cache.addDiskTier(null), "tier is null");
      refused(Status.NULL_ARGUMENT, () -> cache.addDiskTier(DiskTier.in(null)), "directory is null");
      refused(Status.NULL_ARGUMENT, () -> cache.addDiskTier(DiskTier.in(folder).sync(null)), "sync is null");
      refused(Status.NULL_ARGUMENT, () -> tiered.loadPrefix(prompt(4), null), "options is null");
      refused(Status.OUT_OF_RANGE, () -> tiered.loadPrefix(prompt(4), LoadOptions.create().tokenNs(-1)), "tokenNs -1");
      Path below = Files.writeString(folder.resolve("file"), "no folder").resolve("tier");
      refused(Status.IO, () -> cache.addDiskTier(DiskTier.in(below)), below.toString());
      assertEquals(0, cache.tierTraffic().numTiers());
      assertNotNull(tiered.matchPrefix(prompt(4)));
    }
  }
}
