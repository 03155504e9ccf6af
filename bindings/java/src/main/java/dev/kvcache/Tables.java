package dev.kvcache;

import java.nio.ByteOrder;

/**
 * Tables of one step for attention kernels of other libraries: block tables, lengths, slots. They are copies in arrays of Java;
 * docs/reference/tables.md describes each. Arrays that were not requested, or that the step lacks, are null.
 */
public final class Tables {
  /**
   * Which keys a table names. For steps that branch (trees, drafts), one table has the keys that all branches share, another those
   * of each branch.
   */
  public enum Part {
    WHOLE(Abi.KVC_TABLES_WHOLE),
    PREFIX(Abi.KVC_TABLES_PREFIX),
    BRANCHES(Abi.KVC_TABLES_BRANCHES),
    ENCODER(Abi.KVC_TABLES_ENCODER);

    final int code;

    Part(int code) {
      this.code = code;
    }
  }

  /** What to make. Without settings: all keys, and all arrays. */
  public static final class Request {
    private Part part = Part.WHOLE;
    private int flags;
    private int padValue;
    private int arrays;

    private Request() {}

    public Request part(Part which) {
      part = which;
      return this;
    }

    /** Tables of page size 1: slots where pages were. */
    public Request slots() {
      flags |= Abi.KVC_TABLES_SLOTS;
      return this;
    }

    /** What blockTable has after a row's pages, instead of -1 (in a graph 0). */
    public Request padValue(int value) {
      flags |= Abi.KVC_TABLES_PAD_VALUE;
      padValue = value;
      return this;
    }

    /** Requests blockTable. If no array is requested, all are made; else only the requested ones. */
    public Request dense() {
      arrays |= Abi.KVC_TABLES_DENSE;
      return this;
    }

    /** indptr, indices, lastPageLen. */
    public Request csr() {
      arrays |= Abi.KVC_TABLES_CSR;
      return this;
    }

    /** slotMapping, positions, lastRows. */
    public Request tokens() {
      arrays |= Abi.KVC_TABLES_TOKENS;
      return this;
    }

    Mem write(Arena arena) {
      Mem c = arena.struct(Abi.Tables.SIZE);
      c.putInt(Abi.Tables.FLAGS, flags);
      c.putInt(Abi.Tables.PART, part == null ? -1 : part.code);
      c.putInt(Abi.Tables.PAD_VALUE, padValue);
      c.putInt(Abi.Tables.ARRAYS, arrays);
      return c;
    }
  }

  public static Request request() {
    return new Request();
  }

  /** True: the queries of a row are its last keys, and each sees the keys up to itself. False: each sees all keys of the row. */
  public final boolean causal;
  /** R, rows of the table. */
  public final int rows;
  /** T, queries of all rows. */
  public final int queries;
  public final int pageSize;
  public final int maxSeqlenQ;
  public final int maxSeqlenK;
  /** Columns of blockTable. */
  public final int maxPages;
  /** Entries of indices that are used. */
  public final long pages;
  public final long keys;
  /** Of a plan: the number of the build; of a graph: of the step; else 0. */
  public final long generation;
  /** [R, maxPages], row by row: page ids, then padding. */
  public final int[] blockTable;
  /** [R] */
  public final int[] cacheSeqlens;
  /** [R + 1] */
  public final int[] cuSeqlensQ;
  /** [R + 1] */
  public final int[] cuSeqlensK;
  /** [R + 1] */
  public final int[] indptr;
  /** [pages] */
  public final int[] indices;
  /** [R] */
  public final int[] lastPageLen;
  /** [R] */
  public final int[] keyStarts;
  /** [R] */
  public final int[] leftpad;
  /** [R]: row of the batch; -1 = unused. */
  public final int[] batchRows;
  /** [R], only if a row streams. */
  public final int[] sinkTokens;
  /** [R], only if a row streams. */
  public final int[] holeTokens;
  /** [T]: slot of each new token; -1 = padding. */
  public final long[] slotMapping;
  /** [T] */
  public final int[] positions;
  /** [rows of the batch] */
  public final int[] lastRows;

  /** Copies memory of the library. The caller makes sure that the step is not closed meanwhile. */
  Tables(NativeCalls calls, Mem c) {
    causal = c.getInt(Abi.Tables.CAUSAL) != 0;
    rows = c.getInt(Abi.Tables.NUM_ROWS);
    queries = c.getInt(Abi.Tables.NUM_QUERIES);
    pageSize = c.getInt(Abi.Tables.PAGE_SIZE);
    maxSeqlenQ = c.getInt(Abi.Tables.MAX_SEQLEN_Q);
    maxSeqlenK = c.getInt(Abi.Tables.MAX_SEQLEN_K);
    maxPages = c.getInt(Abi.Tables.MAX_PAGES);
    pages = c.getLong(Abi.Tables.NUM_PAGES);
    keys = c.getLong(Abi.Tables.NUM_KEYS);
    generation = c.getLong(Abi.Tables.GENERATION);
    blockTable = ints(calls, c, Abi.Tables.BLOCK_TABLE);
    cacheSeqlens = ints(calls, c, Abi.Tables.CACHE_SEQLENS);
    cuSeqlensQ = ints(calls, c, Abi.Tables.CU_SEQLENS_Q);
    cuSeqlensK = ints(calls, c, Abi.Tables.CU_SEQLENS_K);
    indptr = ints(calls, c, Abi.Tables.INDPTR);
    indices = ints(calls, c, Abi.Tables.INDICES);
    lastPageLen = ints(calls, c, Abi.Tables.LAST_PAGE_LEN);
    keyStarts = ints(calls, c, Abi.Tables.KEY_STARTS);
    leftpad = ints(calls, c, Abi.Tables.LEFTPAD);
    batchRows = ints(calls, c, Abi.Tables.BATCH_ROWS);
    sinkTokens = ints(calls, c, Abi.Tables.SINK_TOKENS);
    holeTokens = ints(calls, c, Abi.Tables.HOLE_TOKENS);
    slotMapping = longs(calls, c, Abi.Tables.SLOT_MAPPING);
    positions = ints(calls, c, Abi.Tables.POSITIONS);
    lastRows = ints(calls, c, Abi.Tables.LAST_ROWS);
  }

  private static Managed.Raw raw(NativeCalls calls, Mem c, int field) {
    return c.getInt(field + 16) == 0 ? null : new Managed.Raw(calls, c.buffer, c.at + field);
  }

  private static int[] ints(NativeCalls calls, Mem c, int field) {
    Managed.Raw raw = raw(calls, c, field);
    if (raw == null) {
      return null;
    }
    int columns = (int) raw.shape[raw.shape.length - 1];
    int lines = raw.shape.length == 1 ? 1 : (int) raw.shape[0];
    long stride = raw.strides == null || raw.shape.length == 1 ? columns : raw.strides[0];
    int[] values = new int[lines * columns];
    if (values.length > 0) {
      var all = calls.view(raw.data, raw.bytes()).order(ByteOrder.nativeOrder()).asIntBuffer();
      for (int line = 0; line < lines; line++) {
        all.get((int) (line * stride), values, line * columns, columns);
      }
    }
    return values;
  }

  private static long[] longs(NativeCalls calls, Mem c, int field) {
    Managed.Raw raw = raw(calls, c, field);
    if (raw == null) {
      return null;
    }
    long[] values = new long[(int) raw.shape[0]];
    if (values.length > 0) {
      calls.view(raw.data, raw.bytes()).order(ByteOrder.nativeOrder()).asLongBuffer().get(values);
    }
    return values;
  }
}
