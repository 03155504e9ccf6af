#include "system/fork_watch.h"

namespace kvc {

// Windows has no fork(), so nothing is registered.
ForkWatch::ForkWatch(void (*in_child)(void* self), void* self) noexcept
    : in_child_(in_child), self_(self), active_(true) {}

ForkWatch::~ForkWatch() = default;

}  // namespace kvc
