import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.DType;
import dev.kvcache.Tensor;
import java.util.Arrays;

/** One sequence: read a prompt, then decode one token after another. */
final class Hello01 {
  private Hello01() {}

  /** Appends tokens to a sequence, and gives the token that comes next. */
  static int forward(Cache cache, long sequence, int... tokens) {
    int n = tokens.length;
    Tensor q = Tensor.allocate(DType.F32, n, Model.Q_HEADS, Model.HEAD_DIM); // an engine makes its tensors once
    Tensor k = Tensor.allocate(DType.F32, n, Model.KV_HEADS, Model.HEAD_DIM);
    Tensor v = Tensor.allocate(DType.F32, n, Model.KV_HEADS, Model.HEAD_DIM);
    Tensor out = Tensor.allocate(DType.F32, n, Model.Q_HEADS, Model.HEAD_DIM);
    Attend attend = Attend.of(q, k, v, out);
    float[] hidden = Model.embed(tokens);
    cache.step(Batch.of(sequence, n), step -> { // reserves the pages. An exception aborts the step
      for (int layer = 0; layer < Model.LAYERS; layer++) {
        Model.project(hidden, q, k, v);
        step.attend(layer, attend); // stores k and v, then attends to everything stored
        Model.add(hidden, out);
      }
    }); // the new tokens stay
    return Model.predict(hidden)[n - 1];
  }

  static void show(Cache cache, long sequence) {
    long[] live = new long[2];
    for (int group = 0; group < 2; group++) {
      live[group] = Arrays.stream(cache.pages(sequence, group)).filter(page -> page >= 0).count(); // -1: left the window
    }
    System.out.printf("%d tokens in %d pages of the sliding layer and %d of the full layer%n", cache.length(sequence),
        live[Model.SLIDING], live[Model.FULL]);
  }

  public static void main(String[] args) {
    // All memory is reserved here. The window keeps 8 tokens more, so that 8 tokens can be taken back.
    try (Cache cache = Model.cache().capacityTokens(1024).rollbackTokens(8).deterministic().build()) {
      int[] prompt = Model.encode("Once upon a time there was a cache that kept what it had read.");
      long sequence = cache.add();
      int[] answer = new int[40];
      answer[0] = forward(cache, sequence, prompt);
      show(cache, sequence);

      for (int i = 1; i < answer.length; i++) {
        answer[i] = forward(cache, sequence, answer[i - 1]);
      }
      show(cache, sequence);
      System.out.println("answer: " + Model.decode(answer));
      cache.remove(sequence);
      System.out.println(cache.stats().pagesUsed() + " pages in use");
    }
  }
}
