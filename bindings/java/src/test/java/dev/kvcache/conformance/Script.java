package dev.kvcache.conformance;

import dev.kvcache.Cache;
import dev.kvcache.Context;
import dev.kvcache.Graph;
import dev.kvcache.Group;
import dev.kvcache.Layer;
import dev.kvcache.LoadJob;
import dev.kvcache.Plan;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import dev.kvcache.Transfer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** One script: what it has named, and the words of the line that runs. */
final class Script {
  private static final long NEVER_BOUND = 1L << 60;

  final Map<Integer, Context> contexts = new HashMap<>();
  final Map<Integer, Cache> caches = new HashMap<>();
  final Map<Integer, Step> steps = new HashMap<>();
  final Map<Integer, Graph> graphs = new HashMap<>();
  final Set<Graph> closedGraphs = new HashSet<>();
  final Map<Integer, Plan> plans = new HashMap<>();
  final Map<String, Tensor> tensors = new HashMap<>();
  final List<Layer.Builder> layers = new ArrayList<>();
  final List<List<Layer.State>> states = new ArrayList<>();
  final List<Group> groups = new ArrayList<>();
  final Map<Integer, Transfer> transfers = new HashMap<>();
  final Map<Integer, byte[]> descriptions = new HashMap<>();
  LoadJob job; // of the last attach_pending
  private final Map<Long, Long> bound = new HashMap<>();
  private Map<String, String> words = new HashMap<>();
  final Map<String, Object> results = new LinkedHashMap<>();
  boolean skipped;

  void line(String[] all) {
    words = new HashMap<>();
    results.clear();
    skipped = false;
    for (int i = 1; i < all.length; i++) {
      int equals = all[i].indexOf('=');
      words.put(all[i].substring(0, equals), all[i].substring(equals + 1));
    }
  }

  void close() {
    steps.values().forEach(Step::close);
    plans.values().forEach(Plan::close);
    caches.values().forEach(Cache::close);
    contexts.values().forEach(Context::close);
  }

  boolean has(String key) {
    return words.containsKey(key);
  }

  String word(String key, String absent) {
    return words.getOrDefault(key, absent);
  }

  long integer(String key, long absent) {
    return has(key) ? Long.parseLong(words.get(key)) : absent;
  }

  int integer(String key) {
    return Math.toIntExact(integer(key, 0));
  }

  double number(String key) {
    return has(key) ? Double.parseDouble(words.get(key)) : 0;
  }

  double[] numbers(String key) {
    return has(key) ? Values.doubles(words.get(key)) : null;
  }

  float[] floats(String key) {
    double[] numbers = numbers(key);
    if (numbers == null) {
      return null;
    }
    float[] values = new float[numbers.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = (float) numbers[i];
    }
    return values;
  }

  int[] ints(String key) {
    return has(key) ? Values.ints(words.get(key)) : null;
  }

  long[] longs(String key) {
    return has(key) ? Values.longs(words.get(key)) : null;
  }

  long[] sequences(String key) {
    long[] ordinals = longs(key);
    long[] ids = new long[ordinals.length];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = ordinals[i] == -1 ? 0 : bound.getOrDefault(ordinals[i], NEVER_BOUND + ordinals[i]);
    }
    return ids;
  }

  long sequence() {
    return sequences("seq")[0];
  }

  void bind(long[] ids) {
    long[] ordinals = longs("seqs");
    for (int i = 0; i < ids.length; i++) {
      bound.put(ordinals[i], ids[i]);
    }
  }

  Tensor tensor(String key) {
    return has(key) ? parse(words.get(key)) : null;
  }

  private Tensor parse(String form) {
    return form.equals("-") ? null : form.startsWith("$") ? tensors.get(form.substring(1)) : Values.parse(form);
  }

  List<Tensor> list(String key) {
    if (!has(key)) {
      return null;
    }
    List<Tensor> all = new ArrayList<>();
    for (String form : words.get(key).split(";")) {
      all.add(parse(form));
    }
    return all;
  }

  Context context() {
    return contexts.get(integer("context"));
  }

  Cache cache() {
    return caches.get(integer("cache"));
  }

  Step step() {
    return steps.get(integer("step"));
  }

  Graph graph() {
    return graphs.get(integer("graph"));
  }

  /** Answers `skip`. */
  void skip() {
    skipped = true;
  }

  Plan plan() {
    return plans.get(integer("plan"));
  }
}
