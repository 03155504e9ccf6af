// Where a thread runs, for a pool whose threads may wait for each other while another process uses the cores.
//
// The two moves set the thread's affinity mask and then restore it. So the thread is somewhere else afterwards, and the
// kernel may still put it anywhere. If another thread changes that mask during a move, which takes microseconds, the
// change is lost. Thread safety: any thread. A system that refuses a call leaves the thread where it is.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstdint>

namespace kvc {

// The CPU of the calling thread; -1 = the system does not say.
int current_cpu() noexcept;

// Moves the calling thread to a CPU of its mask that is not `cpu`, if there is one.
void leave_cpu(int cpu) noexcept;

// Moves a thread to `cpu`, if that is in its mask.
void move_to_cpu(pid_t thread, int cpu) noexcept;

// CPU time that a living thread of this process has used; -1 = the system does not say. It grows while the thread runs,
// also between two ticks of the system's clock, so a thread whose time stays the same is not running.
int64_t cpu_time_ns(pthread_t thread) noexcept;

}  // namespace kvc
