package dev.kvcache;

import java.util.Arrays;

/**
 * What a step appends. The T rows of its tensors are the tokens of the first sequence, then those of the second, and so on. A
 * batch copies no array. Arrays may change between steps, so one batch can serve every step of a loop.
 */
public final class Batch {
  /** In treeParents: the node follows the sequence's last token. */
  public static final int TREE_ROOT = Abi.KVC_TREE_ROOT;
  /** In treeParents: no node; its row appends plain tokens. */
  public static final int TREE_NONE = Abi.KVC_TREE_NONE;

  private final long[] sequences;
  private final int[] appendLengths;
  private int layerBegin;
  private int layerEnd;
  private int[] treeParents;
  private int[] spanIds;
  private int encoderGroup;

  private Batch(long[] sequences, int[] appendLengths) {
    this.sequences = sequences;
    this.appendLengths = appendLengths;
  }

  /** One sequence with n new tokens. */
  public static Batch of(long sequence, int n) {
    return new Batch(new long[] {sequence}, new int[] {n});
  }

  /** Sequences, distinct, with the new tokens of each; 0 = an inert row, whose tokens are padding. */
  public static Batch of(long[] sequences, int[] appendLengths) {
    return new Batch(sequences, appendLengths);
  }

  /** One new token for each sequence. */
  public static Batch decode(long... sequences) {
    int[] ones = new int[sequences == null ? 0 : sequences.length];
    Arrays.fill(ones, 1);
    return new Batch(sequences, ones);
  }

  /** The step covers layers [begin, end); both 0 = all. */
  public Batch layers(int begin, int end) {
    layerBegin = begin;
    layerEnd = end;
    return this;
  }

  /** [T]: the parent node of each token, or TREE_ROOT; in a plain row TREE_NONE for all tokens. null = no trees. */
  public Batch treeParents(int... parents) {
    treeParents = parents;
    return this;
  }

  /** [T]: adjacent tokens with the same id above 0 see each other, also later ones; null = no spans. */
  public Batch spanIds(int... ids) {
    spanIds = ids;
    return this;
  }

  /** The index, from 0, of the cross group to whose encoder sequences the tokens belong. */
  public Batch encoderGroup(int index) {
    encoderGroup = Checks.onePlus("Batch.encoderGroup", index);
    return this;
  }

  @Override
  public String toString() {
    return "Batch(sequences=" + Arrays.toString(sequences) + ", appendLengths=" + Arrays.toString(appendLengths)
        + (layerEnd == 0 ? "" : ", layers=[" + layerBegin + ", " + layerEnd + ")")
        + (treeParents == null ? "" : ", treeParents=" + Arrays.toString(treeParents))
        + (spanIds == null ? "" : ", spanIds=" + Arrays.toString(spanIds))
        + (encoderGroup == 0 ? "" : ", encoderGroup=" + (encoderGroup - 1)) + ")";
  }

  /** Graph: null = none. */
  void write(String function, Arena arena, Graph graph) {
    int n = Checks.given(function, "sequences", sequences).length;
    Checks.same(function, "sequences", n, "append lengths", Checks.given(function, "appendLengths", appendLengths).length);
    long tokens = 0;
    Mem lengths = arena.alloc(4L * n);
    for (int i = 0; i < n; i++) { // each read once: what C is given is what was counted
      int length = appendLengths[i];
      lengths.putInt(4 * i, length);
      tokens += Math.max(length, 0);
    }
    Mem c = arena.batch;
    c.putInt(Abi.Batch.NUM_SEQUENCES, n);
    c.putLong(Abi.Batch.SEQUENCES, arena.longs(sequences));
    c.putLong(Abi.Batch.APPEND_LENGTHS, n == 0 ? 0 : lengths.address);
    c.putInt(Abi.Batch.LAYER_BEGIN, layerBegin);
    c.putInt(Abi.Batch.LAYER_END, layerEnd);
    c.putLong(Abi.Batch.TREE_PARENTS, ofTokens(function, "treeParents", treeParents, tokens, arena));
    c.putLong(Abi.Batch.SPAN_IDS, ofTokens(function, "spanIds", spanIds, tokens, arena));
    c.putInt(Abi.Batch.ENCODER_GROUP, encoderGroup);
    c.putLong(Abi.Batch.GRAPH, graph == null ? 0 : graph.id);
  }

  /** Address of a copy of an array that has an element for each token. */
  private static long ofTokens(String function, String name, int[] values, long tokens, Arena arena) {
    if (values != null && values.length != tokens) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": " + tokens + " tokens, but " + name + " for " + values.length);
    }
    return arena.ints(values);
  }
}
