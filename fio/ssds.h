// SSDs for fio's jobs: one of each name in a process, for all of its threads, ended with the last of them. Knows
// nothing of fio.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "api/device.h"
#include "base/clock.h"
#include "driver/block_queue.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"

namespace flashmob::fio {

// Whether an SSD of this name would live in this process, which then must not fork.
bool is_in_process(const std::string& name);

// Any thread.
class SharedSsd {
 public:
  // `name`: vfio-user:PATH, nvme-tcp:ADDRESS:PORT/NQN, a file of settings (flashmob/config_text.h) or a profile, whose
  // settings the command `flashmob` is asked for. Throws std::exception with one sentence.
  static std::shared_ptr<SharedSsd> open(const std::string& name);
  explicit SharedSsd(const std::string& name);
  ~SharedSsd();
  SharedSsd(const SharedSsd&) = delete;
  SharedSsd& operator=(const SharedSsd&) = delete;

  // Throws where the namespace is not there or is none of blocks.
  driver::BlockNamespace block_namespace(std::uint32_t nsid);
  // A queue pair for one thread, for `depth` transfers of up to `bytes` each. Goes back by release().
  std::unique_ptr<driver::BlockQueue> queue(std::uint32_t depth, std::uint64_t bytes);
  void release(std::unique_ptr<driver::BlockQueue> queue);
  // Whether the controller has died.
  bool is_dead();

 private:
  const Clock clock_ = Clock::real();
  std::mutex admin_;  // the driver is for one thread at a time
  std::unique_ptr<driver::PciDevice> door_;
  std::unique_ptr<api::Device> device_;
  std::unique_ptr<driver::NvmeDriver> driver_;
  std::uint64_t max_transfer_bytes_ = 0;
  std::uint32_t queues_ = 0;
};

}  // namespace flashmob::fio
