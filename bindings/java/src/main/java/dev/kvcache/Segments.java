package dev.kvcache;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodHandles.Lookup;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Memory of java.lang.foreign: an Arena may be closed, also by another thread, which frees the memory of its buffers. Java's own
 * linker holds an Arena open while a C function runs that was given its memory, so calls with such memory are made from within a
 * C function that was called by that linker.
 *
 * <p>All of this is done by reflection, because this package runs on Java 17. Older versions than Java 22 have no final
 * java.lang.foreign: there, memory is checked before each call and not held.
 */
final class Segments {
  /** An Arena that may be closed. `segment` is held if another thread can close it; otherwise it is null. */
  record Owner(Object scope, Object segment) {}

  private static final class Frame {
    final Runnable call;
    Throwable thrown;

    Frame(Runnable call) {
      this.call = call;
    }
  }

  private static final ThreadLocal<Frame> CURRENT = new ThreadLocal<>();
  private static final Foreign FOREIGN = Foreign.load();

  private Segments() {}

  /** The Arena that can be closed and owns a direct buffer's memory; null if there is none. */
  static Owner ownerOf(Buffer buffer) {
    return FOREIGN == null ? null : FOREIGN.ownerOf(FOREIGN.segmentOf(buffer));
  }

  /** Whether ownerOf finds every owner: not before Java 22. */
  static boolean ownersAreKnown() {
    return FOREIGN != null;
  }

  /** The memory of a MemorySegment. */
  static Memory memoryOf(Object segment) {
    return new SegmentMemory(segment, FOREIGN.ownerOf(segment));
  }

  /** New memory of any size, freed when no tensor has it; null before Java 22. */
  static Memory allocate(long bytes) {
    return FOREIGN == null ? null : memoryOf(FOREIGN.allocate(bytes));
  }

  /** Memory at an address, of any size. `release` runs when no tensor has it. Null before Java 22. */
  static Memory view(long address, long bytes, boolean readOnly, Runnable release) {
    return FOREIGN == null ? null : memoryOf(FOREIGN.view(address, bytes, readOnly, release));
  }

  /** A MemorySegment of a tensor's memory. */
  static Object segmentOf(Memory memory) {
    return memory instanceof SegmentMemory ? ((SegmentMemory) memory).segment : FOREIGN.segmentOf(memory.buffer());
  }

  static boolean isNative(Object segment) {
    return FOREIGN.isNative(segment);
  }

  static void copy(Memory from, Memory to) {
    FOREIGN.copy(segmentOf(from), segmentOf(to));
  }

  /** A native MemorySegment. */
  private static final class SegmentMemory extends Memory {
    private final Object segment;

    SegmentMemory(Object segment, Owner owner) {
      super(FOREIGN.address(segment), FOREIGN.bytes(segment), owner);
      this.segment = segment;
    }

    @Override
    void access() {
      FOREIGN.read(segment);
    }

    @Override
    boolean isReadOnly() {
      return FOREIGN.isReadOnly(segment);
    }

    @Override
    Buffer buffer() {
      return (Buffer) FOREIGN.asByteBuffer(segment);
    }

    @Override
    String kind() {
      return "MemorySegment";
    }
  }

  static KvcacheException refused(String function, String name, RuntimeException why) {
    KvcacheException error = KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": the memory of " + name
        + " cannot be used: " + why.getMessage());
    error.initCause(why);
    return error;
  }

  /** The same functions, which keep these Arenas open until they return. */
  static NativeCalls holding(NativeCalls calls, List<Owner> owners) {
    return (NativeCalls) Proxy.newProxyInstance(NativeCalls.class.getClassLoader(), new Class<?>[] {NativeCalls.class},
        (proxy, method, arguments) -> {
          Object[] result = new Object[1];
          hold(owners, 0, () -> {
            try {
              result[0] = method.invoke(calls, arguments);
            } catch (IllegalAccessException | InvocationTargetException e) {
              throw new IllegalStateException(e);
            }
          });
          return result[0];
        });
  }

  private static void hold(List<Owner> owners, int i, Runnable call) {
    if (i == owners.size()) {
      call.run();
      return;
    }
    Object segment = owners.get(i).segment; // not null: else the thread that could close it is inside this call
    Frame outer = CURRENT.get();
    Frame frame = new Frame(() -> hold(owners, i + 1, call));
    CURRENT.set(frame);
    try {
      FOREIGN.hold(segment);
    } catch (RuntimeException closed) { // between the check and here
      throw refused("kvcache", "a tensor", closed);
    } finally {
      CURRENT.set(outer);
    }
    if (frame.thrown instanceof RuntimeException) {
      throw (RuntimeException) frame.thrown;
    } else if (frame.thrown != null) {
      throw new IllegalStateException(frame.thrown);
    }
  }

  /** What C calls: an exception must not leave it. */
  private static void run() {
    Frame frame = CURRENT.get();
    try {
      frame.call.run();
    } catch (Throwable thrown) {
      frame.thrown = thrown;
    }
  }

  /** The parts of java.lang.foreign that are used. */
  private static final class Foreign {
    private final Lookup lookup = MethodHandles.lookup();
    private final Class<?> segmentType = type("MemorySegment");
    private final Class<?> arenaType = type("Arena");
    private final MethodHandle ofBuffer = function(segmentType, "ofBuffer", segmentType, Buffer.class);
    private final MethodHandle ofAddress = function(segmentType, "ofAddress", segmentType, long.class);
    private final MethodHandle scope = method(segmentType, "scope", type("MemorySegment$Scope"));
    private final MethodHandle isAccessibleBy = method(segmentType, "isAccessibleBy", boolean.class, Thread.class);
    private final MethodHandle isNative = method(segmentType, "isNative", boolean.class);
    private final MethodHandle isReadOnly = method(segmentType, "isReadOnly", boolean.class);
    private final MethodHandle asReadOnly = method(segmentType, "asReadOnly", segmentType);
    private final MethodHandle asByteBuffer = method(segmentType, "asByteBuffer", ByteBuffer.class);
    private final MethodHandle address = method(segmentType, "address", long.class);
    private final MethodHandle byteSize = method(segmentType, "byteSize", long.class);
    private final MethodHandle copyFrom = method(segmentType, "copyFrom", segmentType, segmentType);
    private final MethodHandle reinterpret = method(segmentType, "reinterpret", segmentType, long.class, arenaType, Consumer.class);
    private final MethodHandle get = method(segmentType, "get", byte.class, type("ValueLayout$OfByte"), long.class);
    private final MethodHandle ofAuto = function(arenaType, "ofAuto", arenaType);
    private final MethodHandle allocate = method(arenaType, "allocate", segmentType, long.class, long.class);
    private final Object oneByte = constant("JAVA_BYTE");
    private final Set<Class<?>> permanent = new HashSet<>(); // classes of scopes that nothing closes
    private final Thread stranger = new Thread(() -> {});
    private MethodHandle holder; // (Object segment)

    static Foreign load() {
      if (Runtime.version().feature() < 22) {
        return null;
      }
      try {
        return new Foreign();
      } catch (Throwable e) {
        throw new ExceptionInInitializerError(e);
      }
    }

    private Foreign() throws Throwable {
      Object global = function(arenaType, "global", arenaType).invoke();
      MethodHandle arenaScope = method(arenaType, "scope", type("MemorySegment$Scope"));
      Object plain = ofBuffer.invoke((Object) ByteBuffer.allocateDirect(1));
      for (Object each : new Object[] {arenaScope.invoke(global), arenaScope.invoke(ofAuto.invoke()), scope.invoke(plain)}) {
        permanent.add(each.getClass());
      }
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
      return Class.forName("java.lang.foreign." + name);
    }

    private static Object constant(String layout) throws ReflectiveOperationException {
      return type("ValueLayout").getField(layout).get(null);
    }

    /** A handle whose objects are of type Object: this class cannot name their types. */
    private MethodHandle method(Class<?> of, String name, Class<?> result, Class<?>... parameters) throws ReflectiveOperationException {
      MethodHandle found = lookup.findVirtual(of, name, MethodType.methodType(result, parameters));
      return found.asType(found.type().erase());
    }

    private MethodHandle function(Class<?> of, String name, Class<?> result, Class<?>... parameters) throws ReflectiveOperationException {
      MethodHandle found = lookup.findStatic(of, name, MethodType.methodType(result, parameters));
      return found.asType(found.type().erase());
    }

    private interface Call<T> {
      T run() throws Throwable;
    }

    private static <T> T of(Call<T> call) {
      try {
        return call.run();
      } catch (RuntimeException | Error e) {
        throw e;
      } catch (Throwable e) {
        throw new IllegalStateException(e);
      }
    }

    Object segmentOf(Buffer buffer) {
      return of(() -> ofBuffer.invoke((Object) buffer));
    }

    Owner ownerOf(Object segment) {
      return of(() -> {
        Object its = scope.invoke(segment);
        if (permanent.contains(its.getClass())) {
          return null;
        }
        return new Owner(its, (boolean) isAccessibleBy.invoke(segment, (Object) stranger) ? segment : null);
      });
    }

    boolean isNative(Object segment) {
      return of(() -> (boolean) isNative.invoke(segment));
    }

    boolean isReadOnly(Object segment) {
      return of(() -> (boolean) isReadOnly.invoke(segment));
    }

    Object asByteBuffer(Object segment) {
      return of(() -> asByteBuffer.invoke(segment));
    }

    long address(Object segment) {
      return of(() -> (long) address.invoke(segment));
    }

    long bytes(Object segment) {
      return of(() -> (long) byteSize.invoke(segment));
    }

    byte read(Object segment) {
      return of(() -> (byte) get.invoke(segment, oneByte, 0L));
    }

    void copy(Object from, Object to) {
      of(() -> copyFrom.invoke(to, from));
    }

    Object allocate(long bytes) {
      return of(() -> allocate.invoke(ofAuto.invoke(), bytes, 64L));
    }

    Object view(long at, long bytes, boolean readOnly, Runnable release) {
      return of(() -> {
        Consumer<Object> freed = segment -> release.run();
        Object whole = reinterpret.invoke(ofAddress.invoke(at), bytes, ofAuto.invoke(), (Object) freed);
        return readOnly ? asReadOnly.invoke(whole) : whole;
      });
    }

    /** Runs the current frame while a C function has the segment. */
    void hold(Object segment) {
      of(() -> holder().invoke(segment));
    }

    private synchronized MethodHandle holder() throws Throwable {
      if (holder == null) {
        Class<?> layout = type("MemoryLayout");
        Class<?> layouts = layout.arrayType();
        Class<?> descriptor = type("FunctionDescriptor");
        Class<?> linkerType = type("Linker");
        Class<?> options = type("Linker$Option").arrayType();
        Object pointer = constant("ADDRESS");
        Object none = Array.newInstance(layout, 0);
        Object two = Array.newInstance(layout, 2);
        Array.set(two, 0, pointer);
        Array.set(two, 1, pointer);
        MethodHandle ofVoid = lookup.findStatic(descriptor, "ofVoid", MethodType.methodType(descriptor, layouts)).asFixedArity();
        Object linker = lookup.findStatic(linkerType, "nativeLinker", MethodType.methodType(linkerType)).invoke();
        Object noOptions = Array.newInstance(type("Linker$Option"), 0);
        Object arena = function(arenaType, "global", arenaType).invoke();
        Object stub = lookup.findVirtual(linkerType, "upcallStub",
                MethodType.methodType(segmentType, MethodHandle.class, descriptor, arenaType, options)).asFixedArity()
            .invoke(linker, lookup.findStatic(Segments.class, "run", MethodType.methodType(void.class)), ofVoid.invoke(none), arena,
                noOptions);
        Object function = ofAddress.invoke(Library.calls().holder());
        MethodHandle found = (MethodHandle) lookup.findVirtual(linkerType, "downcallHandle",
                MethodType.methodType(MethodHandle.class, segmentType, descriptor, options)).asFixedArity()
            .invoke(linker, function, ofVoid.invoke(two), noOptions);
        holder = found.bindTo(stub).asType(MethodType.methodType(void.class, Object.class));
      }
      return holder;
    }
  }
}
