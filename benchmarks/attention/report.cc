// SPDX-License-Identifier: Apache-2.0
#include "attention/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "kvcache.h"

namespace kvc::benchmark {
namespace {

const char* verdict_name(Verdict verdict) {
  constexpr const char* kNames[] = {"reached", "short", "probe failed", "not supported", "failed"};
  return kNames[static_cast<int>(verdict)];
}

// The unit of the work: operations for prefill, else bytes.
bool counts_operations(const Case& work) { return work.work == Work::kPrefill || work.work == Work::kMlaDecode; }

double amount(const Case& work) {
  return counts_operations(work) ? work.operations() : static_cast<double>(work.kv_bytes());
}

std::string giga(double amount, double seconds) {
  if (seconds <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", amount / seconds / 1e9);
  return text;
}

std::string text_of(const char* path, const char* key) {
  std::string found;
  if (FILE* file = std::fopen(path, "r")) {
    char line[512];
    while (found.empty() && std::fgets(line, sizeof line, file) != nullptr) {
      const char* colon = std::strchr(line, ':');
      if (*key == '\0') found = line;
      if (*key != '\0' && colon != nullptr && std::strncmp(line, key, std::strlen(key)) == 0) found = colon + 2;
    }
    std::fclose(file);
  }
  while (!found.empty() && found.back() == '\n') found.pop_back();
  return found;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 32) out += c;
  }
  return out + "\"";
}

int number_of(const Case& work) {
  int number = 0;
  for (const Case& other : cases()) {
    if (other.name() == work.name()) break;
    ++number;
  }
  return number;
}

void write_case(FILE* file, const Case& work) {
  std::fprintf(file,
               "\"number\": %d, \"name\": %s, \"work\": \"%s\", \"dtype\": \"%s\", \"q_heads\": %d, \"kv_heads\": %d, "
               "\"head_dim\": %d, "
               "\"batch\": %d, \"context\": %d, \"new_tokens\": %d, \"page_size\": %d, \"shared\": %d, \"cold\": %s, "
               "\"quick\": %s, \"bytes\": %lld, \"operations\": %.0f, \"limit\": \"%s\"",
               number_of(work), quoted(work.name()).c_str(), work_name(work.work), type_name(work.type),
               work.shape.q_heads, work.shape.kv_heads, work.shape.head_dim, work.batch, work.context, work.new_tokens,
               work.page_size, work.shared, work.cold ? "true" : "false", work.quick ? "true" : "false",
               static_cast<long long>(work.kv_bytes()), work.operations(), limit_name(work.target.limit));
}

}  // namespace

Machine measure_machine(Team* team) {
  constexpr size_t kBytes = size_t{256} << 20;
  Machine machine = {team->threads(), 0, {}};
  const Arena arena(kBytes);
  // The best of several samples, because another process may slow down some of them.
  for (int i = 0; i < 9; ++i) {
    const double bytes = static_cast<double>(kBytes) / read_stream(*team, arena.data(), kBytes);
    machine.stream_bytes = std::max(machine.stream_bytes, bytes);
  }
  for (const Instruction& instruction : instructions()) {
    if (!instruction.available()) continue;
    double best = 0;
    for (int i = 0; i < 9; ++i) best = std::max(best, rate(*team, instruction, 0.01));
    machine.rates.emplace_back(instruction.name, best);
  }
  return machine;
}

void print_machine(const Machine& machine) {
  std::printf("%d thread%s: read %.1f GB/s", machine.threads, machine.threads == 1 ? "" : "s",
              machine.stream_bytes / 1e9);
  for (const auto& [name, rate] : machine.rates) std::printf(", %s %.0f GFLOP/s", name.c_str(), rate / 1e9);
  std::printf("\n");
}

void print_header() {
  std::printf("%-36s %2s %9s %8s %8s %8s %8s  %s\n", "GB/s; prefill: GFLOP/s", "T", "ours", "stream", "pages", "memcpy",
              "ops", "target");
}

void print_result(const Result& result) {
  const std::string name = result.work.name();
  const Judgement& judged = result.judged;
  if (result.samples == 0) {
    std::printf("%-36s %2d %s: %s\n", name.c_str(), result.threads, verdict_name(judged.verdict),
                judged.verdict == Verdict::kProbeFailed ? "slower than ours each time" : result.message.c_str());
    return;
  }
  const Sample& median = judged.median;
  const auto bytes = static_cast<double>(result.work.kv_bytes()), all = amount(result.work);
  // The peak in the unit of the work. For work that is counted in bytes, it is the bytes that the operations need in
  // this time.
  std::printf("%-36s %2d %9s %8s %8s %8s %8s  ", name.c_str(), result.threads, giga(all, median.ours).c_str(),
              giga(bytes, median.stream).c_str(), giga(bytes, median.pages).c_str(), giga(bytes, median.copy).c_str(),
              giga(all, median.ops).c_str());
  if (result.work.target.limit == Limit::kMicroseconds) {
    std::printf("%.0f us, got %.1f (%.1f..%.1f)", result.target, judged.ratio, judged.low, judged.high);
  } else {
    std::printf("%.2f %s, got %.2f (%.2f..%.2f)", result.target, limit_name(result.work.target.limit), judged.ratio,
                judged.low, judged.high);
  }
  std::printf(" %s", verdict_name(judged.verdict));
  if (result.failed_probes > 0) {
    std::printf(" (%d probe%s slower than ours, taken again)", result.failed_probes,
                result.failed_probes == 1 ? "" : "s");
  }
  std::printf("\n");
}

void print_scaling(const std::vector<Result>& results) {
  constexpr double kTarget = 0.93;
  for (const Result& many : results) {
    if (many.work.work != Work::kPrefill || many.threads == 1 || many.samples == 0) continue;
    for (const Result& one : results) {
      if (one.threads != 1 || one.samples == 0 || one.work.name() != many.work.name()) continue;
      const Scaling scaling = judge_scaling(one.judged.median, many.judged.median, kTarget);
      std::printf("%-36s %d threads do %.2f times as much as one, the machine %.2f: %.2f, got %.2f %s\n",
                  many.work.name().c_str(), many.threads, scaling.gain, scaling.machine_gain, kTarget, scaling.ratio,
                  verdict_name(scaling.verdict));
    }
  }
}

void write_json(FILE* file, const std::vector<Machine>& machines, const std::vector<Result>& results) {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  std::fprintf(file, "{\"date\": \"%s\", \"cpu\": %s, \"cores\": %ld, \"load\": %s, \"library\": %s,\n", date,
               quoted(text_of("/proc/cpuinfo", "model name")).c_str(), sysconf(_SC_NPROCESSORS_ONLN),
               quoted(text_of("/proc/loadavg", "")).c_str(), kvc_build_info());
  std::fprintf(file, " \"machine\": [");
  for (size_t i = 0; i < machines.size(); ++i) {
    std::fprintf(file, "%s\n  {\"threads\": %d, \"stream\": %.4g, \"rates\": {", i > 0 ? "," : "", machines[i].threads,
                 machines[i].stream_bytes);
    for (size_t r = 0; r < machines[i].rates.size(); ++r) {
      std::fprintf(file, "%s%s: %.4g", r > 0 ? ", " : "", quoted(machines[i].rates[r].first).c_str(),
                   machines[i].rates[r].second);
    }
    std::fprintf(file, "}}");
  }
  std::fprintf(file, "],\n \"results\": [");
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& result = results[i];
    const Judgement& judged = result.judged;
    const Sample& median = judged.median;
    std::fprintf(file, "%s\n  {", i > 0 ? "," : "");
    write_case(file, result.work);
    std::fprintf(file,
                 ", \"threads\": %d, \"verdict\": \"%s\", \"message\": %s, \"instruction\": %s, \"samples\": %d, "
                 "\"failed_probes\": %d, ",
                 result.threads, verdict_name(judged.verdict), quoted(result.message).c_str(),
                 quoted(result.instruction).c_str(), result.samples, result.failed_probes);
    std::fprintf(file,
                 "\"seconds\": {\"ours\": %.6g, \"stream\": %.6g, \"pages\": %.6g, \"ops\": %.6g, \"memcpy\": %.6g}, "
                 "\"target\": %g, \"ratio\": %.4g, \"low\": %.4g, \"high\": %.4g}",
                 median.ours, median.stream, median.pages, median.ops, median.copy, result.target, judged.ratio,
                 judged.low, judged.high);
  }
  std::fprintf(file, "]}\n");
}

void write_cases(FILE* file) {
  std::fprintf(file, "[");
  for (size_t i = 0; i < cases().size(); ++i) {
    std::fprintf(file, "%s\n {", i > 0 ? "," : "");
    write_case(file, cases()[i]);
    std::fprintf(file, "}");
  }
  std::fprintf(file, "]\n");
}

}  // namespace kvc::benchmark
