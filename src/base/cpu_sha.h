// Whether this CPU has instructions for SHA-256. The function is not in src/keys, because on ARM the operating system
// gives the answer, and src/keys calls no operating system.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc {

// x86: SHA-NI with SSE4.1. aarch64: the SHA2 instructions of ARMv8. Other CPUs: false.
bool cpu_has_sha256() noexcept;

}  // namespace kvc
