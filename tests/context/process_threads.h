// What /proc tells about the threads of this process.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace kvc::testing {

// thread id -> value of `key` in /proc/self/task/<id>/status, for threads whose name begins with prefix.
inline std::map<int, std::string> thread_status(const std::string& prefix, const std::string& key) {
  std::map<int, std::string> result;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name, value;
    for (std::string line; std::getline(status, line);) {
      const auto colon = line.find(":\t");
      if (colon == std::string::npos) continue;
      if (line.substr(0, colon) == "Name") name = line.substr(colon + 2);
      if (line.substr(0, colon) == key) value = line.substr(colon + 2);
    }
    if (name.starts_with(prefix)) result[std::stoi(task.path().filename())] = value;
  }
  return result;
}

// Waits for a condition; false if it does not come true within 10 s.
inline bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

inline int count_pool_threads() { return static_cast<int>(thread_status("kvc-", "Name").size()); }

// A new thread gets its name a little later, and a joined one may be listed a little longer.
inline bool pool_threads_become(int count) {
  return eventually([count] { return count_pool_threads() == count; });
}

// Waits until there are `count` pool threads and all of them sleep in the kernel.
inline bool pool_threads_fall_asleep(int count) {
  return eventually([count] {
    const auto states = thread_status("kvc-", "State");
    int asleep = 0;
    for (const auto& [id, state] : states) asleep += state.starts_with("S");
    return asleep == count && static_cast<int>(states.size()) == count;
  });
}

}  // namespace kvc::testing
