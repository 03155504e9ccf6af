package dev.kvcache;

import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.random;
import static dev.kvcache.Support.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What was recorded with one step of a graph is replayed in later ones, and refused while none is open. */
@Timeout(60)
class GraphTest {
  private static final int TOKENS = 8;
  private static final int LAYERS = 2;

  private static Cache layers() {
    return cache(c -> c.layers(layer(), layer()).capacityTokens(1024).maxBatchTokens(64));
  }

  /** A model that was recorded once: a step, and tensors that stay where they are. */
  private static final class Program {
    final Step step;
    final Tensor q = Tensor.allocate(DType.F32, TOKENS, Q_HEADS, DIM);
    final Tensor k = Tensor.allocate(DType.F32, TOKENS, KV_HEADS, DIM);
    final Tensor v = Tensor.allocate(DType.F32, TOKENS, KV_HEADS, DIM);
    final Tensor[] outs = new Tensor[LAYERS];

    Program(Step step) {
      this.step = step;
      Arrays.setAll(outs, layer -> Tensor.allocate(DType.F32, TOKENS, Q_HEADS, DIM));
    }

    void replay(long seed) {
      Random random = new Random(seed);
      for (Tensor each : new Tensor[] {q, k, v}) {
        each.floatBuffer().put(floats(random(random, each.shape())));
      }
      for (int layer = 0; layer < LAYERS; layer++) {
        float[] sevens = new float[TOKENS * Q_HEADS * DIM];
        Arrays.fill(sevens, 7);
        outs[layer].floatBuffer().put(sevens);
        step.attend(layer, Attend.of(q, k, v, outs[layer]));
      }
    }
  }

  /** The first n rows of a tensor of TOKENS. */
  private static Tensor first(Tensor tensor, int n) {
    long[] shape = tensor.shape();
    return tensor.withShape(n, shape[1], shape[2]);
  }

  @Test
  void replaysAreTheBitsOfPlainSteps() {
    try (Cache cache = layers(); Graph graph = cache.createGraph(3, TOKENS)) {
      long[] replayed = cache.add(3);
      long[] plain = cache.add(3);
      Program program = null;
      for (int round = 0; round < 40; round++) {
        int[] rows = round % 2 == 0 ? new int[] {round % 3} : new int[] {round % 3, (round + 1) % 3};
        int[] lengths = new int[rows.length];
        Arrays.fill(lengths, 1 + round % 4);
        int total = rows.length * lengths[0];
        try (Step step = graph.begin(Batch.of(Arrays.stream(rows).mapToLong(r -> replayed[r]).toArray(), lengths))) {
          program = program == null ? new Program(step) : program; // recorded with the first step, replayed in all
          program.replay(round);
          assertEquals(total, step.positions().length);
          step.end();
        }
        try (Step step = cache.begin(Batch.of(Arrays.stream(rows).mapToLong(r -> plain[r]).toArray(), lengths))) {
          for (int layer = 0; layer < LAYERS; layer++) {
            Tensor out = Tensor.allocate(DType.F32, total, Q_HEADS, DIM);
            step.attend(layer, Attend.of(first(program.q, total), first(program.k, total), first(program.v, total), out));
            float[] expected = new float[TOKENS * Q_HEADS * DIM];
            Arrays.fill(expected, 7); // after the step's tokens nothing is written
            out.floatBuffer().get(expected, 0, total * Q_HEADS * DIM);
            assertArrayEquals(expected, floats(program.outs[layer]), 0, "round " + round + " layer " + layer);
          }
          step.end();
        }
        assertArrayEquals(cache.lengths(plain), cache.lengths(replayed));
      }
      cache.checkInvariants();
    }
  }

  @Test
  void staleReplaysTouchNothing() {
    try (Cache cache = layers()) {
      Graph graph = cache.createGraph(0, TOKENS);
      long sequence = cache.add();
      Program program;
      try (Step step = graph.begin(Batch.of(sequence, 2))) {
        program = new Program(step);
        program.replay(1);
        assertTrue(step.tables(0).generation > 0);
        step.end();
      }
      Step step = program.step;
      long digest = cache.digest();
      refused(Status.STALE, () -> program.replay(2), "no step is open in graph");
      for (float value : floats(program.outs[0])) {
        assertEquals(7, value);
      }
      refused(Status.STALE, step::positions);
      refused(Status.STALE, () -> step.tables(0));
      refused(Status.STALE, step::describe);
      refused(Status.STALE, () -> step.append(0, Append.of(program.k, program.v)));
      refused(Status.STALE, step::cancel);
      refused(Status.STALE, step::end);
      refused(Status.STALE, step::abort);
      step.close(); // as after any end
      assertEquals(digest, cache.digest());
      graph.close();
      refused(Status.STALE_ID, () -> program.replay(3));
      refused(Status.STALE_ID, () -> graph.begin(Batch.of(sequence, 1)), "no graph");
      refused(Status.STALE_ID, () -> graph.canFit(Batch.of(sequence, 1)));
      graph.close();
    }
  }

  @Test
  void anyStepOfAGraphEndsTheOneThatIsOpenButClosesNoneButItself() {
    try (Cache cache = layers(); Graph graph = cache.createGraph(1, TOKENS)) {
      long sequence = cache.add();
      Step first = graph.begin(Batch.of(sequence, 2));
      Program program = new Program(first);
      program.replay(1);
      first.end();
      try (Step second = graph.begin(Batch.of(sequence, 3))) {
        first.close(); // ended long ago
        assertArrayEquals(new int[] {2, 3, 4}, second.positions());
        program.replay(2);
        first.end(); // recorded
      } // and nothing is left to abort
      assertEquals(5, cache.length(sequence));
      graph.begin(Batch.of(sequence, 1)).close(); // without end: aborted
      assertEquals(5, cache.length(sequence));
      graph.begin(Batch.of(sequence, 1)).close();
    }
  }

  @Test
  void tablesHaveTheGraphsShapes() {
    try (Cache cache = layers(); Graph graph = cache.createGraph(5, TOKENS, 9)) {
      long[] sequences = cache.add(2);
      for (int n = 1; n <= 2; n++) {
        try (Step step = graph.begin(Batch.of(Arrays.copyOf(sequences, n), n == 1 ? new int[] {8} : new int[] {1, 3}))) {
          Tables tables = step.tables(0);
          assertEquals(n, tables.rows);
          assertEquals(5 * 9, tables.blockTable.length);
          assertEquals(TOKENS, tables.slotMapping.length);
          for (int token = n == 1 ? 8 : 4; token < TOKENS; token++) {
            assertEquals(-1, tables.slotMapping[token]);
          }
          for (int row = n; row < 5; row++) {
            assertEquals(-1, tables.batchRows[row]);
          }
        }
      }
    }
  }

  @Test
  void whatDoesNotFitIsRefused() {
    try (Cache cache = cache(c -> c.maxOpenForwards(1)); Graph graph = cache.createGraph(2, 4)) {
      long[] sequences = cache.add(3);
      Batch tooMany = Batch.of(Arrays.copyOf(sequences, 2), new int[] {3, 2});
      KvcacheException e = refused(Status.BATCH_TOO_LARGE, () -> graph.begin(tooMany), "graph's maxTokens 4");
      assertEquals(5, e.required());
      assertEquals(4, e.available());
      refused(Status.BATCH_TOO_LARGE, () -> graph.canFit(Batch.decode(sequences)), "maxSequences 2");
      cache.canFit(Batch.decode(sequences)); // a graph's limits are of its own steps
      refused(Status.NULL_ARGUMENT, () -> graph.begin(null), "Graph.begin", "batch is null");
      refused(Status.NULL_ARGUMENT, () -> graph.canFit(null), "Graph.canFit", "batch is null");
      try (Step step = graph.begin(Batch.of(sequences[0], 1)); Step plain = cache.begin(Batch.of(sequences[1], 1))) {
        refused(Status.BUSY, () -> graph.begin(Batch.of(sequences[2], 1)));
        refused(Status.BUSY, graph::close); // and it is as open as before
        assertEquals(1, step.positions().length + plain.positions().length - 1);
      }
      graph.begin(Batch.of(sequences[2], 1)).close();
      for (int wrong : new int[] {-1, 1 << 27}) {
        refused(Status.OUT_OF_RANGE, () -> cache.createGraph(wrong, 0), "" + wrong);
        refused(Status.OUT_OF_RANGE, () -> cache.createGraph(0, wrong), "" + wrong);
        refused(Status.OUT_OF_RANGE, () -> cache.createGraph(0, 0, wrong), "" + wrong);
      }
    }
  }

  @Test
  void aGraphIsGoneWithItsCache() {
    Cache cache = cache();
    Graph graph = cache.createGraph(0, 0);
    Graph other = cache.createGraph(0, 0);
    Step step = graph.begin(Batch.of(cache.add(), 1));
    other.close();
    other.close();
    cache.close();
    step.close();
    graph.close();
    refused(Status.NULL_ARGUMENT, () -> graph.begin(Batch.of(1, 1)), "Graph.begin", "closed");
    refused(Status.NULL_ARGUMENT, () -> cache.createGraph(0, 0), "Cache.createGraph", "closed");
    refused(Status.NULL_ARGUMENT, step::positions, "closed");
  }

  @Test
  void closeCancelsAStepThatComputes() throws Exception {
    int n = 1 << 13;
    try (Cache cache = cache(c -> c.capacityTokens(1 << 15).maxBatchTokens(n)); Graph graph = cache.createGraph(1, n)) {
      Step step = graph.begin(Batch.of(cache.add(), n));
      Support.closeWhileItAttends(step, n, Status.STALE);
      assertEquals(0, cache.stats().pagesUsed());
    }
  }
}
