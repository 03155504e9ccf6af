// Subject: a case that is set up. A sample measures our work, and the limits that it is compared with, on the same
// data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "attention/fixture.h"
#include "attention/judge.h"
#include "attention/probes.h"

namespace kvc::benchmark {

class Subject {
 public:
  Subject(const Case& work, const Options& options, Team* team);
  virtual ~Subject() = default;

  double ours();    // one sample of our work alone
  Sample sample();  // of our work and of each limit. The order changes from call to call
  const Instruction* instruction() const { return instruction_; }

 protected:
  // Runs the work over copy `turn` modulo the number of copies, and returns its seconds.
  virtual double run(int turn) = 0;
  // The pages that `run` reads, in this order. Empty: none, or unknown.
  virtual const char* pool() const { return nullptr; }
  virtual std::vector<int32_t> pages(int) const { return {}; }
  virtual size_t page_bytes() const { return 0; }
  virtual int copies() const = 0;

  double now() const { return now_seconds(team_->threads()); }
  const Case work_;
  Arena arena_;
  Team* const team_;

 private:
  double stream();
  double read_pages_of(int turn);

  const Instruction* instruction_ = nullptr;  // the fastest one for the case; null: the case has no operations
  int turn_ = 0;
};

// Throws NotSupported if the library cannot do the case.
std::unique_ptr<Subject> make_subject(const Case& work, const Options& options, Team* team);

}  // namespace kvc::benchmark
