import dev.kvcache.Batch;
import dev.kvcache.Cache;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** All users in one batch: prompts in chunks, decode beside them, and a user who leaves in the middle of a step. */
final class Batch03 {
  static final String SYSTEM = "You are a terse assistant. Answer in one short word. ";
  static final String[] NAMES = {"Ada", "Bob", "Cy"};
  static final String[] QUESTIONS = {"What is a page?", "What does a fork share, and what does it copy?", "Why?"};
  static final int ANSWER = 8; // tokens of an answer
  static final int CHUNK = 16; // most tokens that one row appends in a step: a long prompt does not hold up the others
  static final String LEAVES = "Ada"; // who closes the connection,
  static final int LEAVES_IN_STEP = 5; // and in which step

  private Batch03() {}

  static final class User {
    final String name;
    final long sequence;
    int[] pending; // tokens that are not in the cache yet
    int[] answer = {};

    User(String name, long sequence, String question) {
      this.name = name;
      this.sequence = sequence;
      pending = Model.encode(question);
    }
  }

  static long readSystemPrompt(Cache cache) {
    long sequence = cache.add();
    int[] tokens = Model.encode(SYSTEM);
    for (int begin = 0; begin < tokens.length; begin += CHUNK) {
      int[] chunk = Arrays.copyOfRange(tokens, begin, Math.min(begin + CHUNK, tokens.length));
      cache.step(Batch.of(sequence, chunk.length), step -> Model.run(step, chunk));
    }
    return sequence;
  }

  /** One step of all users. Returns those who stay. */
  static List<User> step(Cache cache, int number, List<User> users) {
    long[] sequences = users.stream().mapToLong(user -> user.sequence).toArray();
    int[] counts = users.stream().mapToInt(user -> Math.min(user.pending.length, CHUNK)).toArray();
    int[] tokens = users.stream().flatMapToInt(user -> Arrays.stream(user.pending).limit(CHUNK)).toArray();
    List<User> gone = number == LEAVES_IN_STEP ? users.stream().filter(user -> user.name.equals(LEAVES)).toList() : List.of();
    int[] predicted = cache.stepResult(Batch.of(sequences, counts), step -> {
      for (User user : gone) {
        cache.remove(user.sequence); // its pages become free when the step ends
      }
      return Model.run(step, tokens);
    });
    List<String> rows = new ArrayList<>();
    for (int i = 0; i < counts.length; i++) {
      rows.add(users.get(i).name + " " + counts[i]);
    }
    System.out.println("step " + number + ": " + String.join(", ", rows));

    List<User> staying = new ArrayList<>();
    int end = 0;
    for (int i = 0; i < counts.length; i++) {
      User user = users.get(i);
      end += counts[i]; // the rows of a batch come one after another
      user.pending = Arrays.copyOfRange(user.pending, counts[i], user.pending.length);
      if (gone.contains(user)) {
        System.out.println(user.name + " left after " + Model.decode(user.answer));
        continue;
      }
      if (user.pending.length == 0) { // the whole prompt is read: the last row has the next token
        user.answer = Model.concat(user.answer, predicted[end - 1]);
        user.pending = new int[] {predicted[end - 1]};
      }
      if (user.answer.length < ANSWER) {
        staying.add(user);
      } else {
        System.out.println(user.name + ": " + Model.decode(user.answer));
        cache.remove(user.sequence);
      }
    }
    return staying;
  }

  public static void main(String[] args) {
    try (Cache cache = Model.cache().capacityTokens(1024).rollbackTokens(8).deterministic().build()) {
      long system = readSystemPrompt(cache);
      long[] sequences = cache.fork(system, system, system);
      cache.remove(system);
      List<User> users = new ArrayList<>();
      for (int i = 0; i < NAMES.length; i++) {
        users.add(new User(NAMES[i], sequences[i], QUESTIONS[i]));
      }

      for (int number = 1; !users.isEmpty(); number++) {
        users = step(cache, number, users);
      }
      System.out.println(cache.stats().pagesUsed() + " pages in use");
    }
  }
}
