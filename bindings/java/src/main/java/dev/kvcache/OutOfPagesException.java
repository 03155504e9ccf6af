package dev.kvcache;

/** A step or fork does not fit now. Nothing has changed: preempt a sequence, or try with less. */
public final class OutOfPagesException extends KvcacheException {
  private static final long serialVersionUID = 1;

  OutOfPagesException(String statusName, String message, long index, long group, long required, long available) {
    super(Abi.KVC_ERROR_OUT_OF_PAGES, statusName, message, index, group, required, available);
  }

  /** The first row, or child, that does not fit. */
  public int row() {
    return (int) index();
  }

  /** Pages that must become free. */
  public long missing() {
    return required() - available();
  }
}
