package dev.kvcache;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;

/** The native memory of a tensor: a direct buffer, or a MemorySegment of java.lang.foreign. It is kept alive by this object. */
abstract class Memory {
  static final long MOST_BUFFER_BYTES = Integer.MAX_VALUE;

  final long address;
  final long bytes;
  final Segments.Owner owner; // the Arena that may free it; null if none can

  Memory(long address, long bytes, Segments.Owner owner) {
    this.address = address;
    this.bytes = bytes;
    this.owner = owner;
  }

  /** An access of Java's. It throws if the Arena was closed or belongs to another thread. There is at least one byte. */
  abstract void access();

  abstract boolean isReadOnly();

  /** A buffer of at most MOST_BUFFER_BYTES. */
  abstract Buffer buffer();

  /** The name of its class, for messages. */
  abstract String kind();

  /** Refuses memory whose Arena was closed, or belongs to another thread, because C would read freed memory. */
  final void checkAlive(String function, String name) {
    if (bytes > 0 && (owner != null || !Segments.ownersAreKnown())) {
      accessOrRefuse(function, name);
    }
  }

  final void accessOrRefuse(String function, String name) {
    try {
      access();
    } catch (RuntimeException refused) { // IllegalStateException, or WrongThreadException of Java 19
      throw Segments.refused(function, name, refused);
    }
  }

  /** What remains in a direct buffer. */
  static Memory of(Buffer buffer, String function, String name) {
    Buffer own = buffer.slice(); // once: the caller's may get another position or limit meanwhile
    if (own.capacity() > 0) {
      new OfBuffer(own, 0, null).accessOrRefuse(function, name); // before its address is taken
    }
    return new OfBuffer(own, Library.calls().address(own), Segments.ownerOf(own));
  }

  /** A buffer of the library's memory. */
  static Memory view(ByteBuffer buffer, long address) {
    return new OfBuffer(buffer, address, null);
  }

  /** New memory, of zeros; null if no kind of memory can be so large. */
  static Memory allocate(long bytes) {
    if (bytes > MOST_BUFFER_BYTES) {
      return Segments.allocate(bytes);
    }
    ByteBuffer buffer = ByteBuffer.allocateDirect((int) bytes).order(ByteOrder.nativeOrder());
    return new OfBuffer(buffer, Library.calls().address(buffer), null);
  }

  private static final class OfBuffer extends Memory {
    private final Buffer buffer;

    OfBuffer(Buffer buffer, long address, Segments.Owner owner) {
      super(address, (long) buffer.capacity() * elementBytes(buffer), owner);
      this.buffer = buffer;
    }

    @Override
    void access() {
      if (buffer instanceof ByteBuffer) {
        ((ByteBuffer) buffer).get(0);
      } else if (buffer instanceof FloatBuffer) {
        ((FloatBuffer) buffer).get(0);
      } else if (buffer instanceof ShortBuffer) {
        ((ShortBuffer) buffer).get(0);
      } else if (buffer instanceof IntBuffer) {
        ((IntBuffer) buffer).get(0);
      } else {
        ((LongBuffer) buffer).get(0);
      }
    }

    @Override
    boolean isReadOnly() {
      return buffer.isReadOnly();
    }

    @Override
    Buffer buffer() {
      return buffer;
    }

    @Override
    String kind() {
      return buffer.getClass().getSimpleName();
    }

    private static int elementBytes(Buffer buffer) {
      return buffer instanceof ByteBuffer ? 1 : buffer instanceof ShortBuffer ? 2 : buffer instanceof LongBuffer ? 8 : 4;
    }
  }
}
