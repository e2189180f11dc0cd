// A host of the mixed soak: a process of its own that works at one door, or at a device in itself, for a while.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "api/device.h"
#include "api/open_target.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/opcode.h"
#include "soak/hosts/ledger.h"
#include "soak/running_time.h"

namespace flashmob::soak {

struct HostPlan {
  api::Target door;           // where, and who we are; no address: a device in this process
  std::string media;          // ... whose namespace is this
  std::string role = "data";  // data | check | manage | race
  std::string ledger;
  std::uint32_t part = 0;        // in the whole soak
  std::uint32_t place = 0;       // where it begins in the namespace, in parts
  std::uint32_t part_of_first_racer = 0, last_part = 0;  // race: whose data may be found
  std::uint32_t nsid = 1;
  double seconds = 0;
  unsigned seed = 1;
  bool sudden = false;           // ends with commands in flight
  bool may_fail = false;         // faults are injected: commands may fail and be lost
  bool may_vanish = false;       // ... and so may the connection
};

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(generator_()); }

 private:
  std::mt19937 generator_;
};

// Set by SIGTERM: come to an end in order.
bool is_told_to_end();

// What it found wrong. Everything else that is thrown is of the connection or of the device.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Lost is what has no answer by now. A disk that others have left much to write has been seen to take 14 s for a flush.
inline constexpr std::uint64_t kUnansweredNs = 60'000'000'000;

// A device and one queue of eight commands with a page of memory each. One thread.
class Attachment {
 public:
  static constexpr std::uint32_t kSlots = 8;
  explicit Attachment(const HostPlan& plan);
  ~Attachment();
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  driver::NvmeDriver& driver() { return *driver_; }
  driver::QueuePair& queue() { return *queue_; }
  // nullptr where it is another process's.
  api::Device* own_device() { return own_.get(); }
  std::uint64_t now_ns() { return time_.now_ns(); }
  std::uint64_t* words(std::uint32_t slot) const;
  // A command with the slot's page, or the first `bytes` of it, as its data.
  nvme::Sqe& submit(std::uint32_t slot, nvme::NvmOpcode opcode, std::uint32_t nsid);
  // Calls `done(slot, status)` for what has come, and waits a moment if nothing has.
  bool reap(const std::function<void(std::uint32_t, unsigned)>& done);
  // One command by itself; its status. Throws where it is not answered.
  unsigned run(nvme::NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks,
               std::uint32_t cdw11 = 0);
  unsigned admin(nvme::AdminOpcode opcode, std::uint32_t nsid, std::uint32_t cdw10, std::uint32_t cdw11 = 0,
                 std::span<std::byte> data = {}, std::uint32_t* dw0 = nullptr);
  void reset();
  void shutdown() { driver_->shutdown(false); }

 private:
  void pause();

  RunningTime time_;
  Clock clock_ = Clock::real();
  std::unique_ptr<api::Device> own_;
  std::unique_ptr<driver::PciDevice> theirs_;
  std::unique_ptr<driver::NvmeDriver> driver_;
  std::unique_ptr<driver::DmaMemory> memory_;
  driver::QueuePair* queue_ = nullptr;
  unsigned idle_rounds_ = 0;
};

// The roles. Each returns when its time is over, and throws what is wrong.
void run_data(const HostPlan& plan, Ledger& ledger);    // reads and writes of its own part, of every kind
void run_manager(const HostPlan& plan, Ledger& ledger); // namespaces that come and go, formats, write protection
void run_racer(const HostPlan& plan, Ledger& ledger);   // reads and writes of a namespace that others format

}  // namespace flashmob::soak
