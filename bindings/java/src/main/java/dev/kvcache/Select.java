package dev.kvcache;

/** Queries, and the lists of tokens or blocks that are chosen for them, for {@link Step#select}. It can be used again. */
public final class Select extends Args {
  private static final Fields FIELDS = new Fields("q", Abi.SelectArgs.Q, "weights", Abi.SelectArgs.WEIGHTS, "indices!",
      Abi.SelectArgs.INDICES, "candidates", Abi.SelectArgs.CANDIDATES, "ropeCosSin", Abi.SelectArgs.ROPE_COS_SIN);

  private boolean eachHead;
  private int indexBlock;
  private int candidateBlock;
  private int firstBlocks;
  private int lastBlocks;

  private Select() {
    super(FIELDS);
  }

  /** Scores q [T, qHeads, dim], F32, F16 or BF16, and writes indices [T, lists, n] I32; lists is 1, or qHeads with eachHead. */
  public static Select of(Tensor q, Tensor indices) {
    return new Select().q(q).indices(indices);
  }

  public Select q(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  /** [T, qHeads] F32, of any sign; null = all 1, and with eachHead. */
  public Select weights(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  public Select indices(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  /** [T, 1 or lists, n] I32, as {@link Attend#indices}: only tokens that it names are scored. Null, with block 0: all. */
  public Select candidates(Tensor tensor, int block) {
    tensors[3] = tensor;
    candidateBlock = block;
    return this;
  }

  /** As {@link Append#ropeCosSin}, for q. */
  public Select ropeCosSin(Tensor tensor) {
    tensors[4] = tensor;
    return this;
  }

  /** A list for each head, by q.k; else one by the sum over heads of weight * max(0, q.k). */
  public Select eachHead(boolean on) {
    eachHead = on;
    return this;
  }

  /** An entry i names the tokens [i * block, (i + 1) * block), and its score is the largest of those that the query sees; 0 = 1. */
  public Select block(int block) {
    indexBlock = block;
    return this;
  }

  /** So many first entries of the sequence, and so many last ones up to the query's own, are always chosen. */
  public Select always(int first, int last) {
    firstBlocks = first;
    lastBlocks = last;
    return this;
  }

  void write(String function, Arena arena) {
    Mem c = arena.select;
    c.putInt(Abi.SelectArgs.RULE, eachHead ? Abi.KVC_SELECT_EACH_HEAD : Abi.KVC_SELECT_RELU_SUM);
    c.putInt(Abi.SelectArgs.INDEX_BLOCK, indexBlock);
    c.putInt(Abi.SelectArgs.CANDIDATE_BLOCK, candidateBlock);
    c.putInt(Abi.SelectArgs.FIRST_BLOCKS, firstBlocks);
    c.putInt(Abi.SelectArgs.LAST_BLOCKS, lastBlocks);
    writeTensors(function, arena, c);
  }
}
