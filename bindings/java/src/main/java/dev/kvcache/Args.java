package dev.kvcache;

import java.util.StringJoiner;

/** Arguments of a call that are tensors: which there are, where the struct has them, and which are written. */
abstract class Args {
  static final class Fields {
    final String[] names;
    final int[] offsets;
    final boolean[] written;
    final boolean[] appended; // written by a call that appends

    /** Each "name", "name!" if it is written, or "name+" if a call that appends writes it, with the offset in the struct. */
    Fields(Object... namesAndOffsets) {
      int n = namesAndOffsets.length / 2;
      names = new String[n];
      offsets = new int[n];
      written = new boolean[n];
      appended = new boolean[n];
      for (int i = 0; i < n; i++) {
        String name = (String) namesAndOffsets[2 * i];
        written[i] = name.endsWith("!");
        appended[i] = name.endsWith("+");
        names[i] = written[i] || appended[i] ? name.substring(0, name.length() - 1) : name;
        offsets[i] = (Integer) namesAndOffsets[2 * i + 1];
      }
    }
  }

  private final Fields fields;
  final Tensor[] tensors;

  Args(Fields fields) {
    this.fields = fields;
    tensors = new Tensor[fields.offsets.length];
  }

  /** Writes every tensor of the struct: its DLTensor's address, or 0. Each is read once: another thread may replace it. */
  final void writeTensors(String function, Arena arena, Mem struct) {
    writeTensors(function, arena, struct, false);
  }

  /** The same, with fields that are written if `appends` says so. */
  final void writeTensors(String function, Arena arena, Mem struct, boolean appends) {
    int[] offsets = fields.offsets;
    for (int i = 0; i < offsets.length; i++) {
      Tensor tensor = tensors[i];
      if (tensor == null) {
        struct.putLong(offsets[i], 0);
      } else {
        if (tensor.isReadOnly() && (fields.written[i] || appends && fields.appended[i])) {
          throw readOnly(function, fields.names[i]);
        }
        struct.putLong(offsets[i], arena.tensor(function, fields.names[i], i, tensor));
      }
    }
  }

  /** The tensors that are given, with their names. */
  @Override
  public final String toString() {
    StringJoiner given = new StringJoiner(", ", getClass().getSimpleName() + "(", ")");
    for (int i = 0; i < tensors.length; i++) {
      if (tensors[i] != null) {
        given.add(fields.names[i] + "=" + tensors[i]);
      }
    }
    return given.toString();
  }

  static KvcacheException readOnly(String function, String name) {
    return KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": " + name + " is written, but its buffer is read-only");
  }
}
