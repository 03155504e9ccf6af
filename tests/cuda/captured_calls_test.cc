// Calls without a cache are captured once, and replayed between other calls. Each replay gives the result of a plain
// call. Merges too, also of empty parts, on both devices.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cuda_runtime.h"
#include "paged_call.h"

namespace kvt {
namespace {

// Outputs and LSEs of `parts` parts of T rows, and the result of their merge.
struct Merge {
  static constexpr int kTokens = 5, kHeads = 3, kDims = 40;

  explicit Merge(int parts, uint32_t seed = 1) : random(seed) {
    for (int i = 0; i < parts; i++) {
      outputs.emplace_back(DType::kF32, Index{kTokens, kHeads, kDims});
      lses.emplace_back(DType::kF32, Index{kTokens, kHeads});
    }
    fill();
  }
  void fill() {
    for (Array &array : outputs) array.fill_random(&random);
    for (Array &array : lses) array.fill_random(&random, 5.0f);
  }
  // A part without keys for a row: its output must not be read.
  void clear(int part, int token, int head) {
    lses[static_cast<size_t>(part)].set({token, head}, -std::numeric_limits<float>::infinity());
    for (int d = 0; d < kDims; d++) outputs[static_cast<size_t>(part)].set({token, head, d}, NAN);
  }
  kvc_status call(kvc_context *context, void *stream = nullptr) {
    given.clear(), given_lses.clear();
    for (Array &array : outputs) given.push_back(array.dl());
    for (Array &array : lses) given_lses.push_back(array.dl());
    kvc_merge_args args;
    kvc_merge_args_init(&args);
    args.num_parts = static_cast<int32_t>(outputs.size());
    args.outputs = given.data(), args.lses = given_lses.data(), args.out = out.dl(), args.lse = lse.dl();
    return kvc_merge_states(context, &args, stream, &error);
  }
  // Compares with the definition, in float64.
  void check() {
    for (int t = 0; t < kTokens; t++) {
      for (int h = 0; h < kHeads; h++) {
        double most = -INFINITY, sum = 0;
        for (Array &array : lses) most = std::max(most, static_cast<double>(array.get({t, h})));
        std::vector<double> o(kDims, 0.0);
        for (size_t i = 0; most > -INFINITY && i < lses.size(); i++) {
          const double weight = std::exp(static_cast<double>(lses[i].get({t, h})) - most);
          if (weight == 0) continue;
          sum += weight;
          for (int d = 0; d < kDims; d++) {
            o[static_cast<size_t>(d)] += weight * static_cast<double>(outputs[i].get({t, h, d}));
          }
        }
        if (sum == 0) {
          EXPECT_EQ(lse.get({t, h}), -std::numeric_limits<float>::infinity()) << t << ", " << h;
        } else {
          EXPECT_NEAR(lse.get({t, h}), most + std::log(sum), 1e-5) << t << ", " << h;
        }
        for (int d = 0; d < kDims; d++) {
          const double wanted = sum == 0 ? 0.0 : o[static_cast<size_t>(d)] / sum;
          ASSERT_NEAR(out.get({t, h, d}), wanted, 1e-5) << t << ", " << h << ", " << d;
        }
      }
    }
  }
  std::mt19937 random;
  std::vector<Array> outputs, lses;
  Array out{DType::kF32, {kTokens, kHeads, kDims}}, lse{DType::kF32, {kTokens, kHeads}};
  kvc_error error = KVC_ERROR_INIT;

 private:
  std::vector<const DLTensor *> given, given_lses;
};

TEST(Merges, PartsThatSawNothing) {
  for (const char *device : {"cpu", "cuda"}) {
    use_device(device);
    const ContextPtr context = make_context_on(test_device().device_type);
    for (const int parts : {1, 2, 7, 32, 33, 50}) {
      SCOPED_TRACE(std::string(device) + ", " + std::to_string(parts) + " parts");
      Merge merge(parts);
      for (int i = 0; i < parts; i++) {
        merge.clear(i, 0, 1);                  // row 1: no part has a key
        if (i % 2 == 0) merge.clear(i, 1, 0);  // with one part: another
        if (i > 0) merge.clear(i, 2, 2);       // that the first saw alone
        if (i + 1 < parts) merge.clear(i, 3, 0);
      }
      ASSERT_EQ(merge.call(context.get()), KVC_OK) << merge.error.message;
      merge.check();
      // Rows that are empty stay empty when they are merged again.
      Merge again(2);
      again.outputs = {merge.out, merge.out}, again.lses = {merge.lse, merge.lse};
      ASSERT_EQ(again.call(context.get()), KVC_OK) << again.error.message;
      again.check();
      EXPECT_EQ(again.lse.get({0, 1}), -std::numeric_limits<float>::infinity());
    }
  }
}

class CapturedCalls : public testing::Test {
 protected:
  CapturedCalls() {
    for (cudaStream_t &stream : streams_) cudaStreamCreate(&stream);
  }
  ~CapturedCalls() override {
    cuda_emulation::set_order(cuda_emulation::kAtOnce);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  template <class Call>
  static cudaGraph_t capture(cudaStream_t stream, Call call) {
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    call();
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
    return graph;
  }
  // The result of a plain call, in a context of its own.
  static Array expected(const PagedCall &call, bool splits) {
    const ContextPtr alone = make_context_on(kDLCUDA);
    PagedCall copy = call;
    if (splits) copy.num_splits = 3;
    EXPECT_EQ(copy.attend(alone.get()), KVC_OK) << copy.error.message;
    return copy.out;
  }
  DeviceIndexes indexes_;
  cudaStream_t streams_[3] = {};
};

// A captured call has scratch of its own. Calls between its replays have other scratch, on any stream and however late
// the device is. So has a second capture.
TEST_F(CapturedCalls, KeepTheirScratch) {
  const ContextPtr context = make_context_on(kDLCUDA);
  PagedCall one, two;  // of the same size
  one.num_splits = two.num_splits = 3;
  two.lengths.values = {2, 6, 12};
  const PagedCall fresh_one = one, fresh_two = two;
  PagedCall between[3];
  for (PagedCall &call : between) call.lengths.values = {4, 8, 3};
  ASSERT_EQ(between[0].attend(context.get(), streams_[0]), KVC_OK);
  cudaDeviceSynchronize();
  const cudaGraph_t graphs[2] = {
      capture(streams_[0], [&] { ASSERT_EQ(one.attend(context.get(), streams_[0]), KVC_OK) << one.error.message; }),
      capture(streams_[1], [&] { ASSERT_EQ(two.attend(context.get(), streams_[1]), KVC_OK) << two.error.message; })};
  const Array wanted = expected(between[0], false), wanted_one = expected(fresh_one, true),
              wanted_two = expected(fresh_two, true);
  for (unsigned order = cuda_emulation::kInTurn; order < cuda_emulation::kRandom + 12; order++) {
    SCOPED_TRACE(order);
    one.reset_from(fresh_one), two.reset_from(fresh_two);
    for (PagedCall &call : between) call.reset_from(PagedCall());
    cuda_emulation::set_order(order);
    const int64_t allocations = cuda_emulation::counts().allocations;
    cudaGraphLaunch(graphs[0], streams_[0]);
    ASSERT_EQ(between[0].attend(context.get(), streams_[2]), KVC_OK) << between[0].error.message;
    cudaGraphLaunch(graphs[1], streams_[1]);
    ASSERT_EQ(between[1].attend(context.get(), streams_[1]), KVC_OK) << between[1].error.message;
    ASSERT_EQ(between[2].attend(context.get(), streams_[0]), KVC_OK) << between[2].error.message;
    cudaDeviceSynchronize();
    EXPECT_EQ(one.out.bytes, wanted_one.bytes);
    EXPECT_EQ(two.out.bytes, wanted_two.bytes);
    for (PagedCall &call : between) EXPECT_EQ(call.out.bytes, wanted.bytes);
    if (order > cuda_emulation::kNewestFirst) {
      EXPECT_EQ(cuda_emulation::counts().allocations, allocations);
    }
  }
  for (cudaGraph_t graph : graphs) cudaGraphDestroy(graph);
}

TEST_F(CapturedCalls, MergesOfFewPartsAndNewValuesAtEachReplay) {
  const ContextPtr context = make_context_on(kDLCUDA);
  Merge merge(32), between(9);
  const cudaGraph_t graph =
      capture(streams_[0], [&] { ASSERT_EQ(merge.call(context.get(), streams_[0]), KVC_OK) << merge.error.message; });
  for (unsigned order = cuda_emulation::kInTurn; order < cuda_emulation::kRandom + 4; order++) {
    merge.fill(), merge.clear(3, 1, 1);
    cuda_emulation::set_order(order);
    ASSERT_EQ(between.call(context.get(), streams_[1]), KVC_OK);
    cudaGraphLaunch(graph, streams_[0]);
    ASSERT_EQ(between.call(context.get(), streams_[0]), KVC_OK);
    cudaDeviceSynchronize();
    merge.check(), between.check();
  }
  cudaGraphDestroy(graph);
  // A merge of more parts copies the list of parts to the device, which a replay would not repeat.
  Merge many(33);
  const cudaGraph_t none = capture(
      streams_[0], [&] { EXPECT_EQ(many.call(context.get(), streams_[0]), KVC_ERROR_ORDER) << many.error.message; });
  cudaGraphDestroy(none);
}

}  // namespace
}  // namespace kvt
