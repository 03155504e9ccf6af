package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.ints;
import static dev.kvcache.Support.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.util.AbstractList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;

/** Arguments that no sane program passes, and threads that change arguments during a call: exceptions, never a crash. */
class HostileTest {
  private static final long ROWS = 1L << 56; // of 64 floats: no more of them fit a tensor
  private static final Set<Status> FOR_WHAT_WAS_READ = EnumSet.of(Status.OUT_OF_RANGE, Status.INVALID_ARGUMENT, Status.BATCH_TOO_LARGE);

  private static Tensor ones(long... shape) {
    Tensor tensor = Tensor.allocate(DType.F32, shape);
    for (int i = 0; i < tensor.floatBuffer().capacity(); i++) {
      tensor.floatBuffer().put(i, 1);
    }
    return tensor;
  }

  private static Tensor endless(Tensor row, long... dims) {
    long[] shape = new long[dims.length + 1];
    long[] strides = new long[shape.length];
    shape[0] = ROWS;
    long next = 1;
    for (int i = dims.length; i > 0; i--) {
      shape[i] = dims[i - 1];
      strides[i] = next;
      next *= shape[i];
    }
    // The shape alone would not fit the buffer: the strides come with it.
    return Tensor.view(Memory.view(row.byteBuffer(), row.address()), DType.F32, shape, strides);
  }

  @Test
  void rowsWithoutEnd() {
    try (Cache cache = cache(); Context context = Context.create(); Step step = cache.begin(Batch.of(cache.add(), 3))) {
      Tensor row = ones(Q_HEADS * DIM);
      Tensor kv = endless(row, KV_HEADS, DIM);
      Tensor out = Tensor.allocate(DType.F32, 3, Q_HEADS, DIM);
      step.attend(0, Attend.of(endless(row, Q_HEADS, DIM), kv, kv, out));
      for (float x : floats(out)) {
        assertEquals(1, x);
      }
      Tensor pool = ones(4, 16, 1, DIM);
      FlashAttn flash = FlashAttn.of(endless(row, 1, Q_HEADS, DIM), pool, pool, Tensor.allocate(DType.F32, 1, 1, Q_HEADS, DIM))
          .cacheSeqlens(ints(4)).blockTable(ints(0).withShape(1, 1));
      refused(Status.SHAPE, () -> context.flashAttnWithKvCache(flash), "rows");
      refused(Status.SHAPE, () -> context.flashAttnWithKvCache(flash.out(endless(row, 1, Q_HEADS, DIM))), "rows");
      refused(Status.SHAPE, () -> Tensor.allocate(DType.F32, ROWS, 64), "2^31");
      refused(Status.SHAPE, () -> row.withShape(ROWS, 1 << 20), "2^63");
    }
  }

  /** A list of which each look finds another size. */
  private static final class Shrinking extends AbstractList<Tensor> {
    private final Tensor element;
    private int size;

    Shrinking(Tensor element, int size) {
      this.element = element;
      this.size = size;
    }

    @Override
    public Tensor get(int index) {
      return element;
    }

    @Override
    public int size() {
      return Math.max(size--, 0);
    }

    @Override
    public Iterator<Tensor> iterator() { // the inherited one never ends if the size falls below its position
      return Collections.nCopies(size(), element).iterator();
    }

    @Override
    public Object[] toArray() {
      return Collections.nCopies(size(), element).toArray();
    }

    @Override
    public <T> T[] toArray(T[] array) {
      return Collections.nCopies(size(), element).toArray(array);
    }
  }

  @Test
  void listsThatShrink() {
    Tensor one = ones(1, KV_HEADS, DIM);
    try (Cache cache = cache(); Context context = Context.create()) {
      for (int size = 0; size < 8; size++) {
        List<Tensor> outputs = new Shrinking(ones(1, 1, DIM), size);
        List<Tensor> lses = new Shrinking(ones(1, 1), size);
        Import tokens = Import.of(new Shrinking(one, size), new Shrinking(one, size));
        expectMisuse(() -> context.merge(outputs, lses, Tensor.allocate(DType.F32, 1, 1, DIM), null));
        expectMisuse(() -> cache.importTokens(cache.add(), tokens));
      }
      cache.checkInvariants();
    }
  }

  private static void expectMisuse(Runnable call) {
    try {
      call.run();
    } catch (KvcacheException e) {
      assertTrue(e.code() < 100, e.getMessage());
    }
  }

  /** Another thread rewrites an array while `call` runs, for a while: each call succeeds, or is refused for what it has read. */
  private static void hammer(Runnable garbage, Runnable restore, Runnable call) throws InterruptedException {
    AtomicBoolean stop = new AtomicBoolean();
    Thread writer = new Thread(() -> {
      while (!stop.get()) {
        garbage.run();
        restore.run();
      }
    });
    writer.start();
    try {
      for (long end = System.nanoTime() + 500_000_000; System.nanoTime() < end;) {
        try {
          call.run();
        } catch (KvcacheException e) {
          assertTrue(FOR_WHAT_WAS_READ.contains(e.status()), e.getMessage());
        }
      }
    } finally {
      stop.set(true);
      writer.join();
    }
  }

  @Test
  void lengthsThatChangeDuringACall() throws InterruptedException {
    try (Cache cache = cache()) {
      int[] lengths = {4};
      Batch batch = Batch.of(new long[] {cache.add()}, lengths).treeParents(Batch.TREE_ROOT, 0, 1, 2);
      hammer(() -> lengths[0] = 60, () -> lengths[0] = 4, () -> {
        try (Step step = cache.begin(batch)) {
          assertEquals(4, step.positions().length);
        }
      });
    }
  }

  @Test
  void tensorsThatAreReplacedDuringACall() throws InterruptedException {
    try (Context context = Context.create()) {
      Random random = new Random(5);
      Tensor pool = ones(4, 16, 1, DIM);
      Tensor frozen = Tensor.of(ones(4, 16, 1, DIM).byteBuffer().asReadOnlyBuffer().order(java.nio.ByteOrder.nativeOrder()), DType.F32,
          4, 16, 1, DIM);
      Tensor newK = Support.random(random, 1, 1, 1, DIM);
      FlashAttn args = FlashAttn.of(Support.random(random, 1, 1, Q_HEADS, DIM), frozen, pool, Tensor.allocate(DType.F32, 1, 1, Q_HEADS, DIM))
          .cacheSeqlens(ints(4)).blockTable(ints(0).withShape(1, 1));
      hammer(() -> args.k(newK).v(newK), () -> args.k(null).v(null), () -> {
        try {
          context.flashAttnWithKvCache(args);
        } catch (KvcacheException e) {
          assertTrue(e.status() == Status.NULL_ARGUMENT || e.status() == Status.INVALID_ARGUMENT, e.getMessage());
        }
      });
      for (float x : floats(Tensor.of(frozen.byteBuffer(), DType.F32, 4 * 16 * DIM))) {
        assertEquals(1, x); // what is read-only was never written
      }
    }
  }

  /** Siblings share the pages of their encoder sequence, and a step that appends to it attends to nothing. */
  @Test
  void anEncoderStepOfForksIsDescribed() {
    Layer cross = Layer.builder().group(1).qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).build();
    try (Cache cache = cache(c -> c.layers(Support.layer(), cross).groups(Group.full(), Group.cross())
        .sharePrefixes(Cache.SharePrefixes.ALWAYS))) {
      long a = cache.add();
      Tensor frames = ones(32, KV_HEADS, DIM);
      try (Step step = cache.begin(Batch.of(a, 32).encoderGroup(1))) {
        step.append(1, Append.of(frames, frames));
        step.end();
      }
      long[] forks = cache.fork(a, a);
      try (Step step = cache.begin(Batch.of(new long[] {a, forks[0], forks[1]}, new int[] {1, 1, 1}).encoderGroup(1))) {
        assertTrue(step.describe().contains("\"rows\": 3"), step.describe());
      }
    }
  }

  private static Tensor slots(long... values) {
    Tensor tensor = Tensor.allocate(DType.I64, values.length);
    tensor.longBuffer().put(values);
    return tensor;
  }

  /** No token is stored, and the tables of cos and sin have no rows: nothing is read of them. */
  @Test
  void paddingAloneWithEmptyRotaryTables() {
    try (Context context = Context.create()) {
      Tensor kv = ones(3, 1, DIM);
      Tensor empty = Tensor.allocate(DType.F32, 0, DIM / 2);
      AppendSlots args = AppendSlots.of(kv, kv, ones(4, 16, 1, DIM), ones(4, 16, 1, DIM), slots(-1, -1, -1)).rotaryCos(empty)
          .rotarySin(empty).positions(slots(0, 0, 0));
      context.appendSlots(args);
      refused(Status.OUT_OF_RANGE, () -> context.appendSlots(args.slotMapping(slots(-1, 0, -1))));
    }
  }

  @Test
  void blockTablesThatChangeDuringACall() throws InterruptedException {
    int rows = 64;
    int pages = 64;
    try (Context context = Context.create()) {
      Tensor pool = ones(rows * pages, 16, 1, DIM);
      Tensor table = Tensor.allocate(DType.I32, rows, pages);
      Tensor lengths = Tensor.allocate(DType.I32, rows);
      IntBuffer ids = table.intBuffer();
      IntBuffer counts = lengths.intBuffer();
      Runnable restore = () -> {
        for (int i = 0; i < rows * pages; i++) {
          ids.put(i, i);
          counts.put(i / pages, 16 * pages);
        }
      };
      restore.run();
      FlashAttn args = FlashAttn.of(ones(rows, 1, 2, DIM), pool, pool, ones(rows, 1, 2, DIM)).cacheSeqlens(lengths).blockTable(table);
      hammer(() -> {
        for (int i = 0; i < rows * pages; i++) {
          ids.put(i, 1 << 30);
          counts.put(i / pages, 1 << 30);
        }
      }, restore, () -> context.flashAttnWithKvCache(args));
    }
  }

  @Test
  void slotsThatChangeDuringACall() throws InterruptedException {
    int n = 4096;
    try (Context context = Context.create()) {
      Tensor kv = ones(n, 1, DIM);
      Tensor slots = Tensor.allocate(DType.I64, n);
      LongBuffer values = slots.longBuffer();
      Runnable restore = () -> {
        for (int i = 0; i < n; i++) {
          values.put(i, i);
        }
      };
      restore.run();
      AppendSlots args = AppendSlots.of(kv, kv, ones(64, 64, 1, DIM), ones(64, 64, 1, DIM), slots);
      hammer(() -> {
        for (int i = 0; i < n; i++) {
          values.put(i, 1L << 40);
        }
      }, restore, () -> context.appendSlots(args));
    }
  }
}
