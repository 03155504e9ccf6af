// Reads and changes the core on which a thread runs. ThreadPool needs this when other processes use the cores while
// its threads wait for each other.
//
// leave_cpu and move_to_cpu set a thread's affinity mask and then restore it. So the thread has moved, but the system
// may move it again. A move takes microseconds. If another thread changes the mask during that time, the change is
// lost.
// Thread safety: any thread. If the system refuses a call, the thread stays where it is.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace kvc {

// Returns the CPU of the calling thread, or -1 if the system does not report it.
int current_cpu() noexcept;

// Moves the calling thread to a CPU of its mask that is not `cpu`, if there is one.
void leave_cpu(int cpu) noexcept;

// Moves a living thread of this process to `cpu`, if `cpu` is in the thread's mask.
void move_to_cpu(pthread_t thread, int cpu) noexcept;

// Returns the CPU time that an existing thread of this process has used, or -1 if the system does not report it. The
// unit is that of the system (nanoseconds on Linux, cycles on Windows). This time grows continuously while the thread
// runs, not only at ticks of the system's clock. So a thread whose time stays the same is not running.
int64_t cpu_time(pthread_t thread) noexcept;

}  // namespace kvc
