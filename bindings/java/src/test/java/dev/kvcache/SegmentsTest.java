package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Memory of java.lang.foreign: programs of src/test/programs, on this JDK and on the newest one that is here. */
class SegmentsTest {
  private record Jdk(Path home, int feature) {}

  /** The JDK of this process, and the newest of those beside it. */
  private static List<Jdk> jdks() throws IOException {
    Path own = Path.of(System.getProperty("java.home"));
    List<Jdk> found = new ArrayList<>(List.of(new Jdk(own, Runtime.version().feature())));
    try (Stream<Path> others = Files.list(own.getParent())) {
      for (Path home : others.sorted().toList()) {
        Path release = home.resolve("release");
        if (Files.exists(home.resolve("bin/javac")) && Files.exists(release)) {
          Matcher version = Pattern.compile("JAVA_VERSION=\"(\\d+)").matcher(Files.readString(release));
          int feature = version.find() ? Integer.parseInt(version.group(1)) : 0;
          if (feature > found.get(found.size() - 1).feature) {
            found.add(new Jdk(home, feature));
          }
        }
      }
    }
    return found.size() < 2 ? found : List.of(found.get(0), found.get(found.size() - 1));
  }

  @Test
  void closedArenasAreExceptions() throws Exception {
    for (Jdk jdk : jdks()) {
      if (jdk.feature == 17) { // a preview, which is another one in each version before 22
        runs(jdk, "ClosedScope.java", "--add-modules", "jdk.incubator.foreign");
      } else if (jdk.feature >= 22) {
        runs(jdk, "ClosedArena.java");
      }
    }
  }

  @Test
  void tensorsOfMoreThanTwoGib() throws Exception {
    runs(java22(), "LargeSegments.java");
  }

  @Test
  void virtualThreadsAndInterrupts() throws Exception {
    runs(java22(), "VirtualThreads.java");
  }

  /** The newest JDK, if it has java.lang.foreign; else the test is skipped, and reported so. */
  private static Jdk java22() throws IOException {
    List<Jdk> all = jdks();
    Jdk newest = all.get(all.size() - 1);
    assumeTrue(newest.feature >= 22, "no JDK 22 or later is here");
    return newest;
  }

  private static void runs(Jdk jdk, String program, String... options) throws Exception {
    List<String> command = new ArrayList<>(List.of(jdk.home.resolve("bin/java").toString(), "-Xcheck:jni"));
    command.addAll(jdk.feature >= 22 ? List.of("--enable-native-access=ALL-UNNAMED") : List.of(options));
    String classes = Path.of(Tensor.class.getProtectionDomain().getCodeSource().getLocation().toURI()).toString();
    command.addAll(List.of("-Dkvcache.library=" + new File(Library.path()).getAbsolutePath(), "-cp", classes, "src/test/programs/" + program));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes());
    assertEquals(0, process.waitFor(), () -> jdk + ": " + output);
    assertEquals("all is well", output.lines().filter(line -> !line.toLowerCase().contains("warning")).reduce("", String::concat));
  }
}
