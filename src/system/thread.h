// Starts threads that leave the signals of the process to the threads of the host program. pthread_join waits for such
// a thread.
// Thread safety: any thread.
#pragma once

#include <pthread.h>

namespace kvc {

enum class ThreadSignals {
  kNone,   // the thread blocks all signals
  kFaults  // the thread receives the signals that its own faults raise, and blocks all others
};

// Returns 0, or an errno if the system refuses a thread.
int start_thread(pthread_t* thread, void* (*main)(void*), void* argument, ThreadSignals signals) noexcept;

}  // namespace kvc
