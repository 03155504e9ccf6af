// The N-th call of the CUDA runtime fails, for N = 1, 2, 3, ..., until a call of the library makes fewer than N. The
// library's call reports what failed, and the cache is as before or as after the call. Sticky errors are reported by
// all later calls.
#include <malloc.h>

#include <cstring>

#include "lockstep.h"

namespace kvt {
namespace {

class Errors : public testing::Test {
 protected:
  ~Errors() override { cuda_emulation::fail_call(0, cudaSuccess); }

  // A cache on the emulated device, with a sequence of 6 tokens and one with a tree of 3 nodes after 5 tokens.
  struct Scene {
    Lockstep lockstep;
    int plain, tree;
    cudaStream_t stream;

    Scene() : lockstep({.rope = true}), plain(lockstep.add()), tree(lockstep.add()) {
      cudaStreamCreate(&stream);
      step({plain, tree}, {6, 5}, {}, false);
      step({tree}, {3}, {-1, 0, -1}, false);
    }
    ~Scene() {
      cuda_emulation::fail_call(0, cudaSuccess);
      lockstep.compare();
      cudaStreamDestroy(stream);
    }
    void step(const std::vector<int>& rows, const std::vector<int32_t>& lengths, const std::vector<int32_t>& parents,
              bool keep_open, Lockstep::Step* out = nullptr) {
      Lockstep::Step made;
      ASSERT_EQ(lockstep.begin(rows, lengths, parents, stream, &made), KVC_OK) << lockstep.message();
      if (!keep_open) {
        for (int layer = 0; layer < kLayers; ++layer) ASSERT_EQ(lockstep.attend(made, layer), KVC_OK);
        ASSERT_EQ(lockstep.end(made), KVC_OK);
      }
      if (out != nullptr) *out = made;
    }
    kvc_cache* cache() const { return lockstep.caches[1]; }
    kvc_seq id(int s) const { return lockstep.sequences[static_cast<size_t>(s)].ids[1]; }
    uint64_t digest() {
      uint64_t digest = 0;
      EXPECT_EQ(kvc_cache_digest(cache(), &digest, lockstep.error()), KVC_OK);
      EXPECT_EQ(kvc_cache_check_invariants(cache(), lockstep.error()), KVC_OK) << lockstep.message();
      return digest;
    }
  };

  // Runs prepare(scene), then call(scene) with a fault in each of its runtime calls in turn. undone(scene) reverts
  // prepare after a failed call. Then the digest must be that before prepare.
  template <class Prepare, class Call>
  void check(const char* function, Prepare prepare, Call call, bool closes_forward) {
    for (const cudaError_t error : {cudaErrorInvalidValue, cudaErrorIllegalAddress}) {
      const bool sticky = error == cudaErrorIllegalAddress;
      for (int64_t n = 1;; ++n) {
        SCOPED_TRACE(std::string(function) + ", call " + std::to_string(n) + (sticky ? ", sticky" : ""));
        ASSERT_LT(n, 200);
        Scene scene;
        const uint64_t idle = scene.digest();
        prepare(scene);
        const uint64_t before = scene.digest();
        cuda_emulation::fail_call(n, error);
        const kvc_status status = call(scene);
        const bool reached = cuda_emulation::calls() >= n;
        const std::string message = scene.lockstep.message();
        const uint64_t after = scene.digest();
        if (!reached) {
          EXPECT_EQ(status, KVC_OK) << message;
          break;
        }
        ASSERT_EQ(status, KVC_ERROR_DEVICE_FAILED) << message;
        EXPECT_NE(message.find(cudaGetErrorName(error)), std::string::npos) << message;
        EXPECT_NE(message.find(" for "), std::string::npos) << message;
        messages += message + "\n";
        EXPECT_EQ(message.find(function), 0u) << message;
        EXPECT_EQ(after, closes_forward ? idle : before) << message;
        if (!sticky) {
          EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "somebody else's call would report it";
          cuda_emulation::fail_call(0, cudaSuccess);
        }
        const bool unordered = message.find("cudaEventRecord for the order of") != std::string::npos;
        // Copies of some layers may be in flight, or all copies of a layer without the event after them.
        const bool half =
            std::strcmp(function, "kvc_seq_commit") == 0 && message.find("upload of index") != std::string::npos;
        next_calls(scene, sticky, unordered || half);
        if (HasFailure()) return;
      }
    }
  }

  // When a launch fails, the message has the kernel's name.
  void expect_kernel(const char* kernel) const {
    EXPECT_NE(messages.find(std::string("cudaLaunchKernelEx for ") + kernel + ":"), std::string::npos) << messages;
  }
  std::string messages;

  // After a failure a cache works in every call, or it refuses every call. lost: it must refuse, because its stored
  // tokens or their order are no longer known.
  static void next_calls(Scene& scene, bool sticky, bool lost) {
    kvc_seq added = 0;
    const kvc_status status = kvc_seq_add(scene.cache(), 1, &added, scene.lockstep.error());
    const std::string message = scene.lockstep.message();
    if (sticky) {
      EXPECT_EQ(status, KVC_ERROR_DEVICE_FAILED);
      EXPECT_NE(message.find("failed before"), std::string::npos) << message;
      EXPECT_NE(message.find("cudaErrorIllegalAddress"), std::string::npos) << message;
      kvc_seq id = scene.id(scene.plain);
      int64_t length = 0;
      EXPECT_EQ(kvc_seq_lengths(scene.cache(), 1, &id, &length, scene.lockstep.error()), KVC_ERROR_DEVICE_FAILED);
      return;
    }
    if (lost || status != KVC_OK) {
      EXPECT_EQ(status, KVC_ERROR_DEVICE_FAILED);
      EXPECT_NE(message.find("destroy the cache"), std::string::npos) << message;
      return;
    }
    EXPECT_EQ(kvc_seq_remove(scene.cache(), 1, &added, scene.lockstep.error()), KVC_OK);
  }

  // Begins a step of one sequence. Aborts it if it began.
  static kvc_status begin(Scene& s, kvc_seq id, kvc_forward graph = 0) {
    const int32_t length = 7;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.num_sequences = 1;
    batch.sequences = &id;
    batch.append_lengths = &length;
    batch.graph = graph;
    kvc_forward step = 0;
    const kvc_status status = kvc_forward_begin(s.cache(), &batch, s.stream, &step, s.lockstep.error());
    if (status == KVC_OK) {
      cuda_emulation::fail_call(1000000, cudaErrorInvalidValue);
      EXPECT_EQ(kvc_forward_abort(s.cache(), step, s.lockstep.error()), KVC_OK);
    }
    return status;
  }
};

TEST_F(Errors, Begin) {
  check("kvc_forward_begin", [](Scene&) {}, [](Scene& s) { return begin(s, s.id(s.plain)); }, false);
}

// The last page is shared with another sequence, so it is copied first.
TEST_F(Errors, BeginWithACopy) {
  kvc_seq child = 0;
  check(
      "kvc_forward_begin",
      [&](Scene& s) {
        const kvc_seq parent = s.id(s.plain);
        const int64_t position = 4, length = 3;
        ASSERT_EQ(kvc_seq_fork(s.cache(), 1, &parent, &position, &child, nullptr, s.lockstep.error()), KVC_OK);
        ASSERT_EQ(kvc_seq_truncate(s.cache(), 1, &child, &length, s.lockstep.error()), KVC_OK);
      },
      [&](Scene& s) { return begin(s, child); }, false);
}

// The open step of some of the next tests, on the CUDA side alone.
kvc_forward begin_alone(kvc_cache* cache, kvc_seq id, int32_t length, cudaStream_t stream, kvc_forward graph = 0) {
  kvc_error error = KVC_ERROR_INIT;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.num_sequences = 1;
  batch.sequences = &id;
  batch.append_lengths = &length;
  batch.graph = graph;
  kvc_forward step = 0;
  EXPECT_EQ(kvc_forward_begin(cache, &batch, stream, &step, &error), KVC_OK) << error.message;
  return step;
}

TEST_F(Errors, Attend) {
  kvc_forward step = 0;
  check(
      "kvc_forward_attend", [&](Scene& s) { step = begin_alone(s.cache(), s.id(s.plain), 7, s.stream); },
      [&](Scene& s) {
        const kvc_attend_args args = s.lockstep.make_layer(7).args(1);
        const kvc_status status = kvc_forward_attend(s.cache(), step, 0, &args, s.lockstep.error());
        s.lockstep.layers.clear();
        return status;
      },
      true);
  expect_kernel("append");
  expect_kernel("attend");
}

TEST_F(Errors, Append) {
  kvc_forward step = 0;
  check(
      "kvc_forward_append", [&](Scene& s) { step = begin_alone(s.cache(), s.id(s.plain), 7, s.stream); },
      [&](Scene& s) {
        Lockstep::Layer& rows = s.lockstep.make_layer(7);
        kvc_append_args args;
        kvc_append_args_init(&args);
        args.k = &rows.k[1]->view;
        args.v = &rows.v[1]->view;
        const kvc_status status = kvc_forward_append(s.cache(), step, 0, &args, s.lockstep.error());
        s.lockstep.layers.clear();
        return status;
      },
      true);
  expect_kernel("append");
}

TEST_F(Errors, Import) {
  check(
      "kvc_seq_import", [](Scene&) {},
      [](Scene& s) {
        Lockstep::Layer& rows = s.lockstep.make_layer(5);
        const DLTensor* const k[] = {&rows.k[1]->view, &rows.k[1]->view};
        const DLTensor* const v[] = {&rows.v[1]->view, &rows.v[1]->view};
        kvc_import_args args;
        kvc_import_args_init(&args);
        args.num_layers = kLayers;
        args.k = k;
        args.v = v;
        const kvc_status status = kvc_seq_import(s.cache(), s.id(s.plain), &args, s.stream, s.lockstep.error());
        s.lockstep.layers.clear();
        return status;
      },
      false);
}

// A step in the buffers of a graph, which exists already.
TEST_F(Errors, BeginInGraph) {
  kvc_forward graph = 0;
  check(
      "kvc_forward_begin",
      [&](Scene& s) {
        kvc_graph_config config;
        kvc_graph_config_init(&config);
        EXPECT_EQ(kvc_graph_create(s.cache(), &config, &graph, s.lockstep.error()), KVC_OK) << s.lockstep.message();
      },
      [&](Scene& s) { return begin(s, s.id(s.plain), graph); }, false);
}

TEST_F(Errors, End) {
  kvc_forward step = 0;
  check(
      "kvc_forward_end",
      [&](Scene& s) {
        step = begin_alone(s.cache(), s.id(s.plain), 7, s.stream);
        for (int layer = 0; layer < kLayers; ++layer) {
          const kvc_attend_args args = s.lockstep.make_layer(7).args(1);
          EXPECT_EQ(kvc_forward_attend(s.cache(), step, layer, &args, s.lockstep.error()), KVC_OK);
        }
        cudaDeviceSynchronize();
        s.lockstep.layers.clear();
      },
      [&](Scene& s) { return kvc_forward_end(s.cache(), step, s.lockstep.error()); }, true);
}

// When the step of a graph has ended, its tables on the device are stale, or the end has failed. Then the next end
// tries again.
TEST_F(Errors, EndWithTables) {
  int failures = 0;
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 50);
    Scene scene;
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    kvc_forward graph = 0;
    ASSERT_EQ(kvc_graph_create(scene.cache(), &config, &graph, scene.lockstep.error()), KVC_OK);
    const kvc_seq id = scene.id(scene.plain);
    const kvc_forward step = begin_alone(scene.cache(), id, 7, scene.stream, graph);
    kvc_tables tables;
    kvc_tables_init(&tables);
    ASSERT_EQ(kvc_forward_tables(scene.cache(), step, 0, &tables, scene.lockstep.error()), KVC_OK)
        << scene.lockstep.message();
    const auto* const word = static_cast<const int64_t*>(tables.generation_word.data);
    const auto word_now = [&] {
      cudaDeviceSynchronize();
      return *word;
    };
    ASSERT_GT(word_now(), 0);
    cuda_emulation::fail_call(n, cudaErrorInvalidValue);
    const kvc_status status = kvc_forward_abort(scene.cache(), step, scene.lockstep.error());
    const bool reached = cuda_emulation::calls() >= n;
    cuda_emulation::fail_call(0, cudaSuccess);
    EXPECT_EQ(status, reached ? KVC_ERROR_DEVICE_FAILED : KVC_OK) << scene.lockstep.message();
    if (!reached) {
      EXPECT_EQ(word_now(), 0);
      break;
    }
    if (word_now() == 0) continue;
    ++failures;
    if (begin(scene, id, graph) == KVC_OK) {
      EXPECT_EQ(word_now(), 0);
    }
  }
  EXPECT_GT(failures, 0);
}

TEST_F(Errors, Fork) {
  check(
      "kvc_seq_fork", [](Scene&) {},
      [](Scene& s) {
        const kvc_seq id = s.id(s.plain);
        kvc_seq child = 0;
        const int64_t position = 5;
        return kvc_seq_fork(s.cache(), 1, &id, &position, &child, nullptr, s.lockstep.error());
      },
      false);
}

TEST_F(Errors, Commit) {
  check(
      "kvc_seq_commit", [](Scene&) {},
      [](Scene& s) {
        const kvc_seq id = s.id(s.tree);
        const int32_t leaf = 2;
        return kvc_seq_commit(s.cache(), 1, &id, &leaf, nullptr, s.lockstep.error());
      },
      false);
}

TEST_F(Errors, Export) {
  check(
      "kvc_seq_export", [](Scene&) {},
      [](Scene& s) {
        kvc_export_args args;
        kvc_export_args_init(&args);
        kvc_exported exported;
        kvc_exported_init(&exported);
        const kvc_status status =
            kvc_seq_export(s.cache(), s.id(s.plain), &args, &exported, nullptr, s.lockstep.error());
        if (status == KVC_OK) {
          cuda_emulation::fail_call(1000000, cudaErrorInvalidValue);  // calls that free memory cannot fail
          exported.k->deleter(exported.k);
          exported.v->deleter(exported.v);
        }
        return status;
      },
      false);
}

// CUDA returns some errors from every later call, and in a process after a fork. Then every call of the cache reports
// them.
TEST_F(Errors, ThatStayAreSaidForGood) {
  for (const cudaError_t stays :
       {cudaErrorNvlinkUncorrectable, cudaErrorContextIsDestroyed, cudaErrorInitializationError}) {
    SCOPED_TRACE(cudaGetErrorName(stays));
    Scene scene;
    const kvc_seq id = scene.id(scene.plain);
    const int64_t position = 5;
    kvc_seq child = 0;
    cuda_emulation::fail_call(1, stays);
    EXPECT_EQ(kvc_seq_fork(scene.cache(), 1, &id, &position, &child, scene.stream, scene.lockstep.error()),
              KVC_ERROR_DEVICE_FAILED);
    cuda_emulation::fail_call(0, cudaSuccess);
    EXPECT_EQ(kvc_seq_add(scene.cache(), 1, &child, scene.lockstep.error()), KVC_ERROR_DEVICE_FAILED);
    EXPECT_NE(std::strstr(scene.lockstep.message(), "failed before"), nullptr) << scene.lockstep.message();
    EXPECT_NE(std::strstr(scene.lockstep.message(), cudaGetErrorName(stays)), nullptr) << scene.lockstep.message();
  }
}

// A failed creation leaves no memory and no event.
TEST_F(Errors, Create) {
  for (int64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 1000);
    kvc_error error = KVC_ERROR_INIT;
    kvc_context_config config;
    kvc_context_config_init(&config);
    config.device_type = kDLCUDA;
    kvc_context* context = nullptr;
    ASSERT_EQ(kvc_context_create(&config, &context, &error), KVC_OK);
    kvc_layer_config layer;
    kvc_layer_config_init(&layer);
    layer.num_q_heads = layer.num_kv_heads = 1;
    layer.head_dim = 8;
    layer.dtype = {kDLFloat, 32, 1};
    layer.rope_mode = KVC_ROPE_ON_APPEND;
    kvc_cache_config cache_config;
    kvc_cache_config_init(&cache_config);
    cache_config.layers = &layer;
    cache_config.num_layers = 1;
    cache_config.capacity_tokens = 64;
    kvc_cache* cache = nullptr;
    cuda_emulation::fail_call(n, cudaErrorInvalidValue);
    const kvc_status status = kvc_cache_create(context, &cache_config, &cache, &error);
    const bool reached = cuda_emulation::calls() >= n;
    cuda_emulation::fail_call(0, cudaSuccess);
    if (reached) {
      EXPECT_EQ(status, KVC_ERROR_DEVICE_FAILED) << error.message;
      EXPECT_NE(std::strstr(error.message, "cudaErrorInvalidValue"), nullptr) << error.message;
    } else {
      EXPECT_EQ(status, KVC_OK) << error.message;
      kvc_cache_destroy(cache);
    }
    kvc_context_destroy(context);
    if (!reached || HasFailure()) break;
  }
}

constexpr cudaError_t kLasting[] = {
    cudaErrorIllegalAddress,      cudaErrorLaunchTimeout,      cudaErrorAssert,
    cudaErrorHardwareStackError,  cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
    cudaErrorInvalidAddressSpace, cudaErrorInvalidPc,          cudaErrorLaunchFailure,
    cudaErrorTensorMemoryLeak,    cudaErrorContained,          cudaErrorMpsClientTerminated,
    cudaErrorExternalDevice,      cudaErrorECCUncorrectable,   cudaErrorUnknown};

// The errors after which CUDA needs a new process. After such an error, all calls report it.
TEST_F(Errors, ThoseThatStay) {
  for (const cudaError_t lasting : kLasting) {
    SCOPED_TRACE(cudaGetErrorName(lasting));
    Scene scene;
    cuda_emulation::fail_call(1, lasting);
    kvc_seq child = 0;
    const kvc_seq id = scene.id(scene.plain);
    const int64_t position = 5;
    EXPECT_EQ(kvc_seq_fork(scene.cache(), 1, &id, &position, &child, nullptr, scene.lockstep.error()),
              KVC_ERROR_DEVICE_FAILED);
    kvc_seq added = 0;
    EXPECT_EQ(kvc_seq_add(scene.cache(), 1, &added, scene.lockstep.error()), KVC_ERROR_DEVICE_FAILED);
    const std::string message = scene.lockstep.message();
    EXPECT_NE(message.find("failed before"), std::string::npos) << message;
    EXPECT_NE(message.find(cudaGetErrorName(lasting)), std::string::npos) << message;
  }
}

// Wherever the device is lost, its objects can still be destroyed. They leave no event and no memory, also none of the
// host.
TEST_F(Errors, DestroyAfterADeviceIsLost) {
  const auto live_and_fail = [](int64_t n, cudaError_t error) {
    Lockstep lockstep({.rope = true});
    cuda_emulation::fail_call(n, error);
    kvc_graph_config config;
    kvc_graph_config_init(&config);
    kvc_forward graph = 0;
    kvc_status status = kvc_graph_create(lockstep.caches[1], &config, &graph, lockstep.error());
    kvc_seq id = 0;
    if (status == KVC_OK) status = kvc_seq_add(lockstep.caches[1], 1, &id, lockstep.error());
    const int32_t length = 6;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.num_sequences = 1;
    batch.sequences = &id;
    batch.append_lengths = &length;
    kvc_forward step = 0;
    if (status == KVC_OK) status = kvc_forward_begin(lockstep.caches[1], &batch, nullptr, &step, lockstep.error());
    const kvc_attend_args args = lockstep.make_layer(length).args(1);
    if (status == KVC_OK) status = kvc_forward_attend(lockstep.caches[1], step, 0, &args, lockstep.error());
    return std::pair(status, cuda_emulation::calls() >= n);  // it is destroyed with an open step and a graph
  };
  const auto heap = [] { return mallinfo2().uordblks; };
  live_and_fail(1, cudaErrorIllegalAddress);
  cuda_emulation::fail_call(0, cudaSuccess);
  const int64_t held = cuda_emulation::counts().held;
  size_t used = 0;
  int rounds = 0;
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorContained, cudaErrorUnknown,
                                  cudaErrorIllegalAddress, cudaErrorContained, cudaErrorUnknown}) {
    for (int64_t n = 1;; ++n) {
      SCOPED_TRACE(std::string(cudaGetErrorName(error)) + " at call " + std::to_string(n));
      ASSERT_LT(n, 200);
      const auto [status, reached] = live_and_fail(n, error);
      cuda_emulation::fail_call(0, cudaSuccess);
      EXPECT_EQ(status, reached ? KVC_ERROR_DEVICE_FAILED : KVC_OK);
      EXPECT_EQ(cuda_emulation::counts().held, held);
      if (HasFailure() || !reached) break;
    }
    // The first rounds fill what the process keeps. After that nothing grows.
    if (++rounds > 3) {
      EXPECT_LE(heap(), used + 16384) << cudaGetErrorName(error);
    }
    used = heap();
  }
}

}  // namespace
}  // namespace kvt
