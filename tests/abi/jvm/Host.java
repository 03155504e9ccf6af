import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A JVM that loads the library: its signal handlers, its threads and their names stay as they were. */
final class Host {
  static native void load(String path);

  static native void round();

  static native void open();

  static native void close();

  static native void unload();

  public static void main(String[] arguments) throws Exception {
    System.load(arguments[0]);
    nullChecks();
    String signals = signals();
    Map<String, String> names = threadNames();

    load(arguments[1]);
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      Thread thread = new Thread(() -> { for (int round = 0; round < 10; round++) round(); });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) thread.join();
    open();
    System.gc();
    nullChecks();
    close();
    expect(signals.equals(signals()), "signals: " + signals + " are now " + signals());
    Map<String, String> after = threadNames();
    names.forEach((id, name) -> expect(name.equals(after.getOrDefault(id, name)), name + " is now " + after.get(id)));
    unload();
    nullChecks();
    System.out.println("as it should be");
  }

  /** Compiled code finds null by a fault that the JVM's own handler takes, and the end of the stack likewise. */
  private static void nullChecks() {
    int caught = 0;
    for (int i = 0; i < 200_000; i++) {
      try {
        caught += length(i % 1000 == 999 ? null : "x");
      } catch (NullPointerException e) {
        caught++;
      }
    }
    expect(caught == 200_000, "null checks: " + caught);
    try {
      deeper(0);
      expect(false, "no end of the stack");
    } catch (StackOverflowError e) {
      // as it should be
    }
  }

  private static int length(String text) {
    return text.length();
  }

  private static int deeper(int depth) {
    return deeper(depth + 1) + 1;
  }

  /** Which signals are caught, ignored and blocked. */
  private static String signals() throws IOException {
    StringBuilder text = new StringBuilder();
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.matches("Sig(Cgt|Ign|Blk):.*")) text.append(line.replace('\t', ' ')).append("; ");
    }
    return text.toString();
  }

  private static Map<String, String> threadNames() throws IOException {
    Map<String, String> names = new HashMap<>();
    try (var tasks = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path task : tasks) {
        try {
          names.put(task.getFileName().toString(), Files.readString(task.resolve("comm")).strip());
        } catch (IOException e) {
          // it has ended
        }
      }
    }
    return names;
  }

  private static void expect(boolean good, String what) {
    if (!good) throw new AssertionError(what);
  }
}
