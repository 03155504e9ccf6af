package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.config;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.random;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Sequences, and every kind of layer group. */
class SequencesTest {
  private final Random random = new Random(3);

  @Test
  void forksSharePages() {
    try (Cache cache = cache()) {
      long parent = cache.add();
      Tokens prompt = new Tokens(random, 10);
      step(cache, parent, prompt);
      long[] children = cache.fork(parent, parent, parent);
      assertEquals(3 + 3, cache.stats().pagesUsed()); // two whole pages are shared, the third is copied
      assertArrayEquals(new long[] {1, 1}, cache.exclusivePages(0, parent, children[0]));
      refused(Status.OUT_OF_RANGE, () -> cache.exclusivePages(1, parent));
      assertEquals(4, cache.stats().sequences());
      assertEquals(40, cache.stats(0).tokensLogical());
      assertArrayEquals(floats(prompt.k), floats(cache.export(children[2], 0).k()));
      long[] part = cache.fork(new long[] {parent, parent}, new long[] {4, -1});
      assertArrayEquals(new long[] {4, 10}, cache.lengths(part));
      assertArrayEquals(Arrays.copyOf(cache.pages(parent, 0), 1), cache.pages(part[0], 0));
      assertEquals(10, cache.length(cache.fork(parent)));
      cache.truncate(parent, 5);
      cache.truncate(new long[] {children[0], children[1]}, new long[] {0, 9});
      assertArrayEquals(new long[] {5, 0, 9, 10}, cache.lengths(parent, children[0], children[1], children[2]));
      cache.remove(children);
      refused(Status.STALE_ID, () -> cache.length(children[1]));
      cache.checkInvariants();
      assertNotEquals(0, cache.digest());
      cache.clear();
      assertEquals(0, cache.stats().pagesUsed());
    }
  }

  @Test
  void equalCallsGiveEqualDigests() {
    long[] digests = new long[2];
    for (int i = 0; i < 2; i++) {
      try (Cache cache = cache()) {
        step(cache, cache.add(), new Tokens(random, 9));
        cache.add(3);
        digests[i] = cache.digest();
      }
    }
    assertEquals(digests[0], digests[1]);
  }

  @Test
  void outOfPagesSaysWhatIsMissing() {
    try (Cache cache = config().capacityTokens(16).build()) {
      long[] sequences = cache.add(2);
      Batch batch = Batch.of(sequences, new int[] {12, 9});
      OutOfPagesException e = assertThrows(OutOfPagesException.class, () -> cache.begin(batch));
      assertEquals(1, e.row());
      assertEquals(6, e.required());
      assertEquals(4, e.available());
      assertEquals(2, e.missing());
      assertEquals(0, e.group());
      assertEquals(e.getMessage().split(": ")[1], assertThrows(OutOfPagesException.class, () -> cache.canFit(batch)).getMessage().split(": ")[1]);
      assertArrayEquals(new long[] {16, 16}, cache.maxAppend(sequences));
      cache.canFit(Batch.of(sequences, new int[] {8, 8}));
      assertEquals(0, cache.stats().pagesUsed());
    }
  }

  @Test
  void treesAreCommitted() {
    try (Cache cache = cache()) {
      long sequence = cache.add();
      step(cache, sequence, new Tokens(random, 5));
      Tokens nodes = new Tokens(random, 6);
      int root = Batch.TREE_ROOT;
      try (Step step = cache.begin(Batch.of(sequence, 6).treeParents(root, 0, 0, 1, 1, 2))) {
        assertArrayEquals(new int[] {5, 6, 6, 7, 7, 7}, step.positions());
        step.attend(0, nodes.attend());
        step.end();
      }
      assertArrayEquals(new int[] {6}, cache.treeNodes(sequence));
      refused(Status.UNCOMMITTED, () -> cache.fork(sequence));
      cache.commit(new long[] {sequence}, new int[] {4});
      assertEquals(8, cache.length(sequence));
      float[] stored = floats(cache.export(sequence, 0, 5, 8).k());
      int[] path = {0, 1, 4};
      for (int i = 0; i < path.length; i++) {
        for (int d = 0; d < KV_HEADS * DIM; d++) {
          assertEquals(floats(nodes.k)[path[i] * KV_HEADS * DIM + d], stored[i * KV_HEADS * DIM + d]);
        }
      }
    }
  }

  @Test
  void streamingWindowsAreBounded() {
    try (Cache cache = cache(c -> c.streaming().capacityTokens(48).rollbackTokens(4).maxBatchTokens(4))) {
      long sequence = cache.add();
      cache.setStreaming(new Cache.Window(4, 16), false, sequence);
      assertEquals(new Cache.Window(4, 16), cache.streaming(sequence)[0]);
      for (int i = 0; i < 100; i++) {
        step(cache, sequence, new Tokens(random, 1));
      }
      assertEquals(100, cache.length(sequence));
      assertTrue(cache.stats().pagesUsed() <= 9, cache.stats().toString());
      Cache.Nearest nearest = cache.nearestPosition(sequence, 50);
      assertTrue(nearest.before() <= 4 && nearest.after() > 80, nearest.toString());
      refused(Status.EVICTED, () -> cache.truncate(sequence, 50));
      int[] pages = cache.pages(sequence, 0);
      assertEquals(25, pages.length);
      assertEquals(-1, pages[5]);
    }
  }

  @Test
  void chunkedGroupsFreeEarlierChunks() {
    try (Cache cache = cache(c -> c.groups(Group.chunked(8).pages(40)).noRollback().capacityTokens(0))) {
      long sequence = cache.add();
      step(cache, sequence, new Tokens(random, 20));
      assertArrayEquals(new int[] {-1, -1, -1, -1}, Arrays.copyOf(cache.pages(sequence, 0), 4));
    }
  }

  @Test
  void latentLayers() {
    Layer layer = Layer.builder().qHeads(4).kvHeads(1).headDim(24).latentDim(16).softmaxScale(0.2).build();
    try (Cache cache = cache(c -> c.layers(layer).groups(Group.full().latent()))) {
      long sequence = cache.add();
      Tensor k = random(random, 3, 1, 24);
      Tensor out = Tensor.allocate(DType.F32, 3, 4, 16);
      try (Step step = cache.begin(Batch.of(sequence, 3))) {
        step.attend(0, Attend.of(random(random, 3, 4, 24), k, null, out));
        step.end();
      }
      for (int head = 0; head < 4; head++) { // the first query sees its own key alone
        assertEquals(k.floatBuffer().get(5), out.floatBuffer().get(head * 16 + 5), 1e-6);
      }
      assertArrayEquals(floats(k), floats(cache.export(sequence, 0).k()));
      Tensor up = random(random, 4, 8, 16);
      Tensor values = Tensor.allocate(DType.F32, 1, 4, 8);
      try (Step step = cache.begin(Batch.of(sequence, 1))) {
        step.attend(0, Attend.of(random(random, 1, 4, 16), random(random, 1, 1, 24), null, values).upProjections(up, up));
        step.end();
      }
      assertNotEquals(0, values.floatBuffer().get(0));
    }
  }

  @Test
  void encoderSequences() {
    try (Cache cache = cache(c -> c.layers(layer(), Layer.builder().group(1).qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).build())
        .groups(Group.full(), Group.cross()))) {
      long sequence = cache.add();
      Tokens frames = new Tokens(random, 7);
      try (Step step = cache.begin(Batch.of(sequence, 7).encoderGroup(1))) {
        step.append(1, Append.of(frames.k, frames.v));
        step.end();
      }
      assertArrayEquals(new long[] {7}, cache.encoderLengths(1, sequence));
      assertEquals(0, cache.length(sequence));
      Tokens token = new Tokens(random, 1);
      try (Step step = cache.begin(Batch.of(sequence, 1))) {
        step.attend(0, token.attend());
        step.attend(1, Attend.of(token.q, token.out).lse(token.lse));
        step.end();
      }
      Support.expectAttention(floats(frames.k), floats(frames.v), floats(token.q), floats(token.out), floats(token.lse), 1 << 30);
    }
  }

  @Test
  void recurrentStates() {
    Layer recurrent = Layer.builder().group(1).states(new Layer.State(DType.F32, 2, 3), new Layer.State(DType.BF16, 4)).build();
    try (Cache cache = cache(c -> c.layers(layer(), recurrent).groups(Group.full(), Group.recurrent()).maxCheckpoints(2))) {
      long sequence = cache.add();
      Tensor state = random(random, 1, 2, 3);
      Tensor small = Tensor.allocate(DType.BF16, 1, 4);
      Tensor read = random(random, 1, 2, 3);
      try (Step step = cache.begin(Batch.of(sequence, 2))) {
        step.attend(0, new Tokens(random, 2).attend());
        step.loadState(1, 0, read);
        assertArrayEquals(new float[6], floats(read)); // zeros of a new sequence
        step.storeState(1, 0, state);
        step.storeState(1, 1, small);
        step.end();
      }
      cache.checkpoint(sequence);
      try (Step step = cache.begin(Batch.of(sequence, 1))) {
        step.loadState(1, 0, read);
        assertArrayEquals(floats(state), floats(read));
        step.attend(0, new Tokens(random, 1).attend());
        step.storeState(1, 0, random(random, 1, 2, 3));
        step.storeState(1, 1, small);
        step.end();
      }
      cache.truncate(sequence, 2);
      try (Step step = cache.begin(Batch.of(sequence, 1))) {
        step.loadState(1, 0, read);
      }
      assertArrayEquals(floats(state), floats(read));
    }
  }

  @Test
  void longropeSets() {
    double[] factors = new double[DIM / 2];
    Arrays.fill(factors, 2);
    Layer layer = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).rope(RopeMode.ON_APPEND)
        .ropeScaling(RopeScaling.longrope(new double[DIM / 2], factors, 4, 64)).build();
    refused(Status.INVALID_ARGUMENT, () -> cache(c -> c.layers(layer)), "shortFactors");
    double[] ones = new double[DIM / 2];
    Arrays.fill(ones, 1);
    Layer right = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).rope(RopeMode.ON_APPEND)
        .ropeScaling(RopeScaling.longrope(ones, factors, 4, 64)).build();
    try (Cache cache = cache(c -> c.layers(right))) {
      Tokens tokens = new Tokens(random, 4);
      long[] sequences = cache.add(2);
      cache.setRope(true, sequences[1]);
      step(cache, sequences[0], tokens);
      step(cache, sequences[1], tokens);
      assertNotEquals(floats(cache.export(sequences[0], 0).k())[20 + KV_HEADS * DIM], floats(cache.export(sequences[1], 0).k())[20 + KV_HEADS * DIM]);
      refused(Status.ORDER, () -> cache.setRope(false, sequences[1]));
    }
  }

  @Test
  void everyRopeScalingReachesTheLibrary() {
    List<RopeScaling> kinds = List.of(RopeScaling.linear(2), RopeScaling.llama3(8, 1, 4, 8192),
        RopeScaling.yarn(4, 4096).beta(32, 1).attentionFactor(1.1), RopeScaling.yarn(4, 4096).mscale(1, 1).noTruncate());
    for (RopeScaling scaling : kinds) {
      Layer layer = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).rope(RopeMode.ON_READ).ropeTheta(5e5)
          .ropeInterleaved(true).ropeDim(8).ropeScaling(scaling).build();
      try (Cache cache = cache(c -> c.layers(layer))) {
        step(cache, cache.add(), new Tokens(random, 3));
      }
    }
    Layer wrong = Layer.builder().qHeads(4).kvHeads(2).headDim(16).rope(RopeMode.ON_READ).ropeScaling(RopeScaling.linear(0.5)).build();
    refused(Status.INVALID_ARGUMENT, () -> cache(c -> c.layers(wrong)), "factor 0.5");
  }

  @Test
  void layersThatReadAnothers() {
    Layer reader = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvLayer(0).build();
    try (Cache cache = cache(c -> c.layers(layer(), reader))) {
      Tokens tokens = new Tokens(random, 3);
      try (Step step = cache.begin(Batch.of(cache.add(), 3))) {
        step.attend(0, tokens.attend());
        float[] own = floats(tokens.out);
        step.attend(1, Attend.of(tokens.q, tokens.out));
        assertArrayEquals(own, floats(tokens.out));
        step.end();
      }
    }
  }

  @Test
  void spansSeeEachOther() {
    try (Cache cache = cache()) {
      Tokens tokens = new Tokens(random, 4);
      try (Step step = cache.begin(Batch.of(cache.add(), 4).spanIds(0, 5, 5, 0))) {
        step.attend(0, tokens.attend());
        step.end();
      }
      float first = floats(tokens.lse)[Q_HEADS];
      step(cache, cache.add(), tokens);
      assertTrue(first > floats(tokens.lse)[Q_HEADS] + 1e-6, "the image's first token sees one key more");
    }
  }

  @Test
  void inertRowsArePadding() {
    try (Cache cache = cache()) {
      long sequence = cache.add();
      try (Step step = cache.begin(Batch.of(new long[] {0, sequence}, new int[] {2, 1}))) {
        step.attend(0, new Tokens(random, 3).attend());
        step.end();
      }
      assertEquals(1, cache.length(sequence));
    }
  }

  @Test
  void estimatesAreWhatACacheTakes() {
    Estimate estimate = config().estimate(Cache.WHOLE_CACHE);
    try (Cache cache = cache()) {
      assertEquals(estimate.storageBytes(), cache.stats().storageBytes());
      assertEquals(estimate.pages(), cache.stats().pagesTotal());
    }
    assertEquals(2 * KV_HEADS * DIM * 4, config().estimate(0).tokenBytes());
    refused(Status.OUT_OF_RANGE, () -> config().estimate(3));
  }
}
