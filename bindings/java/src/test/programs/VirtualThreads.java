import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.DType;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.SegmentTensors;
import dev.kvcache.Status;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** What interrupts and virtual threads do: packages.md says so. */
class VirtualThreads {
  private static final int THREADS = 64;
  private static final int DIM = 64;

  public static void main(String[] arguments) throws Exception {
    try (Cache cache = Cache.builder().layers(Layer.builder().qHeads(2).kvHeads(1).headDim(DIM).build()).capacityTokens(17 * THREADS)
        .maxSequences(THREADS + 1).maxOpenForwards(THREADS).build(); Arena shared = Arena.ofShared()) {
      manySteps(cache, shared);
      interrupted(cache, shared);
    }
    System.out.println("all is well");
  }

  private static Attend attend(Arena arena, int tokens) {
    return Attend.of(tensor(arena, tokens, 2), tensor(arena, tokens, 1), tensor(arena, tokens, 1), tensor(arena, tokens, 2));
  }

  private static Tensor tensor(Arena arena, int tokens, int heads) {
    return SegmentTensors.of(arena.allocate(4L * tokens * heads * DIM, 64), DType.F32, tokens, heads, DIM);
  }

  /** Each virtual thread has a sequence and a step of its own, and an Arena that all share. */
  private static void manySteps(Cache cache, Arena shared) throws Exception {
    try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      List<Future<Long>> lengths = new ArrayList<>();
      for (int i = 0; i < THREADS; i++) {
        int tokens = 1 + i % 4;
        lengths.add(threads.submit(() -> {
          long sequence = cache.add();
          for (int round = 0; round < 4; round++) {
            try (Step step = cache.begin(Batch.of(sequence, tokens))) {
              step.attend(0, attend(shared, tokens));
              Thread.yield(); // the step goes on by another thread of the system
              step.end();
            }
          }
          return cache.length(sequence);
        }));
      }
      for (int i = 0; i < THREADS; i++) {
        check(lengths.get(i).get() == 4 * (1 + i % 4), "the length of sequence " + i);
      }
    }
  }

  /** A call neither stops at an interrupt nor clears it; cancel() stops a step. */
  private static void interrupted(Cache cache, Arena shared) throws Exception {
    Throwable[] thrown = new Throwable[1];
    Thread thread = Thread.ofVirtual().start(() -> {
      try (Step step = cache.begin(Batch.of(cache.add(), 2))) {
        Thread.currentThread().interrupt();
        Attend attend = attend(shared, 2);
        step.attend(0, attend);
        check(Thread.currentThread().isInterrupted(), "attend leaves the interrupt alone");
        step.cancel();
        try {
          step.end();
          throw new AssertionError("a cancelled step ended");
        } catch (KvcacheException e) {
          check(e.status() == Status.CANCELLED, e.getMessage());
        }
      } catch (Throwable e) {
        thrown[0] = e;
      }
    });
    thread.join();
    if (thrown[0] != null) {
      throw new AssertionError(thrown[0]);
    }
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }
}
