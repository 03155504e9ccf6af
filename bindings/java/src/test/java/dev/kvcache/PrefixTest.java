package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.expectAttention;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BiConsumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** What a cache remembers of sequences that are gone. */
class PrefixTest {
  private static Cache remembering() {
    return cache(CacheBuilder::prefixIndex);
  }

  private static Cache fourPages() {
    return cache(c -> c.prefixIndex().capacityTokens(16));
  }

  private static int[] tokens(int first, int n) {
    int[] tokens = new int[n];
    Arrays.setAll(tokens, i -> first + i);
    return tokens;
  }

  private static int[] joined(int[] one, int[] other) {
    int[] both = Arrays.copyOf(one, one.length + other.length);
    System.arraycopy(other, 0, both, one.length, other.length);
    return both;
  }

  /** A new sequence with random K and V of these tokens, published and removed. */
  private static void publish(Cache cache, int[] tokens, PrefixQuery query, PrefixOptions options) {
    long sequence = cache.add();
    step(cache, sequence, new Tokens(new Random(70), tokens.length));
    cache.publishPrefix(sequence, query, options);
    cache.remove(sequence);
  }

  private static void publish(Cache cache, int[] tokens) {
    publish(cache, tokens, PrefixQuery.of(tokens), PrefixOptions.create());
  }

  /** A hit without tiers, after forwards. */
  private static PrefixHit hit(Cache cache, long tokens, long copied, long known, int limitedBy, long loadTokens, long loadNs) {
    long tokenNs = cache.matchPrefix(PrefixQuery.of(1)).tokenNs();
    assertTrue(tokenNs > 0);
    return new PrefixHit(tokens, copied, known, limitedBy, loadTokens, loadNs, tokenNs, List.of());
  }

  private static long found(Cache cache, int[] tokens) {
    return cache.matchPrefix(PrefixQuery.of(tokens).allowAll()).tokens();
  }

  @Test
  void attachFindsWhatWasPublished() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(100, 11);
      long sequence = cache.add();
      Tokens first = new Tokens(new Random(71), 10);
      step(cache, sequence, first);
      assertEquals(new PrefixPublished(10, 3, 0), cache.publishPrefix(sequence, PrefixQuery.of(Arrays.copyOf(prompt, 10))));
      int[] pages = cache.pages(sequence, 0);
      cache.remove(sequence);
      Stats stats = cache.stats();
      assertArrayEquals(new long[] {0, 3, 3, 3},
          new long[] {stats.sequences(), stats.pagesUsed(), stats.pagesPublished(), stats.pagesIdle()});

      PrefixHit hit = hit(cache, 10, 2, 10, -1, 10, 0);
      assertEquals(hit, cache.matchPrefix(PrefixQuery.of(prompt)));
      Cache.AttachedPrefix attached = cache.attachPrefix(PrefixQuery.of(prompt));
      assertEquals(hit, attached.hit());
      assertEquals(10, cache.length(attached.sequence()));
      int[] shared = cache.pages(attached.sequence(), 0);
      assertArrayEquals(Arrays.copyOf(pages, 2), Arrays.copyOf(shared, 2)); // whole pages are the same, the part of one is a copy
      assertNotEquals(pages[2], shared[2]);
      assertArrayEquals(floats(first.k), floats(cache.export(attached.sequence(), 0).k()));
      Tokens next = new Tokens(new Random(72), 3);
      step(cache, attached.sequence(), next); // attends to what it found
      expectAttention(concat(floats(first.k), floats(next.k)), concat(floats(first.v), floats(next.v)), floats(next.q),
          floats(next.out), floats(next.lse), 1 << 30);
      stats = cache.stats();
      assertArrayEquals(new long[] {1, 10, 1}, new long[] {stats.prefixAttaches(), stats.prefixTokens(), stats.pagesIdle()});
      cache.checkInvariants();
    }
  }

  @Test
  void oneTokenIsLeftToCompute() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(1, 8);
      publish(cache, prompt);
      assertEquals(hit(cache, 7, 3, 8, -1, 7, 0), cache.matchPrefix(PrefixQuery.of(prompt)));
      assertEquals(8, found(cache, prompt));
      for (int[] none : new int[][] {{9, 9, 9}, {}}) {
        Cache.AttachedPrefix attached = cache.attachPrefix(PrefixQuery.of(none));
        assertEquals(hit(cache, 0, 0, 0, -1, 0, 0), attached.hit());
        assertEquals(0, cache.length(attached.sequence()));
      }
    }
  }

  @Test
  void equalPagesBecomeOne() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(1, 8);
      publish(cache, prompt);
      long sequence = cache.add();
      step(cache, sequence, new Tokens(new Random(70), 8));
      assertEquals(new PrefixPublished(8, 0, 2), cache.publishPrefix(sequence, PrefixQuery.of(prompt)));
      assertEquals(2, cache.stats().pagesUsed());
    }
  }

  private static PrefixQuery sql(int[] prompt, byte image) {
    byte[] hash = new byte[32];
    hash[31] = image;
    return PrefixQuery.of(prompt).adapter(new byte[] {'s', 'q', 'l'}).media(5, 3, hash).media(20, 2, hash).allowAll();
  }

  @Test
  void adaptersAndMediaAreApart() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(1, 12);
      publish(cache, prompt, sql(prompt, (byte) 1), PrefixOptions.create());
      assertEquals(12, cache.matchPrefix(sql(prompt, (byte) 1)).tokens());
      assertEquals(5, cache.matchPrefix(sql(prompt, (byte) 2)).tokens());
      assertEquals(0, cache.matchPrefix(sql(prompt, (byte) 1).adapter(null)).tokens());
      assertEquals(0, found(cache, prompt));
      refused(Status.OUT_OF_RANGE, () -> cache.matchPrefix(sql(prompt, (byte) 1).media(21, 1, new byte[32])), "media");
      refused(Status.INVALID_ARGUMENT, () -> PrefixQuery.of(prompt).media(0, 1, new byte[31]), "mediaHashes");
    }
  }

  @Test
  void saltsAreApart() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(1, 12);
      publish(cache, prompt, PrefixQuery.of(prompt).salt(-7).saltBegin(4), PrefixOptions.create());
      assertEquals(12, cache.matchPrefix(PrefixQuery.of(prompt).salt(-7).saltBegin(4).allowAll()).tokens());
      assertEquals(4, cache.matchPrefix(PrefixQuery.of(prompt).salt(8).saltBegin(4)).tokens());
      assertEquals(4, found(cache, prompt));
      assertEquals(0, cache.matchPrefix(PrefixQuery.of(prompt).salt(-7)).tokens());
      assertEquals(1, cache.dropPrefix(PrefixQuery.of(prompt).salt(-7).saltBegin(4))); // the last page
      assertEquals(8, cache.matchPrefix(PrefixQuery.of(prompt).salt(-7).saltBegin(4)).tokens());
    }
  }

  @Test
  void aPinProtectsFromEviction() {
    try (Cache cache = fourPages()) {
      int[] prompt = tokens(1, 8);
      publish(cache, prompt);
      Cache.PinnedPrefix pinned = cache.pinPrefix(PrefixQuery.of(prompt));
      assertEquals(8, pinned.hit().tokens());
      assertEquals(0, cache.stats().pagesIdle());
      Batch batch = Batch.of(cache.add(), 12);
      OutOfPagesException full = assertThrows(OutOfPagesException.class, () -> cache.canFit(batch));
      assertEquals(3, full.required());
      assertEquals(2, full.available());
      assertEquals(true, full.isCapacity());
      cache.unpinPrefix(pinned.pin());
      cache.begin(batch).close();
      assertEquals(4, found(cache, prompt)); // a continuation goes before what it continues
      assertEquals(1, cache.stats().pagesEvicted());
      refused(Status.STALE_ID, () -> cache.unpinPrefix(pinned.pin()), "Cache.unpinPrefix");
      assertEquals(false, assertThrows(KvcacheException.class, () -> cache.unpinPrefix(pinned.pin())).isCapacity());
    }
  }

  @Test
  void sessionsAreDropped() {
    try (Cache cache = remembering()) {
      int[] ours = tokens(1, 8);
      int[] theirs = joined(tokens(1, 4), tokens(50, 4));
      publish(cache, ours, PrefixQuery.of(ours), PrefixOptions.create().session(1));
      publish(cache, theirs, PrefixQuery.of(theirs), PrefixOptions.create().session(-1));
      assertEquals(1, cache.dropSession(1)); // the first page is of both
      assertEquals(4, found(cache, ours));
      assertEquals(8, found(cache, theirs));
      assertEquals(0, cache.dropSession(1));
      assertEquals(1, cache.dropSession(-1));
      assertEquals(1, cache.stats().pagesUsed()); // the page of both is no session's
    }
  }

  /** Publishes three pages of their own, lets a step evict one of them, and expects that to be it. */
  private static void expectEvicted(int which, BiConsumer<Cache, int[][]> change) {
    try (Cache cache = fourPages()) {
      int[][] prompts = {tokens(10, 4), tokens(20, 4), tokens(30, 4)};
      for (int i = 0; i < 3; i++) {
        PrefixOptions options = PrefixOptions.create().priority(50).session(i + 1).timeToLive(100);
        publish(cache, prompts[i], PrefixQuery.of(prompts[i]), options);
      }
      change.accept(cache, prompts);
      cache.begin(Batch.of(cache.add(), 8)).close();
      for (int i = 0; i < 3; i++) {
        assertEquals(i == which ? 0 : 4, found(cache, prompts[i]), "prompt " + i);
      }
      cache.checkInvariants();
    }
  }

  @Test
  void prioritiesAndTimeOrderEviction() {
    expectEvicted(0, (cache, prompts) -> {}); // not used for longest
    expectEvicted(1, (cache, prompts) -> cache.setPrefixPriority(PrefixQuery.of(prompts[1]), 49, 0));
    expectEvicted(2, (cache, prompts) -> cache.setSessionPriority(3, 0, 0));
    expectEvicted(1, (cache, prompts) -> cache.setSessionPriority(1, 51, 0));
    expectEvicted(1, (cache, prompts) -> {
      cache.setTime(7);
      cache.setPrefixPriority(PrefixQuery.of(prompts[1]), 100, 2);
      cache.setTime(9);
    });
    expectEvicted(2, (cache, prompts) -> {
      cache.setTime(7);
      cache.setTime(3); // never goes back
      cache.setPrefixPriority(PrefixQuery.of(prompts[0]), 0, 0);
      cache.setSessionPriority(3, 100, 2);
      cache.setTime(9);
      assertEquals(4, found(cache, prompts[2])); // expired, and still found
    });
    expectEvicted(1, (cache, prompts) -> {
      cache.setPrefixPriority(PrefixQuery.of(prompts[0]), 0, 0); // without a limit
      cache.setTime(Long.MAX_VALUE);
    });
  }

  @Test
  void recurrentStatesAreFoundWhereTheyWerePublished() {
    Layer recurrent = Layer.builder().group(1).states(new Layer.State(DType.F32, 2)).build();
    try (Cache cache = cache(c -> c.layers(layer(), recurrent).groups(Group.full(), Group.recurrent()).prefixIndex().prefixPages(8)
        .prefixCheckpoints(2))) {
      long sequence = cache.add();
      int[] prompt = tokens(1, 9);
      Tensor state = Tensor.allocate(DType.F32, 1, 2);
      state.floatBuffer().put(0, 3).put(1, 4);
      try (Step step = cache.begin(Batch.of(sequence, 6))) {
        step.attend(0, new Tokens(new Random(73), 6).attend());
        step.storeState(1, 0, state);
        step.end();
      }
      cache.publishPrefix(sequence, PrefixQuery.of(Arrays.copyOf(prompt, 6)));
      cache.remove(sequence);

      PrefixHit none = cache.matchPrefix(PrefixQuery.of(Arrays.copyOf(prompt, 6))); // five of them: the index has no states there
      assertEquals(hit(cache, 0, 0, 6, 1, 0, 0), none);
      Cache.AttachedPrefix attached = cache.attachPrefix(PrefixQuery.of(prompt));
      assertEquals(6, attached.hit().tokens());
      Tensor read = Tensor.allocate(DType.F32, 1, 2);
      try (Step step = cache.begin(Batch.of(attached.sequence(), 1))) {
        step.loadState(1, 0, read);
      }
      assertArrayEquals(floats(state), floats(read));
    }
  }

  @Test
  void clearForgetsAll() {
    try (Cache cache = remembering()) {
      int[] prompt = tokens(1, 4);
      publish(cache, prompt);
      long pin = cache.pinPrefix(PrefixQuery.of(prompt)).pin();
      cache.clear();
      assertEquals(0, found(cache, prompt));
      assertEquals(0, cache.stats().pagesUsed());
      refused(Status.STALE_ID, () -> cache.unpinPrefix(pin));
    }
  }

  /** Every call that needs the index. */
  private static List<Executable> calls(Cache cache, long sequence) {
    PrefixQuery query = PrefixQuery.of(1, 2);
    return List.of(() -> cache.matchPrefix(query), () -> cache.attachPrefix(query), () -> cache.publishPrefix(sequence, query),
        () -> cache.dropPrefix(query), () -> cache.dropSession(1), () -> cache.setPrefixPriority(query, 1, 0),
        () -> cache.setSessionPriority(1, 1, 0), () -> cache.pinPrefix(query), () -> cache.unpinPrefix(1));
  }

  @Test
  void wrongCallsAreErrors() {
    try (Cache without = cache()) {
      long sequence = without.add();
      calls(without, sequence).forEach(call -> refused(Status.UNSUPPORTED, call, "Cache.", "prefixIndex"));
      without.setTime(1);
    }
    refused(Status.INVALID_ARGUMENT, () -> cache(c -> c.prefixPages(4)), "prefixPages");
    Cache closed = remembering();
    closed.close();
    calls(closed, 1).forEach(call -> refused(Status.NULL_ARGUMENT, call, "Cache is closed"));
    refused(Status.NULL_ARGUMENT, () -> closed.setTime(1), "Cache.setTime");
    try (Cache cache = remembering()) {
      long sequence = cache.add();
      PrefixQuery query = PrefixQuery.of(1, 2);
      refused(Status.NULL_ARGUMENT, () -> cache.matchPrefix(null), "query is null");
      refused(Status.NULL_ARGUMENT, () -> cache.attachPrefix(PrefixQuery.of((int[]) null)), "tokens is null");
      refused(Status.NULL_ARGUMENT, () -> cache.publishPrefix(sequence, query, null), "options is null");
      refused(Status.OUT_OF_RANGE, () -> cache.publishPrefix(sequence, query), "Cache.publishPrefix");
      for (int priority : new int[] {-1, 101, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
        refused(Status.OUT_OF_RANGE, () -> cache.publishPrefix(sequence, query, PrefixOptions.create().priority(priority)), "priority");
        refused(Status.OUT_OF_RANGE, () -> cache.setPrefixPriority(query, priority, 0), "priority");
      }
      refused(Status.OUT_OF_RANGE, () -> cache.setSessionPriority(1, 1, -1), "timeToLive");
      refused(Status.STALE_ID, () -> cache.publishPrefix(5, query));
      refused(Status.INVALID_ARGUMENT, () -> cache.dropSession(0), "session");
      refused(Status.STALE_ID, () -> cache.unpinPrefix(-1));
      refused(Status.OUT_OF_RANGE, () -> cache.setTime(-1), "Cache.setTime");
      refused(Status.OUT_OF_RANGE, () -> cache.matchPrefix(PrefixQuery.of().saltBegin(-1)), "saltBegin");
    }
  }

  /** Serves a prompt as an engine does, under a pin. */
  private static void serve(Cache cache, int[] prompt, long session) {
    PrefixQuery query = PrefixQuery.of(prompt);
    long pin = cache.pinPrefix(query).pin();
    Cache.AttachedPrefix attached = cache.attachPrefix(query);
    Tokens rest = new Tokens(new Random(74), prompt.length - (int) attached.hit().tokens());
    try (Step step = cache.begin(Batch.of(attached.sequence(), rest.n))) {
      refused(Status.BUSY, () -> cache.publishPrefix(attached.sequence(), query));
      step.attend(0, rest.attend());
      step.end();
    }
    cache.publishPrefix(attached.sequence(), query, PrefixOptions.create().session(session));
    cache.remove(attached.sequence());
    cache.unpinPrefix(pin);
  }

  @Test
  void threadsPublishAndAttach() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (Cache cache = cache(c -> c.prefixIndex().capacityTokens(4 * 24).maxOpenForwards(4))) {
      List<Callable<Long>> work = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        int thread = i;
        work.add(() -> {
          for (int round = 0; round < 40; round++) {
            serve(cache, joined(tokens(1, 6), tokens(100 * (round % 3), 1 + thread)), thread + 1);
          }
          return cache.dropSession(thread + 1);
        });
      }
      for (Future<Long> done : threads.invokeAll(work)) {
        done.get();
      }
      cache.dropPrefix(PrefixQuery.of()); // what several sessions published is no session's
      assertEquals(0, cache.stats().pagesUsed());
      cache.checkInvariants();
    } finally {
      threads.shutdown();
    }
  }
}
