package dev.kvcache;

/**
 * A {@link ParallelFor} has thrown; the cause is what it threw. The call that throws this has taken effect, because all of its work
 * was done.
 */
public final class ParallelForException extends RuntimeException {
  private static final long serialVersionUID = 1;

  ParallelForException(Throwable cause) {
    super("the ParallelFor of the Context threw " + cause.getClass().getName() + ": " + cause.getMessage(), cause);
  }
}
