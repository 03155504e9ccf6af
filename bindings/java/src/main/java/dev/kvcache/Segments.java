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
    return FOREIGN == null ? null : FOREIGN.ownerOf(buffer);
  }

  /** Whether ownerOf finds every owner: not before Java 22. */
  static boolean ownersAreKnown() {
    return FOREIGN != null;
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
    Object segment = owners.get(i).segment;
    if (segment == null) { // the thread that could close it is inside this call
      hold(owners, i + 1, call);
      return;
    }
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
    private final MethodHandle ofBuffer;
    private final MethodHandle scope;
    private final MethodHandle isAccessibleBy;
    private final Set<Class<?>> permanent; // classes of scopes that nothing closes
    private final Thread stranger = new Thread(() -> {});
    private MethodHandle holder; // (Object segment)
    private final Lookup lookup = MethodHandles.lookup();

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
      Class<?> segment = type("MemorySegment");
      ofBuffer = generic(lookup.findStatic(segment, "ofBuffer", MethodType.methodType(segment, Buffer.class)));
      scope = generic(lookup.findVirtual(segment, "scope", MethodType.methodType(type("MemorySegment$Scope"))));
      isAccessibleBy = lookup.findVirtual(segment, "isAccessibleBy", MethodType.methodType(boolean.class, Thread.class))
          .asType(MethodType.methodType(boolean.class, Object.class, Thread.class));
      Class<?> arena = type("Arena");
      MethodHandle arenaScope = generic(lookup.findVirtual(arena, "scope", MethodType.methodType(type("MemorySegment$Scope"))));
      Object global = lookup.findStatic(arena, "global", MethodType.methodType(arena)).invoke();
      Object automatic = lookup.findStatic(arena, "ofAuto", MethodType.methodType(arena)).invoke();
      Object plain = ofBuffer.invoke((Object) ByteBuffer.allocateDirect(1));
      permanent = new HashSet<>();
      for (Object each : new Object[] {arenaScope.invoke(global), arenaScope.invoke(automatic), scope.invoke(plain)}) {
        permanent.add(each.getClass());
      }
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
      return Class.forName("java.lang.foreign." + name);
    }

    private static MethodHandle generic(MethodHandle handle) {
      return handle.asType(handle.type().generic());
    }

    Owner ownerOf(Buffer buffer) {
      try {
        Object segment = ofBuffer.invoke((Object) buffer);
        Object its = scope.invoke(segment);
        if (permanent.contains(its.getClass())) {
          return null;
        }
        return new Owner(its, (boolean) isAccessibleBy.invoke(segment, stranger) ? segment : null);
      } catch (Throwable e) {
        throw new IllegalStateException(e);
      }
    }

    /** Runs the current frame while a C function has the segment. */
    void hold(Object segment) {
      try {
        holder().invoke(segment);
      } catch (RuntimeException | Error e) {
        throw e;
      } catch (Throwable e) {
        throw new IllegalStateException(e);
      }
    }

    private synchronized MethodHandle holder() throws Throwable {
      if (holder == null) {
        Class<?> segment = type("MemorySegment");
        Class<?> layout = type("MemoryLayout");
        Class<?> layouts = layout.arrayType();
        Class<?> descriptor = type("FunctionDescriptor");
        Class<?> linkerType = type("Linker");
        Class<?> options = type("Linker$Option").arrayType();
        Object pointer = type("ValueLayout").getField("ADDRESS").get(null);
        Object none = Array.newInstance(layout, 0);
        Object two = Array.newInstance(layout, 2);
        Array.set(two, 0, pointer);
        Array.set(two, 1, pointer);
        MethodHandle ofVoid = lookup.findStatic(descriptor, "ofVoid", MethodType.methodType(descriptor, layouts)).asFixedArity();
        Object linker = lookup.findStatic(linkerType, "nativeLinker", MethodType.methodType(linkerType)).invoke();
        Object noOptions = Array.newInstance(type("Linker$Option"), 0);
        Object arena = lookup.findStatic(type("Arena"), "global", MethodType.methodType(type("Arena"))).invoke();
        Object stub = lookup.findVirtual(linkerType, "upcallStub",
                MethodType.methodType(segment, MethodHandle.class, descriptor, type("Arena"), options)).asFixedArity()
            .invoke(linker, lookup.findStatic(Segments.class, "run", MethodType.methodType(void.class)), ofVoid.invoke(none), arena,
                noOptions);
        Object function = lookup.findStatic(segment, "ofAddress", MethodType.methodType(segment, long.class))
            .invoke(Library.calls().holder());
        MethodHandle found = (MethodHandle) lookup.findVirtual(linkerType, "downcallHandle",
                MethodType.methodType(MethodHandle.class, segment, descriptor, options)).asFixedArity()
            .invoke(linker, function, ofVoid.invoke(two), noOptions);
        holder = found.bindTo(stub).asType(MethodType.methodType(void.class, Object.class));
      }
      return holder;
    }
  }
}
