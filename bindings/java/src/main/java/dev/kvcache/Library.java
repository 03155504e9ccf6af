package dev.kvcache;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Finds and loads the native code, once for the process: libkvcache, and the JNI layer between it and Java. Every class does
 * this by itself when it is first needed; {@link #load} does it early.
 *
 * <p>libkvcache is the file that the system property {@code kvcache.library} or else the environment variable
 * {@code KVCACHE_LIBRARY} names, or the one in the folder that it names, and nothing else if one of them is set; else the one in a folder of
 * {@code java.library.path}; else the jar's own; else what the system's loader finds. The JNI layer is the file that
 * {@code kvcache.jni} names, or one of {@code java.library.path}, or the jar's. What the jar has is copied into a folder that
 * is named by the contents, below {@code kvcache.cache}, by default {@code ~/.cache/kvcache}, and found there by the next process.
 */
public final class Library {
  private static final String NATIVES = "/natives/" + System.getProperty("os.name") + "-" + System.getProperty("os.arch") + "/";

  private static volatile NativeCalls loaded;
  private static boolean jniLoaded;
  private static String path;

  private Library() {}

  /**
   * Loads the native code, if it is not yet.
   *
   * @throws UnsatisfiedLinkError with every place that was tried, and what was wrong there; a later call tries again
   */
  public static void load() {
    calls();
  }

  /** The loaded library's version, "0.1.0". */
  public static String version() {
    return calls().version();
  }

  /** What the loaded library was built with, as one JSON object. */
  public static String buildInfo() {
    return calls().buildInfo();
  }

  /** The name under which libkvcache was found. */
  public static String path() {
    calls();
    synchronized (Library.class) {
      return path;
    }
  }

  static NativeCalls calls() {
    NativeCalls calls = loaded;
    return calls != null ? calls : loadNow();
  }

  private static synchronized NativeCalls loadNow() {
    if (loaded == null) {
      if (!jniLoaded) {
        loadJni();
        jniLoaded = true;
      }
      JniCalls calls = new JniCalls();
      path = open(calls);
      loaded = calls;
    }
    return loaded;
  }

  private static void loadJni() {
    Search search = new Search("the JNI layer of kvcache", "the system property kvcache.jni");
    String file = System.mapLibraryName("kvcache_jni");
    String named = System.getProperty("kvcache.jni");
    if (named != null) {
      search.named(named, Library::loadFile, file);
    } else {
      search.libraryPath(Library::loadFile, file);
      search.jar(Library::loadFile, file, file);
    }
    search.found();
  }

  private static String loadFile(String place) {
    try {
      System.load(new File(place).getAbsolutePath());
      return null;
    } catch (UnsatisfiedLinkError error) {
      return error.getMessage();
    }
  }

  private static String open(NativeCalls calls) {
    Search search = new Search("libkvcache", "the system property kvcache.library or the environment variable KVCACHE_LIBRARY");
    String named = System.getProperty("kvcache.library", System.getenv("KVCACHE_LIBRARY"));
    String plain = System.mapLibraryName("kvcache");
    String major = plain.endsWith(".dylib") ? "libkvcache." + Abi.KVC_VERSION_MAJOR + ".dylib" : plain + "." + Abi.KVC_VERSION_MAJOR;
    if (named != null && !named.isEmpty()) {
      search.named(named, calls::open, major, plain);
      return search.found();
    }
    search.libraryPath(calls::open, major, plain);
    search.jar(calls::open, plain, major);
    search.attempt(major, calls::open);
    search.attempt(plain, calls::open);
    return search.found();
  }

  /** How a place is tried: null, or what is wrong. */
  private interface Attempt {
    String load(String place);
  }

  /** Goes on until something loads, and remembers why the rest did not. */
  private static final class Search {
    private final String what;
    private final String remedy;
    private final StringBuilder problems = new StringBuilder();
    private String found;

    Search(String what, String remedy) {
      this.what = what;
      this.remedy = remedy;
    }

    void attempt(String place, Attempt how) {
      if (found == null) {
        String problem = how.load(place);
        if (problem == null) {
          found = place;
        } else {
          problem(place, problem);
        }
      }
    }

    /** A file, or a folder that has one of the names. */
    void named(String place, Attempt how, String... names) {
      if (!new File(place).isDirectory()) {
        attempt(place, how);
        return;
      }
      for (String name : names) {
        attempt(new File(place, name).getPath(), how);
      }
    }

    private void problem(String place, String problem) {
      problems.append("\n  ").append(place).append(": ").append(problem.startsWith(place + ": ")
          ? problem.substring(place.length() + 2) : problem);
    }

    void libraryPath(Attempt how, String... names) {
      for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
        for (String name : names) {
          File file = new File(folder, name);
          if (!folder.isEmpty() && file.exists()) {
            attempt(file.getPath(), how);
          }
        }
      }
      if (found == null) {
        problems.append("\n  java.library.path: no ").append(String.join(", no ", names)).append(" that loads in ")
            .append(System.getProperty("java.library.path"));
      }
    }

    void jar(Attempt how, String resource, String name) {
      if (found != null) {
        return;
      }
      String place = "the jar's " + NATIVES + resource;
      try (InputStream in = Library.class.getResourceAsStream(NATIVES + resource)) {
        if (in == null) {
          problem(place, "the jar has none");
        } else {
          attempt(extracted(in.readAllBytes(), name).toString(), how);
        }
      } catch (IOException | NoSuchAlgorithmException e) {
        problem(place, e.toString());
      }
    }

    String found() {
      if (found == null) {
        throw new UnsatisfiedLinkError(what + " was not found; name it by " + remedy + ". Looked for:" + problems);
      }
      return found;
    }
  }

  /** A file with these contents, in a folder named by them: one that is there already, or a new one that appears at once. */
  private static Path extracted(byte[] contents, String name) throws IOException, NoSuchAlgorithmException {
    String hash = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(contents)).substring(0, 32);
    String cache = System.getProperty("kvcache.cache", System.getProperty("user.home") + "/.cache/kvcache");
    Path folder;
    try {
      folder = Files.createDirectories(Path.of(cache, hash));
    } catch (IOException readOnly) {
      folder = Files.createTempDirectory("kvcache"); // for this process alone: no other process could write there before
    }
    Path file = folder.resolve(name);
    if (Files.exists(file) && Arrays.equals(Files.readAllBytes(file), contents)) {
      return file;
    }
    Path part = Files.createTempFile(folder, name, ".part");
    Files.write(part, contents);
    try {
      Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
    } catch (AtomicMoveNotSupportedException e) {
      Files.move(part, file, StandardCopyOption.REPLACE_EXISTING);
    }
    return file;
  }
}
