package dev.kvcache;

import static dev.kvcache.Support.Q_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.layer;
import static dev.kvcache.Support.random;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import dev.kvcache.Support.Tokens;
import java.lang.management.ManagementFactory;
import java.util.Collections;
import java.util.Random;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.Test;

/** What a decode loop calls for each layer allocates nothing; a step is an object, and two for its arrays. */
class HotPathTest {
  private static final ThreadMXBean BEAN = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private static void expectBytes(String what, long most, int rounds, IntConsumer call) {
    long self = Thread.currentThread().getId();
    for (int i = 0; i < rounds; i++) {
      call.accept(i);
    }
    long before = BEAN.getThreadAllocatedBytes(self);
    for (int i = 0; i < rounds; i++) {
      call.accept(i);
    }
    long bytes = (BEAN.getThreadAllocatedBytes(self) - before) / rounds;
    assertTrue(bytes <= most, what + " allocates " + bytes + " bytes");
  }

  @Test
  void lengthsAndAttends() {
    Random random = new Random(1);
    try (Cache cache = cache(c -> c.layers(Collections.nCopies(4000, layer())))) {
      long sequence = cache.add();
      expectBytes("Cache.length", 0, 20_000, i -> cache.length(sequence));
      Batch batch = Batch.of(sequence, 1);
      expectBytes("Cache.canFit", 64, 20_000, i -> cache.canFit(batch));
      Tensor heads = random(random, Q_HEADS);
      Attend attend = new Tokens(random, 1).attend().alibiSlopes(heads).sinks(heads);
      try (Step step = cache.begin(batch)) {
        expectBytes("Step.attend with options", 0, 2000, new IntConsumer() {
          private int layer;

          @Override
          public void accept(int i) {
            step.attend(layer++, attend);
          }
        });
      }
      expectBytes("begin and abort", 128, 20_000, i -> cache.begin(batch).abort());
    }
  }
}
