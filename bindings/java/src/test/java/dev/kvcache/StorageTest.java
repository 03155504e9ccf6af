package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.config;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.nio.FloatBuffer;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Whose memory K and V are in: the library's, the caller's, or none. */
class StorageTest {
  private final Random random = new Random(5);

  @Test
  void viewsShowThePool() {
    Tensor pool;
    Tokens tokens = new Tokens(random, 6);
    int page;
    try (Cache cache = cache()) {
      long sequence = cache.add();
      step(cache, sequence, tokens);
      pool = cache.viewPool(0, Cache.Pool.K, false);
      page = cache.pages(sequence, 0)[1];
      assertEquals(4, pool.rank());
      assertTrue(pool.isReadOnly());
      assertArrayEquals(new long[] {64, 2, KV_HEADS, 4, DIM}, cache.viewPool(0, Cache.Pool.KV, true).shape());
      refused(Status.UNSUPPORTED, () -> cache.viewPool(0, Cache.Pool.K_SCALE, false));
      refused(Status.OUT_OF_RANGE, () -> cache.viewPool(4, Cache.Pool.K, false));
    }
    System.gc(); // the cache is gone, its memory is not
    long[] strides = pool.strides();
    FloatBuffer floats = pool.floatBuffer();
    for (int head = 0; head < KV_HEADS; head++) { // token 5 is the second one of the second page
      long at = page * strides[0] + head * strides[1] + strides[2];
      assertEquals(floats(tokens.k)[(5 * KV_HEADS + head) * DIM + 3], floats.get((int) at + 3));
    }
  }

  @Test
  void adoptedPoolsAreTheCallers() {
    Tensor pool = Tensor.allocate(DType.F32, 64, 2, KV_HEADS, 4, DIM);
    Layer layer = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvStorage(pool).build();
    Tokens tokens = new Tokens(random, 3);
    Tensor view;
    try (Cache cache = cache(c -> c.layers(layer))) {
      long sequence = cache.add();
      step(cache, sequence, tokens);
      int at = cache.pages(sequence, 0)[0] * 2 * KV_HEADS * 4 * DIM + DIM; // token 1, head 0
      assertEquals(floats(tokens.k)[KV_HEADS * DIM], pool.floatBuffer().get(at));
      view = cache.viewPool(0, Cache.Pool.KV, true);
      assertEquals(pool.address(), view.address());
    }
    view.floatBuffer().put(0, 42);
    assertEquals(42, pool.floatBuffer().get(0));

    Tensor k = Tensor.allocate(DType.F32, 64, KV_HEADS, 4, DIM);
    Layer halves = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvStorage(k, Tensor.allocate(DType.F32, 64, KV_HEADS, 4, DIM)).build();
    try (Cache cache = cache(c -> c.layers(halves))) {
      step(cache, cache.add(), tokens);
      assertNotEquals(0, k.floatBuffer().get(0));
    }
    Layer twice = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvStorage(k, k).build();
    refused(Status.DUPLICATE, () -> cache(c -> c.layers(twice)));
    Layer small = Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvStorage(Tensor.allocate(DType.F32, 3, 2, KV_HEADS, 4, DIM)).build();
    refused(Status.SHAPE, () -> cache(c -> c.layers(small)), "64");
  }

  @Test
  void adoptedPoolsLiveAsLongAsTheCache() {
    Cache cache = adopted();
    Tensor view = cache.viewPool(0, Cache.Pool.KV, true);
    for (int i = 0; i < 5; i++) {
      System.gc(); // no other code has the adopted tensor
    }
    Tokens tokens = new Tokens(random, 9);
    step(cache, cache.add(), tokens);
    Support.expectAttention(floats(tokens.k), floats(tokens.v), floats(tokens.q), floats(tokens.out), null, 1 << 30);
    cache.close();
    System.gc();
    view.floatBuffer().put(0, 1);
  }

  private static Cache adopted() {
    Tensor pool = Tensor.allocate(DType.F32, 64, 2, KV_HEADS, 4, DIM);
    return config().layers(Layer.builder().qHeads(Q_HEADS).kvHeads(KV_HEADS).headDim(DIM).kvStorage(pool).build()).build();
  }

  @Test
  void tablesWithoutStorage() {
    try (Cache cache = cache(c -> c.tablesOnly())) {
      long sequence = cache.add();
      try (Step step = cache.begin(Batch.of(sequence, 6))) {
        Tables tables = step.tables(0);
        assertTrue(tables.causal);
        assertEquals(1, tables.rows);
        assertEquals(6, tables.queries);
        assertArrayEquals(new int[] {6}, tables.cacheSeqlens);
        assertArrayEquals(new int[] {0, 6}, tables.cuSeqlensQ);
        int[] pages = tables.blockTable;
        assertEquals(2, pages.length);
        for (int i = 0; i < 6; i++) {
          assertEquals(pages[i / 4] * 4L + i % 4, tables.slotMapping[i]);
        }
        assertArrayEquals(new int[] {0, 2}, tables.indptr);
        assertArrayEquals(pages, tables.indices);
        assertArrayEquals(new int[] {2}, tables.lastPageLen);
        assertArrayEquals(new int[] {5}, tables.lastRows);
        Tables slots = step.tables(0, Tables.request().slots().padValue(7).dense());
        assertEquals(1, slots.pageSize);
        assertEquals(6, slots.blockTable.length);
        assertNull(slots.indices);
        refused(Status.UNSUPPORTED, () -> step.attend(0, new Tokens(random, 6).attend()));
        step.end();
      }
      long child = cache.fork(sequence);
      List<Cache.Copy> copies = cache.takeCopies();
      assertEquals(1, copies.size());
      assertEquals(2, copies.get(0).count());
      assertEquals(cache.pages(sequence, 0)[1] * 4L, copies.get(0).sourceSlot());
      assertEquals(cache.pages(child, 0)[1] * 4L, copies.get(0).targetSlot());
      assertEquals(List.of(), cache.takeCopies());
      cache.fork(sequence);
      refused(Status.ORDER, () -> cache.begin(Batch.of(child, 1)));
      assertEquals(1, cache.takeCopies().size());
    }
  }

  @Test
  void treesHaveTablesInTwoParts() {
    try (Cache cache = cache()) {
      long sequence = cache.add();
      step(cache, sequence, new Tokens(random, 5));
      try (Step step = cache.begin(Batch.of(sequence, 3).treeParents(-1, 0, 0))) {
        Tables prefix = step.tables(0, Tables.request().part(Tables.Part.PREFIX));
        Tables branches = step.tables(0, Tables.request().part(Tables.Part.BRANCHES));
        assertEquals(1, prefix.rows);
        assertEquals(3, branches.rows);
        refused(Status.INVALID_ARGUMENT, () -> step.tables(0), "WHOLE");
      }
    }
  }

  @Test
  void importsNeedEveryLayer() {
    try (Cache cache = cache(c -> c.layers(layer(), layer()))) {
      Tokens tokens = new Tokens(random, 2);
      long sequence = cache.add();
      refused(Status.INVALID_ARGUMENT, () -> cache.importTokens(sequence, Import.of(List.of(tokens.k), List.of(tokens.v))));
      refused(Status.INVALID_ARGUMENT, () -> cache.importTokens(sequence, Import.of(List.of(tokens.k, tokens.k), List.of(tokens.v))), "2", "1 v");
      cache.importTokens(sequence, Import.of(List.of(tokens.k, tokens.k), List.of(tokens.v, tokens.v)));
      assertEquals(2, cache.length(sequence));
    }
  }
}
