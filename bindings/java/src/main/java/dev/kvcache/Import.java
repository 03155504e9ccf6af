package dev.kvcache;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** K and V of T tokens, a tensor for each layer of a cache; null for a layer that has none of its own. */
public final class Import {
  private static final String[] NAMES = {"k", "v", "kScale", "vScale"};

  private final List<List<Tensor>> lists = new ArrayList<>(Arrays.asList(null, null, null, null));
  private boolean asStored;

  private Import() {}

  /** k and v, each [T, kvHeads, dim] for every layer; v may be null if every layer is latent. */
  public static Import of(List<Tensor> k, List<Tensor> v) {
    Import tokens = new Import();
    tokens.lists.set(0, k);
    tokens.lists.set(1, v);
    return tokens;
  }

  /** Scales of stored bytes of I8. */
  public Import scales(List<Tensor> kScale, List<Tensor> vScale) {
    lists.set(2, kScale);
    lists.set(3, vScale);
    return this;
  }

  /** k is as exported, and k and v may be stored bytes. */
  public Import asStored() {
    asStored = true;
    return this;
  }

  Mem write(String function, Arena arena) {
    int layers = Checks.size(function, "k", lists.get(0));
    for (int i = 1; i < lists.size(); i++) {
      if (lists.get(i) != null) {
        Checks.same(function, "tensors of k", layers, NAMES[i], lists.get(i).size());
      }
    }
    Mem args = arena.struct(Abi.ImportArgs.SIZE);
    args.putInt(Abi.ImportArgs.FLAGS, asStored ? Abi.KVC_IMPORT_AS_STORED : 0);
    args.putInt(Abi.ImportArgs.NUM_LAYERS, layers);
    args.putLong(Abi.ImportArgs.K, arena.tensors(lists.get(0)));
    args.putLong(Abi.ImportArgs.V, arena.tensors(lists.get(1)));
    args.putLong(Abi.ImportArgs.K_SCALE, arena.tensors(lists.get(2)));
    args.putLong(Abi.ImportArgs.V_SCALE, arena.tensors(lists.get(3)));
    return args;
  }
}
