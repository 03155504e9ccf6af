package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.config;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Whatever a caller does wrong is an exception with a message that says it, and changes nothing. */
class ErrorsTest {
  private final Random random = new Random(2);

  private static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  @Test
  void onlyDirectBuffersInNativeOrderAreTensors() {
    ByteOrder foreign = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    refused(Status.DEVICE, () -> Tensor.of(ByteBuffer.allocate(64).order(ByteOrder.nativeOrder()), DType.F32, 4), "heap");
    refused(Status.DEVICE, () -> Tensor.of(FloatBuffer.wrap(new float[4]), DType.F32, 4), "heap", "allocateDirect");
    refused(Status.DTYPE, () -> Tensor.of(ByteBuffer.allocateDirect(64).order(foreign), DType.F32, 4), "order");
    refused(Status.DTYPE, () -> Tensor.of(ByteBuffer.allocateDirect(64).order(foreign).asFloatBuffer(), DType.F32, 4), foreign.toString());
    refused(Status.DTYPE, () -> Tensor.of(ByteBuffer.allocateDirect(64).order(foreign).asShortBuffer(), DType.BF16, 4));
    Tensor.of(ByteBuffer.allocateDirect(64).order(foreign), DType.U8, 64); // bytes have no order
    refused(Status.DTYPE, () -> Tensor.of(direct(64).asFloatBuffer(), DType.BF16, 4), "FloatBuffer", "BF16");
    refused(Status.DTYPE, () -> Tensor.of(direct(64).asShortBuffer(), DType.F32, 4));
    refused(Status.DTYPE, () -> Tensor.of(direct(64).asDoubleBuffer(), DType.F32, 4));
    refused(Status.DTYPE, () -> Tensor.of(direct(64).asCharBuffer(), DType.F16, 4));
    refused(Status.NULL_ARGUMENT, () -> Tensor.of(null, DType.F32, 4), "buffer is null");
    refused(Status.NULL_ARGUMENT, () -> Tensor.of(direct(4), null, 1), "dtype is null");
    refused(Status.NULL_ARGUMENT, () -> Tensor.of(direct(4), DType.F32, (long[]) null), "shape is null");
  }

  @Test
  void tensorsLieWithinTheirBuffers() {
    refused(Status.SHAPE, () -> Tensor.of(direct(63), DType.F32, 4, 4), "[4, 4]", "needs 16 elements", "has 15");
    Tensor.of(direct(64), DType.F32, 4, 4);
    refused(Status.SHAPE, () -> Tensor.of(direct(64).position(4), DType.F32, 4, 4), "has 15");
    refused(Status.SHAPE, () -> Tensor.of(direct(64).limit(60), DType.F32, 4, 4));
    refused(Status.SHAPE, () -> Tensor.of(direct(64).asFloatBuffer().position(1), DType.F32, 16));
    refused(Status.SHAPE, () -> Tensor.of(direct(64), DType.F32, 1L << 40, 1L << 40), "2^63");
    refused(Status.SHAPE, () -> Tensor.of(direct(64), DType.F32, -1, 4), "-1");
    refused(Status.RANK, () -> Tensor.of(direct(64), DType.F32, 1, 1, 1, 1, 1, 1), "6");
    Tensor tensor = Tensor.of(direct(64), DType.F32, 2, 4);
    tensor.withStrides(12, 1);
    refused(Status.SHAPE, () -> tensor.withStrides(13, 1), "strides [13, 1]", "needs 17");
    refused(Status.STRIDE, () -> tensor.withStrides(-4, 1), "-4");
    refused(Status.STRIDE, () -> tensor.withStrides(1), "2 dimensions", "1 strides");
    refused(Status.SHAPE, () -> tensor.withStrides(Long.MAX_VALUE, 1));
    refused(Status.SHAPE, () -> tensor.withShape(17));
    refused(Status.SHAPE, () -> Tensor.allocate(DType.F32, 1L << 40), "2^31");
    refused(Status.SHAPE, () -> Tensor.allocate(DType.F32, Long.MAX_VALUE, 4, 0x1000));
    assertEquals(0, Tensor.allocate(DType.F32, 0, 4).byteBuffer().capacity());
    refused(Status.DTYPE, () -> tensor.shortBuffer(), "F32");
  }

  @Test
  void wrongTensorsAreTheLibrarysErrors() {
    try (Cache cache = cache(); Step step = cache.begin(Batch.of(cache.add(), 3))) {
      Tokens tokens = new Tokens(random, 3);
      refused(Status.NULL_ARGUMENT, () -> step.attend(0, tokens.attend().q(null)), "Step.attend", "q");
      refused(Status.NULL_ARGUMENT, () -> step.attend(0, tokens.attend().out(null)), "out");
      refused(Status.NULL_ARGUMENT, () -> step.attend(0, null), "args is null");
      refused(Status.NULL_ARGUMENT, () -> step.append(0, null), "args is null");
      refused(Status.SHAPE, () -> step.attend(0, tokens.attend().k(Tensor.allocate(DType.F32, 2, KV_HEADS, DIM))), "k", "2");
      refused(Status.SHAPE, () -> step.attend(0, tokens.attend().out(Tensor.allocate(DType.F32, 3, 3, DIM))), "out");
      refused(Status.RANK, () -> step.attend(0, tokens.attend().q(Tensor.allocate(DType.F32, 3, 64))), "q");
      refused(Status.DTYPE, () -> step.attend(0, tokens.attend().q(Tensor.allocate(DType.I32, 3, Q_HEADS, DIM))), "q");
      refused(Status.STRIDE, () -> step.attend(0, tokens.attend().k(
          Tensor.allocate(DType.F32, 3, KV_HEADS, 2 * DIM).withShape(3, KV_HEADS, DIM).withStrides(64, 32, 2))), "k");
      refused(Status.OUT_OF_RANGE, () -> step.attend(1, tokens.attend()), "layer 1");
      refused(Status.OUT_OF_RANGE, () -> step.attend(-1, tokens.attend()));
      refused(Status.OUT_OF_RANGE, () -> step.attend(0, tokens.attend().softcap(-1)), "softcap");
      Tensor frozen = Tensor.of(tokens.out.byteBuffer().asReadOnlyBuffer().order(ByteOrder.nativeOrder()), DType.F32, 3, Q_HEADS, DIM);
      refused(Status.INVALID_ARGUMENT, () -> step.attend(0, tokens.attend().out(frozen)), "out", "read-only");
      step.attend(0, tokens.attend()); // the step is as it was
      refused(Status.ORDER, () -> step.attend(0, tokens.attend()));
      step.end();
    }
  }

  @Test
  void closedHandlesAreErrors() {
    Context context = Context.create();
    Cache cache = cache(c -> c.context(context));
    long sequence = cache.add();
    context.close();
    context.close();
    refused(Status.NULL_ARGUMENT, context::describe, "Context is closed");
    refused(Status.NULL_ARGUMENT, () -> cache(c -> c.context(context)), "Context is closed");
    Step step = cache.begin(Batch.of(sequence, 1)); // caches keep what they need of their context
    Step other = cache.begin(Batch.of(cache.add(), 1));
    step.attend(0, new Tokens(random, 1).attend());
    step.end();
    refused(Status.STALE_ID, () -> step.attend(0, new Tokens(random, 1).attend()), "this step has ended");
    refused(Status.STALE_ID, step::end);
    refused(Status.STALE_ID, step::abort);
    refused(Status.STALE_ID, step::cancel);
    step.close();
    step.close();
    cache.close();
    cache.close();
    other.close();
    refused(Status.NULL_ARGUMENT, () -> other.attend(0, new Tokens(random, 1).attend()), "Step.attend", "Cache is closed");
    refused(Status.NULL_ARGUMENT, other::cancel, "closed");
    refused(Status.NULL_ARGUMENT, cache::add, "Cache.add: the Cache is closed");
    refused(Status.NULL_ARGUMENT, () -> cache.length(sequence));
    refused(Status.NULL_ARGUMENT, () -> cache.begin(Batch.of(sequence, 1)));
    refused(Status.NULL_ARGUMENT, () -> cache.export(sequence, 0));
    refused(Status.NULL_ARGUMENT, () -> cache.viewPool(0, Cache.Pool.K, false));
  }

  @Test
  void staleAndForeignIds() {
    try (Cache cache = cache(); Cache other = cache()) {
      long[] sequences = cache.add(3);
      cache.remove(sequences[0]);
      KvcacheException e = refused(Status.STALE_ID, () -> cache.lengths(sequences[1], sequences[0]), "Cache.lengths");
      assertEquals(1, e.index());
      assertEquals(11, e.code());
      assertEquals(-1, e.group());
      refused(Status.STALE_ID, () -> other.length(sequences[1]));
      refused(Status.STALE_ID, () -> other.remove(sequences[1]));
      refused(Status.STALE_ID, () -> other.begin(Batch.of(sequences[1], 1)));
      refused(Status.STALE_ID, () -> cache.length(0));
      refused(Status.STALE_ID, () -> cache.length(-1));
      refused(Status.STALE_ID, () -> cache.length(Long.MIN_VALUE));
      refused(Status.DUPLICATE, () -> cache.remove(sequences[1], sequences[1]));
      assertEquals(2, cache.stats().sequences());
    }
  }

  @Test
  void arraysOfUnlikeLengthsAndNull() {
    try (Cache cache = cache()) {
      long sequence = cache.add();
      long[] two = {sequence, sequence};
      refused(Status.INVALID_ARGUMENT, () -> cache.fork(two, new long[] {1}), "2 parents, but 1 positions");
      refused(Status.INVALID_ARGUMENT, () -> cache.truncate(two, new long[] {1}), "2 sequences, but 1 lengths");
      refused(Status.INVALID_ARGUMENT, () -> cache.commit(two, new int[3]), "3 leaves");
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(two, new int[] {1})), "2 sequences, but 1 append lengths");
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(sequence, 3).treeParents(-1)), "3 tokens, but treeParents for 1");
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(sequence, 3).spanIds(1, 1)), "spanIds for 2");
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(sequence, 0)));
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(sequence, Integer.MIN_VALUE)));
      refused(Status.DUPLICATE, () -> cache.begin(Batch.decode(two)));
      refused(Status.NULL_ARGUMENT, () -> cache.begin(null), "batch is null");
      refused(Status.NULL_ARGUMENT, () -> cache.begin(Batch.of(null, null)), "sequences is null");
      refused(Status.NULL_ARGUMENT, () -> cache.begin(Batch.of(two, null)), "appendLengths is null");
      refused(Status.NULL_ARGUMENT, () -> cache.remove((long[]) null), "sequences is null");
      refused(Status.NULL_ARGUMENT, () -> cache.fork((long[]) null), "parents is null");
      refused(Status.NULL_ARGUMENT, () -> cache.truncate(two, null), "lengths is null");
      refused(Status.NULL_ARGUMENT, () -> cache.treeNodes((long[]) null));
      refused(Status.NULL_ARGUMENT, () -> cache.streaming((long[]) null));
      refused(Status.NULL_ARGUMENT, () -> cache.setStreaming(null, false, sequence), "window is null");
      refused(Status.NULL_ARGUMENT, () -> cache.importTokens(sequence, null));
      refused(Status.NULL_ARGUMENT, () -> cache.viewPool(0, null, false));
      refused(Status.NULL_ARGUMENT, () -> Plan.builder(null, Plan.Mode.DECODE).build());
      refused(Status.INVALID_ARGUMENT, () -> cache.add(-1), "-1");
      refused(Status.TOO_MANY_SEQUENCES, () -> cache.add(1000), "1000");
      refused(Status.OUT_OF_RANGE, () -> cache.pages(sequence, 1));
      refused(Status.OUT_OF_RANGE, () -> cache.nearestPosition(sequence, 7));
      refused(Status.OUT_OF_RANGE, () -> cache.truncate(sequence, 1));
      assertEquals(0, cache.add(0).length);
      cache.remove();
      cache.checkInvariants();
      assertEquals(1, cache.stats().sequences());
    }
  }

  @Test
  void mergesOfUnlikeLists() {
    try (Context context = Context.create()) {
      Tensor out = Tensor.allocate(DType.F32, 1, 1, 4);
      Tensor lse = Tensor.allocate(DType.F32, 1, 1);
      refused(Status.INVALID_ARGUMENT, () -> context.merge(List.of(out), List.of(), out, null), "1 outputs, but 0 lses");
      refused(Status.NULL_ARGUMENT, () -> context.merge(null, List.of(), out, null), "outputs is null");
      refused(Status.INVALID_ARGUMENT, () -> context.merge(List.of(), List.of(), out, null), "outputs.size()");
      refused(Status.NULL_ARGUMENT, () -> context.merge(List.of(out), List.of(lse), null, null), "out");
      refused(Status.SHAPE, () -> context.merge(List.of(out), List.of(out.withShape(1, 4)), Tensor.allocate(DType.F32, 1, 1, 4), lse));
    }
  }

  @Test
  void configsAreChecked() {
    refused(Status.NULL_ARGUMENT, () -> Cache.builder().layers((List<Layer>) null).build(), "layers is null");
    refused(Status.INVALID_ARGUMENT, () -> Cache.builder().capacityTokens(16).build(), "layers");
    refused(Status.INVALID_ARGUMENT, () -> config().pageSize(-1).build(), "pageSize");
    refused(Status.INVALID_ARGUMENT, () -> config().capacityBytes(100).build(), "exactly one");
    KvcacheException e = refused(Status.INVALID_ARGUMENT, () -> config().layers(layer(), Layer.builder().qHeads(3).kvHeads(2).headDim(16).build()).build());
    assertEquals(1, e.index());
    refused(Status.OUT_OF_RANGE, () -> config().layers(Layer.builder().group(4).qHeads(2).kvHeads(2).headDim(16).build()).build(), "group 4");
    refused(Status.DTYPE, () -> config().layers(Layer.builder().qHeads(2).kvHeads(2).headDim(16).dtype(DType.I32).build()).build());
    refused(Status.INVALID_ARGUMENT, () -> config().layers(Layer.builder().qHeads(2).kvHeads(2).headDim(16).dtype(DType.F8E4M3)
        .scales(new float[1], new float[2]).build()).build(), "1 scales of k, but 2 of v");
    refused(Status.UNSUPPORTED, () -> Context.builder().simd("abacus").build(), "abacus");
    refused(Status.INVALID_ARGUMENT, () -> Context.builder().threads(-2).build(), "-2");
    refused(Status.RANK, () -> config().layers(Layer.builder().states(new Layer.State(DType.F32, 1, 1, 1, 1, 1)).build()).build(), "5");
    assertThrows(NullPointerException.class, () -> config().layers((Layer) null)); // Java's own: List.of
  }

  @Test
  void messagesHaveTheNamesOfThisPackage() {
    assertEquals("CacheBuilder.build: qHeads 3", Arena.inJava("kvc_cache_create: num_q_heads 3"));
    assertEquals("Step.attend: k is null (my_num_q_heads)", Arena.inJava("kvc_forward_attend: k is NULL (my_num_q_heads)"));
    assertEquals("Cache.setStreaming: window[1]", Arena.inJava("kvc_seq_set_streaming: window_tokens[1]"));
    assertEquals("", Arena.inJava(""));
    refused(Status.INVALID_ARGUMENT, () -> config().layers(Layer.builder().qHeads(3).kvHeads(2).headDim(16).build()).build(),
        "CacheBuilder.build: layer 0: qHeads 3 is no multiple of kvHeads 2");
    try (Cache cache = cache()) {
      long sequence = cache.add();
      refused(Status.UNSUPPORTED, () -> cache.setStreaming(new Cache.Window(4, 64), false, sequence), "Cache.setStreaming",
          "without streaming");
      refused(Status.INVALID_ARGUMENT, () -> cache.begin(Batch.of(sequence, 2).treeParents(Batch.TREE_ROOT, 7)),
          "treeParents[1] is 7");
      try (Step step = cache.begin(Batch.of(sequence, 2))) {
        refused(Status.BUSY, () -> cache.truncate(sequence, 0), "is in an open step");
      }
    }
  }

  @Test
  void statusesAreTheHeaders() {
    assertEquals(Status.OUT_OF_PAGES, Status.of(100));
    assertEquals(Status.UNKNOWN, Status.of(55));
    assertTrue(new KvcacheException(199, "KVC_ERROR_CAPACITY", "x", -1, -1, 0, 0).status() == Status.UNKNOWN);
    NativeCalls calls = Library.calls();
    for (Status status : Status.values()) {
      if (status != Status.UNKNOWN) {
        assertEquals("KVC_ERROR_" + status, calls.statusName(status.code));
      }
    }
  }
}
