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

  /** k is as it was exported, and k and v may be stored bytes. */
  public Import asStored() {
    asStored = true;
    return this;
  }

  Mem write(String function, Arena arena) {
    Tensor[][] tensors = new Tensor[NAMES.length][];
    for (int i = 0; i < NAMES.length; i++) {
      List<Tensor> list = lists.get(i);
      if (list != null || i == 0) {
        tensors[i] = Checks.tensors(function, NAMES[i], list);
        Checks.same(function, "tensors of k", tensors[0].length, NAMES[i], tensors[i].length);
      }
    }
    Mem args = arena.struct(Abi.ImportArgs.SIZE);
    args.putInt(Abi.ImportArgs.FLAGS, asStored ? Abi.KVC_IMPORT_AS_STORED : 0);
    args.putInt(Abi.ImportArgs.NUM_LAYERS, tensors[0].length);
    args.putLong(Abi.ImportArgs.K, arena.tensors(function, NAMES[0], tensors[0]));
    args.putLong(Abi.ImportArgs.V, arena.tensors(function, NAMES[1], tensors[1]));
    args.putLong(Abi.ImportArgs.K_SCALE, arena.tensors(function, NAMES[2], tensors[2]));
    args.putLong(Abi.ImportArgs.V_SCALE, arena.tensors(function, NAMES[3], tensors[3]));
    return args;
  }
}
