package dev.kvcache;

import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Tensors over memory of java.lang.foreign, for Java 22 and later. A MemorySegment may be larger than the 2 GiB of a buffer.
 *
 * <pre>{@code
 * try (Arena arena = Arena.ofShared()) {
 *   MemorySegment memory = arena.allocate(3L << 30, 64);
 *   Tensor pool = SegmentTensors.of(memory, DType.BF16, 1 << 20, 12, 128);
 * }
 * }</pre>
 *
 * <p>Every call checks that the Arena of each of its tensors is open, and that this thread may use it. Otherwise it throws, and
 * has no other effect. {@code Arena.close} throws IllegalStateException while a call uses memory of the Arena.
 *
 * <p>These methods are not in {@link Tensor}, because Java 17 could not compile a use of that class then.
 */
public final class SegmentTensors {
  private SegmentTensors() {}

  /**
   * A tensor of the first elements of a native segment: one of an Arena, or of a mapped file.
   *
   * @param shape dimensions, outermost first
   * @throws KvcacheException if the segment is on the heap, its Arena is closed, its Arena belongs to another thread, or it is too short
   */
  public static Tensor of(MemorySegment segment, DType dtype, long... shape) {
    Checks.given("SegmentTensors.of", "segment", segment);
    Checks.given("SegmentTensors.of", "dtype", dtype);
    Checks.given("SegmentTensors.of", "shape", shape);
    needJava22("SegmentTensors.of");
    if (!Segments.isNative(segment)) {
      throw KvcacheException.misuse(Status.DEVICE, "SegmentTensors.of: the segment is on the Java heap, where it moves; take it from "
          + "an Arena");
    }
    if (shape.length > Tensor.MAX_RANK) {
      throw KvcacheException.misuse(Status.RANK, "SegmentTensors.of: " + Arrays.toString(shape) + " has " + shape.length
          + " dimensions, at most " + Tensor.MAX_RANK + " are known");
    }
    Memory memory = Segments.memoryOf(segment);
    memory.checkAlive("SegmentTensors.of", "segment");
    return Tensor.of(memory, dtype, shape.clone());
  }

  /** The memory of a tensor, from its first element on: of its segment, or of its buffer. */
  public static MemorySegment segment(Tensor tensor) {
    Checks.given("SegmentTensors.segment", "tensor", tensor);
    needJava22("SegmentTensors.segment");
    return (MemorySegment) Segments.segmentOf(tensor.memory());
  }

  private static void needJava22(String function) {
    if (!Segments.ownersAreKnown()) {
      throw KvcacheException.misuse(Status.UNSUPPORTED, function + ": needs Java 22 or later, this is " + Runtime.version().feature());
    }
  }
}
