// Products of warpgroups, barriers that count bytes, and TMA.
#include <string.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cuda_runtime.h"
#include "kernels/cuda/attend/wgmma/layout.h"

namespace cuda_emulation {
namespace {

using namespace kvc::kernels::cuda;
constexpr uint32_t kFirstAddress = 1024;       // of a block's dynamic shared memory; the system uses what is before it
constexpr uint32_t kNothingYet = 0xffffffffu;  // a result that is not computed yet: NaN

struct Barrier {
  uint32_t count, left;
  int64_t bytes;  // that are expected and have not arrived
  uint64_t phase;
};

struct Box {
  const CUtensorMap* map;
  unsigned char* target;
  uint64_t* barrier;
  int64_t first[4];
};

struct Begun {  // a product
  Product product;
  int threads = 0, taken = 0;  // threads that have begun it, and that have taken their results
  float* d[kWarpgroupThreads];
  const uint32_t* a[kWarpgroupThreads];
  uint32_t a_values[kWarpgroupThreads][4];
  bool chained = false;                 // d was in flight already
  std::vector<float> result;            // [64][columns]; at first the old contents of d
  std::vector<unsigned char> operands;  // in shared memory, when it began
  bool computed = false;
  bool over = false;  // where products are late
};

struct Thread {
  size_t issued = 0;
  std::vector<size_t> open;
  std::vector<std::vector<size_t>> groups;
  bool begun = false;              // begin_products since the last wait
  int published = 0, carried = 0;  // how often it published its writes, now and at its last barrier
  std::vector<size_t> arrived;     // the places of its copies that it has waited for and not published
};

// One of a block's barriers by number.
struct Meeting {
  int threads = 0, arrived = 0;
  uint64_t passed = 0;
};
constexpr int kMeetings = 16;

struct State {
  unsigned char* shared = nullptr;
  std::vector<unsigned char> seen;  // shared memory as products and copies see it
  // For each 16 bytes of shared memory: the thread (from 1 on) whose copy wrote them and is not published, or 0.
  std::vector<unsigned> held;
  size_t num_held = 0;  // those that are not 0
  std::map<const uint64_t*, Barrier> barriers;
  Meeting meetings[kMeetings];
  std::deque<Box> boxes;
  std::vector<Thread> threads;
  std::vector<std::deque<std::shared_ptr<Begun>>> products;  // of each warpgroup, since the block began
  bool at_once = false, newest_first = false;
};
thread_local State state;

Thread& self() { return state.threads[threadIdx.x]; }

Barrier& find(uint64_t* barrier) {
  const auto found = state.barriers.find(barrier);
  if (found == state.barriers.end()) die("a barrier that no thread began");
  return found->second;
}
void settle(Barrier& barrier) {
  if (barrier.left > 0 || barrier.bytes != 0) return;
  barrier.left = barrier.count;
  ++barrier.phase;
}

void publish() {
  if (state.num_held == 0) {
    memcpy(state.seen.data(), state.shared, state.seen.size());
    return;
  }
  for (size_t at = 0; at < state.seen.size(); at += 16) {
    const size_t bytes = std::min<size_t>(16, state.seen.size() - at);
    if (state.held[at / 16] == 0) memcpy(state.seen.data() + at, state.shared + at, bytes);
  }
}

size_t place_of_copy(const void* shared) {
  return static_cast<size_t>(static_cast<const unsigned char*>(shared) - state.shared) / 16;
}

// What a thread brings to a barrier: the writes of its warp, if all lanes have published them.
void carry_writes() {
  const size_t first = threadIdx.x / 32 * 32, end = std::min(first + 32, state.threads.size());
  const auto warp = state.threads.begin() + static_cast<ptrdiff_t>(first);
  const auto warp_end = state.threads.begin() + static_cast<ptrdiff_t>(end);
  Thread& own = self();
  if (own.carried == own.published) return;
  if (!std::all_of(warp, warp_end, [&](const Thread& t) { return t.published >= own.published; })) return;
  publish();
  own.carried = own.published;
}

void arrive_at(uint64_t* barrier, int64_t bytes) {
  carry_writes();
  Barrier& at = find(barrier);
  if (at.left == 0) die("more threads arrive at a barrier than it counts");
  --at.left;
  at.bytes += bytes;
  settle(at);
}

// Copies a box. Positions outside the tensor are zeros. If the map swizzles, chunks of 16 bytes are permuted by bits 7
// to 9 of the address.
void copy(const Box& box) {
  const CUtensorMap& map = *box.map;
  uint32_t written = 0;
  int64_t i[4];
  for (i[3] = 0; i[3] < map.box[3]; ++i[3]) {
    for (i[2] = 0; i[2] < map.box[2]; ++i[2]) {
      for (i[1] = 0; i[1] < map.box[1]; ++i[1]) {
        for (i[0] = 0; i[0] < map.box[0]; i[0] += 16 / map.element_bytes) {
          const unsigned char* source = map.data;
          bool there = true;
          for (int d = 0; d < 4; ++d) {
            const int64_t at = box.first[d] + i[d];
            there = there && at >= 0 && static_cast<uint64_t>(at) < map.dims[d];
            source += d == 0 ? at * map.element_bytes : at * static_cast<int64_t>(map.strides[d - 1]);
          }
          const uint32_t plain = shared_address(box.target) + written;
          const uint32_t at = map.swizzles != 0 ? plain ^ ((plain >> 7 & 7u) << 4) : plain;
          unsigned char* const target = state.shared + (at - kFirstAddress);
          if (there) {
            memcpy(target, source, 16);
          } else {
            memset(target, 0, 16);
          }
          memcpy(state.seen.data() + (at - kFirstAddress), target, 16);
          written += 16;
        }
      }
    }
  }
  Barrier& barrier = find(box.barrier);
  barrier.bytes -= written;
  settle(barrier);
}

// ---- Products -------------------------------------------------------------------------------------

struct Fields {
  uint32_t start, leading, stride;
};
Fields decode(uint64_t descriptor) {
  if (descriptor >> 62 != 1) die("a matrix descriptor without a swizzle of 128 bytes");
  if ((descriptor >> 49 & 7u) != 0) die("a matrix descriptor with a base offset");
  const auto bytes = [&](int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fffu) << 4; };
  return {bytes(0), bytes(16), bytes(32)};
}

// The element at a byte address before the swizzle.
uint16_t element_at(uint32_t plain) {
  const uint32_t at = plain ^ ((plain >> 7 & 7u) << 4);
  if (at < kFirstAddress || at - kFirstAddress + 2 > state.seen.size()) die("an operand outside of shared memory");
  uint16_t element;
  memcpy(&element, state.seen.data() + (at - kFirstAddress), sizeof element);
  return element;
}

// The [rows][16] block of a K-major operand.
void read_rows(uint64_t descriptor, int rows, std::vector<uint16_t>* to) {
  const Fields fields = decode(descriptor);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < kMmaDepth; ++k) {
      const uint32_t in_row = fields.start % kPanelPitch + static_cast<uint32_t>(k) * 2;
      if (in_row >= kPanelPitch) die("16 elements of an operand that go beyond a row of its panel");
      to->push_back(element_at(fields.start + static_cast<uint32_t>(row / 8) * fields.stride +
                               static_cast<uint32_t>(row % 8 * kPanelPitch + k * 2)));
    }
  }
}

// The same of B in MN-major: column c, depth k.
void read_columns(uint64_t descriptor, int columns, std::vector<uint16_t>* to) {
  const Fields fields = decode(descriptor);
  if (fields.start % kPatternBytes != 0) die("an MN-major operand that does not begin with the swizzle's pattern");
  for (int c = 0; c < columns; ++c) {
    for (int k = 0; k < kMmaDepth; ++k) {
      to->push_back(element_at(fields.start + static_cast<uint32_t>(c / kPanelDims) * fields.leading +
                               static_cast<uint32_t>(k / 8) * fields.stride +
                               static_cast<uint32_t>(k % 8 * kPanelPitch + c % kPanelDims * 2)));
    }
  }
}

std::vector<uint16_t> read_operands(const Product& product) {
  std::vector<uint16_t> operands;
  if (product.a_shared) read_rows(product.a, kWarpgroupRows, &operands);
  if (product.b_by_keys) {
    read_columns(product.b, product.columns, &operands);
  } else {
    read_rows(product.b, product.columns, &operands);
  }
  return operands;
}

float float_of(const Product& product, uint16_t bits) {
  return product.is_f16 ? kvc::kernels::to_float(F16{bits}) : kvc::kernels::to_float(Bf16{bits});
}

std::vector<uint16_t> unchanged_operands(const Begun& begun) {
  std::vector<uint16_t> operands = read_operands(begun.product);
  if (memcmp(operands.data(), begun.operands.data(), begun.operands.size()) != 0) {
    die("an operand in shared memory was written while a product read it");
  }
  return operands;
}

void compute(Begun& begun) {
  const Product& product = begun.product;
  const std::vector<uint16_t> operands = unchanged_operands(begun);
  std::vector<float> a(kWarpgroupRows * kMmaDepth), b(static_cast<size_t>(kMmaDepth * product.columns));
  size_t at = 0;
  for (; product.a_shared && at < a.size(); ++at) a[at] = float_of(product, operands[at]);
  for (int thread = 0; !product.a_shared && thread < kWarpgroupThreads; ++thread) {
    if (memcmp(begun.a[thread], begun.a_values[thread], 16) != 0) {
      die("an operand in registers was written while a product read it");
    }
    for (int i = 0; i < 8; ++i) {
      const MatrixPlace place = place_in_a(thread % 32, i);
      const uint16_t bits = static_cast<uint16_t>(begun.a_values[thread][i / 2] >> (i % 2 * 16));
      a[static_cast<size_t>((thread / 32 * kMmaRows + place.row) * kMmaDepth + place.column)] = float_of(product, bits);
    }
  }
  for (int c = 0; c < product.columns; ++c) {
    for (int k = 0; k < kMmaDepth; ++k) {
      b[static_cast<size_t>(k * product.columns + c)] = float_of(product, operands[at++]);
    }
  }
  for (int row = 0; row < kWarpgroupRows; ++row) {
    float* const sums = begun.result.data() + row * product.columns;
    for (int k = 0; k < kMmaDepth; ++k) {
      const float x = a[static_cast<size_t>(row * kMmaDepth + k)];
      const float* const of_k = b.data() + k * product.columns;
      for (int c = 0; c < product.columns; ++c) sums[c] += x * of_k[c];
    }
  }
  begun.computed = true;
}

bool holds_nothing_yet(const float* d, int count) {
  return std::all_of(d, d + count, [](float x) { return static_cast<uint32_t>(bits_of(x)) == kNothingYet; });
}

std::deque<std::shared_ptr<Begun>>& of_warpgroup() { return state.products[threadIdx.x / kWarpgroupThreads]; }

// The latest product whose results are these registers of the thread and are in flight; null if there is none.
Begun* in_flight(const Thread& thread, const float* d) {
  const auto is_mine = [&](size_t index) { return of_warpgroup()[index]->d[threadIdx.x % kWarpgroupThreads] == d; };
  for (auto i = thread.open.rbegin(); i != thread.open.rend(); ++i) {
    if (is_mine(*i)) return of_warpgroup()[*i].get();
  }
  for (auto group = thread.groups.rbegin(); group != thread.groups.rend(); ++group) {
    for (auto i = group->rbegin(); i != group->rend(); ++i) {
      if (is_mine(*i)) return of_warpgroup()[*i].get();
    }
  }
  return nullptr;
}

// Gives the thread its results of a product, all of whose threads have begun it.
void take_results(size_t index, bool in_flight_still) {
  auto& products = of_warpgroup();
  Begun& begun = *products[index];
  if (!begun.computed) {
    if (begun.chained) {  // products of a warpgroup are computed in their order
      const auto before = std::find_if(products.rend() - static_cast<ptrdiff_t>(index), products.rend(),
                                       [&](const auto& p) { return p != nullptr && p->d[0] == begun.d[0]; });
      if (begun.product.adds) begun.result = (*before)->result;
    }
    if (!begun.product.adds) std::fill(begun.result.begin(), begun.result.end(), 0.0f);
    compute(begun);
    count_warpgroup_product();
  }
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  float* const d = begun.d[thread];
  const int count = begun.product.columns / 2;
  if (!in_flight_still) {
    if (!holds_nothing_yet(d, count)) die("results were written while a product was in flight");
    for (int i = 0; i < count; ++i) {
      const MatrixPlace place = place_in_result(thread, i);
      d[i] = begun.result[static_cast<size_t>(place.row * begun.product.columns + place.column)];
    }
  }
  if (++begun.taken < kWarpgroupThreads) return;
  unchanged_operands(begun);  // a warp that has finished cannot know about the others
  begun.operands = {};
}

}  // namespace

uint32_t shared_address(const void* shared) {
  const ptrdiff_t at = static_cast<const unsigned char*>(shared) - state.shared;
  if (at < 0 || at > static_cast<ptrdiff_t>(state.seen.size())) die("an address outside of shared memory");
  return static_cast<uint32_t>(at) + kFirstAddress;
}

void init_barrier(uint64_t* barrier, uint32_t count) {
  if (shared_address(barrier) % 8 != 0) die("a barrier that is not aligned to 8 bytes");
  state.barriers[barrier] = {count, count, 0, 0};
}
void publish_barriers() {}
void arrive(uint64_t* barrier) { arrive_at(barrier, 0); }
void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  if (bytes >= 1u << 20) die("a barrier counts less than 2^20 bytes");
  arrive_at(barrier, bytes);
}
void wait_phase(uint64_t* barrier, uint32_t parity) {
  const Barrier& at = find(barrier);
  wait_until([&] { return (at.phase & 1) != parity; });
}

void meet_some(int number, int threads, bool waits) {
  if (number < 1 || number >= kMeetings) die("a barrier of some threads whose number is not from 1 to 15");
  carry_writes();
  Meeting& at = state.meetings[number];
  if (at.arrived == 0) at.threads = threads;
  if (at.threads != threads) die("threads at a barrier disagree how many they are");
  const uint64_t before = at.passed;
  if (++at.arrived == threads) {
    at.arrived = 0;
    ++at.passed;
  }
  if (waits) wait_until([&] { return at.passed != before; });
}

void begin_box(void* shared, const CUtensorMap* map, uint64_t* barrier, int32_t c0, int32_t c1, int32_t c2,
               int32_t c3) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) die("a tensor map that is not aligned to 64 bytes");
  if (shared_address(shared) % 128 != 0) die("a box whose place in shared memory is not aligned to 128 bytes");
  const Box box = {map, static_cast<unsigned char*>(shared), barrier, {c0, c1, c2, c3}};
  if (state.at_once) {
    copy(box);
  } else {
    state.boxes.push_back(box);
  }
}
void publish_writes() {
  Thread& thread = self();
  ++thread.published;
  for (const size_t place : thread.arrived) {
    if (state.held[place] != threadIdx.x + 1) continue;
    state.held[place] = 0;
    --state.num_held;
  }
  thread.arrived.clear();
}

// In blocks without barriers of bytes, there are no products of warpgroups.
void hold_copy(const void* shared) {
  if (state.barriers.empty()) return;
  unsigned& held = state.held[place_of_copy(shared)];
  state.num_held += held == 0 ? 1 : 0;
  held = threadIdx.x + 1;
}
void arrive_copy(const void* shared) {
  if (!state.barriers.empty()) self().arrived.push_back(place_of_copy(shared));
}

void begin_products() {
  exchange(~0u, 0, 0);
  self().begun = true;
}
void close_products() {
  self().groups.push_back(std::move(self().open));
  self().open.clear();
}

void issue_product(const Product& product, float* d, const uint32_t* a) {
  Thread& thread = self();
  if (!thread.begun) die("a product with no begin_products since results were waited for");
  auto& products = of_warpgroup();
  const size_t index = thread.issued++;
  if (index == products.size()) products.push_back(std::make_shared<Begun>());
  const int own = static_cast<int>(threadIdx.x) % kWarpgroupThreads, count = product.columns / 2;
  Begun& begun = *products[index];
  if (begun.threads == 0) {
    begun.product = product;
    begun.result.resize(static_cast<size_t>(kWarpgroupRows * product.columns));
  } else if (begun.product.a != product.a || begun.product.b != product.b || begun.product.columns != product.columns ||
             begun.product.a_shared != product.a_shared || begun.product.b_by_keys != product.b_by_keys) {
    die("threads of a warpgroup multiply unlike operands");
  }
  begun.chained = in_flight(thread, d) != nullptr;
  if (begun.chained && !holds_nothing_yet(d, count)) die("results were written while a product was in flight");
  for (int i = 0; i < count; ++i) {
    const MatrixPlace place = place_in_result(own, i);
    begun.result[static_cast<size_t>(place.row * product.columns + place.column)] = d[i];
    d[i] = value_of<float>(kNothingYet);
  }
  begun.d[own] = d;
  begun.a[own] = a;
  if (a != nullptr) memcpy(begun.a_values[own], a, 16);
  thread.open.push_back(index);
  if (++begun.threads < kWarpgroupThreads) return;
  const std::vector<uint16_t> operands = read_operands(product);
  begun.operands.resize(operands.size() * 2);
  memcpy(begun.operands.data(), operands.data(), begun.operands.size());
}

void wait_for_products(int groups) {
  Thread& thread = self();
  if (!thread.open.empty()) die("products that are in no group are waited for");
  while (static_cast<int>(thread.groups.size()) > groups) {
    const std::vector<size_t> group = std::move(thread.groups.front());
    thread.groups.erase(thread.groups.begin());
    for (size_t i = 0; i < group.size(); ++i) {
      const size_t index = group[i];
      const Begun& begun = *of_warpgroup()[index];  // evaluated while another thread runs
      wait_until([&] { return begun.threads == kWarpgroupThreads && (begun.over || !state.at_once); });
      const float* const d = of_warpgroup()[index]->d[threadIdx.x % kWarpgroupThreads];
      const bool again = std::any_of(group.begin() + static_cast<ptrdiff_t>(i) + 1, group.end(), [&](size_t later) {
        return of_warpgroup()[later]->d[threadIdx.x % kWarpgroupThreads] == d;
      });
      take_results(index, again || in_flight(thread, d) != nullptr);
    }
  }
  thread.begun = false;
}

void begin_warpgroups(int threads, unsigned char* shared, size_t bytes, bool at_once, bool newest_first) {
  state = {};
  state.shared = shared;
  state.seen.assign(bytes, 0xff);
  state.held.assign(bytes / 16 + 1, 0);
  state.threads.resize(static_cast<size_t>(threads));
  state.products.resize(static_cast<size_t>((threads + kWarpgroupThreads - 1) / kWarpgroupThreads));
  state.at_once = at_once;
  state.newest_first = newest_first;
}

void pass_block_barrier() {
  const auto has_more = [](const Thread& t) { return t.published > t.carried; };
  if (!std::all_of(state.threads.begin(), state.threads.end(), has_more)) return;
  publish();
  for (Thread& thread : state.threads) thread.carried = thread.published;
}

namespace {
// The first product that all its threads have begun.
bool end_product() {
  for (const auto& of_warpgroup : state.products) {
    for (const auto& begun : of_warpgroup) {
      if (begun->over || begun->threads < kWarpgroupThreads) continue;
      begun->over = true;
      return true;
    }
  }
  return false;
}
}  // namespace

bool deliver() {
  if (state.boxes.empty()) return end_product();
  const Box box = state.newest_first ? state.boxes.back() : state.boxes.front();
  if (state.newest_first) {
    state.boxes.pop_back();
  } else {
    state.boxes.pop_front();
  }
  copy(box);
  return true;
}

void end_warpgroups() {
  if (!state.boxes.empty()) die("a block ends before its boxes are there");
  for (const Thread& thread : state.threads) {
    if (!thread.open.empty() || !thread.groups.empty()) die("products that no thread waited for");
  }
}

}  // namespace cuda_emulation
