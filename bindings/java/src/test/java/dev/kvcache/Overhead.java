package dev.kvcache;

import static dev.kvcache.Support.layer;

import dev.kvcache.Support.Tokens;
import java.util.Arrays;
import java.util.Collections;
import java.util.Random;

/** What Java adds to a call: best of several rounds, in nanoseconds. Run by `mvn exec:exec@overhead`. */
final class Overhead {
  private static final int LAYERS = 4096;
  private static final int ROUNDS = 200; // short ones: the best is one without interruption

  private Overhead() {}

  interface Work {
    void run(int n);
  }

  /** Nanoseconds of one of n: the best of rounds, the first of which warm up. */
  private static double best(int n, Work work) {
    double[] times = new double[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
      long begin = System.nanoTime();
      work.run(n);
      times[i] = (System.nanoTime() - begin) / (double) n;
    }
    return Arrays.stream(times).min().getAsDouble();
  }

  public static void main(String[] arguments) {
    NativeCalls calls = Library.calls();
    try (Context context = Context.builder().threads(1).build();
        Cache cache = Cache.builder().context(context).layers(Collections.nCopies(LAYERS, layer())).pageSize(4).capacityTokens(64).build()) {
      long sequence = cache.add();
      double empty = best(20_000, n -> {
        for (int i = 0; i < n; i++) {
          calls.abiVersion();
        }
      });
      double length = best(20_000, n -> {
        for (int i = 0; i < n; i++) {
          cache.length(sequence);
        }
      });
      Attend attend = new Tokens(new Random(1), 1).attend().lse(null);
      Batch batch = Batch.of(sequence, 1);
      Arena arena = Arena.take(calls); // the same struct, written once: what C and JNI take alone
      attend.write("Overhead", arena);
      double java = Double.MAX_VALUE;
      double raw = Double.MAX_VALUE;
      for (int i = 0; i < ROUNDS; i++) { // in turn, so that both meet the same conditions
        java = Math.min(java, attends(cache, batch, (step, layer) -> step.attend(layer, attend)));
        raw = Math.min(raw, attends(cache, batch, (step, layer) ->
            arena.check(calls.forwardAttend(cache.handle.address, step.id(), layer, arena.attend.address, arena.error.address))));
      }
      System.out.printf("a JNI call that does nothing            %6.0f ns%n", empty);
      System.out.printf("Cache.length, a trivial call            %6.0f ns%n", length);
      System.out.printf("Step.attend of one decode row           %6.0f ns%n", java);
      System.out.printf("the same call on a struct made before   %6.0f ns%n", raw);
      System.out.printf("overhead of Step.attend over C          %6.0f ns%n", java - raw + empty);
    }
  }

  private interface OneAttend {
    void run(Step step, int layer);
  }

  private static double attends(Cache cache, Batch batch, OneAttend one) {
    try (Step step = cache.begin(batch)) {
      long begin = System.nanoTime();
      for (int layer = 0; layer < LAYERS; layer++) {
        one.run(step, layer);
      }
      return (System.nanoTime() - begin) / (double) LAYERS;
    }
  }
}
