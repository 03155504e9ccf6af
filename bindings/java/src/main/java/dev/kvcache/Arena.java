package dev.kvcache;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What one call to the library needs besides the caller's buffers: argument structs, tensors, the error. Arenas are reused,
 * so that hot calls allocate nothing. In them
 *
 * <ol>
 *   <li>an arena belongs to one call from take() to giveBack();
 *   <li>structs of hot calls (error, batch, attend, append, select, tensor slots) stand at fixed places, whose struct_size is set for
 *       ever and whose other fields each call writes all; anything else comes from alloc(), as zeros;
 *   <li>the tensors of the call are kept in it until giveBack(), which keeps their buffers alive: another thread may put other
 *       tensors into the arguments meanwhile. Every tensor is checked when it is added. Memory of an Arena of java.lang.foreign is
 *       held during the call, if that goes through calls().
 * </ol>
 */
final class Arena {
  private static final int FIXED_BYTES = 16384;
  private static final int KEPT_BYTES = 1 << 20;
  private static final int HOT_TENSORS = 11; // of kvc_attend_args
  private static final int TENSOR_BYTES = 48; // a DLTensor,
  private static final int SLOT_BYTES = TENSOR_BYTES + 2 * 8 * Tensor.MAX_RANK; // its shape and strides
  private static final Pattern WORD = Pattern.compile("[A-Za-z_][A-Za-z0-9_]*");
  private static final AtomicReferenceArray<Arena> FREE = new AtomicReferenceArray<>(64);

  private final NativeCalls calls;
  private final Mem fixed;
  private final int firstFree;
  private int used;
  private Mem extra; // when fixed is too small: kept for the next call
  private int extraUsed;
  private List<Mem> older; // extras of this call that became too small

  final Mem error;
  final Mem numbers; // 8 of them
  final Mem batch;
  final Mem attend;
  final Mem append;
  final Mem select;
  private final Mem[] slots = new Mem[HOT_TENSORS];
  private final long[] written = new long[HOT_TENSORS]; // id of the tensor that a slot holds: a loop's are the same again
  private final List<Tensor> inUse = new ArrayList<>(HOT_TENSORS);
  private List<Segments.Owner> owners; // null if no other thread can free memory of this call

  private Arena(NativeCalls calls) {
    this.calls = calls;
    fixed = block(FIXED_BYTES);
    error = fixedStruct(Abi.Error.SIZE);
    numbers = carve(64);
    batch = fixedStruct(Abi.Batch.SIZE);
    attend = fixedStruct(Abi.AttendArgs.SIZE);
    append = fixedStruct(Abi.AppendArgs.SIZE);
    select = fixedStruct(Abi.SelectArgs.SIZE);
    for (int i = 0; i < HOT_TENSORS; i++) {
      slots[i] = carve(SLOT_BYTES);
      initTensor(slots[i]);
    }
    firstFree = used;
  }

  /** An arena that is not in use: a free one, or a new one. A thread finds its last one again. */
  static Arena take(NativeCalls calls) {
    int n = FREE.length();
    int home = home(n);
    for (int i = 0; i < 4; i++) {
      Arena arena = FREE.getAndSet(home + i & n - 1, null);
      if (arena != null) {
        return arena;
      }
    }
    return new Arena(calls);
  }

  void giveBack() {
    inUse.clear();
    owners = null;
    used = firstFree;
    extraUsed = 0;
    older = null;
    if (extra != null && extra.buffer.capacity() > KEPT_BYTES) {
      extra = null;
    }
    int n = FREE.length();
    int home = home(n);
    for (int i = 0; i < 4; i++) {
      int place = home + i & n - 1;
      if (FREE.getPlain(place) == null) {
        FREE.setRelease(place, this); // two at once: one is lost, and costs an allocation later, as locking costs each time
        return;
      }
    } // else there are enough of them
  }

  @SuppressWarnings("deprecation") // Thread.threadId() is newer than Java 17
  private static int home(int n) {
    return (int) (Thread.currentThread().getId() * 5) & n - 1;
  }

  private Mem block(int bytes) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    return new Mem(buffer, 0, calls.address(buffer));
  }

  private Mem carve(int bytes) {
    Mem part = new Mem(fixed.buffer, used, fixed.address);
    used += bytes + 7 & ~7;
    return part;
  }

  private Mem fixedStruct(int bytes) {
    Mem struct = carve(bytes);
    struct.putInt(0, bytes);
    return struct;
  }

  /** Zeros, until giveBack(). */
  Mem alloc(long bytes) {
    if (bytes > Integer.MAX_VALUE - 64) {
      throw KvcacheException.misuse(Status.OUT_OF_MEMORY, "the arguments of one call take " + bytes + " bytes");
    }
    int size = (int) bytes + 7 & ~7;
    Mem part;
    if (size <= FIXED_BYTES - used) {
      part = carve(size);
    } else {
      if (extra == null || size > extra.buffer.capacity() - extraUsed) {
        if (extra != null) {
          older = older == null ? new ArrayList<>() : older;
          older.add(extra);
        }
        extra = block(Math.max(size, 2 * FIXED_BYTES));
        extraUsed = 0;
      }
      part = new Mem(extra.buffer, extraUsed, extra.address);
      extraUsed += size;
    }
    for (int i = 0; i < size; i += 8) {
      part.putLong(i, 0);
    }
    return part;
  }

  /** A struct of zeros that begins with its size. */
  Mem struct(int bytes) {
    Mem struct = alloc(bytes);
    struct.putInt(0, bytes);
    return struct;
  }

  /** Address of a copy; 0 of no elements. */
  long longs(long[] values) {
    if (values == null || values.length == 0) {
      return 0;
    }
    Mem copy = alloc(8L * values.length);
    for (int i = 0; i < values.length; i++) {
      copy.putLong(8 * i, values[i]);
    }
    return copy.address;
  }

  long ints(int[] values) {
    if (values == null || values.length == 0) {
      return 0;
    }
    Mem copy = alloc(4L * values.length);
    for (int i = 0; i < values.length; i++) {
      copy.putInt(4 * i, values[i]);
    }
    return copy.address;
  }

  long floats(float[] values) {
    if (values == null || values.length == 0) {
      return 0;
    }
    Mem copy = alloc(4L * values.length);
    for (int i = 0; i < values.length; i++) {
      copy.putInt(4 * i, Float.floatToRawIntBits(values[i]));
    }
    return copy.address;
  }

  long doubles(double[] values) {
    if (values == null || values.length == 0) {
      return 0;
    }
    Mem copy = alloc(8L * values.length);
    for (int i = 0; i < values.length; i++) {
      copy.putDouble(8 * i, values[i]);
    }
    return copy.address;
  }

  long text(String text) {
    if (text == null) {
      return 0;
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    Mem copy = alloc(bytes.length + 1L);
    copy.buffer.put(copy.at, bytes);
    return copy.address;
  }

  long bytes(byte[] values) {
    if (values == null || values.length == 0) {
      return 0;
    }
    Mem copy = alloc(values.length);
    copy.buffer.put(copy.at, values);
    return copy.address;
  }

  private static void initTensor(Mem slot) {
    slot.putInt(8, 1); // kDLCPU
    slot.putInt(12, 0);
    slot.putLong(24, slot.address + TENSOR_BYTES);
    slot.putLong(40, 0);
  }

  /** The library's functions. Through them, what the tensors of this call need is alive until a function returns. */
  NativeCalls calls() {
    return owners == null ? calls : Segments.holding(calls, owners);
  }

  private void use(String function, String name, Tensor tensor) {
    tensor.checkAlive(function, name);
    inUse.add(tensor);
    if (tensor.owner() != null && tensor.owner().segment() != null) {
      owners = owners == null ? new ArrayList<>() : owners;
      if (!owners.contains(tensor.owner())) {
        owners.add(tensor.owner());
      }
    }
  }

  /** Address of a DLTensor in the i-th place of a call; 0 of null. */
  long tensor(String function, String name, int i, Tensor tensor) {
    if (tensor == null) {
      return 0;
    }
    use(function, name, tensor);
    if (i < HOT_TENSORS) {
      Mem slot = slots[i];
      if (written[i] != tensor.id) {
        tensor.write(slot, TENSOR_BYTES);
        written[i] = tensor.id;
      }
      return slot.address;
    }
    Mem slot = alloc(SLOT_BYTES);
    initTensor(slot);
    tensor.write(slot, TENSOR_BYTES);
    return slot.address;
  }

  /** A DLManagedTensorVersioned without a deleter, in memory of its own, that the arena does not keep. */
  static Mem managed(NativeCalls calls, Tensor tensor) {
    int header = 32;
    ByteBuffer buffer = ByteBuffer.allocateDirect(header + SLOT_BYTES).order(ByteOrder.nativeOrder());
    Mem whole = new Mem(buffer, 0, calls.address(buffer));
    whole.putInt(0, 1); // DLPack 1.0
    whole.putLong(24, tensor.isReadOnly() ? 1 : 0);
    Mem slot = new Mem(buffer, header, whole.address);
    initTensor(slot);
    tensor.write(slot, TENSOR_BYTES);
    return whole;
  }

  /** Address of an array of DLTensors' addresses; 0 of no elements. */
  long tensors(String function, String name, Tensor[] list) {
    if (list == null || list.length == 0) {
      return 0;
    }
    Mem array = alloc(8L * list.length);
    for (int i = 0; i < list.length; i++) {
      array.putLong(8 * i, tensor(function, name, HOT_TENSORS, list[i]));
    }
    return array.address;
  }

  /** Throws what the library has written, all of it anew, about a status that is not 0; or what a ParallelFor threw in the call. */
  void check(int status) {
    if (status != 0) {
      throw failure(status);
    }
    HostPool.checkThrown();
  }

  /** The same for a function of this package that calls a function of the library with another name. */
  void check(String function, int status) {
    if (status != 0) {
      throw failure(status, function);
    }
    HostPool.checkThrown();
  }

  /** A message of the library with this package's names for C's. A name may have a meaning of its own in one function. */
  static String inJava(String message) {
    String function = message.substring(0, Math.max(message.indexOf(':'), 0));
    return WORD.matcher(message).replaceAll(word -> Matcher.quoteReplacement(
        Names.OF_C.getOrDefault(function + "." + word.group(), Names.OF_C.getOrDefault(word.group(), word.group()))));
  }

  KvcacheException failure(int status) {
    return failure(status, null);
  }

  private KvcacheException failure(int status, String function) {
    byte[] text = new byte[Abi.Error.SIZE - Abi.Error.MESSAGE];
    error.buffer.get(error.at + Abi.Error.MESSAGE, text);
    int length = 0;
    while (length < text.length && text[length] != 0) {
      length++;
    }
    String name = calls.statusName(status);
    String message = length == 0 ? name : inJava(new String(text, 0, length, StandardCharsets.UTF_8));
    if (function != null && message.contains(": ")) {
      message = function + message.substring(message.indexOf(": "));
    }
    long index = error.getLong(Abi.Error.INDEX);
    long group = error.getLong(Abi.Error.GROUP);
    long required = error.getLong(Abi.Error.REQUIRED);
    long available = error.getLong(Abi.Error.AVAILABLE);
    KvcacheException error = status == Abi.KVC_ERROR_OUT_OF_PAGES
        ? new OutOfPagesException(name, message, index, group, required, available)
        : new KvcacheException(status, name, message, index, group, required, available);
    ParallelForException thrown = HostPool.thrown();
    if (thrown != null) {
      error.addSuppressed(thrown);
    }
    return error;
  }
}
