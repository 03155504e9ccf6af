import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.DType;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.Step;
import dev.kvcache.Tensor;
import java.nio.ByteOrder;
import jdk.incubator.foreign.MemorySegment;
import jdk.incubator.foreign.ResourceScope;

/** The same for the incubator of Java 17, where memory is checked and not held. Run by SegmentsTest. */
class ClosedScope {
  public static void main(String[] arguments) {
    Layer layer = Layer.builder().qHeads(1).kvHeads(1).headDim(16).build();
    try (Cache cache = Cache.builder().layers(layer).capacityTokens(64).build();
        Step step = cache.begin(Batch.of(cache.add(), 1))) {
      ResourceScope scope = ResourceScope.newSharedScope();
      var buffer = MemorySegment.allocateNative(64, 64, scope).asByteBuffer().order(ByteOrder.nativeOrder());
      Tensor tensor = Tensor.of(buffer, DType.F32, 1, 1, 16);
      Attend attend = Attend.of(tensor, Tensor.allocate(DType.F32, 1, 1, 16), tensor, Tensor.allocate(DType.F32, 1, 1, 16));
      scope.close();
      try {
        step.attend(0, attend);
        throw new AssertionError("not refused");
      } catch (KvcacheException e) {
        if (!e.getMessage().contains("Step.attend: the memory of q")) {
          throw e;
        }
      }
      try {
        Tensor.of(buffer, DType.F32, 16);
        throw new AssertionError("not refused");
      } catch (KvcacheException e) {
        System.out.println("all is well");
      }
    }
  }
}
