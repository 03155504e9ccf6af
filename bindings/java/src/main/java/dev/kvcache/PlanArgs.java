package dev.kvcache;

/**
 * A step of a server with its own allocator, for {@link Plan#build}: B rows with their tables. One-dimensional tensors are I32 or
 * I64, tables I32. It can be used again.
 */
public final class PlanArgs extends Args {
  private static final Fields FIELDS = new Fields(
      "seqLens", Abi.PlanArgs.SEQ_LENS, "appendLengths", Abi.PlanArgs.APPEND_LENGTHS, "rows", Abi.PlanArgs.ROWS,
      "blockTable", Abi.PlanArgs.BLOCK_TABLE, "reqToToken", Abi.PlanArgs.REQ_TO_TOKEN,
      "encoderLens", Abi.PlanArgs.ENCODER_LENS, "treeParents", Abi.PlanArgs.TREE_PARENTS);

  private boolean rowsGrew;

  private PlanArgs() {
    super(FIELDS);
  }

  /** Rows with these numbers of tokens. */
  public static PlanArgs of(Tensor seqLens) {
    return new PlanArgs().seqLens(seqLens);
  }

  /** [B]: tokens of each row. */
  public PlanArgs seqLens(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  /** EXTEND: [B]; else null. */
  public PlanArgs appendLengths(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  /** [B]: rows of the table; -1 = inert; null: row i is row i. */
  public PlanArgs rows(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  /** [rows, columns]: page ids. Either this, */
  public PlanArgs blockTable(Tensor tensor) {
    tensors[3] = tensor;
    return this;
  }

  /** or [rows, columns]: the slot of each token. */
  public PlanArgs reqToToken(Tensor tensor) {
    tensors[4] = tensor;
    return this;
  }

  /** [B]: encoder tokens that are stored before the row's own; DECODE and EXTEND. */
  public PlanArgs encoderLens(Tensor tensor) {
    tensors[5] = tensor;
    return this;
  }

  /** VERIFY: [B * numDraftTokens]: parents; null: chains. */
  public PlanArgs treeParents(Tensor tensor) {
    tensors[6] = tensor;
    return this;
  }

  /** A promise that the rows are those of the last build, each at least as long. Then only new tokens are read. */
  public PlanArgs rowsGrew(boolean promise) {
    rowsGrew = promise;
    return this;
  }

  Mem write(String function, Arena arena) {
    Mem c = arena.struct(Abi.PlanArgs.SIZE);
    writeTensors(function, arena, c);
    c.putInt(Abi.PlanArgs.FLAGS, rowsGrew ? Abi.KVC_PLAN_ROWS_GREW : 0);
    return c;
  }
}
