#include "system/thread.h"

#include <signal.h>

#include <initializer_list>

namespace kvc {

int start_thread(pthread_t* thread, void* (*main)(void*), void* argument, ThreadSignals signals) noexcept {
  sigset_t blocked, before;
  sigfillset(&blocked);
  if (signals == ThreadSignals::kFaults) {
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);  // the new thread inherits this mask
  const int result = pthread_create(thread, nullptr, main, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return result;
}

}  // namespace kvc
