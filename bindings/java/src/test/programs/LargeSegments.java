import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.DType;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.SegmentTensors;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** Tensors of more bytes than a buffer can have. Their memory is mapped from an empty file, so that only what is used exists. */
class LargeSegments {
  private static final long GIB = 1L << 30;
  private static final int HEADS = 2;
  private static final int DIM = 64;

  public static void main(String[] arguments) throws Exception {
    rowsBeyondTheLimit();
    storageBeyondTheLimit();
    views();
    System.out.println("all is well");
  }

  private static MemorySegment mapped(Arena arena, long bytes) throws IOException {
    Path path = Files.createTempFile("kvcache", ".sparse");
    try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
      file.setLength(bytes);
      return file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, bytes, arena);
    } finally {
      Files.delete(path);
    }
  }

  private static Layer.Builder layer() {
    return Layer.builder().qHeads(HEADS).kvHeads(1).headDim(DIM);
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  private static float value(int row, int i) {
    return (float) Math.sin(row * 1000 + i);
  }

  /** The row-th value of q, k, v and out is `stride` elements after the one before. */
  private static float[] attend(Cache cache, Arena arena, long stride) throws IOException {
    int rows = 2;
    int width = HEADS * DIM;
    MemorySegment[] memory = new MemorySegment[4];
    Tensor[] tensors = new Tensor[4];
    for (int t = 0; t < 4; t++) {
      int heads = t == 0 || t == 3 ? HEADS : 1;
      memory[t] = mapped(arena, 4 * (stride + width));
      tensors[t] = SegmentTensors.of(memory[t], DType.F32, rows, heads, DIM).withStrides(stride, DIM, 1);
      for (int row = 0; row < rows && t < 3; row++) {
        for (int i = 0; i < heads * DIM; i++) {
          memory[t].setAtIndex(ValueLayout.JAVA_FLOAT, row * stride + i, value(row, t + i));
        }
      }
    }
    try (Step step = cache.begin(Batch.of(cache.add(), rows))) {
      step.attend(0, Attend.of(tensors[0], tensors[1], tensors[2], tensors[3]));
      step.end();
    }
    float[] out = new float[rows * width];
    for (int i = 0; i < out.length; i++) {
      out[i] = memory[3].getAtIndex(ValueLayout.JAVA_FLOAT, i / width * stride + i % width);
    }
    return out;
  }

  private static void rowsBeyondTheLimit() throws IOException {
    try (Arena arena = Arena.ofShared(); Cache cache = Cache.builder().layers(layer().build()).capacityTokens(64).build()) {
      float[] near = attend(cache, arena, HEADS * DIM);
      float[] far = attend(cache, arena, 3 * GIB / 4);
      check(Arrays.equals(near, far), "rows of the tensors that are 3 GiB apart");
      check(near[HEADS * DIM] != near[0] && near[0] != 0, "the rows differ");

      MemorySegment memory = mapped(arena, 3 * GIB);
      check(SegmentTensors.segment(SegmentTensors.of(memory, DType.U8, 3, GIB)).byteSize() == 3 * GIB, "the size of the segment");
      refused("needs 3221225473 elements, its segment has 3221225472", () -> SegmentTensors.of(memory, DType.U8, 3 * GIB + 1));
      refused("the memory has 3221225472 bytes, a buffer at most 2^31 - 1", () -> SegmentTensors.of(memory, DType.U8, 1).byteBuffer());
      refused("out is written, but its buffer is read-only", () -> attendTo(cache, SegmentTensors.of(memory.asReadOnly(), DType.F32, 1, HEADS, DIM)));
      refused("on the Java heap", () -> SegmentTensors.of(MemorySegment.ofArray(new float[4]), DType.F32, 4));
      refused("SegmentTensors.of: segment is null", () -> SegmentTensors.of(null, DType.F32, 4));
      refused("6 dimensions, at most 5", () -> SegmentTensors.of(memory, DType.F32, 1, 1, 1, 1, 1, 1));
    }
  }

  private static void attendTo(Cache cache, Tensor out) {
    Tensor k = Tensor.allocate(DType.F32, 1, 1, DIM);
    try (Step step = cache.begin(Batch.of(cache.add(), 1))) {
      step.attend(0, Attend.of(Tensor.allocate(DType.F32, 1, HEADS, DIM), k, k, out));
    }
  }

  /** A pool of 3 GiB, whose last page is in use: what it exports is the end of the memory. */
  private static void storageBeyondTheLimit() throws IOException {
    int tokens = 16;
    long pageBytes = 2L * tokens * DIM * 4;
    long pages = 3 * GIB / pageBytes;
    MemorySegment memory = mapped(Arena.ofAuto(), 3 * GIB);
    Tensor pool = SegmentTensors.of(memory, DType.F32, pages, 2, 1, tokens, DIM);
    try (Cache cache = Cache.builder().layers(layer().kvStorage(pool).build()).pageSize(tokens).capacityPages((int) pages).build()) {
      Tensor view = cache.viewPool(0, Cache.Pool.KV, false);
      MemorySegment seen = SegmentTensors.segment(view);
      check(seen.byteSize() == 3 * GIB, "the view has the size of the pool, not " + seen.byteSize());
      memory.set(ValueLayout.JAVA_INT, 3 * GIB - 4, 12345);
      check(seen.get(ValueLayout.JAVA_INT, 3 * GIB - 4) == 12345, "the last element of the view");
      try {
        seen.set(ValueLayout.JAVA_INT, 0, 1);
        throw new AssertionError("a view that is not writable was written");
      } catch (UnsupportedOperationException | IllegalArgumentException readOnly) {
        check(view.isReadOnly(), "the view is read-only");
      }
    }
  }

  private static void views() {
    try (Arena arena = Arena.ofConfined()) {
      Tensor tensor = SegmentTensors.of(arena.allocate(64, 64), DType.F32, 4, 4);
      tensor.floatBuffer().put(5, 2.5f);
      check(SegmentTensors.segment(tensor).getAtIndex(ValueLayout.JAVA_FLOAT, 5) == 2.5f, "a buffer of the segment");
      check(tensor.toString().equals("Tensor F32[4, 4] of a MemorySegment"), tensor.toString());
      Tensor allocated = Tensor.allocate(DType.F32, 4);
      SegmentTensors.segment(allocated).setAtIndex(ValueLayout.JAVA_FLOAT, 3, 1.5f);
      check(allocated.floatBuffer().get(3) == 1.5f, "a segment of the buffer");
    }
  }

  private static void refused(String words, Runnable call) {
    try {
      call.run();
    } catch (KvcacheException e) {
      check(e.getMessage().contains(words), words + ": " + e.getMessage());
      return;
    }
    throw new AssertionError("not refused: " + words);
  }
}
