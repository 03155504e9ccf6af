package dev.kvcache;

/** New K and V of a layer, for {@link Step#append}. It can be used again with other tensors. */
public final class Append extends Args {
  private static final Fields FIELDS = new Fields("k", Abi.AppendArgs.K, "v", Abi.AppendArgs.V, "ropeCosSin",
      Abi.AppendArgs.ROPE_COS_SIN, "kScale", Abi.AppendArgs.K_SCALE, "vScale", Abi.AppendArgs.V_SCALE);

  private boolean asStored;

  private Append() {
    super(FIELDS);
  }

  /** k and v, [T, kvHeads, dim] F32, F16 or BF16; v may be null for a latent layer. */
  public static Append of(Tensor k, Tensor v) {
    return new Append().k(k).v(v);
  }

  public Append k(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  public Append v(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  /** [T, 2, ropeDim / 2] F32: cos, then sin of each pair's angle, for positions that only the caller has. */
  public Append ropeCosSin(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  /** [T, kvHeads] F32 each, with stored bytes of I8. */
  public Append scales(Tensor k, Tensor v) {
    tensors[3] = k;
    tensors[4] = v;
    return this;
  }

  /** k is already rotated, and k and v may be stored bytes. */
  public Append asStored() {
    asStored = true;
    return this;
  }

  void write(String function, Arena arena) {
    Mem c = arena.append;
    c.putInt(Abi.AppendArgs.FLAGS, asStored ? Abi.KVC_APPEND_AS_STORED : 0);
    writeTensors(function, arena, c);
  }
}
