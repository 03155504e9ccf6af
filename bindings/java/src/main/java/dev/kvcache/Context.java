package dev.kvcache;

import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * A device, its threads and its scratch memory; caches in one context share them. For any thread. {@link #close} gives it up:
 * caches in it stay as they are.
 */
public final class Context implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  private final Handle handle;
  private final Cleaner.Cleanable cleanable;

  private Context(Handle handle) {
    this.handle = handle;
    cleanable = CLEANER.register(this, handle::close);
  }

  /** The CPU with every default. */
  public static Context create() {
    return builder().build();
  }

  public static Builder builder() {
    return new Builder();
  }

  /** What to open; each setting has a default. */
  public static final class Builder {
    private int threads;
    private String simd;
    private ParallelFor parallelFor;

    private Builder() {}

    /** Threads that compute, the caller's included; 0 = what the process may use. */
    public Builder threads(int n) {
      threads = n;
      return this;
    }

    /** A name of {@link Context#describe}, or "reference" (float64, for tests); null = the best that this CPU has. */
    public Builder simd(String name) {
      simd = name;
      return this;
    }

    /**
     * Computes on threads of the program; {@link #threads} is how many it uses at once, at most. null = the library starts threads of
     * its own. The function is released when the context and all caches in it are closed. If it refers to them, the garbage collector
     * closes none of them.
     */
    public Builder parallelFor(ParallelFor function) {
      parallelFor = function;
      return this;
    }

    public Context build() {
      NativeCalls calls = Library.calls();
      HostPool pool = parallelFor == null ? null : new HostPool(parallelFor);
      try {
        return build(calls, pool);
      } catch (Throwable e) {
        HostPool.release(pool);
        throw e;
      }
    }

    private Context build(NativeCalls calls, HostPool pool) {
      Arena arena = Arena.take(calls);
      try {
        Mem config = arena.struct(Abi.ContextConfig.SIZE);
        config.putInt(Abi.ContextConfig.NUM_THREADS, threads);
        config.putLong(Abi.ContextConfig.SIMD, arena.text(simd));
        if (pool != null) {
          config.putLong(Abi.ContextConfig.PARALLEL_FOR, HostPool.parallelForOfC());
          config.putLong(Abi.ContextConfig.PARALLEL_FOR_USER, pool.number);
        }
        arena.check(calls.contextCreate(config.address, arena.numbers.address, arena.error.address));
        return new Context(new Handle(calls, arena.numbers.getLong(0), calls::contextDestroy, null, pool));
      } finally {
        arena.giveBack();
      }
    }
  }

  /** Enters the handle for a call; the arena is to be given back, and the handle left. */
  Arena enter(String function) {
    if (!handle.enter()) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, function + ": the Context is closed");
    }
    return Arena.take(handle.calls);
  }

  void leave(Arena arena) {
    arena.giveBack();
    handle.leave();
  }

  Handle handle() {
    return handle;
  }

  /** What the context is, as one JSON object: device, threads, simd (in use), simd_available. */
  public String describe() {
    Arena arena = enter("Context.describe");
    try {
      return text(arena, (buffer, capacity, length) ->
          handle.calls.contextDescribe(handle.address, buffer, capacity, length, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** A line for people: what {@link #describe} returns. */
  @Override
  public String toString() {
    try {
      return "Context(" + describe() + ")";
    } catch (KvcacheException e) {
      return "Context(" + (handle.isClosed() ? "closed" : e.getMessage()) + ")";
    }
  }

  /** Throws what a device has found bad in index tensors of earlier calls: on the CPU nothing, as calls say so themselves. */
  public void check() {
    Arena arena = enter("Context.check");
    try {
      arena.check(handle.calls.contextCheck(handle.address, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  interface Describe {
    int call(long buffer, long capacity, long length);
  }

  /** Asks for the length of a text, then for the text; again if it has grown between. */
  static String text(Arena arena, Describe ask) {
    arena.check(ask.call(0, 0, arena.numbers.address));
    for (;;) {
      long capacity = arena.numbers.getLong(0) + 1;
      Mem buffer = arena.alloc(capacity);
      int status = ask.call(buffer.address, capacity, arena.numbers.address);
      if (status == Abi.KVC_ERROR_BUFFER_TOO_SMALL) {
        continue;
      }
      arena.check(status);
      byte[] bytes = new byte[(int) arena.numbers.getLong(0)];
      buffer.buffer.get(buffer.at, bytes);
      return new String(bytes, StandardCharsets.UTF_8);
    }
  }

  /**
   * Merges results of attention over disjoint sets of keys, by their LSE: what attention over all the keys would have given.
   *
   * @param outputs each [T, H, Dv] F32
   * @param lses each [T, H] F32
   * @param out written; [T, H, Dv] F32; may be the first of outputs
   * @param lse null, or written; [T, H] F32
   */
  public void merge(List<Tensor> outputs, List<Tensor> lses, Tensor out, Tensor lse) {
    Arena arena = enter("Context.merge");
    try {
      Tensor[] states = Checks.tensors("Context.merge", "outputs", outputs);
      Tensor[] sums = Checks.tensors("Context.merge", "lses", lses);
      Checks.same("Context.merge", "outputs", states.length, "lses", sums.length);
      Checks.writable("Context.merge", "out", out);
      Checks.writable("Context.merge", "lse", lse);
      Mem args = arena.struct(Abi.MergeArgs.SIZE);
      args.putInt(Abi.MergeArgs.NUM_PARTS, states.length);
      args.putLong(Abi.MergeArgs.OUTPUTS, arena.tensors("Context.merge", "outputs", states));
      args.putLong(Abi.MergeArgs.LSES, arena.tensors("Context.merge", "lses", sums));
      args.putLong(Abi.MergeArgs.OUT, arena.tensor("Context.merge", "out", 0, out));
      args.putLong(Abi.MergeArgs.LSE, arena.tensor("Context.merge", "lse", 1, lse));
      arena.check(arena.calls().mergeStates(handle.address, args.address, 0, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** Attention over a cache of the caller's own, appended to first if k and v are given: FlashAttention's contract. */
  public void flashAttnWithKvCache(FlashAttn args) {
    Arena arena = enter("Context.flashAttnWithKvCache");
    try {
      Mem struct = Checks.given("Context.flashAttnWithKvCache", "args", args).write("Context.flashAttnWithKvCache", arena);
      arena.check(arena.calls().flashAttnWithKvcache(handle.address, struct.address, 0, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** Stores rows of k and v in the caller's own paged cache, at the slots that the caller says. */
  public void appendSlots(AppendSlots args) {
    Arena arena = enter("Context.appendSlots");
    try {
      Mem struct = Checks.given("Context.appendSlots", "args", args).write("Context.appendSlots", arena);
      arena.check(arena.calls().appendSlots(handle.address, struct.address, 0, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** Gives the context up; closing it again does nothing. Calls inside it on other threads finish first. */
  @Override
  public void close() {
    cleanable.clean();
  }
}
