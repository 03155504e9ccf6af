import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.DType;
import dev.kvcache.FlashAttn;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.SegmentTensors;
import dev.kvcache.Status;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicInteger;

/** Memory of java.lang.foreign that goes away: exceptions, never a crash. Run by SegmentsTest on Java 22 and newer. */
class ClosedArena {
  private static final int TOKENS = 256;

  private static boolean segments; // tensors are of segments, or else of buffers

  public static void main(String[] arguments) throws Exception {
    for (boolean each : new boolean[] {false, true}) {
      segments = each;
      try (Cache cache = cache()) {
        closedBefore(cache, Arena.ofConfined());
        closedBefore(cache, Arena.ofShared());
        anotherThread(cache);
        closedDuring(cache);
        permanent(cache);
      }
      storage();
    }
    System.out.println("all is well");
  }

  private static Cache cache() {
    return Cache.builder().layers(layer().build()).capacityTokens(1024).maxBatchTokens(TOKENS).build();
  }

  private static Layer.Builder layer() {
    return Layer.builder().qHeads(8).kvHeads(1).headDim(64);
  }

  private static Tensor tensor(Arena arena, long... shape) {
    long elements = 1;
    for (long n : shape) {
      elements *= n;
    }
    MemorySegment segment = arena.allocate(4 * elements, 64);
    return segments ? SegmentTensors.of(segment, DType.F32, shape)
        : Tensor.of(segment.asByteBuffer().order(ByteOrder.nativeOrder()), DType.F32, shape);
  }

  private static Attend attend(Arena arena) {
    return Attend.of(tensor(arena, TOKENS, 8, 64), tensor(arena, TOKENS, 1, 64), tensor(arena, TOKENS, 1, 64), tensor(arena, TOKENS, 8, 64));
  }

  private interface Call {
    void run() throws Exception;
  }

  private static void refused(String words, Call call) throws Exception {
    try {
      call.run();
    } catch (KvcacheException e) {
      if (e.status() != Status.INVALID_ARGUMENT || !e.getMessage().contains(words)) {
        throw new AssertionError(words, e);
      }
      return;
    }
    throw new AssertionError("not refused: " + words);
  }

  private static void closedBefore(Cache cache, Arena arena) throws Exception {
    Attend attend = attend(arena);
    MemorySegment segment = arena.allocate(256);
    var buffer = segment.asByteBuffer().order(ByteOrder.nativeOrder());
    try (Step step = cache.begin(Batch.of(cache.add(), TOKENS))) {
      step.attend(0, attend);
    }
    arena.close();
    refused("Tensor.of: the memory of buffer", () -> Tensor.of(buffer, DType.F32, 64));
    refused("SegmentTensors.of: the memory of segment", () -> SegmentTensors.of(segment, DType.F32, 64));
    try (Step step = cache.begin(Batch.of(cache.add(), TOKENS))) {
      refused("Step.attend: the memory of q", () -> step.attend(0, attend));
    }
  }

  private static void anotherThread(Cache cache) throws Exception {
    try (Arena arena = Arena.ofConfined(); Step step = cache.begin(Batch.of(cache.add(), TOKENS))) {
      Attend attend = attend(arena);
      Throwable[] thrown = new Throwable[1];
      Thread thread = new Thread(() -> {
        try {
          refused("Step.attend: the memory of q", () -> step.attend(0, attend));
        } catch (Throwable e) {
          thrown[0] = e;
        }
      });
      thread.start();
      thread.join();
      if (thrown[0] != null) {
        throw new AssertionError(thrown[0]);
      }
    }
  }

  /** A thread closes Arenas while another one computes with their memory: the close is refused, or the call. */
  private static void closedDuring(Cache cache) throws Exception {
    AtomicInteger held = new AtomicInteger();
    for (int i = 0; i < 200; i++) {
      Arena arena = Arena.ofShared();
      Attend attend = attend(arena);
      Thread closer = new Thread(() -> {
        for (;;) {
          try {
            arena.close();
            return;
          } catch (IllegalStateException inUse) {
            held.incrementAndGet();
          }
        }
      });
      long sequence = cache.add();
      try (Step step = cache.begin(Batch.of(sequence, TOKENS))) {
        closer.start();
        try {
          step.attend(0, attend);
        } catch (KvcacheException e) {
          if (!e.getMessage().contains("memory of")) {
            throw e;
          }
        }
      }
      Thread.interrupted(); // the JVM interrupts a thread that reads memory at the moment when it is freed
      closer.join();
      cache.remove(sequence);
    }
    if (held.get() == 0) {
      throw new AssertionError("no close came during a call");
    }
  }

  private static void permanent(Cache cache) {
    for (Arena arena : new Arena[] {Arena.ofAuto(), Arena.global()}) {
      try (Step step = cache.begin(Batch.of(cache.add(), TOKENS))) {
        step.attend(0, attend(arena));
      }
    }
  }

  private static void storage() throws Exception {
    long[] shape = {64, 2, 1, 16, 64};
    try (Arena shared = Arena.ofShared(); Arena confined = Arena.ofConfined()) {
      for (Arena arena : new Arena[] {shared, confined}) {
        Tensor pool = tensor(arena, shape);
        refused("an Arena that can be closed", () -> Cache.builder().layers(layer().kvStorage(pool).build()).capacityPages(64).build());
      }
    }
    Cache.builder().layers(layer().kvStorage(tensor(Arena.ofAuto(), shape)).build()).capacityPages(64).build().close();
  }
}
