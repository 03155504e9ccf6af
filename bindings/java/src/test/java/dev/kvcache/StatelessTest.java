package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.expectAttention;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.ints;
import static dev.kvcache.Support.random;
import static dev.kvcache.Support.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Calls over a cache of the caller's own, and plans. */
class StatelessTest {
  private final Random random = new Random(11);
  private final Context context = Context.builder().threads(1).build();

  @AfterEach
  void close() {
    context.close();
  }

  @Test
  void slotsThenAttention() {
    int pageSize = 4;
    Tensor kCache = Tensor.allocate(DType.F32, 8, pageSize, KV_HEADS, DIM);
    Tensor vCache = Tensor.allocate(DType.F32, 8, pageSize, KV_HEADS, DIM);
    Tensor k = random(random, 6, KV_HEADS, DIM);
    Tensor v = random(random, 6, KV_HEADS, DIM);
    int[] pages = {5, 2};
    Tensor slots = Tensor.allocate(DType.I64, 6);
    for (int i = 0; i < 6; i++) {
      slots.longBuffer().put(i, pages[i / 4] * 4L + i % 4);
    }
    context.appendSlots(AppendSlots.of(k, v, kCache, vCache, slots));
    Tensor q = random(random, 1, 1, Q_HEADS, DIM);
    Tensor newK = random(random, 1, 1, KV_HEADS, DIM);
    Tensor newV = random(random, 1, 1, KV_HEADS, DIM);
    Tensor out = Tensor.allocate(DType.F32, 1, 1, Q_HEADS, DIM);
    Tensor lse = Tensor.allocate(DType.F32, 1, Q_HEADS, 1);
    Tensor table = Tensor.allocate(DType.I32, 1, 2);
    table.intBuffer().put(pages);
    FlashAttn args = FlashAttn.of(q, kCache, vCache, out).k(newK).v(newV).cacheSeqlens(ints(6)).blockTable(table).causal(true)
        .softmaxLse(lse);
    context.flashAttnWithKvCache(args);
    expectAttention(concat(floats(k), floats(newK)), concat(floats(v), floats(newV)), floats(q), floats(out), floats(lse), 1 << 30);
    args.k(null).v(null).cacheSeqlens(ints(7)).window(2, 0);
    context.flashAttnWithKvCache(args);
    expectAttention(concat(floats(k), floats(newK)), concat(floats(v), floats(newV)), floats(q), floats(out), floats(lse), 3);

    KvcacheException e = refused(Status.OUT_OF_RANGE, () -> context.flashAttnWithKvCache(args.cacheSeqlens(ints(9))));
    assertEquals(0, e.index());
    refused(Status.NULL_ARGUMENT, () -> context.flashAttnWithKvCache(FlashAttn.of(null, kCache, vCache, out)), "q");
    refused(Status.NULL_ARGUMENT, () -> context.flashAttnWithKvCache(null));
    refused(Status.NULL_ARGUMENT, () -> context.appendSlots(null));
    slots.longBuffer().put(3, 32);
    assertEquals(3, refused(Status.OUT_OF_RANGE, () -> context.appendSlots(AppendSlots.of(k, v, kCache, vCache, slots))).index());
    Tensor frozen = Tensor.of(out.byteBuffer().asReadOnlyBuffer().order(java.nio.ByteOrder.nativeOrder()), DType.F32, 1, 1, Q_HEADS, DIM);
    refused(Status.INVALID_ARGUMENT, () -> context.flashAttnWithKvCache(args.out(frozen)), "out", "read-only");
  }

  @Test
  void aFlashAttnOptionEach() {
    Tensor kCache = random(random, 1, 8, KV_HEADS, DIM);
    Tensor vCache = random(random, 1, 8, KV_HEADS, DIM);
    Tensor q = random(random, 1, 2, Q_HEADS, DIM);
    Tensor out = Tensor.allocate(DType.F32, 1, 2, Q_HEADS, DIM);
    context.flashAttnWithKvCache(FlashAttn.of(q, kCache, vCache, out));
    float[] plain = floats(out);
    FlashAttn[] unlike = {
        FlashAttn.of(q, kCache, vCache, out).causal(true), FlashAttn.of(q, kCache, vCache, out).softcap(0.3),
        FlashAttn.of(q, kCache, vCache, out).softmaxScale(2), FlashAttn.of(q, kCache, vCache, out).attentionChunk(3),
        FlashAttn.of(q, kCache, vCache, out).sinks(random(random, Q_HEADS)), FlashAttn.of(q, kCache, vCache, out).cacheLeftpad(ints(2)),
        FlashAttn.of(q, kCache, vCache, out).alibiSlopes(random(random, Q_HEADS)), FlashAttn.of(q, kCache, vCache, out).window(-1, 0),
        FlashAttn.of(q, kCache, vCache, out).sequsedK(ints(5)), FlashAttn.of(q, kCache, vCache, out).qv(random(random, 1, 2, Q_HEADS, DIM)),
    };
    for (FlashAttn args : unlike) {
      context.flashAttnWithKvCache(args);
      assertTrue(!Arrays.equals(plain, floats(out)), "option " + Arrays.asList(unlike).indexOf(args));
    }
  }

  @Test
  void plansMakeTables() {
    Tensor table = Tensor.allocate(DType.I32, 3, 4);
    table.intBuffer().put(new int[] {3, 9, -1, -1, 1, 2, 4, -1, 7, 0, 0, 0});
    try (Plan plan = Plan.builder(context, Plan.Mode.EXTEND).pageSize(4).numPoolPages(10).build()) {
      refused(Status.STALE, () -> plan.tables());
      PlanArgs args = PlanArgs.of(ints(3, 8)).appendLengths(ints(2, 1)).rows(ints(0, 1)).blockTable(table);
      long generation = plan.build(args);
      Tables tables = plan.tables();
      assertEquals(generation, tables.generation);
      plan.check(generation);
      assertArrayEquals(new int[] {5, 9}, tables.cacheSeqlens);
      assertArrayEquals(new int[] {3, 9, -1, 1, 2, 4}, tables.blockTable);
      assertArrayEquals(new int[] {0, 2, 5}, tables.indptr);
      assertArrayEquals(new int[] {3, 9, 1, 2, 4}, tables.indices);
      assertArrayEquals(new long[] {15, 36, 16}, tables.slotMapping);
      refused(Status.STALE, () -> plan.check(generation + 1));
      assertEquals(1, refused(Status.OUT_OF_RANGE, () -> plan.build(args.seqLens(ints(3, 16)))).index());
      refused(Status.NULL_ARGUMENT, () -> plan.build(null));
    }
    try (Plan plan = Plan.builder(context, Plan.Mode.DRAFT_DECODE).pageSize(4).drafts(2, 1).build()) {
      plan.build(PlanArgs.of(ints(5)).blockTable(table));
      assertArrayEquals(new int[] {7}, plan.tables(1, Tables.Part.WHOLE).cacheSeqlens);
      refused(Status.OUT_OF_RANGE, () -> plan.tables(2, Tables.Part.WHOLE));
    }
    try (Plan plan = Plan.builder(context, Plan.Mode.DECODE).pageSize(4).graph(4, 0, 4).slots().build()) {
      plan.build(PlanArgs.of(ints(5)).blockTable(table));
      Tables tables = plan.tables();
      assertEquals(4, tables.cacheSeqlens.length);
      assertEquals(-1, tables.batchRows[3]);
    }
    Plan closed = Plan.builder(context, Plan.Mode.VERIFY).numDraftTokens(3).build();
    context.close(); // a plan lives on without it
    assertEquals(1, closed.build(PlanArgs.of(ints(1)).blockTable(table)));
    closed.close();
    closed.close();
    refused(Status.NULL_ARGUMENT, () -> closed.build(PlanArgs.of(ints(1))), "closed");
  }
}
