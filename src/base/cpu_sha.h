// Finds out whether this CPU has instructions for SHA-256. The function is not in src/keys, because on ARM the
// operating system gives the answer, and src/keys calls no operating system.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc {

// Returns whether the CPU has the instructions that src/keys uses: SHA-NI, SSE4.1 and SSSE3 on x86, the SHA2
// instructions of ARMv8 on aarch64. Returns false on other CPUs, and on aarch64 if the system is neither Linux nor
// macOS.
bool cpu_has_sha256() noexcept;

}  // namespace kvc
