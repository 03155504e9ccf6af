package dev.kvcache;

/** Arguments of {@link Context#appendSlots}: rows of k and v for the caller's own paged cache. It can be used again. */
public final class AppendSlots extends Args {
  private static final Fields FIELDS = new Fields(
      "k", Abi.AppendSlotsArgs.K, "v", Abi.AppendSlotsArgs.V, "kCache!", Abi.AppendSlotsArgs.K_CACHE,
      "vCache!", Abi.AppendSlotsArgs.V_CACHE, "slotMapping", Abi.AppendSlotsArgs.SLOT_MAPPING,
      "kScale", Abi.AppendSlotsArgs.K_SCALE, "vScale", Abi.AppendSlotsArgs.V_SCALE,
      "rotaryCos", Abi.AppendSlotsArgs.ROTARY_COS, "rotarySin", Abi.AppendSlotsArgs.ROTARY_SIN,
      "positions", Abi.AppendSlotsArgs.POSITIONS);

  private int flags;

  private AppendSlots() {
    super(FIELDS);
  }

  /** Stores rows of k and v in the slots of slotMapping in the two pools. */
  public static AppendSlots of(Tensor k, Tensor v, Tensor kCache, Tensor vCache, Tensor slotMapping) {
    return new AppendSlots().k(k).v(v).kCache(kCache).vCache(vCache).slotMapping(slotMapping);
  }

  /** [>= T, Hkv, D]; latent form: the rotary parts. */
  public AppendSlots k(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  /** [>= T, Hkv, Dv]; latent form: the latent parts. */
  public AppendSlots v(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  /** Written; [pages, pageSize, Hkv, D]. */
  public AppendSlots kCache(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  /** Written; [pages, pageSize, Hkv, Dv]; null = the latent form, rows [latent | rotary] in kCache. */
  public AppendSlots vCache(Tensor tensor) {
    tensors[3] = tensor;
    return this;
  }

  /** [T] I32 or I64: the slot of each row, page * pageSize + offset; negative: the row is not stored. */
  public AppendSlots slotMapping(Tensor tensor) {
    tensors[4] = tensor;
    return this;
  }

  /** [1] or [Hkv] F32, with a float8 cache. */
  public AppendSlots kScale(Tensor tensor) {
    tensors[5] = tensor;
    return this;
  }

  public AppendSlots vScale(Tensor tensor) {
    tensors[6] = tensor;
    return this;
  }

  /** With rotarySin and positions: the first dims of k are rotated. */
  public AppendSlots rotaryCos(Tensor tensor) {
    tensors[7] = tensor;
    return this;
  }

  public AppendSlots rotarySin(Tensor tensor) {
    tensors[8] = tensor;
    return this;
  }

  /** [T] I32 or I64: the row of cos and sin of each token. */
  public AppendSlots positions(Tensor tensor) {
    tensors[9] = tensor;
    return this;
  }

  /** Rotated pairs are dims 2i, 2i + 1; else i, i + rotaryDim / 2. */
  public AppendSlots rotaryInterleaved(boolean on) {
    flags = on ? Abi.KVC_APPEND_SLOTS_ROTARY_INTERLEAVED : 0;
    return this;
  }

  Mem write(String function, Arena arena) {
    Mem c = arena.struct(Abi.AppendSlotsArgs.SIZE);
    writeTensors(function, arena, c);
    c.putInt(Abi.AppendSlotsArgs.FLAGS, flags);
    return c;
  }
}
