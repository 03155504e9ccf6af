package dev.kvcache;

import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.expectAttention;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.random;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Steps against attention by its definition in float64. */
class StepTest {
  private final Random random = new Random(7);

  @Test
  void prefillAndDecodeAreAttention() {
    try (Cache cache = cache()) {
      long sequence = cache.add();
      Tokens prompt = new Tokens(random, 11);
      Tokens next = new Tokens(random, 1);
      step(cache, sequence, prompt);
      expectAttention(floats(prompt.k), floats(prompt.v), floats(prompt.q), floats(prompt.out), floats(prompt.lse), 1 << 30);
      step(cache, sequence, next);
      expectAttention(concat(floats(prompt.k), floats(next.k)), concat(floats(prompt.v), floats(next.v)), floats(next.q),
          floats(next.out), floats(next.lse), 1 << 30);
      assertEquals(12, cache.length(sequence));
      cache.checkInvariants();
    }
  }

  @Test
  void aSlidingGroupSeesItsWindow() {
    try (Cache cache = cache(c -> c.groups(Group.sliding(5)))) {
      Tokens prompt = new Tokens(random, 23);
      step(cache, cache.add(), prompt);
      expectAttention(floats(prompt.k), floats(prompt.v), floats(prompt.q), floats(prompt.out), floats(prompt.lse), 5);
    }
  }

  @Test
  void appendThenAttendIsTheSame() {
    try (Cache cache = cache()) {
      Tokens tokens = new Tokens(random, 9);
      step(cache, cache.add(), tokens);
      float[] whole = floats(tokens.out);
      try (Step step = cache.begin(Batch.of(cache.add(), 9))) {
        step.append(0, Append.of(tokens.k, tokens.v));
        step.attend(0, Attend.of(tokens.q, tokens.out));
        step.end();
      }
      assertArrayEquals(whole, floats(tokens.out));
    }
  }

  @Test
  void pastAndSelfMergeToTheWhole() {
    try (Context context = Context.builder().threads(1).build(); Cache cache = cache(c -> c.context(context))) {
      long sequence = cache.add();
      Tokens prompt = new Tokens(random, 6);
      Tokens next = new Tokens(random, 3);
      step(cache, sequence, prompt);
      Tensor past = Tensor.allocate(DType.F32, 3, Q_HEADS, DIM);
      Tensor pastLse = Tensor.allocate(DType.F32, 3, Q_HEADS);
      try (Step step = cache.begin(Batch.of(sequence, 3))) {
        step.attend(0, Attend.of(next.q, past).lse(pastLse).past(true));
        step.attend(0, next.attend().self(true));
        step.end();
      }
      context.merge(List.of(past, next.out), List.of(pastLse, next.lse), past, pastLse);
      expectAttention(concat(floats(prompt.k), floats(next.k)), concat(floats(prompt.v), floats(next.v)), floats(next.q),
          floats(past), floats(pastLse), 1 << 30);
    }
  }

  @Test
  void optionsReachTheLibrary() {
    try (Cache cache = cache()) {
      Tokens tokens = new Tokens(random, 5);
      step(cache, cache.add(), tokens);
      float[] plain = floats(tokens.out);
      Tensor heads = random(random, Q_HEADS);
      List<Attend> unlike = List.of(tokens.attend().softcap(0.5), tokens.attend().softmaxScale(2), tokens.attend().sinks(heads),
          tokens.attend().alibiSlopes(heads), tokens.attend().nonCausal(true));
      for (Attend attend : unlike) {
        try (Step step = cache.begin(Batch.of(cache.add(), 5))) {
          step.attend(0, attend);
        }
        assertTrue(differs(plain, floats(tokens.out)), "option " + unlike.indexOf(attend));
      }
      try (Step step = cache.begin(Batch.of(cache.add(), 5))) { // options of earlier calls are gone
        step.attend(0, tokens.attend());
      }
      assertArrayEquals(plain, floats(tokens.out));
    }
  }

  private static boolean differs(float[] a, float[] b) {
    for (int i = 0; i < a.length; i++) {
      if (Math.abs(a[i] - b[i]) > 1e-3) {
        return true;
      }
    }
    return false;
  }

  @Test
  void stridesAreRowsWithinWiderOnes() {
    try (Cache cache = cache()) {
      Tokens tokens = new Tokens(random, 4);
      step(cache, cache.add(), tokens);
      int wide = (Q_HEADS + 2 * KV_HEADS) * DIM; // q, k and v of a token side by side, as a fused projection leaves them
      Tensor qkv = Tensor.allocate(DType.F32, 4, wide);
      for (int t = 0; t < 4; t++) {
        put(qkv, t * wide, tokens.q, t * Q_HEADS * DIM, Q_HEADS * DIM);
        put(qkv, t * wide + Q_HEADS * DIM, tokens.k, t * KV_HEADS * DIM, KV_HEADS * DIM);
        put(qkv, t * wide + (Q_HEADS + KV_HEADS) * DIM, tokens.v, t * KV_HEADS * DIM, KV_HEADS * DIM);
      }
      Tensor out = Tensor.allocate(DType.F32, 4, Q_HEADS, DIM);
      try (Step step = cache.begin(Batch.of(cache.add(), 4))) {
        step.attend(0, Attend.of(part(qkv, 0, Q_HEADS), part(qkv, Q_HEADS, KV_HEADS), part(qkv, Q_HEADS + KV_HEADS, KV_HEADS), out));
        step.end();
      }
      assertArrayEquals(floats(tokens.out), floats(out));
    }
  }

  private static void put(Tensor to, int at, Tensor from, int begin, int n) {
    to.floatBuffer().position(at).put(from.floatBuffer().position(begin).limit(begin + n));
  }

  /** Heads [head, head + heads) of each token. */
  private static Tensor part(Tensor qkv, int head, int heads) {
    long wide = qkv.shape()[1];
    return Tensor.of(qkv.floatBuffer().position(head * DIM), DType.F32, 1).withShape(qkv.shape()[0], heads, DIM)
        .withStrides(wide, DIM, 1);
  }

  @Test
  void storedTypesRoundAndComeBack() {
    for (DType type : List.of(DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2, DType.I8)) {
      Layer layer = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).dtype(type).build();
      try (Cache cache = cache(c -> c.layers(layer)); Cache other = cache(c -> c.layers(layer))) {
        long sequence = cache.add();
        step(cache, sequence, new Tokens(random, 7));
        Cache.Exported stored = cache.export(sequence, 0);
        assertEquals(type == DType.F8E4M3 || type == DType.F8E5M2 ? DType.U8 : type, stored.k().dtype());
        assertArrayEquals(new long[] {7, KV_HEADS, DIM}, stored.v().shape());
        long copy = other.add();
        Import tokens = Import.of(List.of(stored.k()), List.of(stored.v())).asStored();
        if (type == DType.I8) {
          tokens.scales(List.of(stored.kScale()), List.of(stored.vScale()));
        }
        other.importTokens(copy, tokens);
        Cache.Exported again = other.export(copy, 0);
        assertEquals(stored.k().byteBuffer(), again.k().byteBuffer(), type.name());
        assertEquals(stored.v().byteBuffer(), again.v().byteBuffer(), type.name());
        assertEquals(2, cache.export(sequence, 0, 3, 5).k().shape()[0]);
      }
    }
  }

  @Test
  void aStepSaysWhereItsRowsAre() {
    try (Cache cache = cache()) {
      long[] sequences = cache.add(2);
      step(cache, sequences[0], new Tokens(random, 3));
      try (Step step = cache.begin(Batch.of(sequences, new int[] {2, 3}))) {
        assertArrayEquals(new int[] {3, 4, 0, 1, 2}, step.positions());
        assertArrayEquals(new int[] {1, 4}, step.lastRows());
        step.attend(0, new Tokens(random, 5).attend());
        assertTrue(step.describe().startsWith("{"), step.describe());
      }
      assertArrayEquals(new long[] {3, 0}, cache.lengths(sequences)); // closed without end: aborted
      assertEquals(1, cache.stats(0).pagesUsed());
    }
  }

  @Test
  void layersMayBeSplitOverSteps() {
    try (Cache cache = cache(c -> c.layers(layer(), layer(), layer()))) {
      Tokens tokens = new Tokens(random, 2);
      try (Step step = cache.begin(Batch.of(cache.add(), 2).layers(1, 3))) {
        step.attend(1, tokens.attend());
        step.attend(2, tokens.attend());
        step.end();
      }
    }
  }
}
