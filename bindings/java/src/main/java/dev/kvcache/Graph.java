package dev.kvcache;

/**
 * Memory of one step of a cache at fixed addresses, for programs that are recorded once and replayed. A call on any
 * {@link Step} of a graph, also on an earlier one, is a call on the step that is open in the graph at that time. So a program
 * that was recorded with one step is replayed in all of them.
 *
 * <pre>{@code
 * try (Graph graph = cache.createGraph(64, 64)) { // decode, up to 64 rows
 *   for (;;) {
 *     // this step's sequences and lengths
 *     graph.step(batch, step -> program.replay()); // recorded with the first step: attends in tensors of 64 rows
 *   }
 * }
 * }</pre>
 *
 * <p>While no step is open in it, those calls throw {@link Status#STALE} and touch nothing. Tensors of recorded calls have the
 * graph's maxTokens rows; those after the step's tokens are neither read nor written. {@link Step#tables} has shapes of
 * the graph's capacity. Results are the bits of plain steps.
 *
 * <p>Close a graph when it is no longer needed. Closing the cache closes its graphs; the garbage collector does not. Any thread
 * may call its methods.
 */
public final class Graph implements AutoCloseable {
  private final Cache cache;
  final long id;
  private Step latest; // the last that began: the open one, if there is one
  private boolean closed;

  Graph(Cache cache, long id) {
    this.cache = cache;
    this.id = id;
  }

  /**
   * As {@link Cache#begin}, but the step is open in this graph, and does not count towards maxOpenForwards.
   *
   * @throws KvcacheException BUSY while another step is open in it, BATCH_TOO_LARGE for more than its capacity, STALE_ID when it
   *     is closed
   */
  public synchronized Step begin(Batch batch) {
    latest = cache.begin("Graph.begin", batch, this);
    return latest;
  }

  /**
   * {@link Cache#step} for a step in this graph.
   *
   * @param <E> what the body throws
   * @throws E what the body has thrown
   */
  public <E extends Exception> void step(Batch batch, Step.Body<E> body) throws E {
    Checks.given("Graph.step", "body", body);
    Step.whole(begin(batch), Step.withoutResult(body));
  }

  /**
   * {@link Cache#stepResult} for a step in this graph.
   *
   * @param <T> the result
   * @param <E> what the body throws
   * @throws E what the body has thrown
   */
  public <T, E extends Exception> T stepResult(Batch batch, Step.BodyWithResult<T, E> body) throws E {
    Checks.given("Graph.stepResult", "body", body);
    return Step.whole(begin(batch), body);
  }

  /** Throws what {@link #begin} would throw now; changes nothing. */
  public void canFit(Batch batch) {
    cache.canFit("Graph.canFit", batch, this);
  }

  /** A line for people: whether the graph is closed, or its step. */
  @Override
  public synchronized String toString() {
    return "Graph(" + (closed ? "closed" : latest == null || latest.isClosed() ? "no step is open" : latest) + ")";
  }

  /** The open step, or else the last one. The caller has locked the graph. */
  Step latest() {
    return latest;
  }

  /**
   * Frees it. Closing it again does nothing.
   *
   * @throws KvcacheException BUSY while a step is open in it: the graph stays open
   */
  @Override
  public synchronized void close() {
    if (!closed) {
      cache.destroyGraph(id);
      closed = true;
    }
  }
}
