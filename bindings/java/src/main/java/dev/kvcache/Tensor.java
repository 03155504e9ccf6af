package dev.kvcache;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The memory of a direct buffer or a MemorySegment, with a type and a shape. A tensor copies nothing, and keeps its memory alive.
 * It is immutable, and any thread may use it. Make one for each buffer and shape, and use it again.
 *
 * <p>Only direct buffers in the machine's byte order are tensors: {@code ByteBuffer.allocateDirect(n).order(ByteOrder.nativeOrder())},
 * views of them, {@code MemorySegment.asByteBuffer()}, or {@link #allocate}. The elements between the buffer's position and its limit
 * are the tensor. {@link SegmentTensors} has no limit of 2 GiB.
 *
 * <p>If the buffer is a view of a MemorySegment, every call checks that the segment's Arena is open, and refuses the tensor if it
 * is not. From Java 22 on, an Arena cannot be closed while a call uses its memory: {@code Arena.close} throws
 * IllegalStateException then. A segment of a confined Arena is for the thread that owns it.
 */
public final class Tensor {
  static final int MAX_RANK = 5;

  private static final AtomicLong IDS = new AtomicLong();

  /** Unique to this tensor, so an arena can tell that it has written the tensor already. */
  final long id = IDS.incrementAndGet();
  private final Memory memory; // kept alive
  private final DType dtype;
  private final long[] shape;
  private final long[] strides; // null: compact

  private Tensor(Memory memory, DType dtype, long[] shape, long[] strides) {
    this.memory = memory;
    this.dtype = dtype;
    this.shape = shape;
    this.strides = strides;
    checkRange();
  }

  /**
   * A tensor of what remains in a direct buffer. A ByteBuffer may have any dtype, a FloatBuffer F32, a ShortBuffer F16 or
   * BF16, an IntBuffer I32, a LongBuffer I64.
   *
   * @param shape dimensions, outermost first
   * @throws KvcacheException if the buffer is on the heap, in another byte order, of other elements, or too short
   */
  public static Tensor of(Buffer buffer, DType dtype, long... shape) {
    if (buffer == null || dtype == null || shape == null) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, "Tensor.of: "
          + (buffer == null ? "buffer" : dtype == null ? "dtype" : "shape") + " is null");
    }
    if (!buffer.isDirect()) {
      throw KvcacheException.misuse(Status.DEVICE, "Tensor.of: the buffer is on the Java heap, where it moves; use "
          + "ByteBuffer.allocateDirect(...).order(ByteOrder.nativeOrder()), or Tensor.allocate");
    }
    checkElements(buffer, dtype);
    ByteOrder order = orderOf(buffer);
    if (dtype.bytes() > 1 && order != ByteOrder.nativeOrder()) {
      throw KvcacheException.misuse(Status.DTYPE, "Tensor.of: the buffer is in " + order + " order, this machine in "
          + ByteOrder.nativeOrder() + "; call order(ByteOrder.nativeOrder()) before it is filled");
    }
    if (shape.length > MAX_RANK) {
      throw KvcacheException.misuse(Status.RANK, "Tensor.of: " + shape.length + " dimensions, at most " + MAX_RANK + " are known");
    }
    return new Tensor(Memory.of(buffer, "Tensor.of", "buffer"), dtype, shape.clone(), null);
  }

  /** A compact tensor of the first elements. */
  static Tensor of(Memory memory, DType dtype, long[] shape) {
    return new Tensor(memory, dtype, shape, null);
  }

  /**
   * A new tensor of zeros. {@link #byteBuffer} and similar methods return its memory. From Java 22 on it may have more than
   * 2^31 - 1 bytes; then {@link SegmentTensors#segment} returns its memory.
   */
  public static Tensor allocate(DType dtype, long... shape) {
    if (dtype == null || shape == null) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, "Tensor.allocate: " + (dtype == null ? "dtype" : "shape") + " is null");
    }
    long bytes = dtype.bytes();
    for (int i = 0; i < shape.length; i++) {
      if (shape[i] < 0) {
        throw KvcacheException.misuse(Status.SHAPE, "Tensor.allocate: dimension " + i + " is " + shape[i], i);
      }
      bytes = Math.multiplyHigh(bytes, shape[i]) != 0 || bytes < 0 ? Long.MAX_VALUE : bytes * shape[i];
    }
    Memory memory = bytes < 0 || bytes == Long.MAX_VALUE ? null : Memory.allocate(bytes);
    if (memory == null) {
      throw KvcacheException.misuse(Status.SHAPE, "Tensor.allocate: a buffer of shape " + Arrays.toString(shape)
          + " would have more than 2^31 - 1 bytes");
    }
    return new Tensor(memory, dtype, shape.clone(), null);
  }

  /** The same memory with strides in elements, one for each dimension, for rows within longer rows. None may be negative. */
  public Tensor withStrides(long... elements) {
    if (elements == null || elements.length != shape.length) {
      throw KvcacheException.misuse(Status.STRIDE, "Tensor.withStrides: " + shape.length + " dimensions, but "
          + (elements == null ? "no" : elements.length) + " strides");
    }
    return new Tensor(memory, dtype, shape, elements.clone());
  }

  /** The same memory with another shape, compact: the first rows of a buffer for the largest batch, for example. */
  public Tensor withShape(long... dims) {
    if (dims == null || dims.length > MAX_RANK) {
      throw KvcacheException.misuse(Status.RANK, "Tensor.withShape: " + (dims == null ? "no" : dims.length)
          + " dimensions, at most " + MAX_RANK + " are known");
    }
    return new Tensor(memory, dtype, dims.clone(), null);
  }

  /** A view of memory of the library. */
  static Tensor view(Memory memory, DType dtype, long[] shape, long[] strides) {
    return new Tensor(memory, dtype, shape, strides);
  }

  private static void checkElements(Buffer buffer, DType dtype) {
    boolean fits = buffer instanceof ByteBuffer
        || buffer instanceof FloatBuffer && dtype == DType.F32
        || buffer instanceof ShortBuffer && (dtype == DType.F16 || dtype == DType.BF16)
        || buffer instanceof IntBuffer && dtype == DType.I32
        || buffer instanceof LongBuffer && dtype == DType.I64;
    if (!fits) {
      throw KvcacheException.misuse(Status.DTYPE, "Tensor.of: a " + buffer.getClass().getSimpleName() + " does not hold " + dtype
          + "; a ByteBuffer holds anything");
    }
  }

  private static ByteOrder orderOf(Buffer buffer) {
    if (buffer instanceof ByteBuffer) {
      return ((ByteBuffer) buffer).order();
    } else if (buffer instanceof FloatBuffer) {
      return ((FloatBuffer) buffer).order();
    } else if (buffer instanceof ShortBuffer) {
      return ((ShortBuffer) buffer).order();
    } else if (buffer instanceof IntBuffer) {
      return ((IntBuffer) buffer).order();
    }
    return ((LongBuffer) buffer).order();
  }

  /** To be called before C reads the memory. */
  void checkAlive(String function, String name) {
    memory.checkAlive(function, name);
  }

  Memory memory() {
    return memory;
  }

  /** The Arena of java.lang.foreign that may free the memory; null if none can. */
  Segments.Owner owner() {
    return memory.owner;
  }

  /** Refuses elements outside of the memory, which C could not see. */
  private void checkRange() {
    long last = 0;
    long compact = 1;
    boolean tooLarge = false;
    for (int i = shape.length - 1; i >= 0; i--) {
      long n = shape[i];
      long stride = strides == null ? compact : strides[i];
      if (n < 0) {
        throw KvcacheException.misuse(Status.SHAPE, "a tensor's dimension " + i + " is " + n, i);
      }
      if (stride < 0) {
        throw KvcacheException.misuse(Status.STRIDE, "a tensor's stride " + stride + " of dimension " + i + " is negative", i);
      }
      if (n == 0) {
        return; // no elements
      }
      try {
        last = Math.addExact(last, Math.multiplyExact(n - 1, stride));
        compact = Math.multiplyExact(compact, n);
      } catch (ArithmeticException overflow) {
        tooLarge = true;
      }
    }
    long elements = memory.bytes / dtype.bytes();
    if (tooLarge || last >= elements) {
      throw KvcacheException.misuse(Status.SHAPE, "a tensor of shape " + Arrays.toString(shape)
          + (strides == null ? "" : " and strides " + Arrays.toString(strides)) + " needs "
          + (tooLarge ? "more than 2^63" : String.valueOf(last + 1)) + " elements, its " + (memory.kind().equals("MemorySegment") ? "segment" : "buffer") + " has " + elements);
    }
  }

  /** Writes a DLTensor: its shape and strides follow it at dims. */
  void write(Mem slot, int dims) {
    int rank = shape.length;
    slot.putLong(0, memory.address);
    slot.putInt(16, rank);
    slot.putInt(20, dtype.dl);
    for (int i = 0; i < rank; i++) {
      slot.putLong(dims + 8 * i, shape[i]);
    }
    if (strides == null) {
      slot.putLong(32, 0);
    } else {
      int at = dims + 8 * MAX_RANK;
      slot.putLong(32, slot.address + at);
      for (int i = 0; i < rank; i++) {
        slot.putLong(at + 8 * i, strides[i]);
      }
    }
  }

  public DType dtype() {
    return dtype;
  }

  public int rank() {
    return shape.length;
  }

  public long[] shape() {
    return shape.clone();
  }

  /** Strides in elements; of a compact tensor what its shape gives. */
  public long[] strides() {
    if (strides != null) {
      return strides.clone();
    }
    long[] compact = new long[shape.length];
    long next = 1;
    for (int i = shape.length - 1; i >= 0; i--) {
      compact[i] = next;
      next *= shape[i];
    }
    return compact;
  }

  public boolean isReadOnly() {
    return memory.isReadOnly();
  }

  /** Address of the first element, for other native code. Valid while this tensor is reachable. */
  public long address() {
    return memory.address;
  }

  /** The memory, from the first element on, in native order. Of a tensor of a ByteBuffer, or of a MemorySegment below 2 GiB. */
  public ByteBuffer byteBuffer() {
    return bytes("byteBuffer").order(ByteOrder.nativeOrder());
  }

  /** The memory of an F32 tensor. */
  public FloatBuffer floatBuffer() {
    require("floatBuffer", dtype == DType.F32);
    Buffer buffer = buffer("floatBuffer");
    return buffer instanceof FloatBuffer ? ((FloatBuffer) buffer).duplicate() : byteBuffer().asFloatBuffer();
  }

  /** The memory of an F16 or BF16 tensor, each element's bits in a short. */
  public ShortBuffer shortBuffer() {
    require("shortBuffer", dtype == DType.F16 || dtype == DType.BF16);
    Buffer buffer = buffer("shortBuffer");
    return buffer instanceof ShortBuffer ? ((ShortBuffer) buffer).duplicate() : byteBuffer().asShortBuffer();
  }

  /** The memory of an I32 tensor. */
  public IntBuffer intBuffer() {
    require("intBuffer", dtype == DType.I32);
    Buffer buffer = buffer("intBuffer");
    return buffer instanceof IntBuffer ? ((IntBuffer) buffer).duplicate() : byteBuffer().asIntBuffer();
  }

  /** The memory of an I64 tensor. */
  public LongBuffer longBuffer() {
    require("longBuffer", dtype == DType.I64);
    Buffer buffer = buffer("longBuffer");
    return buffer instanceof LongBuffer ? ((LongBuffer) buffer).duplicate() : byteBuffer().asLongBuffer();
  }

  private ByteBuffer bytes(String what) {
    Buffer buffer = buffer(what);
    require(what, buffer instanceof ByteBuffer);
    return ((ByteBuffer) buffer).duplicate();
  }

  private Buffer buffer(String what) {
    if (memory.bytes > Memory.MOST_BUFFER_BYTES) {
      throw KvcacheException.misuse(Status.UNSUPPORTED, "Tensor." + what + ": the memory has " + memory.bytes
          + " bytes, a buffer at most 2^31 - 1; use SegmentTensors.segment");
    }
    return memory.buffer();
  }

  private void require(String what, boolean fits) {
    if (!fits) {
      throw KvcacheException.misuse(Status.DTYPE, "Tensor." + what + ": this is " + this);
    }
  }

  @Override
  public String toString() {
    return "Tensor " + dtype + Arrays.toString(shape) + (strides == null ? "" : " strides " + Arrays.toString(strides))
        + " of a " + memory.kind();
  }
}
