// Fuzz target of the C API: bytes become calls over valid and hostile objects.
//
// The first byte chooses between two programs.
//   calls   Calls of every public function (objects.h). Half of them have one hostile argument: NULL, a wrong rank,
//           shape, stride or dtype, a huge size, an id that is stale or of another cache, a wrong struct_size. Calls
//           come in any order. After each, every sequence is compared with arrays of tokens.
//   model   The random driver of tests/model, whose choices are the input's bytes. All arguments are valid, or wrong in
//           ways that the naive model of tests/support predicts: statuses, pages, contents, attention.
// Either program aborts at the first difference. A run depends on its input alone, because contexts have one thread.
#include <algorithm>

#include "../tests/model/driver.h"
#include "../tests/model/specs.h"
#include "objects.h"

namespace fuzz {
namespace {

// Takes the driver's choices from bytes. When the input has ended, the driver stops.
class Choices : public kvt::Choices {
 public:
  explicit Choices(Bytes in) : in_(in) {}
  bool done() override { return in_.empty(); }
  int64_t uniform(int64_t low, int64_t high) override { return in_.between(low, high); }
  bool chance(double p) override { return in_.chance(p); }
  void shuffle(std::vector<int> *values) override {
    for (int64_t i = std::ssize(*values); i > 1; i--) std::swap((*values)[i - 1], (*values)[in_.below(i)]);
  }

 private:
  Bytes in_;
};

void run_model(Bytes in) {
  constexpr int kPageSizes[] = {1, 3, 16};
  const kvt::Case what = {kPageSizes[in.below(3)], static_cast<kvt::Kind>(in.below(10))};
  std::mt19937_64 random(in.byte());
  kvt::CacheSpec spec = kvt::make_spec(what, random);
  spec.max_batch_tokens = std::min(spec.max_batch_tokens, 100);
  kvt::Options options;
  options.seed = in.byte();
  options.graph = in.one_in(2);
  options.attend_checks = 0.2;
  Choices choices(in);
  try {
    kvt::Driver driver(spec, options, &choices);
    driver.run(200);
    for (const auto &[call, count] : driver.harness().drawn()) {
      const size_t space = call.find(" KVC_");
      if (space == std::string::npos) continue;
      Reached &entry = reached[call.substr(0, space)];
      (call.substr(space + 1) == "KVC_OK" ? entry.succeeded : entry.failed) += count;
    }
  } catch (const kvt::Mismatch &mismatch) {
    die("%s", mismatch.what());
  }
}

void run_calls(Bytes in) {
  World w(in);
  kvc_context_config config;
  kvc_context_config_init(&config);
  config.num_threads = 1;
  if (CALL(kvc_context_create, &config, &w.context, w.error()) != KVC_OK) die("no context");
  create_cache(w, &w.caches[0]);
  constexpr void (*kCalls[])(World &) = {call_sequence, call_step,    call_layer,     call_step,
                                         call_layer,    call_tensors, call_stateless, call_plan};
  for (int calls = 0; !w.in.empty() && calls < 200; calls++) {
    const uint8_t choice = w.in.byte();
    w.in.arm();
    if (choice < 240) {
      kCalls[choice % 8](w);
    } else if (choice < 244) {
      call_cache(w);
    } else if (choice < 248) {
      call_prefix(w);
    } else if (choice < 254) {
      call_context(w);
    } else {
      call_saves(w);
    }
    w.tensors.clear();
    w.memory.clear();
    for (Cache &c : w.caches) {
      if (c.cache) w.check_model(c);
    }
  }
}

}  // namespace
}  // namespace fuzz

extern "C" const char *__asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=1024:detect_leaks=1";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Bytes in(data, size);
  if (in.one_in(4)) {
    fuzz::run_model(in);
  } else {
    fuzz::run_calls(in);
  }
  return 0;
}
