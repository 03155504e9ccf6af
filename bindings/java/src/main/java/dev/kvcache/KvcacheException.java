package dev.kvcache;

/**
 * What a call of the library reports: a status, numbers that say where, and a message with the values. Nothing has changed
 * when it is thrown, unless the call's documentation says otherwise.
 */
public class KvcacheException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final int code;
  private final String statusName;
  private final long index;
  private final long group;
  private final long required;
  private final long available;

  KvcacheException(int code, String statusName, String message, long index, long group, long required, long available) {
    super(message);
    this.code = code;
    this.statusName = statusName;
    this.index = index;
    this.group = group;
    this.required = required;
    this.available = available;
  }

  /** What the library could not see: of buffers and arrays, whose lengths C does not have, and of closed handles. */
  static KvcacheException misuse(Status status, String message) {
    return misuse(status, message, -1);
  }

  static KvcacheException misuse(Status status, String message, long index) {
    return new KvcacheException(status.code, "KVC_ERROR_" + status.name(), message, index, -1, 0, 0);
  }

  /** The same, with the function and the argument's name before the message. */
  KvcacheException within(String place, long at) {
    return new KvcacheException(code, statusName, place + ": " + getMessage(), at, group, required, available);
  }

  /** What kind of error it is; {@link Status#UNKNOWN} for a code that this package does not know. */
  public final Status status() {
    return Status.of(code);
  }

  /** The status as C's number. */
  public final int code() {
    return code;
  }

  /** Whether the status is of the capacity band: nothing is wrong, and the call may succeed later, or with less. */
  public final boolean isCapacity() {
    return code >= 100 && code < 200;
  }

  /** The status's name, "KVC_ERROR_STALE_ID". */
  public final String statusName() {
    return statusName;
  }

  /** The row of the batch, layer or array element at fault; -1 = none. */
  public final long index() {
    return index;
  }

  /** The layer group at fault; -1 = none. */
  public final long group() {
    return group;
  }

  /** Of a capacity error: what the call needs. */
  public final long required() {
    return required;
  }

  /** Of a capacity error: what there is. */
  public final long available() {
    return available;
  }
}
