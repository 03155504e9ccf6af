package dev.kvcache.conformance;

import dev.kvcache.DType;
import dev.kvcache.Tensor;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/** Tensors of scripts: made from their form, and printed for transcripts. */
final class Values {
  private static final Map<String, DType> DTYPES = Map.ofEntries(Map.entry("f32", DType.F32), Map.entry("f16", DType.F16),
      Map.entry("bf16", DType.BF16), Map.entry("e4m3", DType.F8E4M3), Map.entry("e5m2", DType.F8E5M2),
      Map.entry("i8", DType.I8), Map.entry("u8", DType.U8), Map.entry("i32", DType.I32), Map.entry("i64", DType.I64),
      Map.entry("u4", DType.U4), Map.entry("e2m1", DType.F4E2M1));

  private Values() {}

  static DType dtype(String name) {
    return DTYPES.get(name);
  }

  /** DTYPE[D0,D1,...], then nothing, @seed or :elements. */
  static Tensor parse(String form) {
    int open = form.indexOf('[');
    int close = form.indexOf(']');
    DType dtype = dtype(form.substring(0, open));
    String dims = form.substring(open + 1, close);
    long[] shape = dims.isEmpty() ? new long[0] : longs(dims);
    Tensor tensor = Tensor.allocate(dtype, shape);
    String contents = form.substring(close + 1);
    ByteBuffer bytes = tensor.byteBuffer();
    if (contents.startsWith("@")) {
      generate(bytes, dtype, Long.parseLong(contents.substring(1)));
    } else if (contents.length() > 1) {
      for (String item : contents.substring(1).split(",")) {
        put(bytes, dtype, item);
      }
    }
    return tensor;
  }

  private static void generate(ByteBuffer bytes, DType dtype, long seed) {
    for (long i = 0; bytes.hasRemaining(); i++) {
      long z = ((seed << 32) + i + 1) * 0x9E3779B97F4A7C15L;
      z = (z ^ z >>> 30) * 0xBF58476D1CE4E5B9L;
      z = (z ^ z >>> 27) * 0x94D049BB133111EBL;
      int b = (int) ((z ^ z >>> 31) >>> 56);
      if (dtype.bytes() == 1) {
        bytes.put((byte) (b & 0xBF));
      } else {
        putFloat(bytes, dtype, (b - 128) / 128f);
      }
    }
  }

  private static void put(ByteBuffer bytes, DType dtype, String item) {
    switch (dtype) {
      case I32 -> bytes.putInt(Integer.parseInt(item));
      case I64 -> bytes.putLong(Long.parseLong(item));
      case I8, U8 -> bytes.put((byte) Integer.parseInt(item));
      default -> putFloat(bytes, dtype, Float.parseFloat(item));
    }
  }

  /** A value that the dtype has exactly. */
  private static void putFloat(ByteBuffer bytes, DType dtype, float value) {
    int bits = Float.floatToRawIntBits(value);
    switch (dtype) {
      case F32 -> bytes.putInt(bits);
      case BF16 -> bytes.putShort((short) (bits >>> 16));
      case F16 -> bytes.putShort(half(value));
      default -> throw new IllegalArgumentException(dtype + " has no literals");
    }
  }

  private static short half(float value) {
    int bits = Float.floatToRawIntBits(value);
    int sign = bits >>> 16 & 0x8000;
    int exponent = (bits >>> 23 & 0xFF) - 127;
    if (value == 0) {
      return (short) sign;
    }
    if (exponent < -14) { // subnormal: a multiple of 2^-24
      return (short) (sign | Math.round(Math.abs(value) * 0x1p24f));
    }
    return (short) (sign | exponent + 15 << 10 | bits >>> 13 & 0x3FF);
  }

  /** The tensor's elements in row-major order. */
  private static byte[] compact(Tensor tensor) {
    long[] shape = tensor.shape();
    long[] strides = tensor.strides();
    int bytes = tensor.dtype().bytes();
    int count = (int) Arrays.stream(shape).reduce(1, (a, b) -> a * b);
    byte[] all = new byte[count * bytes];
    ByteBuffer memory = tensor.byteBuffer();
    long[] index = new long[shape.length];
    for (int i = 0; i < count; i++) {
      long at = 0;
      for (int dim = 0; dim < shape.length; dim++) {
        at += index[dim] * strides[dim];
      }
      memory.get((int) at * bytes, all, i * bytes, bytes);
      for (int dim = shape.length - 1; dim >= 0 && ++index[dim] == shape[dim]; dim--) {
        index[dim] = 0;
      }
    }
    return all;
  }

  static String print(Tensor tensor, boolean asHash) {
    String name = DTYPES.entrySet().stream().filter(entry -> entry.getValue() == tensor.dtype()).findFirst().get().getKey();
    byte[] bytes = compact(tensor);
    String head = name + "[" + Arrays.stream(tensor.shape()).mapToObj(Long::toString).collect(Collectors.joining(",")) + "]";
    if (asHash) {
      long hash = 0xcbf29ce484222325L;
      for (byte each : bytes) {
        hash = (hash ^ each & 0xFF) * 0x100000001b3L;
      }
      return head + "#" + String.format(Locale.ROOT, "%016x", hash);
    }
    return head + ":" + HexFormat.of().formatHex(bytes);
  }

  static long[] longs(String list) {
    return list.isEmpty() ? new long[0] : Arrays.stream(list.split(",")).mapToLong(Long::parseLong).toArray();
  }

  static int[] ints(String list) {
    return list.isEmpty() ? new int[0] : Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
  }

  static double[] doubles(String list) {
    return Arrays.stream(list.split(",")).mapToDouble(Double::parseDouble).toArray();
  }

  static String join(long... values) {
    return Arrays.stream(values).mapToObj(Long::toString).collect(Collectors.joining(","));
  }

  static String join(int... values) {
    return Arrays.stream(values).mapToObj(Integer::toString).collect(Collectors.joining(","));
  }
}
