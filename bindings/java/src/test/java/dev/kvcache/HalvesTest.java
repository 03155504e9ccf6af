package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class HalvesTest {
  private interface ToBits {
    short of(float value);
  }

  private interface ToValue {
    float of(short bits);
  }

  /** The definition: sign, exponent with its bias, fraction. An exponent of all ones is infinity or NaN. */
  private static double value(int bits, int exponentBits, int fractionBits) {
    int bias = (1 << exponentBits - 1) - 1;
    int exponent = bits >>> fractionBits & (1 << exponentBits) - 1;
    double fraction = (bits & (1 << fractionBits) - 1) / (double) (1 << fractionBits);
    double value = Math.scalb(1 + fraction, exponent - bias);
    if (exponent == 0) {
      value = Math.scalb(fraction, 1 - bias);
    } else if (exponent == (1 << exponentBits) - 1) {
      value = fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
    }
    return (bits & 0x8000) != 0 ? -value : value;
  }

  private static void check(int exponentBits, int fractionBits, ToBits to, ToValue from) {
    int infinity = (1 << exponentBits) - 1 << fractionBits;
    for (int bits = 0; bits < 1 << 16; bits++) {
      double expected = value(bits, exponentBits, fractionBits);
      float got = from.of((short) bits);
      assertEquals(expected, got, 0.0, Integer.toHexString(bits));
      int back = to.of(got) & 0xffff;
      assertTrue(Double.isNaN(expected) ? Double.isNaN(value(back, exponentBits, fractionBits)) : back == bits,
          Integer.toHexString(bits) + " comes back as " + Integer.toHexString(back));
      if (bits >= infinity) {
        continue; // the neighbours below are those of positive numbers
      }
      double next = bits + 1 == infinity ? Math.scalb(1.0, 1 << exponentBits - 1) : value(bits + 1, exponentBits, fractionBits);
      float middle = (float) ((expected + next) / 2);
      int even = bits + (bits & 1);
      assertEquals(even, to.of(middle) & 0xffff);
      assertEquals(even | 0x8000, to.of(-middle) & 0xffff);
      assertEquals(bits + 1, to.of(Math.nextUp(middle)) & 0xffff);
      assertEquals(bits, to.of(Math.nextDown(middle)) & 0xffff);
    }
  }

  @Test
  void everyValueOfBothTypes() {
    check(8, 7, Halves::toBf16, Halves::fromBf16);
    check(5, 10, Halves::toF16, Halves::fromF16);
    float[] values = {1, -2.5f, 0.125f};
    assertEquals(-2.5f, Halves.fromBf16(Halves.toBf16(values))[1]);
    assertEquals(0.125f, Halves.fromF16(Halves.toF16(values))[2]);
  }

  @Test
  void peopleCanReadWhatObjectsAre() {
    Layer layer = Layer.builder().qHeads(4).kvHeads(1).headDim(64).rope(RopeMode.ON_APPEND).kvLayer(0).build();
    assertEquals("Layer(qHeads=4, kvHeads=1, headDim=64, rope=ON_APPEND, kvLayer=0)", layer.toString());
    assertEquals("Group.sliding(512).pages(64)", Group.sliding(512).pages(64).toString());
    assertEquals("Group.full().latent()", Group.full().latent().toString());
    assertEquals("Group.chunked(16) Group.cross() Group.recurrent()", Group.chunked(16) + " " + Group.cross() + " " + Group.recurrent());
    assertEquals("Batch(sequences=[7], appendLengths=[3], layers=[1, 2))", Batch.of(7, 3).layers(1, 2).toString());
    assertEquals("Batch(sequences=[7], appendLengths=[3], encoderGroup=1)", Batch.of(7, 3).encoderGroup(1).toString());
    Support.refused(Status.OUT_OF_RANGE, () -> Layer.builder().kvLayer(-1), "-1 is no index");
    Support.refused(Status.OUT_OF_RANGE, () -> Batch.of(7, 3).encoderGroup(-1), "-1 is no index");
    Tensor rows = Tensor.allocate(DType.F32, 2, 3);
    assertTrue(Append.of(rows, null).toString().startsWith("Append(k=Tensor F32[2, 3]"), Append.of(rows, null).toString());
    assertEquals("State(F32[2, 3])", new Layer.State(DType.F32, 2, 3).toString());
  }
}
