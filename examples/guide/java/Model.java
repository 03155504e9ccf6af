import dev.kvcache.Attend;
import dev.kvcache.Cache;
import dev.kvcache.CacheBuilder;
import dev.kvcache.DType;
import dev.kvcache.Group;
import dev.kvcache.Layer;
import dev.kvcache.RopeMode;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * A stand-in for a model, without weights: two layers, and tokens that are the bytes of a text. Every number is a hash of a
 * token, so the programs in all five languages compute the same.
 */
final class Model {
  static final int LAYERS = 2;
  static final int Q_HEADS = 2;
  static final int KV_HEADS = 1;
  static final int HEAD_DIM = 16;
  static final int WIDTH = Q_HEADS * HEAD_DIM; // numbers of a token between two layers
  static final int WINDOW = 32; // keys that a query of the first layer sees
  // The groups: layers that see the same keys share page tables.
  static final int SLIDING = 0;
  static final int FULL = 1;

  private Model() {}

  /** Starts the builder of a cache for this model: layers and groups. The program adds the capacity. */
  static CacheBuilder cache() {
    return Cache.builder().layers(layer(SLIDING), layer(FULL)).groups(Group.sliding(WINDOW), Group.full());
  }

  private static Layer layer(int group) {
    return Layer.builder().group(group).qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(HEAD_DIM).rope(RopeMode.ON_APPEND).build();
  }

  static int[] encode(String text) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    int[] tokens = new int[bytes.length];
    for (int i = 0; i < bytes.length; i++) {
      tokens[i] = bytes[i] & 0xff;
    }
    return tokens;
  }

  static String decode(int... tokens) {
    byte[] bytes = new byte[tokens.length];
    for (int i = 0; i < tokens.length; i++) {
      bytes[i] = (byte) tokens[i];
    }
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** Puts two lists of tokens into one. */
  static int[] concat(int[] first, int... second) {
    int[] both = Arrays.copyOf(first, first.length + second.length);
    System.arraycopy(second, 0, both, first.length, second.length);
    return both;
  }

  private static float number(int token, int i) {
    int x = (token * WIDTH + i + 1) * (int) 2654435761L;
    x ^= x >>> 15;
    x *= (int) 2246822519L;
    return ((x >>> 24) - 128) / 64f;
  }

  /** Gives each token a vector of WIDTH numbers from -2 to 2. */
  static float[] embed(int... tokens) {
    float[] hidden = new float[tokens.length * WIDTH];
    for (int i = 0; i < hidden.length; i++) {
      hidden[i] = number(tokens[i / WIDTH], i % WIDTH);
    }
    return hidden;
  }

  /** Fills q, k and v of a layer. A real model multiplies by weights here. */
  static void project(float[] hidden, Tensor q, Tensor k, Tensor v) {
    q.floatBuffer().put(hidden);
    for (int row = 0; row < hidden.length / WIDTH; row++) {
      k.floatBuffer().position(row * HEAD_DIM).put(hidden, row * WIDTH, HEAD_DIM);
      v.floatBuffer().position(row * HEAD_DIM).put(hidden, row * WIDTH + HEAD_DIM, HEAD_DIM);
    }
  }

  /** Adds the output of attention to `hidden`. */
  static void add(float[] hidden, Tensor out) {
    for (int i = 0; i < hidden.length; i++) {
      hidden[i] += out.floatBuffer().get(i);
    }
  }

  /** Gives, for each row, the letter that comes next. */
  static int[] predict(float[] hidden) {
    int[] next = new int[hidden.length / WIDTH];
    for (int row = 0; row < next.length; row++) {
      double best = -1e30;
      for (int letter = 'a'; letter <= 'z'; letter++) {
        double score = 0;
        for (int i = 0; i < WIDTH; i++) {
          score += (double) hidden[row * WIDTH + i] * number(256 + letter, i);
        }
        if (score > best) {
          best = score;
          next[row] = letter;
        }
      }
    }
    return next;
  }

  /** Runs the layers in an open step. Gives, for each of the step's tokens, the one that comes next. */
  static int[] run(Step step, int... tokens) {
    Tensor q = Tensor.allocate(DType.F32, tokens.length, Q_HEADS, HEAD_DIM);
    Tensor k = Tensor.allocate(DType.F32, tokens.length, KV_HEADS, HEAD_DIM);
    Tensor v = Tensor.allocate(DType.F32, tokens.length, KV_HEADS, HEAD_DIM);
    Tensor out = Tensor.allocate(DType.F32, tokens.length, Q_HEADS, HEAD_DIM);
    Attend attend = Attend.of(q, k, v, out);
    float[] hidden = embed(tokens);
    for (int layer = 0; layer < LAYERS; layer++) {
      project(hidden, q, k, v);
      step.attend(layer, attend);
      add(hidden, out);
    }
    return predict(hidden);
  }
}
