// Memory that the CUDA backend lends to calls while their work is in flight: the upload ring, slots of stateless calls,
// scratch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/step/send.h"
#include "kernels/cuda/step/upload.h"
#include "opened.h"

namespace kvc::kernels::cuda {
namespace {

// No work runs before the host waits. So the test notices if host or device uses a block of the ring again too early.
class Late : public testing::Test {
 protected:
  Late() {
    for (cudaStream_t& stream : streams_) EXPECT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    cuda_emulation::defer(true);
  }
  ~Late() override {
    cuda_emulation::defer(false);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  cudaStream_t streams_[3];
};

TEST_F(Late, UploadsOfSeveralStreamsArriveWhole) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  std::mt19937 random(5);
  constexpr int kUploads = 3 * Upload::kSlots;
  std::vector<std::vector<unsigned char>> sent, targets;
  for (int i = 0; i < kUploads; ++i) {
    sent.emplace_back(1 + random() % (i % 7 == 0 ? 200000 : 3000));
    for (unsigned char& byte : sent.back()) byte = static_cast<unsigned char>(random());
    targets.emplace_back(sent.back().size());
    std::vector<unsigned char> source = sent.back();
    ASSERT_EQ(table->upload(opened.device, targets.back().data(), source.data(), static_cast<int64_t>(source.size()), 0,
                            streams_[random() % 3], &error),
              KVC_OK);
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0xab));  // the call has returned
  }
  cudaDeviceSynchronize();
  for (int i = 0; i < kUploads; ++i) EXPECT_EQ(targets[i], sent[i]) << i;
  table->close(opened.device);
}

// If no event says when a kernel has read memory, no other call gets that memory.
TEST_F(Late, MemoryWithoutAnEventIsNotUsedAgain) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  const auto refused = [](const auto& call) {
    kvc_error error = KVC_ERROR_INIT;
    cuda_emulation::fail_call(1, cudaErrorInvalidValue);
    EXPECT_EQ(call(&error), KVC_ERROR_DEVICE_FAILED);
    cuda_emulation::fail_call(0, cudaSuccess);
    EXPECT_EQ(std::strncmp(error.message, "cudaEventRecord", 15), 0) << error.message;
  };
  kvc_error error = KVC_ERROR_INIT;
  void* lost = nullptr;
  ASSERT_EQ(table->take_scratch(opened.device, 64, streams_[0], &lost, &error), KVC_OK) << error.message;
  refused([&](kvc_error* e) { return table->give_scratch(opened.device, lost, streams_[0], e); });
  void* blocks[Scratch::kBlocks - 1];
  for (void*& block : blocks) {
    ASSERT_EQ(table->take_scratch(opened.device, 64, streams_[0], &block, &error), KVC_OK) << error.message;
    EXPECT_NE(block, lost);
  }
  for (void* block : blocks) EXPECT_EQ(table->give_scratch(opened.device, block, streams_[0], &error), KVC_OK);

  const int32_t positions[4] = {};
  kvc_backend_array array = {positions, sizeof positions, nullptr};
  const kvc_backend_step* step = nullptr;
  ASSERT_EQ(table->begin_call(opened.device, &array, 1, nullptr, streams_[0], &step, &error), KVC_OK) << error.message;
  const void* const slot = array.device;
  refused([&](kvc_error* e) { return table->end_call(opened.device, step, streams_[0], e); });
  for (int i = 0; i < 2 * Upload::kSlots; ++i) {
    ASSERT_EQ(table->begin_call(opened.device, &array, 1, nullptr, streams_[0], &step, &error), KVC_OK);
    EXPECT_NE(array.device, slot);
    EXPECT_EQ(table->end_call(opened.device, step, streams_[0], &error), KVC_OK);
  }
  table->close(opened.device);
}

// After the first call nothing is allocated. A call makes one copy, and the host waits for nothing while the ring has a
// free slot.
TEST_F(Late, SteadyCallsNeitherAllocateNorWait) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  std::vector<float> cos_sin(40 * 8, -1.0f);
  std::vector<double> tables(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * 8, 0.5);
  std::vector<int32_t> positions(40, 3);
  const kvc_backend_rope args = {8,  40, tables.data(), positions.data(), nullptr, cos_sin.data(), {}, {}, nullptr,
                                 {}, 0};
  const cuda_emulation::Counts before = cuda_emulation::counts();
  for (int i = 0; i < Upload::kSlots; ++i) ASSERT_EQ(table->rope(opened.device, &args, streams_[0], &error), KVC_OK);
  const cuda_emulation::Counts after = cuda_emulation::counts();
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.copies - before.copies, Upload::kSlots);
  EXPECT_EQ(after.launches - before.launches, Upload::kSlots);
  ASSERT_EQ(table->rope(opened.device, &args, streams_[0], &error), KVC_OK);  // one more waits for the first
  EXPECT_EQ(cuda_emulation::counts().host_waits, before.host_waits + 1);
  cudaDeviceSynchronize();
  EXPECT_NE(cos_sin[0], -1.0f);
  table->close(opened.device);
}

// A call that holds a slot of the ring keeps it while others use the ring.
TEST_F(Late, SlotsOfCallsAreTheirsUntilTheyEnd) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  std::vector<float> cos_sin(2, -1.0f), others(2), cos(8), sin(8);
  for (int i = 0; i < 8; ++i) cos[i] = static_cast<float>(i);
  std::vector<int32_t> positions = {5}, other_positions = {2};
  kvc_backend_array array = {positions.data(), 4, nullptr};
  const kvc_backend_step* step = nullptr;
  const int64_t copies = cuda_emulation::counts().copies;
  ASSERT_EQ(table->begin_call(opened.device, &array, 1, nullptr, streams_[0], &step, &error), KVC_OK) << error.message;
  ASSERT_NE(step, nullptr);
  kvc_backend_rope args = {};
  args.rope_dim = 2, args.num_tokens = 1, args.positions = static_cast<const int32_t*>(array.device), args.step = step;
  args.cos_sin = cos_sin.data();
  args.cos = {cos.data(), 1, 0, {kDLFloat, 32, 1}, 0};
  args.sin = {sin.data(), 1, 0, {kDLFloat, 32, 1}, 0};
  kvc_backend_rope alone = args;
  alone.positions = other_positions.data(), alone.step = nullptr, alone.cos_sin = others.data();
  for (int i = 0; i < 3 * Upload::kSlots; ++i) {
    ASSERT_EQ(table->rope(opened.device, &alone, streams_[1], &error), KVC_OK) << error.message;
  }
  ASSERT_EQ(table->rope(opened.device, &args, streams_[0], &error), KVC_OK) << error.message;
  ASSERT_EQ(table->end_call(opened.device, step, streams_[0], &error), KVC_OK) << error.message;
  EXPECT_EQ(cuda_emulation::counts().copies, copies + 3 * Upload::kSlots + 1);
  cudaDeviceSynchronize();
  EXPECT_EQ(cos_sin[0], 5.0f);
  // When all slots are lent, one more call is refused. When a call ends, there is room again.
  const kvc_backend_step* steps[Upload::kSlots];
  for (const kvc_backend_step*& lent : steps) {
    ASSERT_EQ(table->begin_call(opened.device, &array, 1, nullptr, streams_[0], &lent, &error), KVC_OK);
  }
  EXPECT_EQ(table->begin_call(opened.device, &array, 1, nullptr, streams_[0], &step, &error), KVC_ERROR_OUT_OF_MEMORY);
  for (const kvc_backend_step* lent : steps) {
    EXPECT_EQ(table->end_call(opened.device, lent, streams_[0], &error), KVC_OK);
  }
  EXPECT_EQ(table->rope(opened.device, &alone, streams_[1], &error), KVC_OK) << error.message;
  table->close(opened.device);
}

// The constants of a cache (RoPE tables, scales) are written when its creation returns, because its first step may use
// any stream. cudaMemcpy alone only orders them after the NULL stream.
TEST_F(Late, TablesAreThereForEveryStream) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  std::vector<double> angles(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * 8, -7.0);
  const double frequencies[4] = {1.0, 0.1, 0.01, 0.001};
  const kvc_backend_rope_table args = {8, 0, frequencies, 1.0, angles.data()};
  ASSERT_EQ(table->rope_table(opened.device, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(std::count(angles.begin(), angles.end(), -7.0), 0);
  const float scales[3] = {1, 2, 3};
  float there[3] = {};
  ASSERT_EQ(table->upload(opened.device, there, scales, sizeof scales, 1, nullptr, &error), KVC_OK) << error.message;
  EXPECT_EQ(there[2], 3.0f);
  table->close(opened.device);
}

// Scratch belongs to a call until the device has finished its last use. The same stream may use it at once, and other
// streams later or never.
// Of a step's buffer the parts that were listed arrive, and changed nodes at their targets. If there are more parts
// than the list holds, what lies between the last ones arrives too.
TEST_F(Late, PartsOfAStepArrive) {
  constexpr int64_t kWord = StepParts::kWord, kWords = 4 * StepParts::kMost, kFanout = KVC_BACKEND_NODE_FANOUT;
  std::mt19937 random(11);
  for (const int count : {0, 1, 7, StepParts::kMost, StepParts::kMost + 9}) {
    std::vector<std::array<uint64_t, 2>> pinned(kWords), device(kWords);
    for (auto& word : pinned) word = {random(), random()};
    StepParts parts;
    parts.count = parts.words = 0;
    std::vector<bool> sent(kWords, false);
    for (int64_t i = 0, at = 0; i < count && at < kWords; ++i, at += 3) {
      parts.add(at * kWord, at * kWord + 1 + static_cast<int64_t>(random() % (2 * kWord)));
    }
    for (int32_t i = 0; i < parts.count; ++i) {
      for (int32_t w = parts.parts[i].begin; w < parts.parts[i].end; ++w) sent[static_cast<size_t>(w)] = true;
    }
    std::vector<int32_t> nodes(8 * kFanout, -1), values(3 * kFanout);
    for (int32_t& value : values) value = static_cast<int32_t>(random() % 1000);
    int32_t* const targets[] = {&nodes[kFanout], &nodes[6 * kFanout], &nodes[3 * kFanout]};
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(send_parts(reinterpret_cast<unsigned char*>(device.data()),
                         reinterpret_cast<const unsigned char*>(pinned.data()), parts,
                         {targets, values.data(), count % 2 == 0 ? 3 : 0}, streams_[0], &error),
              KVC_OK);
    cudaDeviceSynchronize();
    for (size_t w = 0; w < kWords; ++w) EXPECT_EQ(device[w] == pinned[w], sent[w]) << w;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(std::equal(targets[i], targets[i] + kFanout, &values[static_cast<size_t>(i) * kFanout]),
                count % 2 == 0);
    }
    EXPECT_EQ(std::count(nodes.begin(), nodes.end(), -1), (count % 2 == 0 ? 5 : 8) * kFanout);
  }
}

TEST_F(Late, ScratchIsLentInOrder) {
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  const auto take = [&](cudaStream_t stream, int64_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(table->take_scratch(opened.device, bytes, stream, &memory, &error), KVC_OK) << error.message;
    return memory;
  };
  const auto give = [&](cudaStream_t stream, void* memory) {
    EXPECT_EQ(table->give_scratch(opened.device, memory, stream, &error), KVC_OK) << error.message;
  };
  void *const first = take(streams_[0], 1000), *const second = take(streams_[0], 1000);
  EXPECT_NE(first, second);  // both are lent
  give(streams_[0], first);
  EXPECT_EQ(take(streams_[0], 1000), first);  // the stream's own order is enough
  give(streams_[0], first);
  give(streams_[0], second);
  void* const other = take(streams_[1], 1000);  // neither use has finished
  EXPECT_NE(other, first);
  EXPECT_NE(other, second);
  give(streams_[1], other);
  cudaDeviceSynchronize();
  const cuda_emulation::Counts before = cuda_emulation::counts();
  void* const later = take(streams_[2], 1000);  // all uses have finished, so nothing is allocated
  EXPECT_TRUE(later == first || later == second || later == other);
  give(streams_[2], later);
  EXPECT_EQ(cuda_emulation::counts().allocations, before.allocations);
  table->close(opened.device);
}

// All blocks are in use on one stream. Another stream gets one of them, and is ordered after its use.
TEST_F(Late, ScratchOfAnotherStreamIsWaitedFor) {
  constexpr int kBlocks = 16, kBytes = 64;
  const Opened opened = open_device();
  ASSERT_EQ(opened.status, KVC_OK);
  const kvc_backend* table = backend_of(KVC_BACKEND_VERSION);
  kvc_error error = KVC_ERROR_INIT;
  void *blocks[kBlocks], *reused = nullptr;
  for (void*& block : blocks) {
    ASSERT_EQ(table->take_scratch(opened.device, kBytes, streams_[1], &block, &error), KVC_OK) << error.message;
  }
  for (void* block : blocks) {
    cudaMemsetAsync(block, 1, kBytes, streams_[1]);
    ASSERT_EQ(table->give_scratch(opened.device, block, streams_[1], &error), KVC_OK) << error.message;
  }
  ASSERT_EQ(table->take_scratch(opened.device, kBytes, streams_[0], &reused, &error), KVC_OK) << error.message;
  EXPECT_NE(std::find(blocks, blocks + kBlocks, reused), blocks + kBlocks);
  cudaMemsetAsync(reused, 2, kBytes, streams_[0]);
  ASSERT_EQ(table->give_scratch(opened.device, reused, streams_[0], &error), KVC_OK) << error.message;
  cudaStreamSynchronize(streams_[0]);
  cudaDeviceSynchronize();
  EXPECT_EQ(*static_cast<char*>(reused), 2);
  table->close(opened.device);
}

}  // namespace
}  // namespace kvc::kernels::cuda
