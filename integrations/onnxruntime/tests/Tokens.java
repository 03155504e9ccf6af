// Runs a decoder for some greedy tokens after each prompt, without the plug-in and with it. Prints a line for each list of tokens.
//   java -cp onnxruntime.jar Tokens.java MODEL PLUGIN COUNT LAYERS KV_HEADS DIMS PROMPTS     a file; each line is a prompt: 2 818 5279
import ai.onnxruntime.*;
import java.nio.*;
import java.nio.file.*;
import java.util.*;

public class Tokens {
  public static void main(String[] args) throws Exception {
    int count = Integer.parseInt(args[2]);
    long[] cache = {1, Long.parseLong(args[4]), 0, Long.parseLong(args[5])};
    int layers = Integer.parseInt(args[3]);
    List<long[]> prompts = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(args[6]))) {
      prompts.add(Arrays.stream(line.split(" ")).mapToLong(Long::parseLong).toArray());
    }
    OrtEnvironment environment = OrtEnvironment.getEnvironment();
    System.out.println(environment.getVersion());
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions();
        OrtSession session = environment.createSession(args[0], options)) {
      for (long[] prompt : prompts) System.out.println(generate(environment, session, prompt, count, layers, cache));
    }
    environment.registerExecutionProviderLibrary("kvcache", args[1]);
    List<OrtEpDevice> devices = new ArrayList<>(environment.getEpDevices());
    devices.removeIf(device -> !device.getEpName().equals("KvcacheExecutionProvider"));
    try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
      options.addExecutionProvider(devices, Map.of("num_threads", "2"));
      options.enableProfiling("profile");
      try (OrtSession session = environment.createSession(args[0], options)) {
        for (long[] prompt : prompts) System.out.println(generate(environment, session, prompt, count, layers, cache));
        System.out.println(session.endProfiling());
      }
    }
  }

  static List<Long> generate(OrtEnvironment environment, OrtSession session, long[] prompt, int count, int layers, long[] cache)
      throws OrtException {
    List<Long> tokens = new ArrayList<>();
    Map<String, OnnxTensor> feed = new HashMap<>();
    for (int layer = 0; layer < layers; layer++) {
      for (String kind : new String[] {"key", "value"}) {
        feed.put("past_" + kind + layer, OnnxTensor.createTensor(environment, FloatBuffer.allocate(0), cache));
      }
    }
    long[] next = prompt;
    int length = 0;
    OrtSession.Result before = null; // owns the caches that the next run reads
    for (int i = 0; i < count; i++) {
      length += next.length;
      feed.put("ids", OnnxTensor.createTensor(environment, LongBuffer.wrap(next), new long[] {1, next.length}));
      feed.put("seqlens_k", OnnxTensor.createTensor(environment, IntBuffer.wrap(new int[] {length - 1}), new long[] {1}));
      feed.put("total", OnnxTensor.createTensor(environment, IntBuffer.wrap(new int[] {length}), new long[] {1}));
      OrtSession.Result result = session.run(feed);
      float[][] rows = ((float[][][]) result.get("logits").get().getValue())[0];
      float[] logits = rows[rows.length - 1];
      int best = 0;
      for (int j = 1; j < logits.length; j++) best = logits[j] > logits[best] ? j : best;
      next = new long[] {best};
      tokens.add((long) best);
      for (Map.Entry<String, OnnxValue> output : result) {
        if (!output.getKey().equals("logits")) feed.put(output.getKey().replace("present", "past"), (OnnxTensor) output.getValue());
      }
      if (before != null) before.close();
      before = result;
    }
    before.close();
    return tokens;
  }
}
