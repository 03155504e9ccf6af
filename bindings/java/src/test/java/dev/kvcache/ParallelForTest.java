package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Contexts that compute on threads of Java, also if their functions do not what they should, or as they should not. */
@Timeout(120)
class ParallelForTest {
  private static final ExecutorService THREADS = Executors.newCachedThreadPool();

  @AfterAll
  static void shutDown() throws InterruptedException {
    THREADS.shutdown();
    assertTrue(THREADS.awaitTermination(20, TimeUnit.SECONDS), "a thread is stuck");
  }

  private static Context context(ParallelFor function) {
    return Context.builder().threads(3).parallelFor(function).build();
  }

  /** A cache in a context of its own, which the cache alone keeps. */
  private static Cache hostCache(ParallelFor function) {
    try (Context context = context(function)) {
      return largeCache(context);
    }
  }

  private static Cache largeCache(Context context) {
    return cache(c -> c.context(context).capacityTokens(4096).maxBatchTokens(2048).maxOpenForwards(8));
  }

  /** What a prefill and a decode step give, always of the same tokens: large enough for several threads. */
  private static float[] prefillAndDecode(Cache cache) {
    Random random = new Random(1);
    long sequence = cache.add();
    Tokens prompt = new Tokens(random, 600);
    Tokens next = new Tokens(random, 1);
    step(cache, sequence, prompt);
    step(cache, sequence, next);
    cache.remove(sequence);
    return concat(floats(prompt.out), floats(next.out));
  }

  private static float[] expected() {
    try (Context context = Context.builder().threads(3).build(); Cache cache = largeCache(context)) {
      return prefillAndDecode(cache);
    }
  }

  private static void all(int n, IntConsumer item) {
    for (int i = 0; i < n; i++) {
      item.accept(i);
    }
  }

  private static Map<String, ParallelFor> functions() {
    Map<String, ParallelFor> functions = new LinkedHashMap<>();
    functions.put("the common pool", ParallelFor.on(ForkJoinPool.commonPool()));
    functions.put("threads", ParallelFor.on(THREADS));
    functions.put("the caller", ParallelFor.on(Runnable::run));
    functions.put("rejects", ParallelFor.on(task -> {
      throw new RejectedExecutionException("full");
    }));
    functions.put("drops", ParallelFor.on(task -> {}));
    functions.put("reversed", (n, item) -> {
      for (int i = n - 1; i >= 0; i--) {
        item.accept(i);
      }
    });
    functions.put("none", (n, item) -> {});
    functions.put("half", (n, item) -> item.accept(n / 2));
    functions.put("no such", (n, item) -> {
      for (int i : new int[] {-1, n, 1023, 1024, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
        item.accept(i);
      }
    });
    functions.put("twice", (n, item) -> {
      List<Future<?>> loops = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        loops.add(THREADS.submit(() -> all(n, item)));
      }
      for (Future<?> loop : loops) {
        assertNullOf(loop);
      }
      all(n, item);
    });
    functions.put("returns early", (n, item) -> {
      for (int i = 0; i < n; i++) {
        int own = i;
        THREADS.execute(() -> item.accept(own));
      }
      Thread.yield();
    });
    functions.put("late", (n, item) -> THREADS.execute(() -> {
      for (int i = 0; i < n; i++) {
        item.accept(i);
        sleep(1);
        item.accept(i);
      }
    }));
    return functions;
  }

  private static void assertNullOf(Future<?> done) {
    try {
      assertNull(done.get());
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static void sleep(int milliseconds) {
    try {
      Thread.sleep(milliseconds);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void theSameBits() {
    float[] expected = expected();
    functions().forEach((name, function) -> {
      AtomicInteger calls = new AtomicInteger();
      try (Cache cache = hostCache((n, item) -> {
        calls.incrementAndGet();
        assertTrue(n == 2 || n == 3, n + " items for 3 threads");
        function.run(n, item);
      })) {
        for (int i = 0; i < 3; i++) {
          assertArrayEquals(expected, prefillAndDecode(cache), name);
        }
      }
      assertTrue(calls.get() > 0, name + ": no job was large enough");
    });
    try (Context context = context(ParallelFor.on(THREADS))) {
      assertTrue(context.describe().contains("\"host_parallel_for\": true"), context.describe());
    }
    assertThrows(KvcacheException.class, () -> ParallelFor.on(null));
  }

  /** They are called while other jobs run, which use the same memory of C, and after their cache is closed. */
  @Test
  void itemsThatAreKept() throws Exception {
    List<IntConsumer> kept = Collections.synchronizedList(new ArrayList<>());
    float[] expected = expected();
    try (Cache cache = hostCache((n, item) -> {
      kept.add(item);
      List<IntConsumer> earlier = List.of(kept.toArray(new IntConsumer[0]));
      Future<?> other = THREADS.submit(() -> earlier.forEach(each -> all(n, each)));
      all(n, item);
      assertNullOf(other);
    })) {
      for (int i = 0; i < 10; i++) {
        assertArrayEquals(expected, prefillAndDecode(cache));
      }
    }
    assertTrue(kept.size() >= 10, "jobs: " + kept.size());
    for (int thread = 0; thread < 4; thread++) {
      THREADS.submit(() -> kept.forEach(item -> all(3, item))).get();
    }
  }

  @Test
  void itemsInProgressAreWaitedFor() {
    float[] expected = expected();
    AtomicInteger begun = new AtomicInteger();
    try (Cache cache = hostCache((n, item) -> { // it returns as soon as another thread has begun
      CountDownLatch first = new CountDownLatch(1);
      THREADS.execute(() -> {
        first.countDown();
        item.accept(0);
        begun.incrementAndGet();
      });
      try {
        first.await();
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    })) {
      for (int i = 0; i < 20; i++) {
        assertArrayEquals(expected, prefillAndDecode(cache));
      }
    }
    assertTrue(begun.get() > 0);
  }

  @Test
  void anExceptionIsThrownByTheCall() {
    Error bad = new AssertionError("of the test");
    float[] expected = expected();
    boolean[] throwing = {true};
    int[] calls = new int[1];
    try (Cache cache = hostCache((n, item) -> {
      item.accept(1);
      calls[0]++;
      if (throwing[0]) {
        throw bad;
      }
      all(n, item);
    })) {
      long sequence = cache.add();
      Tokens tokens = new Tokens(new Random(1), 600);
      for (int i = 0; i < 2; i++) {
        tokens.out.floatBuffer().put(new float[600 * Support.Q_HEADS * Support.DIM]);
        ParallelForException e = assertThrows(ParallelForException.class,
            () -> cache.step(Batch.of(sequence, 600), step -> step.attend(0, tokens.attend())));
        assertSame(bad, e.getCause());
        assertEquals(i + 1, calls[0]); // the call has several jobs
        assertTrue(e.getMessage().contains("AssertionError: of the test"), e.getMessage());
        float[] out = floats(tokens.out); // all items ran
        assertArrayEquals(Arrays.copyOf(expected, out.length), out);
        assertEquals(0, cache.length(sequence)); // the step was aborted; and this call throws nothing
      }
      throwing[0] = false;
      assertArrayEquals(expected, prefillAndDecode(cache));
    }
  }

  /** A call that fails throws why, and has the other exception with it. */
  @Test
  void anExceptionBesideAStatus() {
    Step[] inside = new Step[1];
    try (Cache cache = hostCache((n, item) -> {
      inside[0].cancel();
      throw new IllegalStateException("of the test");
    }); Step step = cache.begin(Batch.of(cache.add(), 600))) {
      inside[0] = step;
      KvcacheException e = refused(Status.CANCELLED, () -> step.attend(0, new Tokens(new Random(1), 600).attend()));
      assertEquals(1, e.getSuppressed().length);
      assertEquals("of the test", e.getSuppressed()[0].getCause().getMessage());
    }
  }

  @Test
  void eachThreadGetsItsOwnExceptions() throws Exception {
    AtomicInteger calls = new AtomicInteger();
    AtomicInteger caught = new AtomicInteger();
    ParallelFor onThreads = ParallelFor.on(THREADS);
    float[] expected = expected();
    try (Cache cache = hostCache((n, item) -> {
      if (calls.incrementAndGet() % 2 == 0) {
        throw new IllegalStateException(Thread.currentThread().getName()); // long before the call ends, because all items run then
      }
      onThreads.run(n, item);
    })) {
      List<Future<?>> workers = new ArrayList<>();
      for (int worker = 0; worker < 4; worker++) {
        workers.add(THREADS.submit(() -> {
          for (int i = 0; i < 15; i++) {
            Tokens tokens = new Tokens(new Random(1), 600);
            try (Step step = cache.begin(Batch.of(cache.add(), 600))) {
              step.attend(0, tokens.attend());
            } catch (ParallelForException e) {
              assertEquals(Thread.currentThread().getName(), e.getCause().getMessage());
              caught.incrementAndGet();
            }
            assertArrayEquals(Arrays.copyOf(expected, 600 * Support.Q_HEADS * Support.DIM), floats(tokens.out));
          }
        }));
      }
      for (Future<?> worker : workers) {
        worker.get();
      }
    }
    assertTrue(caught.get() > 0, "of " + calls);
  }

  /** What a function may do: use other caches, close them, close its own, and use its own step, which is busy. */
  @Test
  void functionsThatCallTheLibrary() {
    float[] expected = expected();
    Runnable[] inside = new Runnable[1];
    Context context = context((n, item) -> {
      Runnable once = inside[0];
      inside[0] = null;
      if (once != null) {
        once.run();
      }
      all(n, item);
    });
    Cache cache = largeCache(context);
    Cache other = largeCache(context);
    int pools = HostPool.count();
    for (Runnable once : new Runnable[] {
        () -> assertArrayEquals(expected, prefillAndDecode(other)),
        () -> {
          Cache victim = largeCache(context);
          victim.begin(Batch.of(victim.add(), 2));
          victim.close();
        },
        () -> Thread.currentThread().interrupt(),
        context::close}) {
      inside[0] = once;
      assertArrayEquals(expected, prefillAndDecode(cache));
      assertNull(inside[0], "nothing ran");
    }
    assertTrue(Thread.interrupted());
    other.close();
    Step step = cache.begin(Batch.of(cache.add(), 600));
    Tokens tokens = new Tokens(new Random(1), 600);
    inside[0] = () -> {
      refused(Status.BUSY, () -> step.attend(0, tokens.attend()));
      refused(Status.BUSY, step::end);
      cache.close(); // when attend returns
      assertEquals(pools, HostPool.count());
    };
    step.attend(0, tokens.attend());
    assertArrayEquals(Arrays.copyOf(expected, floats(tokens.out).length), floats(tokens.out));
    refused(Status.NULL_ARGUMENT, step::end, "closed");
    assertEquals(pools - 1, HostPool.count());
  }

  private static int endless(int depth) {
    return endless(depth + 1) + 1;
  }

  /** Functions that use up the stack, and calls on a stack that is nearly used up: exceptions, or the right results. */
  @Test
  void stacksThatOverflow() throws Exception {
    try (Cache cache = hostCache((n, item) -> item.accept(endless(0)))) {
      ParallelForException e = assertThrows(ParallelForException.class, () -> prefillAndDecode(cache));
      assertTrue(e.getCause() instanceof StackOverflowError, e.toString());
    }
    float[] expected = expected();
    Cache cache = hostCache(ParallelFor.on(THREADS)); // not closed: an overflow may leave a call that never leaves
    prefillAndDecode(cache);
    Dive dive = new Dive(cache, Arrays.copyOf(expected, 600 * Support.Q_HEADS * Support.DIM));
    Thread diver = new Thread(null, dive, "diver", 1 << 20);
    diver.start();
    diver.join();
    assertTrue(dive.succeeded > 0, dive.overflows + " overflows");
    assertNull(dive.wrong);
  }

  private static final class Dive implements Runnable {
    private final Cache cache;
    private final float[] expected;
    private final Tokens tokens = new Tokens(new Random(1), 600);
    private final Attend attend = tokens.attend();
    private int tries;
    int succeeded;
    int overflows;
    Object wrong;

    Dive(Cache cache, float[] expected) {
      this.cache = cache;
      this.expected = expected;
    }

    @Override
    public void run() {
      try {
        run(); // to the end of the stack
      } catch (StackOverflowError e) {
        // now upwards again
      }
      if (++tries % 16 == 0 && succeeded < 5) {
        attempt();
      }
    }

    private void attempt() {
      try {
        try (Step step = cache.begin(Batch.of(cache.add(), 600))) {
          step.attend(0, attend);
        }
        succeeded++;
        if (!Arrays.equals(expected, floats(tokens.out))) {
          wrong = "the results differ";
        }
      } catch (StackOverflowError | ParallelForException e) {
        overflows++;
      } catch (KvcacheException e) { // what earlier overflows have left open
        if (!e.isCapacity()) {
          wrong = e;
        }
      }
    }
  }

  /** A function is released with the last of its context and caches. Nothing else refers to it. */
  @Test
  void functionsAreReleased() throws Exception {
    int before = HostPool.count();
    List<WeakReference<Object>> references = new ArrayList<>();
    for (int i = 0; i < 3000; i++) {
      references.add(round(i % 100 == 0, before));
    }
    assertEquals(before, HostPool.count());
    for (int i = 0; i < 100 && references.stream().anyMatch(reference -> reference.get() != null); i++) {
      System.gc();
      sleep(10);
    }
    assertEquals(0, references.stream().filter(reference -> reference.get() != null).count());
    assertNotNull(context(ParallelFor.on(THREADS))); // dropped
    for (int i = 0; i < 1000 && HostPool.count() != before; i++) {
      System.gc();
      sleep(10);
    }
    assertEquals(before, HostPool.count());
  }

  private static WeakReference<Object> round(boolean computes, int before) {
    int[] calls = new int[256];
    ParallelFor function = (n, item) -> {
      calls[0]++;
      all(n, item);
    };
    Context context = context(function);
    if (computes) {
      try (Cache cache = largeCache(context)) {
        context.close();
        assertEquals(before + 1, HostPool.count());
        step(cache, cache.add(), new Tokens(new Random(1), 600));
        assertTrue(calls[0] > 0, "no job was large enough");
      }
    }
    context.close();
    refused(Status.UNSUPPORTED, () -> Context.builder().simd("none such").parallelFor(function).build());
    return new WeakReference<>(calls);
  }
}
