import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.KvcacheException;
import dev.kvcache.OutOfPagesException;
import dev.kvcache.PrefixQuery;
import dev.kvcache.Stats;
import dev.kvcache.Step;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;

/** A small scheduler: admission, preemption when pages run out, rejected drafts, and prompts that reuse a conversation. */
final class Engine04 {
  static final String SYSTEM = "You are a terse assistant. Answer in one short word. ";
  static final String[] NAMES = {"Ada", "Bob", "Cy"};
  static final String[] QUESTIONS = {"What is a page?", "What does a fork share, and what does it copy?", "Why?"};
  static final int ANSWER = 24; // tokens of an answer
  static final int PAGES = 11; // of the full layer: too few for three users

  static final class Request {
    final String name;
    int[] tokens; // the prompt, then also the answer
    final int prompt; // how many of the tokens are the prompt
    int[] drafts; // a guess at what follows the first token of the answer
    long sequence; // 0: none, because the request waits
    int cached; // how many of the tokens are in the cache

    Request(String name, int[] before, String text, String drafts) {
      this.name = name;
      tokens = Model.concat(before, Model.encode(text));
      prompt = tokens.length;
      this.drafts = Model.encode(drafts);
    }

    int[] answer() {
      return Arrays.copyOfRange(tokens, prompt, tokens.length);
    }

    /** What its row appends in the next step: all that is not in the cache, and the drafts when the prompt is read. */
    int[] next() {
      int[] plain = Arrays.copyOfRange(tokens, cached, tokens.length);
      return tokens.length == prompt ? plain : Model.concat(plain, drafts);
    }
  }

  static Batch batch(List<Request> requests) {
    return Batch.of(requests.stream().mapToLong(request -> request.sequence).toArray(),
        requests.stream().mapToInt(request -> request.next().length).toArray());
  }

  private final Cache cache;
  private final Deque<Request> waiting = new ArrayDeque<>();
  private List<Request> running = new ArrayList<>();
  private int number; // of the step

  private Engine04(Cache cache) {
    this.cache = cache;
  }

  /** Answers all requests that wait. */
  void serve() {
    while (!waiting.isEmpty() || !running.isEmpty()) {
      number++;
      admit();
      int[] predicted;
      List<int[]> rows = new ArrayList<>();
      try (Step step = begin()) {
        int[] tokens = {};
        for (Request request : running) {
          rows.add(request.next());
          tokens = Model.concat(tokens, request.next());
        }
        predicted = Model.run(step, tokens);
        step.end();
      }
      List<Request> staying = new ArrayList<>();
      int row = 0;
      for (int i = 0; i < rows.size(); i++) {
        Request request = running.get(i);
        int count = rows.get(i).length;
        take(request, rows.get(i), Arrays.copyOfRange(predicted, row, row + count));
        row += count;
        if (request.answer().length < ANSWER) {
          staying.add(request);
        } else {
          String answer = Model.decode(Arrays.copyOf(request.answer(), ANSWER));
          System.out.printf("step %d: %s has %s%n", number, request.name, answer);
          release(request);
        }
      }
      running = staying;
    }
  }

  /** Starts requests, the one that waits longest first, as long as the next step has room for them. */
  private void admit() {
    while (!waiting.isEmpty()) {
      Request request = waiting.peek();
      try {
        tryToStart(request);
      } catch (KvcacheException error) {
        release(request);
        boolean full = error.code() >= 100 && error.code() < 200; // the band that means "not now"
        if (full && !running.isEmpty()) {
          return;
        }
        throw error; // also: it does not even fit alone
      }
      System.out.printf("step %d: %s starts, %d of %d tokens are cached%n", number, request.name, request.cached,
          request.tokens.length);
      running.add(waiting.pop());
    }
  }

  /** Attaches what the prefix index has of a request, and checks that the next step has room for it. */
  private void tryToStart(Request request) {
    Cache.AttachedPrefix found = cache.attachPrefix(PrefixQuery.of(request.tokens));
    request.sequence = found.sequence();
    request.cached = (int) found.hit().tokens();
    List<Request> all = new ArrayList<>(running);
    all.add(request);
    cache.canFit(batch(all));
  }

  /** Begins a step for all who run. While pages are missing, the one who started last has to wait again. */
  private Step begin() {
    while (true) {
      try {
        return cache.begin(batch(running));
      } catch (OutOfPagesException full) {
        if (running.size() == 1) {
          throw full;
        }
        Request request = running.remove(running.size() - 1);
        System.out.printf("step %d: pages needed %d, free %d: %s waits%n", number, full.required(), full.available(),
            request.name);
        release(request);
        waiting.push(request);
      }
    }
  }

  /** Takes what the model predicted after each token of a row. Drafts stay as far as they agree with it. */
  private void take(Request request, int[] row, int[] predicted) {
    int plain = request.tokens.length - request.cached;
    int[] drafts = Arrays.copyOfRange(row, plain, row.length);
    int accepted = 0;
    while (accepted < drafts.length && drafts[accepted] == predicted[plain - 1 + accepted]) {
      accepted++;
    }
    request.cached += plain + accepted;
    if (drafts.length > 0) {
      cache.truncate(request.sequence, request.cached); // the rejected drafts go
      System.out.printf("step %d: %d of the drafts %s are right%n", number, accepted, Model.decode(drafts));
      request.drafts = new int[0];
    }
    request.tokens = Model.concat(request.tokens, Arrays.copyOfRange(predicted, plain - 1, plain + accepted));
  }

  /** Gives up the sequence. Its tokens stay findable, until their pages are needed. */
  private void release(Request request) {
    if (request.sequence != 0) {
      cache.publishPrefix(request.sequence, PrefixQuery.of(Arrays.copyOf(request.tokens, request.cached)));
      cache.remove(request.sequence);
    }
    request.sequence = 0;
    request.cached = 0;
  }

  public static void main(String[] args) {
    try (Cache cache = Model.cache().capacityPages(PAGES).rollbackTokens(8).deterministic().prefixIndex().build()) {
      Engine04 engine = new Engine04(cache);

      // The system prompt is read before the first request comes. The pin keeps it from being evicted.
      Request system = new Request("system", new int[0], SYSTEM, "");
      system.sequence = cache.add();
      cache.step(batch(List.of(system)), step -> Model.run(step, system.tokens));
      system.cached = system.tokens.length;
      engine.release(system);
      Cache.PinnedPrefix pinned = cache.pinPrefix(PrefixQuery.of(system.tokens));

      List<Request> first = new ArrayList<>();
      for (int i = 0; i < NAMES.length; i++) {
        first.add(new Request(NAMES[i], system.tokens, QUESTIONS[i], ""));
      }
      engine.waiting.addAll(first);
      engine.serve();

      // Cy goes on: the second prompt begins with the first conversation.
      engine.waiting.add(new Request("Cy", first.get(2).tokens, " And then?", "mhnqq"));
      engine.serve();

      cache.unpinPrefix(pinned.pin());
      Stats stats = cache.stats();
      System.out.printf("pages used %d, of them only remembered %d, evicted %d%n", stats.pagesUsed(), stats.pagesIdle(),
          stats.pagesEvicted());
    }
  }
}
