#include "ssds.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "api/open_target.h"
#include "flashmob/config_text.h"
#include "nvme/identify.h"

namespace flashmob::fio {
namespace {

constexpr std::uint64_t kPage = 4096, kMostSlotBytes = 1 << 20;
constexpr std::uint32_t kMostSlots = 4096;
constexpr std::uint64_t kFatalCheckNs = 500'000'000, kTimeoutNs = 30'000'000'000;

bool is_door(const std::string& name) { return name.starts_with("vfio-user:") || name.starts_with("nvme-tcp:"); }

std::string read_all(std::istream& from) {
  std::ostringstream text;
  text << from.rdbuf();
  return text.str();
}

// What `flashmob profiles show NAME --settings` prints. A name has nothing in it that a shell would take for more.
std::string settings_of(const std::string& profile) {
  const bool is_name = !profile.empty() && std::ranges::all_of(profile, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (!is_name || profile.front() == '-')
    throw std::runtime_error("ssd=" + profile +
                             " is no profile, no file of settings and no vfio-user: or nvme-tcp: door");
  std::FILE* const pipe = popen(("flashmob profiles show " + profile + " --settings").c_str(), "re");
  if (pipe == nullptr) throw std::runtime_error("ssd=" + profile + ": the command flashmob cannot be started");
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), pipe)) != 0;) text.append(part.data(), got);
  if (pclose(pipe) != 0)
    throw std::runtime_error("ssd=" + profile + ": flashmob profiles show " + profile +
                             " --settings failed; put flashmob on the PATH, or "
                             "write the settings to a file and give that");
  return text;
}

DeviceConfig config_of(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) return parse_config_text(settings_of(name), name);
  std::ifstream file(name);
  if (!file) throw std::runtime_error("ssd=" + name + " cannot be read");
  return parse_config_text(read_all(file), name);
}

}  // namespace

bool is_in_process(const std::string& name) { return !is_door(name); }

std::shared_ptr<SharedSsd> SharedSsd::open(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<SharedSsd>> all;
  const std::lock_guard lock(mutex);
  std::weak_ptr<SharedSsd>& known = all[name];
  std::shared_ptr<SharedSsd> found = known.lock();
  if (!found) {
    found = std::make_shared<SharedSsd>(name);
    known = found;
  }
  return found;
}

SharedSsd::SharedSsd(const std::string& name) {
  if (is_door(name)) {
    door_ = api::open_target({.address = name});
  } else {
    const DeviceConfig config = config_of(name);
    config.validate();
    device_ = std::make_unique<api::Device>(config, clock_);
    device_->start();
  }
  driver::PciDevice& pci = device_ ? device_->pci() : *door_;
  driver_ = std::make_unique<driver::NvmeDriver>(
      pci, driver::Waiter{[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }});
  driver_->enable();
  max_transfer_bytes_ = std::min(driver::max_transfer_bytes(*driver_), kMostSlotBytes) / kPage * kPage;
  queues_ = driver_->request_queues(UINT16_MAX);
}

SharedSsd::~SharedSsd() {
  try {
    driver_->disable();
  } catch (const std::exception&) {
    // It does not answer; what it was lent goes with it.
  }
}

driver::BlockNamespace SharedSsd::block_namespace(std::uint32_t nsid) {
  const std::lock_guard lock(admin_);
  const driver::BlockNamespace found = driver::identify_namespace(*driver_, nsid);
  if (found.blocks == 0) throw std::runtime_error("namespace " + std::to_string(nsid) + " is not there");
  if (found.metadata_bytes != 0 || found.lba_bytes() > max_transfer_bytes_)
    throw std::runtime_error("namespace " + std::to_string(nsid) + " is none of plain blocks");
  return found;
}

std::unique_ptr<driver::BlockQueue> SharedSsd::queue(std::uint32_t depth, std::uint64_t bytes) {
  const std::lock_guard lock(admin_);
  const std::uint64_t slot_bytes =
      std::clamp<std::uint64_t>((bytes + kPage - 1) / kPage * kPage, kPage, max_transfer_bytes_);
  const std::uint64_t slots = depth * ((bytes + slot_bytes - 1) / slot_bytes);
  if (slots > kMostSlots)
    throw std::runtime_error("iodepth = " + std::to_string(depth) + " of " + std::to_string(bytes) +
                             " bytes are more than 4096 commands at once");
  if (driver_->queue_pairs() >= queues_)
    throw std::runtime_error("the SSD offers " + std::to_string(queues_) + " queue pairs, one for each job");
  auto made = std::make_unique<driver::BlockQueue>(
      *driver_,
      driver::BlockQueue::Options{.slots = static_cast<std::uint32_t>(slots),
                                  .slot_bytes = slot_bytes,
                                  .idle = [this, looked_ns = std::uint64_t{0}](std::uint64_t silent_ns) mutable {
                                    if (silent_ns > kTimeoutNs)
                                      throw std::runtime_error("no command was completed within 30 s");
                                    if (silent_ns < looked_ns) looked_ns = 0;
                                    if (silent_ns - looked_ns > kFatalCheckNs) {
                                      looked_ns = silent_ns;
                                      if (is_dead()) throw std::runtime_error("the SSD has died");
                                    }
                                    std::this_thread::yield();
                                  }});
  return made;
}

void SharedSsd::release(std::unique_ptr<driver::BlockQueue> queue) {
  const std::lock_guard lock(admin_);
  queue.reset();
}

bool SharedSsd::is_dead() {
  const std::lock_guard lock(admin_);
  return driver_->fatal();
}

}  // namespace flashmob::fio
