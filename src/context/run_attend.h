// run_attend: the one place that calls a backend's attend.
#pragma once

#include <algorithm>

#include "context/context.h"

namespace kvc {

// If the backend stages plans, the plan must be staged. Sets the plan's counters, if it has any, to 0.
inline Status run_attend(const Context& context, const kvc_backend_attend& args, void* stream) {
  if (args.plan->counters != nullptr) std::fill_n(args.plan->counters, args.plan->num_tiles, 0);
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().attend(context.device(), &args, stream, &error), error);
}

}  // namespace kvc
