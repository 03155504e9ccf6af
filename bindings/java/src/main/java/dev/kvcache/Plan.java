package dev.kvcache;

import java.lang.ref.Cleaner;

/**
 * Tables for a server with an allocator and kernels of its own. A plan is made once for a kind of step, and builds the tables of
 * each step. Calls on one plan wait for each other.
 */
public final class Plan implements AutoCloseable {
  /** The kind of step; docs/reference/tables.md has a table of them. */
  public enum Mode {
    /** One new token a row. */
    DECODE(Abi.KVC_PLAN_DECODE),
    /** Any number of new tokens a row. */
    EXTEND(Abi.KVC_PLAN_EXTEND),
    /** Draft tokens are verified: a chain, or a tree. */
    VERIFY(Abi.KVC_PLAN_VERIFY),
    /** Steps of a draft model, all in one build. */
    DRAFT_DECODE(Abi.KVC_PLAN_DRAFT_DECODE);

    final int code;

    Mode(int code) {
      this.code = code;
    }
  }

  private final Handle handle;
  private final Cleaner.Cleanable cleanable;

  private Plan(Handle handle) {
    this.handle = handle;
    cleanable = Context.CLEANER.register(this, handle::close);
  }

  public static Builder builder(Context context, Mode mode) {
    return new Builder(context, mode);
  }

  /** The settings of a plan. A setting that is not given has its default. */
  public static final class Builder {
    private final Context context;
    private final Mode mode;
    private int flags;
    private int pageSize;
    private int numDraftTokens;
    private int numSteps;
    private int topK;
    private int padValue;
    private int arrays;
    private int maxRows;
    private int maxTokens;
    private int maxPagesPerRow;
    private long windowTokens;
    private long chunkTokens;
    private long numPoolPages;

    private Builder(Context context, Mode mode) {
      this.context = context;
      this.mode = mode;
    }

    /** Tokens a page; 0 = 16. */
    public Builder pageSize(int tokens) {
      pageSize = tokens;
      return this;
    }

    /** VERIFY: new tokens of a row. */
    public Builder numDraftTokens(int n) {
      numDraftTokens = n;
      return this;
    }

    /** DRAFT_DECODE: steps in one build, and branches of a row. */
    public Builder drafts(int steps, int branches) {
      numSteps = steps;
      topK = branches;
      return this;
    }

    public Builder padValue(int value) {
      flags |= Abi.KVC_PLAN_PAD_VALUE;
      padValue = value;
      return this;
    }

    /** Tables of page size 1: slots where pages were. */
    public Builder slots() {
      flags |= Abi.KVC_PLAN_SLOTS;
      return this;
    }

    /** seqLens count this step's new tokens. */
    public Builder lengthsWithNew() {
      flags |= Abi.KVC_PLAN_LENGTHS_WITH_NEW;
      return this;
    }

    /** Arrays of the capacity's size, whatever the batch: rows of a batch, new tokens of it (EXTEND, else 0), pages of a row. */
    public Builder graph(int rows, int tokens, int pagesPerRow) {
      flags |= Abi.KVC_PLAN_GRAPH;
      maxRows = rows;
      maxTokens = tokens;
      maxPagesPerRow = pagesPerRow;
      return this;
    }

    /** Queries see this many keys, themselves included; 0 = all. */
    public Builder windowTokens(long tokens) {
      windowTokens = tokens;
      return this;
    }

    /** Queries see the keys of their chunk, up to their own; 0 = all. */
    public Builder chunkTokens(long tokens) {
      chunkTokens = tokens;
      return this;
    }

    /** Pages of the server's pool, against which tables are checked; 0 = unknown. */
    public Builder numPoolPages(long pages) {
      numPoolPages = pages;
      return this;
    }

    /** Which arrays to make; without this all. */
    public Builder arrays(boolean dense, boolean csr, boolean tokens) {
      arrays = (dense ? Abi.KVC_TABLES_DENSE : 0) | (csr ? Abi.KVC_TABLES_CSR : 0) | (tokens ? Abi.KVC_TABLES_TOKENS : 0);
      return this;
    }

    public Plan build() {
      Arena arena = Checks.given("Plan.Builder.build", "context", context).enter("Plan.Builder.build");
      try {
        Mem c = arena.struct(Abi.PlanConfig.SIZE);
        c.putInt(Abi.PlanConfig.FLAGS, flags);
        c.putInt(Abi.PlanConfig.MODE, Checks.given("Plan.Builder.build", "mode", mode).code);
        c.putInt(Abi.PlanConfig.PAGE_SIZE, pageSize);
        c.putInt(Abi.PlanConfig.NUM_DRAFT_TOKENS, numDraftTokens);
        c.putInt(Abi.PlanConfig.NUM_STEPS, numSteps);
        c.putInt(Abi.PlanConfig.TOP_K, topK);
        c.putInt(Abi.PlanConfig.PAD_VALUE, padValue);
        c.putInt(Abi.PlanConfig.ARRAYS, arrays);
        c.putInt(Abi.PlanConfig.MAX_ROWS, maxRows);
        c.putInt(Abi.PlanConfig.MAX_TOKENS, maxTokens);
        c.putInt(Abi.PlanConfig.MAX_PAGES_PER_ROW, maxPagesPerRow);
        c.putLong(Abi.PlanConfig.WINDOW_TOKENS, windowTokens);
        c.putLong(Abi.PlanConfig.CHUNK_TOKENS, chunkTokens);
        c.putLong(Abi.PlanConfig.NUM_POOL_PAGES, numPoolPages);
        NativeCalls calls = context.handle().calls;
        arena.check(calls.planCreate(context.handle().address, c.address, arena.numbers.address, arena.error.address));
        return new Plan(new Handle(calls, arena.numbers.getLong(0), calls::planDestroy, null));
      } finally {
        context.leave(arena);
      }
    }
  }

  private Arena enter(String function) {
    if (!handle.enter()) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, function + ": the Plan is closed");
    }
    return Arena.take(handle.calls);
  }

  private void leave(Arena arena) {
    arena.giveBack();
    handle.leave();
  }

  /** Makes the tables of a step, with all its draft steps and parts. Returns the number of this build. */
  public synchronized long build(PlanArgs args) {
    Arena arena = enter("Plan.build");
    try {
      Mem c = Checks.given("Plan.build", "args", args).write("Plan.build", arena);
      arena.check(arena.calls().planBuild(handle.address, c.address, 0, arena.numbers.address, arena.error.address));
      return arena.numbers.getLong(0);
    } finally {
      leave(arena);
    }
  }

  /** A copy of the tables that the last build made; step is 0 but for DRAFT_DECODE. */
  public synchronized Tables tables(int step, Tables.Part part) {
    Arena arena = enter("Plan.tables");
    try {
      Mem tables = Tables.request().part(part).write(arena);
      arena.check(handle.calls.planTables(handle.address, step, tables.address, arena.error.address));
      return new Tables(handle.calls, tables);
    } finally {
      leave(arena);
    }
  }

  public Tables tables() {
    return tables(0, Tables.Part.WHOLE);
  }

  /** Throws STALE unless the arrays hold this build. */
  public synchronized void check(long generation) {
    Arena arena = enter("Plan.check");
    try {
      arena.check(handle.calls.planCheck(handle.address, generation, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  @Override
  public void close() {
    cleanable.clean();
  }
}
