package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native code is found, in programs of their own; and the README's quick start. */
class LibraryTest {
  private static final String JNI = System.mapLibraryName("kvcache_jni");
  private static final String LIBRARY = System.mapLibraryName("kvcache");

  @TempDir
  static Path folder;

  private static Path jar;
  private static Path classes;
  private static Path natives;
  private static boolean bundled;

  /** The jar as Maven makes it, and the quick start, compiled. */
  @BeforeAll
  static void build() throws Exception {
    classes = Path.of(URI.create(Library.class.getResource("/dev/kvcache/Library.class").toString())).getParent().getParent().getParent();
    natives = classes.resolve("natives").resolve(System.getProperty("os.name") + "-" + System.getProperty("os.arch"));
    bundled = Files.exists(natives.resolve(LIBRARY));
    jar = pack("kvcache.jar", "");
    String readme = Files.readString(Path.of("README.md"));
    String program = readme.substring(readme.indexOf("```java\n") + 8);
    Path source = folder.resolve("QuickStart.java");
    Files.writeString(source, program.substring(0, program.indexOf("```")));
    assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, "-cp", jar.toString(), "-d", folder.toString(), source.toString()));
  }

  private static Path pack(String name, String without) throws IOException {
    Path target = folder.resolve(name);
    try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(target)); Stream<Path> all = Files.walk(classes)) {
      for (Path file : (Iterable<Path>) all.filter(Files::isRegularFile)::iterator) {
        if (without.isEmpty() || !file.toString().contains(without)) {
          out.putNextEntry(new JarEntry(classes.relativize(file).toString()));
          out.write(Files.readAllBytes(file));
        }
      }
    }
    return target;
  }

  private record Result(int status, String output) {}

  /** Runs the quick start from the jar with these JVM options; an option "env=..." is KVCACHE_LIBRARY. */
  private static Result run(Path from, String... options) throws Exception {
    List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-Xcheck:jni", "-Xshare:auto"));
    if (Runtime.version().feature() >= 22) {
      command.add("--enable-native-access=ALL-UNNAMED"); // else it warns
    }
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true).directory(folder.toFile());
    builder.environment().remove("KVCACHE_LIBRARY");
    for (String option : options) {
      if (option.startsWith("env=")) {
        builder.environment().put("KVCACHE_LIBRARY", option.substring(4));
      } else {
        command.add(option);
      }
    }
    command.addAll(List.of("-Dkvcache.cache=" + folder.resolve("cache"), "-cp", from + File.pathSeparator + folder, "QuickStart"));
    builder.command(command);
    Process process = builder.start();
    String output = new String(process.getInputStream().readAllBytes()).trim();
    return new Result(process.waitFor(), output);
  }

  private static String expected() throws IOException {
    String readme = Files.readString(Path.of("README.md"));
    String line = readme.substring(readme.indexOf("cache.stats().pagesUsed()); // ") + "cache.stats().pagesUsed()); // ".length());
    return line.substring(0, line.indexOf('\n'));
  }

  @Test
  void theQuickStartRunsFromTheJarAlone() throws Exception {
    Assumptions.assumeTrue(bundled, "the package was built without KVCACHE_LIBRARY");
    assertEquals(new Result(0, expected()), run(jar));
    List<Path> copies;
    try (Stream<Path> all = Files.walk(folder.resolve("cache"))) {
      copies = all.filter(Files::isRegularFile).toList();
    }
    assertEquals(2, copies.size(), copies.toString());
    for (Path copy : copies) { // a copy that is broken is replaced, an intact one is kept
      Files.write(copy, new byte[] {1, 2, 3});
    }
    assertEquals(new Result(0, expected()), run(jar));
    assertTrue(Files.size(copies.get(0)) > 1000);
    var written = Files.getLastModifiedTime(copies.get(0));
    assertEquals(new Result(0, expected()), run(jar));
    assertEquals(written, Files.getLastModifiedTime(copies.get(0)));
  }

  @Test
  void theEnvironmentAndPropertiesNameTheLibrary() throws Exception {
    String path = Library.path();
    assertEquals(new Result(0, expected()), run(jar, "env=" + path));
    assertEquals(new Result(0, expected()), run(jar, "-Dkvcache.library=" + path, "env=nowhere"));
    assertEquals(new Result(0, expected()), run(jar, "-Dkvcache.library=" + path, "-Dkvcache.jni=" + natives.resolve(JNI)));
    Result lost = run(jar, "env=" + folder.resolve("absent.so"));
    assertTrue(lost.status != 0 && lost.output.contains("UnsatisfiedLinkError: libkvcache was not found"), lost.output);
    assertTrue(lost.output.contains("\n  " + folder.resolve("absent.so") + ": cannot open shared object file"), lost.output);
    Result other = run(jar, "-Dkvcache.library=" + natives.resolve(JNI));
    assertTrue(other.status != 0 && other.output.contains("no kvc_get_api: it is not libkvcache"), other.output);
    Result broken = run(jar, "-Dkvcache.jni=" + Files.write(folder.resolve("broken.so"), new byte[] {1}));
    assertTrue(broken.status != 0 && broken.output.contains("the JNI layer of kvcache was not found"), broken.output);
  }

  @Test
  void theLibraryPathIsSearched() throws Exception {
    Path place = Files.createDirectories(folder.resolve("lib path"));
    Files.copy(natives.resolve(JNI), place.resolve(JNI));
    Files.copy(Path.of(Library.path()), place.resolve(LIBRARY + "." + Abi.KVC_VERSION_MAJOR));
    Path bare = pack("bare.jar", "natives");
    assertEquals(new Result(0, expected()), run(bare, "-Djava.library.path=/nowhere" + File.pathSeparator + place));
    Result lost = run(bare, "-Djava.library.path=/nowhere");
    assertTrue(lost.status != 0, lost.output);
    for (String word : List.of("the JNI layer of kvcache was not found", "kvcache.jni", "java.library.path: no " + JNI, "the jar has none")) {
      assertTrue(lost.output.contains(word), word + " in " + lost.output);
    }
    Files.delete(place.resolve(LIBRARY + "." + Abi.KVC_VERSION_MAJOR));
    Result half = run(bare, "-Djava.library.path=" + place);
    assertTrue(half.status == 0 || half.output.contains("libkvcache was not found") && half.output.contains(LIBRARY), half.output);
  }

  @Test
  void versionsAreTheHeaders() {
    assertNotNull(Library.path());
    assertEquals(Abi.KVC_VERSION_MAJOR + "." + Abi.KVC_VERSION_MINOR + "." + Abi.KVC_VERSION_PATCH, Library.version());
    assertEquals(Abi.KVC_ABI_VERSION, Library.calls().abiVersion());
    assertTrue(Library.buildInfo().startsWith("{"));
    try (Context context = Context.builder().threads(1).simd("reference").build()) {
      assertTrue(context.describe().contains("\"reference\""), context.describe());
    }
  }
}
