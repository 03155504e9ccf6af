package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeSet;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** Offsets, sizes and constants as Java has them are those that a C compiler has measured. */
class LayoutTest {
  private static final Path REPOSITORY = Path.of("../..");

  private static List<String> golden() throws Exception {
    Path file = REPOSITORY.resolve("tests/abi/layout.golden");
    Assumptions.assumeTrue(Files.exists(file), "not in the repository");
    String header = Files.readString(REPOSITORY.resolve("include/kvcache.h")); // the file covers the backends' header too
    List<String> lines = new ArrayList<>();
    String struct = "";
    for (String line : Files.readAllLines(file)) {
      String[] words = line.trim().split(" ");
      if (line.startsWith("struct ")) {
        struct = words[1];
        if (!struct.startsWith("kvc_backend")) {
          lines.add(javaName(struct) + ".SIZE " + words[2]);
        }
      } else if (line.startsWith("constant ")) {
        if (header.contains(words[1])) {
          lines.add(words[1] + " " + words[2]);
        }
      } else if (line.startsWith("  ") && !struct.startsWith("kvc_backend")) {
        lines.add(javaName(struct) + "." + words[0].toUpperCase(Locale.ROOT) + " " + words[1]);
      }
    }
    return lines;
  }

  private static String javaName(String struct) {
    StringBuilder name = new StringBuilder();
    for (String word : struct.substring(4).split("_")) {
      name.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
    }
    return name.toString();
  }

  private static void add(List<String> lines, Class<?> type, String prefix) throws IllegalAccessException {
    for (Field field : type.getDeclaredFields()) {
      lines.add(prefix + field.getName() + " " + field.getInt(null));
    }
  }

  @Test
  void layoutIsCs() throws Exception {
    List<String> java = new ArrayList<>();
    add(java, Abi.class, "");
    for (Class<?> struct : Abi.class.getDeclaredClasses()) {
      add(java, struct, struct.getSimpleName() + ".");
    }
    TreeSet<String> missing = new TreeSet<>(golden());
    java.forEach(missing::remove);
    TreeSet<String> unknown = new TreeSet<>(java);
    golden().forEach(unknown::remove);
    assertEquals("[] []", missing + " " + unknown, "what C alone has, and what Java alone has");
    assertTrue(java.size() > 400, "only " + java.size() + " numbers were compared");
  }

  @Test
  void generatedFilesAreUpToDate() throws Exception {
    Path script = REPOSITORY.resolve("scripts/generate_java.py");
    Assumptions.assumeTrue(Files.exists(script), "not in the repository");
    Process process = new ProcessBuilder("python3", script.toString(), "--check").redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes());
    assertEquals(0, process.waitFor(), output);
  }
}
