// Whether this CPU has instructions for SHA-256. It is here and not in keys, because the answer on ARM comes from the
// operating system.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc {

// x86: SHA-NI with SSE4.1. aarch64: the SHA2 instructions of ARMv8. Other CPUs: false.
bool cpu_has_sha256() noexcept;

}  // namespace kvc
