import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.CacheBuilder;
import dev.kvcache.Context;
import dev.kvcache.DType;
import dev.kvcache.DiskTier;
import dev.kvcache.Group;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.LoadJob;
import dev.kvcache.LoadOptions;
import dev.kvcache.PrefixQuery;
import dev.kvcache.RopeMode;
import dev.kvcache.Stats;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * Gemma 3 270M through libkvcache: users share one system prompt, forked, and are decoded greedily as one batch.
 *
 * <pre>java -Xmx3g --add-modules jdk.incubator.vector -cp kvcache.jar Gemma.java gemma.safetensors [new tokens] [--tier DIRECTORY]</pre>
 *
 * generate.py --export writes the file, and README.md says what is in it and what is printed. The cache keeps keys and values
 * and computes attention; the rest of the model, matrix products included, is below.
 */
final class Gemma {
  private static final int PAGE_TOKENS = 16;
  private static final int STEP_TOKENS = 256; // most tokens of one step
  private static final int SLIDING = 0; // the two groups of the cache
  private static final int FULL = 1;

  public static void main(String[] arguments) {
    try (PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8)) {
      int given = arguments.length;
      Path tier = null;
      if (given > 2 && arguments[given - 2].equals("--tier")) {
        tier = Path.of(arguments[given - 1]);
        arguments = Arrays.copyOf(arguments, given - 2);
      }
      if (arguments.length < 1 || arguments.length > 2) {
        throw new IOException("usage: Gemma FILE.safetensors [NEW TOKENS] [--tier DIRECTORY]");
      }
      int limit = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 24;
      if (limit < 1) {
        throw new NumberFormatException();
      }
      File file = new File(Path.of(arguments[0]));
      generate(new Model(file), file, limit, tier, out);
    } catch (NumberFormatException e) {
      fail("the number of new tokens is not positive");
    } catch (NoSuchFileException e) {
      fail("cannot read " + e.getFile() + ": no such file");
    } catch (IOException | KvcacheException | InterruptedException | UnsatisfiedLinkError e) {
      fail(e.getMessage());
    }
  }

  private static void fail(String message) {
    System.err.println("gemma: " + message);
    System.exit(1);
  }

  // ---- Decoding ------------------------------------------------------------------------------------------------------

  /** Greedy decoding of all users; the lines that README.md describes. */
  private static void generate(Model model, File file, int limit, Path tier, PrintStream out) throws IOException, InterruptedException {
    int[] system = file.ints("prompts.system");
    int users = file.number("users").intValue();
    int[][] prompts = new int[users][];
    int tokens = roundUp(system.length) + PAGE_TOKENS;
    for (int user = 0; user < users; user++) {
      prompts[user] = file.ints("prompts.user." + user);
      tokens += roundUp(system.length + prompts[user].length + limit);
    }
    int[] stopIds = file.ints("stop_ids");
    try (Context context = Context.create(); Cache cache = model.cache(context, tokens, users + 1, tier == null ? null : file.fingerprint())) {
      long shared = read(model, cache, system, tier, out);
      long begin = System.nanoTime();
      long[] parents = new long[users];
      Arrays.fill(parents, shared);
      long[] sequences = cache.fork(parents); // every whole page is shared
      List<List<Integer>> outputs = new ArrayList<>();
      for (int user = 0; user < users; user++) {
        outputs.add(new ArrayList<>());
      }
      List<Integer> active = IntStream.range(0, users).boxed().collect(Collectors.toList());
      List<int[]> inputs = new ArrayList<>(Arrays.asList(prompts)); // of each active user
      List<Long> times = new ArrayList<>();
      while (!active.isEmpty()) {
        long began = System.nanoTime();
        long[] batch = active.stream().mapToLong(user -> sequences[user]).toArray();
        int[] next = model.nextTokens(model.step(cache, batch, inputs));
        for (int row = 0; row < next.length; row++) {
          outputs.get(active.get(row)).add(next[row]);
        }
        active.removeIf(user -> {
          List<Integer> output = outputs.get(user);
          int last = output.get(output.size() - 1);
          return output.size() == limit || Arrays.stream(stopIds).anyMatch(stop -> stop == last);
        });
        inputs = active.stream().map(user -> new int[] {outputs.get(user).get(outputs.get(user).size() - 1)}).toList();
        times.add(System.nanoTime() - began);
      }
      double seconds = (System.nanoTime() - begin) / 1e9;

      int count = 0;
      for (int user = 0; user < users; user++) {
        int[] ids = outputs.get(user).stream().mapToInt(Integer::intValue).toArray();
        out.printf("prompt %d: %s%n", user + 1, file.text(prompts[user]));
        out.printf("ids %d: %s%n", user + 1, Arrays.stream(ids).mapToObj(Integer::toString).collect(Collectors.joining(" ")));
        out.printf("text %d: %s%n", user + 1, file.text(ids));
        count += ids.length;
      }
      long[] all = Arrays.copyOf(sequences, users + 1);
      all[users] = shared;
      out.printf("sharing: %d bytes saved (%d forks of a system prompt of %d tokens)%n", savedBytes(cache, all), users, system.length);
      out.printf(Locale.ROOT, "speed: %.1f tokens/s (%d tokens of %d users in %.2f s)%n", count / seconds, count, users, seconds);
      if (times.size() > 1) {
        double step = times.stream().skip(1).mapToLong(Long::longValue).average().getAsDouble() / 1e9;
        double calls = secondsOfCalls(context, model.layers.length, users);
        out.printf(Locale.ROOT, "binding: at most %.3f %% of a decode step (its calls over tiny heads take %.3f ms, the step %.1f ms)%n",
            100 * calls / step, 1e3 * calls, 1e3 * step);
      }
    }
  }

  /**
   * Reads the system prompt. With a tier, what an earlier run left there is loaded; when this returns, the tier has the prompt.
   */
  private static long read(Model model, Cache cache, int[] system, Path tier, PrintStream out) throws InterruptedException {
    Cache.AttachedPrefix found = tier == null ? null : load(cache, PrefixQuery.of(system).allowAll(), tier);
    long sequence = found == null ? cache.add() : found.sequence();
    int loaded = found == null ? 0 : (int) found.hit().tokens();
    for (int begin = loaded; begin < system.length; begin += STEP_TOKENS) {
      int end = Math.min(begin + STEP_TOKENS, system.length);
      model.step(cache, new long[] {sequence}, List.of(Arrays.copyOfRange(system, begin, end)));
      if (tier != null) { // now: the sliding layers still have its pages
        cache.publishPrefix(sequence, PrefixQuery.of(Arrays.copyOf(system, end)));
      }
    }
    while (cache.tierTraffic().pagesWaiting() > 0) {
      Thread.sleep(1);
    }
    if (tier != null) {
      out.printf("tier: %d of %d tokens of the system prompt loaded, %d computed%n", loaded, system.length, system.length - loaded);
    }
    return sequence;
  }

  private static Cache.AttachedPrefix load(Cache cache, PrefixQuery query, Path tier) throws InterruptedException {
    cache.addDiskTier(DiskTier.in(tier));
    try (LoadJob job = cache.loadPrefix(query, LoadOptions.create()).job()) {
      if (job != null) {
        job.await();
      }
    }
    return cache.attachPrefix(query);
  }

  private static int roundUp(int tokens) {
    return (tokens + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
  }

  /** What the sequences would hold in addition if each had its own copy of every page. */
  private static long savedBytes(Cache cache, long[] sequences) {
    long saved = 0;
    for (int group : new int[] {SLIDING, FULL}) {
      int[] pages = Arrays.stream(sequences).mapToObj(sequence -> cache.pages(sequence, group)).flatMapToInt(Arrays::stream)
          .filter(page -> page >= 0).toArray(); // without those that left the window
      Stats stats = cache.stats(group);
      saved += (pages.length - Arrays.stream(pages).distinct().count()) * (stats.storageBytes() / Math.max(1, stats.pagesTotal()));
    }
    return saved;
  }

  /**
   * A decode step's calls over heads so small that attention costs next to nothing: an upper bound of what the binding takes,
   * since the library's own time is in it.
   */
  private static double secondsOfCalls(Context context, int layers, int rows) {
    int steps = 200;
    Layer layer = Layer.builder().qHeads(1).kvHeads(1).headDim(16).build();
    try (Cache cache = Cache.builder().context(context).layers(Collections.nCopies(layers, layer)).maxSequences(rows)
        .capacityTokens(2L * rows * steps).build()) {
      Batch batch = Batch.decode(cache.add(rows));
      Tensor ones = Tensor.allocate(DType.F32, rows, 1, 16);
      float[] values = new float[rows * 16];
      Arrays.fill(values, 1);
      ones.floatBuffer().put(values);
      Attend attend = Attend.of(ones, ones, ones, Tensor.allocate(DType.F32, rows, 1, 16));
      long begin = 0;
      for (int number = 0; number <= steps; number++) {
        if (number == 1) {
          begin = System.nanoTime(); // the first one warms up
        }
        try (Step step = cache.begin(batch)) {
          for (int i = 0; i < layers; i++) {
            step.attend(i, attend);
          }
          if (step.lastRows().length != rows) {
            throw new AssertionError();
          }
          step.end();
        }
      }
      return (System.nanoTime() - begin) / 1e9 / steps;
    }
  }

  // ---- The model -----------------------------------------------------------------------------------------------------

  /** One layer's weights. Matrices are [outputs, inputs]. */
  private record Weights(float[] qkv, float[] attentionOutput, float[] gateUp, float[] down, float[] qNorm, float[] kNorm,
      float[] beforeAttention, float[] afterAttention, float[] beforeFfn, float[] afterFfn) {}

  private static final class Model {
    final Weights[] layers;
    private final int embedding;
    private final int qHeads;
    private final int kvHeads;
    private final int headDim;
    private final int window;
    private final int fullEvery;
    private final double fullTheta;
    private final double slidingTheta;
    private final double softmaxScale;
    private final float embeddingScale;
    private final float epsilon;
    private final float[] embeddings; // [vocabulary, embedding]: also the output matrix
    private final float[] outputNorm;
    private final FloatBuffer qkvBuffer; // what the cache reads and writes is direct memory
    private final FloatBuffer seenBuffer;

    Model(File file) throws IOException {
      embedding = file.number("embedding").intValue();
      qHeads = file.number("q_heads").intValue();
      kvHeads = file.number("kv_heads").intValue();
      headDim = file.number("head_dim").intValue();
      window = file.number("window_tokens").intValue();
      fullEvery = file.number("full_attention_every").intValue();
      fullTheta = file.number("full_rope_theta");
      slidingTheta = file.number("sliding_rope_theta");
      softmaxScale = file.number("attention_scale");
      embeddingScale = file.number("embedding_scale").floatValue();
      epsilon = file.number("norm_epsilon").floatValue();
      embeddings = file.floats("token_embd.weight");
      outputNorm = file.floats("output_norm.weight");
      layers = new Weights[file.number("layers").intValue()];
      for (int i = 0; i < layers.length; i++) {
        String at = "blk." + i + ".%s.weight";
        layers[i] = new Weights(file.floats(at.formatted("attn_qkv")), file.floats(at.formatted("attn_output")),
            file.floats(at.formatted("ffn_gate_up")), file.floats(at.formatted("ffn_down")), file.floats(at.formatted("attn_q_norm")),
            file.floats(at.formatted("attn_k_norm")), file.floats(at.formatted("attn_norm")),
            file.floats(at.formatted("post_attention_norm")), file.floats(at.formatted("ffn_norm")),
            file.floats(at.formatted("post_ffw_norm")));
      }
      qkvBuffer = Tensor.allocate(DType.F32, STEP_TOKENS, qkvWidth()).floatBuffer();
      seenBuffer = Tensor.allocate(DType.F32, STEP_TOKENS, (long) qHeads * headDim).floatBuffer();
    }

    private int qkvWidth() {
      return (qHeads + 2 * kvHeads) * headDim;
    }

    /** With a fingerprint, the cache remembers prefixes, and may have a tier. */
    Cache cache(Context context, int tokens, int maxSequences, byte[] fingerprint) {
      List<Layer> all = new ArrayList<>();
      for (int i = 0; i < layers.length; i++) {
        boolean full = i % fullEvery == fullEvery - 1;
        all.add(Layer.builder().group(full ? FULL : SLIDING).qHeads(qHeads).kvHeads(kvHeads).headDim(headDim)
            .rope(RopeMode.ON_APPEND).ropeTheta(full ? fullTheta : slidingTheta).softmaxScale(softmaxScale).build());
      }
      CacheBuilder config = Cache.builder().context(context).layers(all).groups(Group.sliding(window), Group.full())
          .pageSize(PAGE_TOKENS).maxSequences(maxSequences).maxBatchTokens(STEP_TOKENS).capacityTokens(tokens);
      return (fingerprint == null ? config : config.prefixIndex().fingerprint(fingerprint)).build();
    }

    /** Appends tokens[i] to sequences[i]; the last token's hidden state of each, [sequences, embedding]. */
    float[] step(Cache cache, long[] sequences, List<int[]> tokens) {
      int[] lengths = tokens.stream().mapToInt(each -> each.length).toArray();
      int[] flat = tokens.stream().flatMapToInt(Arrays::stream).toArray();
      float[] x = new float[flat.length * embedding];
      for (int row = 0; row < flat.length; row++) {
        for (int i = 0; i < embedding; i++) {
          x[row * embedding + i] = embeddings[flat[row] * embedding + i] * embeddingScale;
        }
      }
      try (Step step = cache.begin(Batch.of(sequences, lengths))) {
        Attend attend = Attend.of(part(flat.length, 0, qHeads), part(flat.length, qHeads, kvHeads), // the cache rotates q and k
            part(flat.length, qHeads + kvHeads, kvHeads), Tensor.of(seenBuffer.duplicate(), DType.F32, flat.length, qHeads, headDim));
        for (int i = 0; i < layers.length; i++) {
          layer(step, i, attend, x);
        }
        int[] lastRows = step.lastRows();
        step.end();
        float[] last = new float[lastRows.length * embedding];
        for (int i = 0; i < lastRows.length; i++) {
          System.arraycopy(x, lastRows[i] * embedding, last, i * embedding, embedding);
        }
        return last;
      }
    }

    /** Heads [first, first + heads) of each row of q, k and v. */
    private Tensor part(int rows, int first, int heads) {
      return Tensor.of(qkvBuffer.duplicate().position(first * headDim), DType.F32, rows, heads, headDim)
          .withStrides(qkvWidth(), headDim, 1);
    }

    /** Attention, then a gated feed-forward part, each with a norm before and after. x: [rows, embedding]. */
    private void layer(Step step, int number, Attend attend, float[] x) {
      Weights weights = layers[number];
      int rows = x.length / embedding;
      int width = qkvWidth();
      float[] qkv = multiply(norm(x, weights.beforeAttention), weights.qkv, embedding);
      for (int head = 0; head < rows * (qHeads + 2 * kvHeads); head++) {
        int of = head % (qHeads + 2 * kvHeads);
        if (of < qHeads + kvHeads) {
          normInPlace(qkv, head * headDim, of < qHeads ? weights.qNorm : weights.kNorm);
        }
      }
      qkvBuffer.put(0, qkv, 0, rows * width);
      step.attend(number, attend);
      float[] seen = new float[rows * qHeads * headDim];
      seenBuffer.get(0, seen);
      add(x, norm(multiply(seen, weights.attentionOutput, qHeads * headDim), weights.afterAttention));

      float[] gateUp = multiply(norm(x, weights.beforeFfn), weights.gateUp, embedding);
      int inner = gateUp.length / rows / 2;
      float[] gated = new float[rows * inner];
      for (int i = 0; i < gated.length; i++) {
        int at = i / inner * 2 * inner + i % inner;
        gated[i] = gelu(gateUp[at]) * gateUp[at + inner];
      }
      add(x, norm(multiply(gated, weights.down, inner), weights.afterFfn));
    }

    /** The most likely token of each row of hidden states. */
    int[] nextTokens(float[] hidden) {
      float[] logits = multiply(norm(hidden, outputNorm), embeddings, embedding);
      int vocabulary = embeddings.length / embedding;
      int[] best = new int[logits.length / vocabulary];
      for (int row = 0; row < best.length; row++) {
        for (int id = 1; id < vocabulary; id++) {
          if (logits[row * vocabulary + id] > logits[row * vocabulary + best[row]]) {
            best[row] = id;
          }
        }
      }
      return best;
    }

    private float[] norm(float[] x, float[] weight) {
      float[] normed = x.clone();
      for (int row = 0; row < x.length; row += weight.length) {
        normInPlace(normed, row, weight);
      }
      return normed;
    }

    /** RMS norm of the row that begins at `at` and is as long as weight. */
    private void normInPlace(float[] x, int at, float[] weight) {
      float sum = 0;
      for (int i = 0; i < weight.length; i++) {
        sum += x[at + i] * x[at + i];
      }
      float scale = (float) (1 / Math.sqrt(sum / weight.length + epsilon));
      for (int i = 0; i < weight.length; i++) {
        x[at + i] *= scale * weight[i];
      }
    }
  }

  private static void add(float[] x, float[] other) {
    for (int i = 0; i < x.length; i++) {
      x[i] += other[i];
    }
  }

  private static float gelu(float x) {
    double inner = Math.sqrt(2 / Math.PI) * (x + 0.044715f * x * x * x);
    return (float) (0.5 * x * (1 + Math.tanh(inner)));
  }

  // ---- Matrix products -----------------------------------------------------------------------------------------------

  private static final VectorSpecies<Float> SPECIES = FloatVector.SPECIES_PREFERRED;
  private static final int OUTPUTS_A_TASK = 256;

  /** x [rows, inputs] times the transpose of w [outputs, inputs], on all cores. */
  private static float[] multiply(float[] x, float[] w, int inputs) {
    if (inputs % SPECIES.length() != 0) {
      throw new IllegalArgumentException("rows of " + inputs + " numbers are no whole vectors");
    }
    int rows = x.length / inputs;
    int outputs = w.length / inputs;
    float[] out = new float[rows * outputs];
    IntStream.range(0, (outputs + OUTPUTS_A_TASK - 1) / OUTPUTS_A_TASK).parallel().forEach(task -> {
      int end = Math.min((task + 1) * OUTPUTS_A_TASK, outputs);
      for (int output = task * OUTPUTS_A_TASK; output < end; output++) {
        int row = 0;
        for (; row + 4 <= rows; row += 4) {
          four(x, row, w, output, inputs, out, outputs);
        }
        for (; row < rows; row++) {
          out[row * outputs + output] = one(x, row, w, output, inputs);
        }
      }
    });
    return out;
  }

  /** Four rows of x with one of w, which is read once. */
  private static void four(float[] x, int row, float[] w, int output, int inputs, float[] out, int outputs) {
    FloatVector a = FloatVector.zero(SPECIES);
    FloatVector b = a;
    FloatVector c = a;
    FloatVector d = a;
    for (int i = 0; i < inputs; i += SPECIES.length()) {
      FloatVector weights = FloatVector.fromArray(SPECIES, w, output * inputs + i);
      a = FloatVector.fromArray(SPECIES, x, row * inputs + i).fma(weights, a);
      b = FloatVector.fromArray(SPECIES, x, (row + 1) * inputs + i).fma(weights, b);
      c = FloatVector.fromArray(SPECIES, x, (row + 2) * inputs + i).fma(weights, c);
      d = FloatVector.fromArray(SPECIES, x, (row + 3) * inputs + i).fma(weights, d);
    }
    out[row * outputs + output] = a.reduceLanes(VectorOperators.ADD);
    out[(row + 1) * outputs + output] = b.reduceLanes(VectorOperators.ADD);
    out[(row + 2) * outputs + output] = c.reduceLanes(VectorOperators.ADD);
    out[(row + 3) * outputs + output] = d.reduceLanes(VectorOperators.ADD);
  }

  private static float one(float[] x, int row, float[] w, int output, int inputs) {
    FloatVector a = FloatVector.zero(SPECIES);
    for (int i = 0; i < inputs; i += SPECIES.length()) {
      a = FloatVector.fromArray(SPECIES, x, row * inputs + i).fma(FloatVector.fromArray(SPECIES, w, output * inputs + i), a);
    }
    return a.reduceLanes(VectorOperators.ADD);
  }

  // ---- The file ------------------------------------------------------------------------------------------------------

  /** A safetensors file: eight bytes with the length of a JSON header, the header, the tensors. */
  private static final class File {
    private static final Pattern TENSOR = Pattern.compile(
        "\"([^\"]+)\":\\s*\\{\\s*\"dtype\":\\s*\"\\w+\",\\s*\"shape\":\\s*\\[[^]]*],\\s*\"data_offsets\":\\s*\\[(\\d+),\\s*(\\d+)]");
    private static final Pattern TEXT = Pattern.compile("\"(\\w+)\":\\s*\"([^\"]*)\"");

    private final Path path;
    private final Map<String, String> metadata = new HashMap<>();
    private final Map<String, long[]> places = new HashMap<>(); // begin and end in the file
    private int[] offsets;
    private ByteBuffer pieces;

    File(Path path) throws IOException {
      this.path = path;
      try (FileChannel channel = FileChannel.open(path)) {
        ByteBuffer length = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        channel.read(length, 0);
        long bytes = length.getLong(0);
        if (bytes <= 0 || bytes > 1 << 24 || bytes + 8 > channel.size()) {
          throw new IOException(path + ": not a safetensors file");
        }
        ByteBuffer header = ByteBuffer.allocate((int) bytes);
        channel.read(header, 8);
        String text = new String(header.array(), StandardCharsets.UTF_8);
        int begin = text.indexOf("\"__metadata__\"");
        Matcher matcher = TEXT.matcher(begin < 0 ? "" : text.substring(begin, text.indexOf('}', begin)));
        while (matcher.find()) {
          metadata.put(matcher.group(1), matcher.group(2));
        }
        if (!"kvcache-gemma-1".equals(metadata.get("format"))) {
          throw new IOException(path + ": not a file of generate.py --export");
        }
        matcher = TENSOR.matcher(text);
        while (matcher.find()) {
          long[] place = {8 + bytes + Long.parseLong(matcher.group(2)), 8 + bytes + Long.parseLong(matcher.group(3))};
          if (place[0] > place[1] || place[1] > channel.size()) {
            throw new IOException(path + ": the file ends within " + matcher.group(1));
          }
          places.put(matcher.group(1), place);
        }
      }
    }

    Double number(String name) throws IOException {
      try {
        return Double.valueOf(metadata.getOrDefault(name, "missing"));
      } catch (NumberFormatException e) {
        throw new IOException(path + ": the metadata's " + name + " is " + metadata.get(name));
      }
    }

    /** 32 bytes that name the weights. */
    byte[] fingerprint() throws IOException {
      String text = metadata.getOrDefault("fingerprint", "missing");
      if (!text.matches("[0-9a-f]{64}")) {
        throw new IOException(path + ": the metadata's fingerprint is " + text);
      }
      return HexFormat.of().parseHex(text);
    }

    private ByteBuffer bytes(String name) throws IOException {
      long[] place = places.get(name);
      if (place == null) {
        throw new IOException(path + ": there is no " + name);
      }
      try (FileChannel channel = FileChannel.open(path)) {
        return channel.map(FileChannel.MapMode.READ_ONLY, place[0], place[1] - place[0]).order(ByteOrder.LITTLE_ENDIAN);
      }
    }

    /** On the heap, where vectors are read from. */
    float[] floats(String name) throws IOException {
      FloatBuffer buffer = bytes(name).asFloatBuffer();
      float[] values = new float[buffer.remaining()];
      buffer.get(values);
      return values;
    }

    int[] ints(String name) throws IOException {
      var buffer = bytes(name).asIntBuffer();
      int[] values = new int[buffer.remaining()];
      buffer.get(values);
      return values;
    }

    /** The tokens' text on one line. */
    String text(int[] tokens) throws IOException {
      if (offsets == null) {
        offsets = ints("vocabulary.offsets");
        pieces = bytes("vocabulary.bytes");
      }
      var joined = new ByteArrayOutputStream();
      for (int token : tokens) {
        for (int at = offsets[token]; at < offsets[token + 1]; at++) {
          joined.write(pieces.get(at));
        }
      }
      return joined.toString(StandardCharsets.UTF_8).replace('\n', ' ').replaceAll("^ +| +$", "");
    }
  }
}
