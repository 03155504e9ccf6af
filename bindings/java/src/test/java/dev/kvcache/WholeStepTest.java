package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import dev.kvcache.Support.Tokens;
import java.io.IOException;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Steps that end themselves, in a cache and in a graph. */
@Timeout(60)
class WholeStepTest {
  private final Cache cache = cache();
  private final Graph graph = cache.createGraph(0, 3);
  private final long sequence = cache.add();
  private final Batch batch = Batch.of(sequence, 3);
  private final Attend attend = new Tokens(new Random(1), 3).attend();

  @AfterEach
  void close() {
    cache.close();
  }

  private <E extends Exception> void run(boolean inGraph, Step.Body<E> body) throws E {
    if (inGraph) {
      graph.step(batch, body);
    } else {
      cache.step(batch, body);
    }
  }

  /** It also checks that no step is open: a sequence in an open step is busy. */
  private void expectLength(int length) {
    assertEquals(length, cache.length(sequence));
    assertEquals((length + 3) / 4, cache.stats().pagesUsed());
    cache.canFit(batch);
    graph.canFit(batch);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void endsByItself(boolean inGraph) {
    Step[] kept = new Step[1];
    run(inGraph, step -> {
      kept[0] = step;
      step.attend(0, attend);
    });
    expectLength(3);
    assertThrows(KvcacheException.class, kept[0]::end);
    run(inGraph, step -> step.attend(0, attend));
    expectLength(6);
  }

  @Test
  void returnsWhatTheBodyReturns() throws IOException {
    int[] positions = cache.stepResult(batch, step -> {
      step.attend(0, attend);
      return step.positions();
    });
    assertArrayEquals(new int[] {0, 1, 2}, positions);
    assertArrayEquals(new int[] {3, 4, 5}, graph.stepResult(batch, step -> positionsOf(step)));
    expectLength(6);
  }

  /** An expression that throws a checked exception: the caller of stepResult declares it. */
  private int[] positionsOf(Step step) throws IOException {
    step.attend(0, attend);
    return step.positions();
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void abortsAfterAnException(boolean inGraph) {
    IOException ill = new IOException("the model is ill");
    assertSame(ill, assertThrows(IOException.class, () -> run(inGraph, step -> {
      step.attend(0, attend);
      throw ill;
    })));
    expectLength(0);
    AssertionError error = new AssertionError();
    assertSame(error, assertThrows(AssertionError.class, () -> run(inGraph, step -> {
      step.attend(0, attend);
      throw error;
    })));
    expectLength(0);
    run(inGraph, step -> step.attend(0, attend));
    expectLength(3);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void abortsAStepThatCannotEnd(boolean inGraph) {
    refused(Status.ORDER, () -> run(inGraph, step -> {}), "Step.end");
    expectLength(0);
    refused(Status.CANCELLED, () -> run(inGraph, step -> {
      step.attend(0, attend);
      step.cancel();
    }), "Step.end");
    expectLength(0);
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void leavesAStepThatTheBodyHasClosed(boolean inGraph) {
    run(inGraph, Step::abort);
    run(inGraph, Step::close);
    expectLength(0);
    assertThrows(IOException.class, () -> run(inGraph, step -> {
      step.attend(0, attend);
      step.end();
      throw new IOException("after the end");
    }));
    expectLength(3); // it had ended before
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void withinAnother(boolean inGraph) {
    long other = cache.add();
    run(inGraph, step -> {
      refused(Status.BUSY, () -> run(inGraph, inner -> inner.attend(0, attend))); // the sequence, or the graph
      cache.step(Batch.of(other, 3), inner -> inner.attend(0, attend));
      step.attend(0, attend);
    });
    assertArrayEquals(new long[] {3, 3}, cache.lengths(sequence, other));
  }

  @Test
  void doesNotBegin() {
    Step.Body<RuntimeException> never = step -> fail("the body runs without a step");
    refused(Status.NULL_ARGUMENT, () -> cache.step(batch, null), "Cache.step: body is null");
    refused(Status.NULL_ARGUMENT, () -> cache.stepResult(batch, null), "Cache.stepResult: body is null");
    refused(Status.NULL_ARGUMENT, () -> graph.step(batch, null), "Graph.step: body is null");
    refused(Status.NULL_ARGUMENT, () -> graph.stepResult(batch, null), "Graph.stepResult: body is null");
    refused(Status.NULL_ARGUMENT, () -> cache.step(null, never), "batch");
    refused(Status.STALE_ID, () -> cache.step(Batch.of(12345, 1), never));
    OutOfPagesException full = assertThrows(OutOfPagesException.class, () -> cache.step(Batch.of(sequence, 300), never));
    assertEquals(11, full.missing());
    expectLength(0);
    refused(Status.NULL_ARGUMENT, () -> cache.step(batch, step -> cache.close()), "closed");
    refused(Status.NULL_ARGUMENT, () -> cache.step(batch, never), "closed");
  }

  /** The exception of the body is thrown also if the abort fails: here it is that of a cache that was closed. */
  @Test
  void theFirstExceptionCounts() {
    IOException first = new IOException("first");
    assertSame(first, assertThrows(IOException.class, () -> cache.step(batch, step -> {
      cache.close();
      throw first;
    })));
  }

  @Test
  void objectsAreLinesForPeople() {
    Context context = Context.builder().threads(1).simd("scalar").build();
    assertEquals("Context(" + context.describe() + ")", context.toString());
    context.close();
    assertEquals("Context(closed)", context.toString());
    assertEquals("Cache(sequences=1, pagesUsed=0, pagesTotal=64)", cache.toString());
    assertEquals("Graph(no step is open)", graph.toString());
    Step[] kept = new Step[1];
    graph.step(Batch.of(new long[] {sequence, cache.add()}, new int[] {1, 2}), step -> {
      kept[0] = step;
      assertEquals("Step(rows=2, tokens=3)", step.toString());
      assertEquals("Graph(Step(rows=2, tokens=3))", graph.toString());
      step.attend(0, attend);
    });
    assertEquals("Step(closed)", kept[0].toString());
    assertEquals("Cache(sequences=2, pagesUsed=2, pagesTotal=64)", cache.toString());
    graph.close();
    assertEquals("Graph(closed)", graph.toString());
    Step open = cache.begin(batch);
    cache.close();
    assertEquals("Step(closed)", open.toString());
    assertEquals("Cache(closed)", cache.toString());
  }
}
