package dev.kvcache;

import java.nio.ByteOrder;
import java.util.concurrent.locks.LockSupport;

/**
 * One step of the model over a batch: attend in every layer, then end. One thread at a time may call a step, and others get BUSY;
 * any thread may call {@link #cancel}. {@link #close} without {@link #end} drops the step's tokens, and {@link Cache#step} calls end
 * itself. A call on a step of a {@link Graph} is a call on the step that is open in the graph.
 */
public final class Step implements AutoCloseable {
  /** What a whole step computes, and may throw. */
  @FunctionalInterface
  public interface Body<E extends Exception> {
    void run(Step step) throws E;
  }

  /** The same with a result. */
  @FunctionalInterface
  public interface BodyWithResult<T, E extends Exception> {
    T run(Step step) throws E;
  }

  private final Cache cache;
  private final long id;
  private final Graph graph; // in which it is open, or null
  private final Object lock; // of what closes the step, and of what reads memory that lives until then
  private volatile boolean closed;

  Step(Cache cache, long id, Graph graph) {
    this.cache = cache;
    this.id = id;
    this.graph = graph;
    lock = graph == null ? this : graph;
  }

  long id() {
    return id;
  }

  boolean isClosed() {
    return closed;
  }

  private Arena enter(String function) {
    return cache.enter(function);
  }

  private Handle handle() {
    return cache.handle;
  }

  /** Stores a layer's new K and V, and computes attention over all that is stored, the new tokens included. */
  public void attend(int layer, Attend args) {
    Arena arena = enter("Step.attend");
    try {
      Checks.given("Step.attend", "args", args).write("Step.attend", arena);
      Handle handle = handle();
      arena.check(arena.calls().forwardAttend(handle.address, id, layer, arena.attend.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Stores a layer's new K and V. */
  public void append(int layer, Append args) {
    Arena arena = enter("Step.append");
    try {
      Checks.given("Step.append", "args", args).write("Step.append", arena);
      Handle handle = handle();
      arena.check(arena.calls().forwardAppend(handle.address, id, layer, arena.append.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /**
   * Chooses, for each query, the tokens or blocks with the highest scores among those that it sees. The layer has
   * {@link Layer.Builder#keysOnly}, and was appended in this step. Lists ascend, and -1 fills what is left of them.
   */
  public void select(int layer, Select args) {
    Arena arena = enter("Step.select");
    try {
      Checks.given("Step.select", "args", args).write("Step.select", arena);
      Handle handle = handle();
      arena.check(arena.calls().forwardSelect(handle.address, id, layer, arena.select.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Copies a state of a recurrent layer out of the cache. Row i of the tensor is that of sequence i of the batch before the step. */
  public void loadState(int layer, int state, Tensor tensor) {
    loadState(layer, state, -1, tensor);
  }

  /**
   * Copies the states before a token of each row, below maxDraftStates; -1: before the first. Before a node of a tree that is the state
   * after its parent, which this step may have stored. Rows without it are not written.
   */
  public void loadState(int layer, int state, int token, Tensor tensor) {
    Checks.writable("Step.loadState", "tensor", tensor);
    Arena arena = enter("Step.loadState");
    try {
      long address = arena.tensor("Step.loadState", "tensor", 0, tensor);
      Handle handle = handle();
      arena.check(arena.calls().forwardLoadState(handle.address, id, layer, state, token, address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Copies a state into the cache. Row i becomes the state of sequence i of the batch when the step ends. */
  public void storeState(int layer, int state, Tensor tensor) {
    storeState(layer, state, -1, tensor);
  }

  /**
   * Copies in the states after a token of each row, below maxDraftStates; -1: after the last. They are kept after a row's last token, and
   * after nodes of trees below maxDraftStates, which can then be committed. Other rows are not read.
   */
  public void storeState(int layer, int state, int token, Tensor tensor) {
    Arena arena = enter("Step.storeState");
    try {
      long address = arena.tensor("Step.storeState", "tensor", 0, tensor);
      Handle handle = handle();
      arena.check(arena.calls().forwardStoreState(handle.address, id, layer, state, token, address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** The position of each of the step's T tokens in its sequence. */
  public int[] positions() {
    return info("Step.positions", Abi.ForwardInfo.POSITIONS_HOST, true);
  }

  /** Index of the last token of each of the batch's rows; -1 if it has none. */
  public int[] lastRows() {
    return info("Step.lastRows", Abi.ForwardInfo.LAST_ROWS_HOST, false);
  }

  private int[] info(String function, int field, boolean ofTokens) {
    Arena arena = enter(function);
    try {
      Handle handle = handle();
      synchronized (lock) {
        Mem info = arena.struct(Abi.ForwardInfo.SIZE);
        arena.check(handle.calls.forwardGetInfo(handle.address, id, info.address, arena.error.address));
        int[] values = new int[ofTokens ? (int) info.getLong(Abi.ForwardInfo.NUM_TOKENS) : info.getInt(Abi.ForwardInfo.NUM_SEQUENCES)];
        if (values.length > 0) {
          handle.calls.view(info.getLong(field), 4L * values.length).order(ByteOrder.nativeOrder()).asIntBuffer().get(values);
        }
        return values;
      }
    } finally {
      cache.leave(arena);
    }
  }

  /** Tables of the step in one group, for kernels of another library. */
  public Tables tables(int group, Tables.Request request) {
    Arena arena = enter("Step.tables");
    try {
      Handle handle = handle();
      synchronized (lock) {
        Mem tables = Checks.given("Step.tables", "request", request).write(arena);
        arena.check(handle.calls.forwardTables(handle.address, id, group, tables.address, arena.error.address));
        return new Tables(handle.calls, tables);
      }
    } finally {
      cache.leave(arena);
    }
  }

  /** All tables of the step in one group, as they come. */
  public Tables tables(int group) {
    return tables(group, Tables.request());
  }

  /** The plan of the step, as one JSON object. */
  public String describe() {
    Arena arena = enter("Step.describe");
    try {
      Handle handle = handle();
      return Context.text(arena, (buffer, capacity, length) ->
          handle.calls.forwardDescribe(handle.address, id, buffer, capacity, length, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Keeps the step's tokens. After an error the step is still open. */
  public void end() {
    close("Step.end", handle().calls::forwardEnd);
  }

  /** Drops the step's tokens; everything is as before it began. */
  public void abort() {
    close("Step.abort", handle().calls::forwardAbort);
  }

  /** Runs the body over a step that has begun, and ends it; after an exception closes it, and so aborts it. */
  static <T, E extends Exception> T whole(Step step, BodyWithResult<T, E> body) throws E {
    try (step) {
      T result = body.run(step);
      if (!step.closed) {
        step.end();
      }
      return result;
    }
  }

  /** The same body, with null as its result. */
  static <E extends Exception> BodyWithResult<Void, E> withoutResult(Body<E> body) {
    return step -> {
      body.run(step);
      return null;
    };
  }

  private interface Close {
    int with(long cache, long step, long error);
  }

  private void close(String function, Close call) {
    Arena arena = enter(function);
    try {
      synchronized (lock) {
        arena.check(call.with(handle().address, id, arena.error.address));
        (graph == null ? this : graph.latest()).closed = true;
      }
    } finally {
      cache.leave(arena);
    }
  }

  /** Cancels the step, also while another thread computes in it. Its calls then throw CANCELLED, and only abort is left. */
  public void cancel() {
    Handle handle = handle();
    if (!handle.join()) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, "Step.cancel: the Cache is closed");
    }
    Arena arena = Arena.take(handle.calls);
    try {
      arena.check(handle.calls.forwardCancel(handle.address, id, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** A line for people: how many rows and tokens the step has, or that it is closed. */
  @Override
  public String toString() {
    if (closed || handle().isClosed()) {
      return "Step(closed)";
    }
    try {
      return "Step(rows=" + lastRows().length + ", tokens=" + positions().length + ")";
    } catch (KvcacheException e) {
      return "Step(" + e.getMessage() + ")";
    }
  }

  /** Aborts the step unless it has ended. A call that computes on another thread is cancelled first. */
  @Override
  public void close() {
    while (!closed && !handle().isClosed()) {
      synchronized (lock) { // or a graph's next step might be the one that is stopped
        abortOrCancel();
      }
      if (!closed) {
        LockSupport.parkNanos(50_000); // until the work items that run now are done
      }
    }
  }

  private void abortOrCancel() {
    if (closed) {
      return;
    }
    try {
      abort();
    } catch (KvcacheException e) {
      if (e.status() == Status.STALE_ID || handle().isClosed()) {
        closed = true; // it is gone, by itself or with its cache
      } else if (e.status() == Status.BUSY) {
        cancelQuietly();
      } else {
        throw e;
      }
    }
  }

  private void cancelQuietly() {
    try {
      cancel();
    } catch (KvcacheException gone) {
      // close() sees the same with its next abort
    }
  }
}
