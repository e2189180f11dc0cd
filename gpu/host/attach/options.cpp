// GpuOptions: what is possible, said before anything is started.
#include <initializer_list>
#include <string_view>

#include "flashmob/error.h"
#include "flashmob/gpu.h"

namespace flashmob::gpu {
namespace {

constexpr std::uint32_t kMaxQueues = 4096;
constexpr std::uint32_t kMaxQueueDepth = 65536;
constexpr std::uint32_t kMaxServiceBlocks = 64;

[[noreturn]] void reject(const std::string& key, const std::string& value, const std::string& fix) {
  throw ConfigError("gpu." + key + " = " + value + " is not possible: " + fix);
}

void check_range(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return;
  reject(key, std::to_string(value), "use " + std::to_string(low) + " to " + std::to_string(high));
}

void check_one_of(const std::string& key, const std::string& value, std::initializer_list<std::string_view> allowed) {
  std::string list;
  for (const std::string_view word : allowed) {
    if (value == word) return;
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  reject(key, "\"" + value.substr(0, 64) + "\"", "use one of " + list);
}

}  // namespace

void GpuOptions::validate() const {
  check_one_of("backend", backend, {"auto", "cuda", "fibres", "threads"});
  check_one_of("clock", clock, {"auto", "virtual", "real"});
  check_one_of("service", service, {"kernel", "host", "callers"});
  check_one_of("queue_placement", queue_placement, {"auto", "host", "device"});
  check_one_of("schedule", schedule, {"timed", "random"});
  check_range("queues", queues, 1, kMaxQueues);
  check_range("queue_depth", queue_depth, 2, kMaxQueueDepth);
  check_range("max_transfer_bytes", max_transfer_bytes, 4096, 16 << 20);
  check_range("service_blocks", service_blocks, 0, kMaxServiceBlocks);
  if (backend == "fibres" && clock == "real")
    reject("clock", "\"real\"", "fibres run in virtual time; use clock \"virtual\", or backend \"threads\"");
  if (backend == "threads" && clock == "virtual")
    reject("clock", "\"virtual\"", "threads run in real time; use clock \"real\", or backend \"fibres\"");
  if (backend == "cuda" && clock == "virtual")
    reject("clock", "\"virtual\"", "a GPU runs in real time; use clock \"real\", or backend \"fibres\"");
}

}  // namespace flashmob::gpu
