// flashmob/extents.h: devices of ours as what a file system is read from.
#include "flashmob/extents.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "api/door_store.h"
#include "api/open_target.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "driver/block_queue.h"
#include "driver/names.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "flashmob/error.h"
#include "nvme/opcode.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kWindow = 128 << 10;

class DoorReader : public DeviceReader {
 public:
  DoorReader(const std::string& target, std::uint64_t timeout_ns)
      : door_(api::open_target({.address = target, .timeout_ns = timeout_ns, .is_hurried = &is_broken_})),
        driver_(*door_, {[this] { backoff_.pause(); }, [this] { return clock_.now_ns(); }}),
        blocks_(enable(target, timeout_ns)),
        queue_(driver_, {.slots = 4, .slot_bytes = kWindow}),
        window_(kWindow) {
    queue_.timeout_ns = timeout_ns;
  }

  std::uint64_t size_bytes() const override { return blocks_.bytes(); }

  // Whole blocks are read, of which only what is asked for is handed on.
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    const std::uint64_t block = blocks_.lba_bytes();
    while (!to.empty()) {
      const std::uint64_t first = offset / block * block;
      const std::uint64_t wanted = (offset + to.size() - first + block - 1) / block * block;
      const std::uint64_t bytes = std::min({wanted, kWindow, size_bytes() - std::min(first, size_bytes())});
      if (first + bytes <= offset)
        throw ExtentError("cannot be read at byte " + std::to_string(offset) + ": it ends there");
      read_blocks(first / block, bytes);
      const std::size_t usable = std::min<std::uint64_t>(first + bytes - offset, to.size());
      std::memcpy(to.data(), window_.data() + (offset - first), usable);
      to = to.subspan(usable);
      offset += usable;
    }
  }

 private:
  driver::BlockNamespace enable(const std::string& target, std::uint64_t timeout_ns) {
    driver_.admin_timeout_ns = timeout_ns;
    driver_.enable();
    const api::DoorNamespace found = api::examine_namespace(driver_);
    if (found.csi == static_cast<nvme::Csi>(1) || found.blocks.lba_bytes() > kWindow)
      throw ConfigError(target + " has no namespace of blocks; name one that has");
    return found.blocks;
  }

  void read_blocks(std::uint64_t lba, std::uint64_t bytes) {
    if (is_broken_) throw ExtentError(why_broken_);
    std::uint16_t status = 0;
    backoff_ = Backoff();
    try {
      status = queue_.run(nvme::NvmOpcode::read, blocks_, lba, window_.data(), bytes);
    } catch (const std::runtime_error& error) {
      why_broken_ = std::string("the device does not answer a read: ") + error.what();
      is_broken_ = true;
      driver_.give_up();
      throw ExtentError(why_broken_);
    }
    if (status != 0)
      throw ExtentError("the device fails a read of block " + std::to_string(lba) + " with " +
                        driver::status_text(status));
  }

  const Clock clock_ = Clock::real();
  Backoff backoff_;
  std::atomic<bool> is_broken_ = false;  // what takes the door down then waits for nobody
  std::string why_broken_;
  std::unique_ptr<driver::PciDevice> door_;
  driver::NvmeDriver driver_;
  driver::BlockNamespace blocks_;
  driver::BlockQueue queue_;
  std::vector<std::byte> window_;
};

}  // namespace

bool is_door(const std::string& target) { return target.starts_with("vfio-user:") || target.starts_with("nvme-tcp:"); }

std::unique_ptr<DeviceReader> open_door_reader(const std::string& target, std::uint64_t timeout_ns) {
  try {
    return std::make_unique<DoorReader>(target, timeout_ns);
  } catch (const std::runtime_error& error) {
    // A driver's own exceptions are no part of what is public.
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) throw;
    throw ExtentError(target + ": " + error.what());
  }
}

}  // namespace flashmob
