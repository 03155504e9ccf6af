#include "system/wake_event.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/assert.h"

namespace kvc {

int open_event() noexcept { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

void close_event(int event) noexcept { ::close(event); }

void write_event(int event) noexcept {
  const uint64_t one = 1;
  // EAGAIN: the counter of the eventfd is at its limit, so the event is signalled already.
  if (::write(event, &one, sizeof one) < 0) KVC_ASSERT(errno == EAGAIN, errno, event);
}

void clear_event(int event) noexcept {
  uint64_t count = 0;
  if (::read(event, &count, sizeof count) < 0) KVC_ASSERT(errno == EAGAIN, errno, event);
}

bool wait_for_events(std::span<const int> events, int most_ms) noexcept {
  struct pollfd waits[64];
  nfds_t count = 0;
  for (const int event : events) waits[count++] = {event, POLLIN, 0};
  return ::poll(waits, count, most_ms) >= 0 && waits[0].revents != 0;
}

}  // namespace kvc
