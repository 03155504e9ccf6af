package dev.kvcache;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.StringJoiner;

/** One layer of a model: its heads, how K and V are stored, and its position embedding. Immutable; made by a builder. */
public final class Layer implements Cloneable {
  private int group;
  private int qHeads;
  private int kvHeads;
  private int headDim;
  private int vHeadDim;
  private int latentDim;
  private boolean keysOnly;
  private int totalKvHeads;
  private RowFormat rowFormat = RowFormat.DTYPE;
  private DType dtype = DType.F32;
  private RopeMode rope = RopeMode.NONE;
  private int ropeDim;
  private int ropeOffset;
  private boolean ropeInterleaved;
  private double ropeTheta;
  private RopeScaling ropeScaling;
  private double softmaxScale;
  private int kvLayer;
  private float[] kScales;
  private float[] vScales;
  private List<State> states = List.of();
  private Tensor kvStorage;
  private Tensor kStorage;
  private Tensor vStorage;

  private Layer() {}

  public static Builder builder() {
    return new Builder();
  }

  /**
   * One state tensor of a recurrent layer: F32, F16, BF16, I32 or I64, of 1 to 4 dimensions. Every element of the state of an empty
   * sequence is fill, a value of the dtype.
   */
  public record State(DType dtype, double fill, long... shape) {
    public State(DType dtype, long... shape) {
      this(dtype, 0.0, shape);
    }

    @Override
    public String toString() {
      return "State(" + dtype + Arrays.toString(shape) + (fill == 0 ? "" : " of " + fill) + ")";
    }
  }

  /** The settings that are not the default. */
  @Override
  public String toString() {
    StringJoiner all = new StringJoiner(", ", "Layer(", ")");
    Object[][] settings = {{"group", group, 0}, {"qHeads", qHeads, 0}, {"kvHeads", kvHeads, 0}, {"headDim", headDim, 0},
        {"vHeadDim", vHeadDim, 0}, {"latentDim", latentDim, 0}, {"keysOnly", keysOnly, false}, {"totalKvHeads", totalKvHeads, 0}, {"rowFormat", rowFormat, RowFormat.DTYPE}, {"dtype", dtype, DType.F32}, {"rope", rope, RopeMode.NONE},
        {"ropeDim", ropeDim, 0}, {"ropeOffset", ropeOffset, 0}, {"ropeInterleaved", ropeInterleaved, false},
        {"ropeTheta", ropeTheta, 0.0}, {"softmaxScale", softmaxScale, 0.0}, {"kvStorage", kvStorage, null},
        {"kStorage", kStorage, null}, {"vStorage", vStorage, null}, {"states", states, List.of()}};
    for (Object[] setting : settings) {
      if (!Objects.equals(setting[1], setting[2])) {
        all.add(setting[0] + "=" + setting[1]);
      }
    }
    return (kvLayer == 0 ? all : all.add("kvLayer=" + (kvLayer - 1))).toString();
  }

  @Override
  protected Layer clone() {
    try {
      return (Layer) super.clone();
    } catch (CloneNotSupportedException e) {
      throw new AssertionError(e);
    }
  }

  /** The settings of a layer. A setting that is not given has its default. A builder can build many layers, and change between them. */
  public static final class Builder {
    private final Layer layer = new Layer();

    private Builder() {}

    /** The index of its group in the cache; 0 by default. */
    public Builder group(int index) {
      layer.group = index;
      return this;
    }

    /** Query heads, a multiple of the K/V heads. */
    public Builder qHeads(int n) {
      layer.qHeads = n;
      return this;
    }

    public Builder kvHeads(int n) {
      layer.kvHeads = n;
      return this;
    }

    /** Dims of q and k; of a latent (MLA) layer the row's width. */
    public Builder headDim(int n) {
      layer.headDim = n;
      return this;
    }

    /** Dims of v; 0 = those of q and k. */
    public Builder vHeadDim(int n) {
      layer.vHeadDim = n;
      return this;
    }

    /** MLA: leading dims of the row that are V too. */
    public Builder latentDim(int n) {
      layer.latentDim = n;
      return this;
    }

    /**
     * Kv heads of the layer in all ranks together ({@link CacheBuilder#tpSize}); 0 = kvHeads * tpSize, and 1 for MLA. Give it if it is less
     * than tpSize: then kvHeads is 1, and tpSize / totalKvHeads consecutive ranks have the same head.
     */
    public Builder totalKvHeads(int n) {
      layer.totalKvHeads = n;
      return this;
    }

    /** MLA: packed rows. */
    public Builder rowFormat(RowFormat format) {
      layer.rowFormat = format;
      return this;
    }

    /** K and no V, in a group of any row: index keys, which {@link Step#select} scores. */
    public Builder keysOnly(boolean keysOnly) {
      layer.keysOnly = keysOnly;
      return this;
    }

    /** Of stored K and V: F32 (the default), F16, BF16, F8E4M3, F8E5M2, I8. */
    public Builder dtype(DType type) {
      layer.dtype = type;
      return this;
    }

    public Builder rope(RopeMode mode) {
      layer.rope = mode;
      return this;
    }

    /** Rotated dims; 0 = all from the offset on. */
    public Builder ropeDim(int n) {
      layer.ropeDim = n;
      return this;
    }

    /** First rotated dim. */
    public Builder ropeOffset(int n) {
      layer.ropeOffset = n;
      return this;
    }

    /** Rotated pairs are dims 2i, 2i + 1; else i, i + ropeDim / 2. */
    public Builder ropeInterleaved(boolean interleaved) {
      layer.ropeInterleaved = interleaved;
      return this;
    }

    /** Base of the angles; 0 = 10000. */
    public Builder ropeTheta(double theta) {
      layer.ropeTheta = theta;
      return this;
    }

    public Builder ropeScaling(RopeScaling scaling) {
      layer.ropeScaling = scaling;
      return this;
    }

    /** 0 = headDim^-0.5. A latent layer needs it. */
    public Builder softmaxScale(double scale) {
      layer.softmaxScale = scale;
      return this;
    }

    /** The index, from 0, of an earlier layer of the group, whose K and V this one reads in place of its own. */
    public Builder kvLayer(int index) {
      layer.kvLayer = Checks.onePlus("Layer.Builder.kvLayer", index);
      return this;
    }

    /** Scales of float8: one for all K/V heads, or one each. vScales are null for a latent layer. */
    public Builder scales(float[] kScales, float[] vScales) {
      layer.kScales = kScales == null ? null : kScales.clone();
      layer.vScales = vScales == null ? null : vScales.clone();
      return this;
    }

    /** State tensors of a recurrent layer, which has nothing else but its group. */
    public Builder states(State... states) {
      layer.states = List.of(states);
      return this;
    }

    /** The page pool in memory of the caller's, [>= pages, 2, kvHeads, pageSize, headDim] by any strides. The cache keeps the
     * buffer alive. docs/reference/storage.md has layouts. */
    public Builder kvStorage(Tensor pool) {
      layer.kvStorage = pool;
      return this;
    }

    /** The same as two pools, [>= pages, kvHeads, pageSize, dim] each; v is null for a latent layer. */
    public Builder kvStorage(Tensor k, Tensor v) {
      layer.kStorage = k;
      layer.vStorage = v;
      return this;
    }

    public Layer build() {
      return layer.clone();
    }
  }

  /** Writes the config. Objects that the cache must keep alive are added to kept. */
  void write(Arena arena, Mem c, int index, List<Object> kept) {
    c.putInt(0, Abi.LayerConfig.SIZE);
    c.putInt(Abi.LayerConfig.GROUP, group);
    c.putInt(Abi.LayerConfig.NUM_Q_HEADS, qHeads);
    c.putInt(Abi.LayerConfig.NUM_KV_HEADS, kvHeads);
    c.putInt(Abi.LayerConfig.HEAD_DIM, headDim);
    c.putInt(Abi.LayerConfig.V_HEAD_DIM, vHeadDim);
    c.putInt(Abi.LayerConfig.DTYPE, states.isEmpty() && dtype != null ? dtype.dl : 0);
    c.putInt(Abi.LayerConfig.ROPE_MODE, rope == null ? 0 : rope.code);
    c.putInt(Abi.LayerConfig.ROPE_DIM, ropeDim);
    c.putInt(Abi.LayerConfig.ROPE_OFFSET, ropeOffset);
    c.putInt(Abi.LayerConfig.FLAGS,
        (ropeInterleaved ? Abi.KVC_LAYER_ROPE_INTERLEAVED : 0) | (keysOnly ? Abi.KVC_LAYER_KEYS_ONLY : 0));
    c.putInt(Abi.LayerConfig.KV_LAYER, kvLayer);
    c.putDouble(Abi.LayerConfig.ROPE_THETA, ropeTheta);
    c.putLong(Abi.LayerConfig.ROPE_SCALING, ropeScaling == null ? 0 : ropeScaling.write(arena));
    c.putDouble(Abi.LayerConfig.SOFTMAX_SCALE, softmaxScale);
    c.putInt(Abi.LayerConfig.LATENT_DIM, latentDim);
    c.putInt(Abi.LayerConfig.TOTAL_KV_HEADS, totalKvHeads);
    c.putInt(Abi.LayerConfig.ROW_FORMAT, rowFormat == null ? 0 : rowFormat.code);
    writeScales(arena, c, index);
    writeStates(arena, c, index);
    c.putLong(Abi.LayerConfig.KV_STORAGE, storage(kvStorage, kept));
    c.putLong(Abi.LayerConfig.K_STORAGE, storage(kStorage, kept));
    c.putLong(Abi.LayerConfig.V_STORAGE, storage(vStorage, kept));
  }

  private void writeScales(Arena arena, Mem c, int index) {
    if (vScales != null && (kScales == null || kScales.length != vScales.length)) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, "layer " + index + " has " + (kScales == null ? 0 : kScales.length)
          + " scales of k, but " + vScales.length + " of v", index);
    }
    c.putLong(Abi.LayerConfig.K_SCALES, arena.floats(kScales));
    c.putLong(Abi.LayerConfig.V_SCALES, arena.floats(vScales));
    c.putInt(Abi.LayerConfig.NUM_SCALES, kScales == null ? 0 : kScales.length);
  }

  private void writeStates(Arena arena, Mem c, int index) {
    if (states.isEmpty()) {
      return;
    }
    Mem all = arena.alloc((long) states.size() * Abi.StateConfig.SIZE);
    for (int i = 0; i < states.size(); i++) {
      State state = states.get(i);
      int at = i * Abi.StateConfig.SIZE;
      int rank = state.shape() == null ? 0 : state.shape().length;
      if (rank > 4) {
        throw KvcacheException.misuse(Status.RANK, "layer " + index + ": a state has " + rank + " dimensions, at most 4 are known", index);
      }
      all.putInt(at, Abi.StateConfig.SIZE);
      all.putInt(at + Abi.StateConfig.DTYPE, state.dtype() == null ? 0 : state.dtype().dl);
      all.putInt(at + Abi.StateConfig.RANK, rank);
      all.putDouble(at + Abi.StateConfig.FILL, state.fill());
      for (int dim = 0; dim < rank; dim++) {
        all.putLong(at + Abi.StateConfig.SHAPE + 8 * dim, state.shape()[dim]);
      }
    }
    c.putLong(Abi.LayerConfig.STATES, all.address);
    c.putInt(Abi.LayerConfig.NUM_STATES, states.size());
  }

  /** A pool is adopted without a deleter. Java keeps its memory as long as the cache and its views exist. */
  private static long storage(Tensor pool, List<Object> kept) {
    if (pool == null) {
      return 0;
    }
    if (pool.owner() != null) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, "Layer: a storage is memory of an Arena that can be closed, and the cache "
          + "uses it as long as it lives; take it from Arena.ofAuto(), Arena.global() or ByteBuffer.allocateDirect");
    }
    pool.checkAlive("Layer", "storage");
    Mem managed = Arena.managed(Library.calls(), pool);
    kept.add(pool);
    kept.add(managed);
    return managed.address;
  }
}
