// The limits of this machine: plain reads, copies, and the rates of the instructions that attention can use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attention/case.h"
#include "attention/team.h"

namespace kvc::benchmark {

// Memory on 2 MiB pages where the system allows, written once. Reads and copies pass through it.
class Arena {
 public:
  explicit Arena(size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // The next `bytes` bytes of it. After the end it begins again at the start.
  char* next(size_t bytes);

 private:
  void* memory_;
  size_t mapped_;
  char* data_;
  size_t bytes_;
  size_t position_ = 0;
};

// The time, in seconds, of one pass by all threads of the team, each over its share.
double read_stream(Team& team, const char* data, size_t bytes);
double read_pages(Team& team, const char* pool, size_t page_bytes, const std::vector<int32_t>& pages);
double copy(Team& team, char* target, const char* source, size_t bytes);

// A multiply-add instruction of the machine, on registers.
struct Instruction {
  const char* name;
  bool (*available)();
  void (*run)(int64_t rounds);
  double operations;  // of one thread in a round; two for each multiply-add
  bool bf16;          // multiplies bf16 and adds in float32
};

const std::vector<Instruction>& instructions();

// Operations per second of all threads together, measured for about `seconds`.
double rate(Team& team, const Instruction& instruction, double seconds);

// The fastest instruction that the numeric contract allows for stored K and V of a type: sums are float32, and only
// bf16 may be multiplied as bf16.
const Instruction& best_instruction(Team& team, Type type);

}  // namespace kvc::benchmark
