package dev.kvcache;

import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.function.IntConsumer;

/**
 * Runs work of the library on threads of the program ({@link Context.Builder#parallelFor}). {@link #on} makes one of an executor.
 *
 * <p>Several threads may call it at once. Each item runs once, whatever it does. When it returns, or throws, the thread that
 * called the library runs the items that nothing has begun, and waits for those that still run.
 */
@FunctionalInterface
public interface ParallelFor {
  /**
   * Calls {@code item.accept(i)} once for each i in [0, n), in any order and on any threads, even all on this one. The item does
   * nothing for an i that has begun before, for other numbers, and at any later time.
   *
   * <p>It may call the library, but must not wait for the call that it works for. A {@link Step#close} of the step that computes
   * waits for that. What it throws is thrown by that call, as the cause of a {@link ParallelForException}. The call does the
   * rest of its work on its own thread.
   *
   * @param n at most the threads of the context
   */
  void run(int n, IntConsumer item);

  /**
   * On the threads of an executor, for example a {@code ForkJoinPool}, and the calling thread. It does not wait for threads that are
   * busy with other work: the calling thread then runs their items, and also if the executor rejects them.
   */
  static ParallelFor on(Executor executor) {
    Checks.given("ParallelFor.on", "executor", executor);
    return (n, item) -> {
      try {
        for (int i = 1; i < n; i++) {
          int other = i;
          executor.execute(() -> item.accept(other));
        }
      } catch (RejectedExecutionException full) {
        // this thread runs the items that the executor did not take
      }
      item.accept(0);
    };
  }
}
