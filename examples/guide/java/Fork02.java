import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.Stats;

/** A system prompt that is computed once, for three users. */
final class Fork02 {
  static final String SYSTEM = "You are a terse assistant. Answer in one short word. ";
  static final String[] NAMES = {"Ada", "Bob", "Cy"};
  static final String[] QUESTIONS = {"What is a page?", "What does a fork share, and what does it copy?", "Why?"};
  static final int ANSWER = 8; // tokens of an answer

  private Fork02() {}

  /** Appends tokens to a sequence, and gives the token that comes next. */
  static int forward(Cache cache, long sequence, int... tokens) {
    int[] predicted = cache.stepResult(Batch.of(sequence, tokens.length), step -> Model.run(step, tokens));
    return predicted[tokens.length - 1];
  }

  static void show(Cache cache, String what) {
    Stats stats = cache.stats();
    System.out.printf("%s: %d pages in use, %d of them shared, %d tokens in %d sequences%n", what, stats.pagesUsed(),
        stats.pagesShared(), stats.tokensLogical(), stats.sequences());
  }

  public static void main(String[] args) {
    try (Cache cache = Model.cache().capacityTokens(1024).rollbackTokens(8).deterministic().build()) {
      long system = cache.add();
      forward(cache, system, Model.encode(SYSTEM));
      show(cache, "system prompt");

      long[] sequences = cache.fork(system, system, system); // whole pages are shared, and the last one is copied
      cache.remove(system); // the users keep what they share
      show(cache, "three forks");

      for (int i = 0; i < NAMES.length; i++) {
        int[] answer = new int[ANSWER];
        answer[0] = forward(cache, sequences[i], Model.encode(QUESTIONS[i]));
        for (int j = 1; j < ANSWER; j++) {
          answer[j] = forward(cache, sequences[i], answer[j - 1]);
        }
        System.out.println(NAMES[i] + ": " + Model.decode(answer));
      }
      show(cache, "three answers");

      cache.remove(sequences);
      show(cache, "the end");
    }
  }
}
