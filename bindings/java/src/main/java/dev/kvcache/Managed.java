package dev.kvcache;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Tensors that the library has given out (DLManagedTensorVersioned): copied, or viewed until no code has the buffer. */
final class Managed {
  private static final int HEADER = 32; // before its DLTensor

  private Managed() {}

  /** A DLTensor in the library's memory: shape and strides read out, data by its address. */
  static final class Raw {
    final long data;
    final DType dtype;
    final long[] shape;
    final long[] strides; // null: compact

    Raw(NativeCalls calls, ByteBuffer tensor, int at) {
      int rank = tensor.getInt(at + 16);
      data = tensor.getLong(at) + tensor.getLong(at + 40);
      dtype = DType.of(tensor.getInt(at + 20));
      shape = numbers(calls, tensor.getLong(at + 24), rank);
      long given = tensor.getLong(at + 32);
      strides = given == 0 ? null : numbers(calls, given, rank);
    }

    private static long[] numbers(NativeCalls calls, long address, int n) {
      long[] values = new long[n];
      if (n > 0) {
        calls.view(address, 8L * n).order(ByteOrder.nativeOrder()).asLongBuffer().get(values);
      }
      return values;
    }

    boolean isCompact() {
      long next = 1;
      for (int i = shape.length - 1; i >= 0; i--) {
        if (strides != null && shape[i] > 1 && strides[i] != next) {
          return false;
        }
        next *= shape[i];
      }
      return true;
    }

    /** Bytes from the first element to the last. */
    long bytes() {
      long last = 0;
      long next = 1;
      for (int i = shape.length - 1; i >= 0; i--) {
        if (shape[i] == 0) {
          return 0;
        }
        last += (shape[i] - 1) * (strides == null ? next : strides[i]);
        next *= shape[i];
      }
      return (last + 1) * dtype.bytes();
    }
  }

  private static Raw raw(NativeCalls calls, long managed) {
    return new Raw(calls, calls.view(managed, HEADER + 48).order(ByteOrder.nativeOrder()), HEADER);
  }

  /** A dense tensor in memory of Java's. The caller releases the original. */
  static Tensor copy(NativeCalls calls, long managed) {
    Raw raw = raw(calls, managed);
    Tensor copy = Tensor.allocate(raw.dtype, raw.shape);
    if (raw.bytes() > Memory.MOST_BUFFER_BYTES) { // Tensor.allocate has not refused: this is Java 22
      Segments.copy(Segments.view(raw.data, raw.bytes(), true, () -> {}), copy.memory());
    } else if (raw.bytes() > 0) {
      copy.byteBuffer().put(calls.view(raw.data, raw.bytes()));
    }
    return copy;
  }

  /** The tensor itself; released when its memory is unreachable: its buffer, of which every other one is made, or its segments. */
  static Tensor view(NativeCalls calls, long managed, boolean readOnly, Object kept) {
    try {
      Raw raw = raw(calls, managed);
      Release release = new Release(calls, managed, kept);
      Memory memory;
      if (raw.bytes() > Memory.MOST_BUFFER_BYTES) {
        memory = Segments.view(raw.data, raw.bytes(), readOnly, release);
        if (memory == null) {
          throw KvcacheException.misuse(Status.UNSUPPORTED, "Cache.viewPool: the pool has " + raw.bytes()
              + " bytes, a buffer at most 2^31 - 1, and only Java 22 and later have larger memory");
        }
      } else {
        ByteBuffer owner = calls.view(raw.data, raw.bytes());
        memory = Memory.view(readOnly ? owner.asReadOnlyBuffer() : owner, raw.data);
        Context.CLEANER.register(owner, release);
      }
      managed = 0;
      return Tensor.view(memory, raw.dtype, raw.shape, raw.isCompact() ? null : raw.strides);
    } finally {
      if (managed != 0) {
        calls.release(managed);
      }
    }
  }

  /** Gives memory back, and holds what it may be part of until then. */
  private static final class Release implements Runnable {
    private final NativeCalls calls;
    private final long managed;
    private Object kept;

    Release(NativeCalls calls, long managed, Object kept) {
      this.calls = calls;
      this.managed = managed;
      this.kept = kept;
    }

    @Override
    public void run() {
      calls.release(managed);
      kept = null;
    }
  }
}
