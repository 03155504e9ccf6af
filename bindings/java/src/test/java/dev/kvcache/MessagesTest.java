package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** The messages of the mistakes that newcomers make. tests/api/messages_test.cc makes the same ones in C. */
class MessagesTest {
  private static final Path GOLDEN = Path.of("../messages/java.txt");

  private final StringBuilder text = new StringBuilder();

  private void add(String mistake, Executable call) {
    KvcacheException e = assertThrows(KvcacheException.class, call, mistake);
    String message = e.getMessage().replaceAll("\\d{13,}", "ID"); // ids differ from run to run
    text.append(mistake).append("\n    ").append(e.getClass().getSimpleName()).append(": ").append(message).append('\n');
  }

  private static Tensor rows(long... shape) {
    return Tensor.allocate(DType.F32, shape);
  }

  private static Attend attend() {
    return Attend.of(rows(3, 4, 16), rows(3, 1, 16), rows(3, 1, 16), rows(3, 4, 16));
  }

  private static Layer.Builder layer() {
    return Layer.builder().qHeads(4).kvHeads(1).headDim(16);
  }

  private void tensors(Step step) {
    add("k has the wrong number of heads", () -> step.attend(1, attend().k(rows(3, 2, 16))));
    add("q has no dimension of heads", () -> step.attend(1, attend().q(rows(3, 64))));
    add("q has too few tokens", () -> step.attend(1, attend().q(rows(2, 4, 16))));
    add("q has elements of a wrong type", () -> step.attend(1, attend().q(Tensor.allocate(DType.I32, 3, 4, 16))));
    add("out has the wrong head dim", () -> step.attend(1, attend().out(rows(3, 4, 8))));
    add("v is left out", () -> step.attend(1, attend().v(null)));
    add("a layer attends before its k and v are stored", () -> step.attend(1, attend().k(null).v(null)));
    add("a layer does not exist", () -> step.attend(7, attend()));
    add("a slice is shorter than its tensor", () -> rows(100).withShape(3, 4, 16));
    add("a buffer is on the heap", () -> Tensor.of(FloatBuffer.allocate(192), DType.F32, 3, 4, 16));
  }

  private void steps(Cache cache, long[] sequences, Step first) {
    first.attend(0, attend());
    add("a layer attends twice", () -> first.attend(0, attend()));
    add("a step ends before every layer has its tokens", first::end);
    first.attend(1, attend());
    first.end();
    add("a step is used after its end", () -> first.attend(0, attend()));
    Step step = cache.begin(Batch.of(sequences[0], 3));
    add("a sequence of an open step is truncated", () -> cache.truncate(sequences[0], 0));
    Step second = cache.begin(Batch.of(sequences[1], 1));
    long third = cache.add();
    add("a third step begins", () -> cache.begin(Batch.of(third, 1)));
    second.close();
    step.cancel();
    add("a cancelled step ends", step::end);
    step.close();
    cache.remove(third);
    add("a removed sequence is used", () -> cache.begin(Batch.of(third, 1)));
    long[] twice = {sequences[0], sequences[0]};
    add("a sequence occurs twice", () -> cache.begin(Batch.decode(twice)));
    add("a row has no length", () -> cache.begin(Batch.of(twice, new int[] {1})));
    add("a step has no new tokens", () -> cache.begin(Batch.of(sequences[0], 0)));
    add("a step needs more pages than there are", () -> cache.begin(Batch.of(sequences[0], 40)));
    add("a step is larger than max_batch_tokens", () -> cache.begin(Batch.of(sequences[0], 65)));
  }

  private void config(String mistake, Layer first, Layer second, UnaryOperator<CacheBuilder> change) {
    add(mistake, () -> change.apply(Cache.builder().layers(first, second).capacityTokens(32)).build());
  }

  private void configs() {
    Layer good = layer().build();
    config("q heads are no multiple of kv heads", good, layer().kvHeads(3).build(), c -> c);
    config("a layer's group does not exist", good, layer().group(2).build(), c -> c);
    config("a cache has no capacity", good, good, c -> c.capacityTokens(0));
    config("the head dim is forgotten", good, layer().headDim(0).build(), c -> c);
    config("kv_layer names a later layer", layer().kvLayer(1).build(), good, c -> c);
  }

  @Test
  void ofCommonMistakes() throws Exception {
    Cache cache = Cache.builder().layers(layer().build(), layer().build()).pageSize(4).maxSequences(4).maxBatchTokens(64)
        .capacityTokens(32).build();
    long[] sequences = {cache.add(), cache.add()};
    Step step = cache.begin(Batch.of(sequences[0], 3));
    tensors(step);
    steps(cache, sequences, step);
    add("tokens beyond the end are exported", () -> cache.export(sequences[0], 0, 0, 9));
    add("a sequence is truncated beyond its end", () -> cache.truncate(sequences[0], 9));
    add("a group does not exist", () -> cache.stats(3));
    add("a tier is added without a prefix index", () -> cache.addDiskTier(DiskTier.in(Path.of("tier"))));
    add("a prefix is loaded without a tier", () -> cache.loadPrefix(PrefixQuery.of(1), LoadOptions.create()));
    configs();
    cache.close();
    add("a closed cache is used", cache::add);
    if (System.getenv("KVC_UPDATE_MESSAGES") != null) {
      Files.writeString(GOLDEN, text);
    }
    assertEquals(Files.readString(GOLDEN), text.toString(), "KVC_UPDATE_MESSAGES=1 writes " + GOLDEN);
  }
}
