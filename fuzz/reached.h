// What the inputs of a fuzz target reach: how often each call succeeded and failed, over all inputs of the process.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace fuzz {

struct Reached {
  int64_t succeeded = 0, failed = 0;

  void count(bool success) { (success ? succeeded : failed)++; }
};
inline std::map<std::string, Reached> reached;  // by the call's name

}  // namespace fuzz
