#include "common/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace kvc {
namespace {

// A hash of the machine's boot id and of the process's PID namespace. 0 if they cannot be read.
uint64_t place_of_process() {
  char text[256];
  const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  const ssize_t boot = file < 0 ? -1 : read(file, text, 128);
  if (file >= 0) ::close(file);
  if (boot <= 0) return 0;
  const ssize_t space = readlink("/proc/self/ns/pid", text + boot, 128);
  if (space <= 0) return 0;
  return hash_of({text, static_cast<size_t>(boot + space)}) | 1;
}

}  // namespace

Process Process::own() { return {place_of_process(), getpid()}; }

bool Process::has_ended() const { return kill(static_cast<pid_t>(number), 0) != 0 && errno == ESRCH; }

}  // namespace kvc
