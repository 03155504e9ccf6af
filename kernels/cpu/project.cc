// project() multiplies the rows of tokens by a matrix for each head. A work item is a block of rows of one head.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/device.h"
#include "kernels/cpu/float_environment.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kRowsPerItem = 96;  // rows of a block
// kTinyOperations multiply-adds take one thread about a microsecond. kSmallOperations take about as long as the wake-up
// of another thread.
constexpr int64_t kTinyOperations = 32 * 1024;
constexpr int64_t kSmallOperations = 512 * 1024;
static_assert(kRowsPerItem <= kMinRows);

struct Job {
  const kvc_backend_project* args;
  const Implementation* implementation;
  Scratch* scratch;  // [workers]
};

// Items are ordered by head. So the weights of a head stay in the CPU caches while the blocks of this head are
// computed.
void run_item(void* arg, int64_t index, int32_t worker) {
  const Job& job = *static_cast<const Job*>(arg);
  const DefaultFloatEnvironment environment;
  const int64_t blocks = (job.args->num_tokens + kRowsPerItem - 1) / kRowsPerItem;
  const int64_t begin = index % blocks * kRowsPerItem, end = begin + kRowsPerItem;
  job.implementation->project_rows(job.args, static_cast<int32_t>(index / blocks), begin,
                                   end < job.args->num_tokens ? end : job.args->num_tokens, job.scratch + worker);
}

}  // namespace

kvc_status project(kvc_backend_device* device, const kvc_backend_project* args, void*, kvc_error*) {
  if (args->num_tokens == 0) return KVC_OK;
  Job job = {args, device->implementation, device->scratch};
  const int64_t operations = args->num_tokens * args->num_heads * args->in_dims * args->out_dims;
  const int32_t effort = operations <= kTinyOperations    ? KVC_EFFORT_TINY
                         : operations <= kSmallOperations ? KVC_EFFORT_SMALL
                                                          : KVC_EFFORT_LARGE;
  const int64_t blocks = (args->num_tokens + kRowsPerItem - 1) / kRowsPerItem;
  device->host->run(device->host->self, blocks * args->num_heads, effort, run_item, &job);
  return KVC_OK;
}

}  // namespace kvc::kernels
