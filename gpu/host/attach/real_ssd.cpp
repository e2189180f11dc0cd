#include "host/attach/real_ssd.h"

#include <algorithm>
#include <thread>

namespace flashmob::gpu {
namespace {

// A kernel cannot wake an engine thread that sleeps: it can only wait until that thread looks by itself.
constexpr std::uint64_t kLongestSleepNs = 50'000;

DeviceConfig wakeful(DeviceConfig config) {
  config.engine.idle_sleep_ns = std::min(config.engine.idle_sleep_ns, kLongestSleepNs);
  return config;
}

}  // namespace

RealSsd::RealSsd(const Clock& clock, const DeviceConfig& config)
    : device_(wakeful(config), clock),
      driver_(device_.pci(), {[] { std::this_thread::yield(); }, [&clock] { return clock.now_ns(); }}) {
  device_.start();
  driver_.enable();
}

RealSsd::~RealSsd() {
  try {
    driver_.disable();
  } catch (const std::exception&) {
    // The controller was left dead; the device's end ends all access to the host's memory.
  }
}

}  // namespace flashmob::gpu
