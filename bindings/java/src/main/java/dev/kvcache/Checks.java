package dev.kvcache;

import java.time.Duration;
import java.util.List;

/** What C could not see: arrays without their lengths, and null. */
final class Checks {
  private Checks() {}

  static <T> T given(String function, String name, T value) {
    if (value == null) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, function + ": " + name + " is null");
    }
    return value;
  }

  static void same(String function, String name, int n, String other, int m) {
    if (n != m) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": " + n + " " + name + ", but " + m + " " + other);
    }
  }

  /** An index as C has it: 1 + the index, where 0 would be none. */
  static int onePlus(String name, int index) {
    if (index < 0 || index == Integer.MAX_VALUE) {
      throw KvcacheException.misuse(Status.OUT_OF_RANGE, name + ": " + index + " is no index; leave the call out for none");
    }
    return index + 1;
  }

  static void writable(String function, String name, Tensor tensor) {
    if (tensor != null && tensor.isReadOnly()) {
      throw Args.readOnly(function, name);
    }
  }

  /** A copy of a list, so that what is counted and checked is what C reads. Elements may be null. */
  static Tensor[] tensors(String function, String name, List<Tensor> list) {
    return given(function, name, list).toArray(new Tensor[0]);
  }

  /** A time to wait, as far as Java's clock counts. */
  static long nanos(Duration timeout) {
    try {
      return timeout.toNanos();
    } catch (ArithmeticException tooLong) {
      return timeout.isNegative() ? 0 : Long.MAX_VALUE;
    }
  }
}
