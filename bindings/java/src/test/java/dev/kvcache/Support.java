package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.FloatBuffer;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.function.Executable;

/** A small cache, random tensors, and attention by its definition. */
final class Support {
  static final int Q_HEADS = 4;
  static final int KV_HEADS = 2;
  static final int DIM = 16;

  private Support() {}

  static Layer layer() {
    return Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).build();
  }

  static CacheBuilder config() {
    return Cache.builder().layers(layer()).pageSize(4).capacityTokens(256);
  }

  static Cache cache() {
    return config().build();
  }

  static Cache cache(UnaryOperator<CacheBuilder> change) {
    return change.apply(config()).build();
  }

  /** Refused with this status, a message of the library's kind (a function in front), and these words in it. */
  static KvcacheException refused(Status status, Executable call, String... words) {
    KvcacheException e = assertThrows(KvcacheException.class, call);
    assertEquals(status, e.status(), e.getMessage());
    assertEquals("KVC_ERROR_" + status, e.statusName());
    assertNotEquals(e.statusName(), e.getMessage());
    for (String word : words) {
      assertTrue(e.getMessage().contains(word), () -> '"' + e.getMessage() + "\" does not say \"" + word + '"');
    }
    return e;
  }

  static Tensor random(Random random, long... shape) {
    Tensor tensor = Tensor.allocate(DType.F32, shape);
    FloatBuffer values = tensor.floatBuffer();
    while (values.hasRemaining()) {
      values.put((float) random.nextGaussian());
    }
    return tensor;
  }

  static Tensor ints(int... values) {
    Tensor tensor = Tensor.allocate(DType.I32, values.length);
    tensor.intBuffer().put(values);
    return tensor;
  }

  static float[] floats(Tensor tensor) {
    FloatBuffer buffer = tensor.floatBuffer();
    float[] values = new float[buffer.remaining()];
    buffer.get(values);
    return values;
  }

  /** The tensors of a layer for n new tokens. */
  static final class Tokens {
    final int n;
    final Tensor q;
    final Tensor k;
    final Tensor v;
    final Tensor out;
    final Tensor lse;

    Tokens(Random random, int n) {
      this.n = n;
      q = random(random, n, Q_HEADS, DIM);
      k = random(random, n, KV_HEADS, DIM);
      v = random(random, n, KV_HEADS, DIM);
      out = Tensor.allocate(DType.F32, n, Q_HEADS, DIM);
      lse = Tensor.allocate(DType.F32, n, Q_HEADS);
    }

    Attend attend() {
      return Attend.of(q, k, v, out).lse(lse);
    }
  }

  /** A whole step of one sequence with one layer. */
  static void step(Cache cache, long sequence, Tokens tokens) {
    try (Step step = cache.begin(Batch.of(sequence, tokens.n))) {
      step.attend(0, tokens.attend());
      step.end();
    }
  }

  /** out[i] of the last query.length rows: query i sees keys [from(i), i's own]; in float64. */
  static void expectAttention(float[] keys, float[] values, float[] queries, float[] out, float[] lse, int window) {
    int n = keys.length / (KV_HEADS * DIM);
    int rows = queries.length / (Q_HEADS * DIM);
    for (int row = 0; row < rows; row++) {
      int position = n - rows + row;
      int first = Math.max(0, position - window + 1);
      for (int head = 0; head < Q_HEADS; head++) {
        int kv = head / (Q_HEADS / KV_HEADS);
        double[] weights = new double[position - first + 1];
        double sum = 0;
        for (int j = first; j <= position; j++) {
          double dot = 0;
          for (int d = 0; d < DIM; d++) {
            dot += (double) queries[(row * Q_HEADS + head) * DIM + d] * keys[(j * KV_HEADS + kv) * DIM + d];
          }
          weights[j - first] = Math.exp(dot / Math.sqrt(DIM));
          sum += weights[j - first];
        }
        for (int d = 0; d < DIM; d++) {
          double expected = 0;
          for (int j = first; j <= position; j++) {
            expected += weights[j - first] / sum * values[(j * KV_HEADS + kv) * DIM + d];
          }
          assertEquals(expected, out[(row * Q_HEADS + head) * DIM + d], 2e-5, "row " + row + " head " + head + " dim " + d);
        }
        if (lse != null) {
          assertEquals(Math.log(sum), lse[row * Q_HEADS + head], 2e-5);
        }
      }
    }
  }

  static float[] concat(float[]... parts) {
    int n = 0;
    for (float[] part : parts) {
      n += part.length;
    }
    float[] all = new float[n];
    n = 0;
    for (float[] part : parts) {
      System.arraycopy(part, 0, all, n, part.length);
      n += part.length;
    }
    return all;
  }

  /** Closes a step of `tokens` tokens while another thread attends in it; `late`: what that gets if it comes after. */
  static void closeWhileItAttends(Step step, int tokens, Status late) throws InterruptedException {
    Tokens input = new Tokens(new Random(1), tokens);
    AtomicReference<Status> status = new AtomicReference<>();
    Thread worker = new Thread(() -> {
      try {
        step.attend(0, input.attend());
      } catch (KvcacheException e) {
        status.set(e.status());
      }
    });
    worker.start();
    Thread.sleep(20);
    step.close();
    worker.join();
    assertTrue(status.get() == Status.CANCELLED || status.get() == late, "" + status.get());
  }
}
