// A controller behind NVMe/TCP as a PCI function, so that the user-space driver and everything above it use it
// unchanged (NVMe TCP transport 1.0c; Base 2.0c, chapter 6).
//
// Registers become Property Get and Set, created I/O queues become connections, entries of the rings become capsules.
// Pump threads play the device's part on the rings; a control thread sets connections up. Register and DMA calls may
// come from any thread but from inside an interrupt handler. A connection that is lost shows as CSTS.CFS, and every
// command ends with Transient Transport Error; a reset (CC.EN = 0, then 1) connects anew.
//
// What no PCIe controller would do: vendor-specific commands must state their length in CDW10, SGLs may not have bit
// buckets, and the admin queue has at most 27 commands in flight, whatever its ring holds.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver/interrupt_table.h"
#include "driver/pci_device.h"
#include "initiator/nvme_tcp/block_sizes.h"
#include "initiator/nvme_tcp/nvme_tcp_options.h"
#include "initiator/nvme_tcp/tcp_admin_queue.h"
#include "initiator/nvme_tcp/tcp_pump.h"
#include "memory/address_space.h"
#include "memory/host_memory.h"
#include "nvme/admin_command.h"

namespace flashmob::initiator {

inline constexpr std::uint32_t kInterruptVectors = 2048;  // as many as MSI-X has

class NvmeTcpDevice final : public driver::PciDevice, private TcpPump::Events {
 public:
  // Connects the admin queue. Throws ConfigError, naming the address and what to do, if that fails.
  explicit NvmeTcpDevice(const NvmeTcpOptions& options);
  ~NvmeTcpDevice() override;
  NvmeTcpDevice(const NvmeTcpDevice&) = delete;
  NvmeTcpDevice& operator=(const NvmeTcpDevice&) = delete;

  std::uint32_t read32(std::uint32_t offset) override;
  std::uint64_t read64(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;
  void write64(std::uint32_t offset, std::uint64_t value) override;
  std::uint32_t* doorbells() override;
  const std::atomic<std::uint32_t>* sleeping() override { return &sleepers_; }
  void wake() override;
  void dma_map(std::uint64_t iova, void* host, std::size_t bytes) override;
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override;
  void set_interrupt(std::uint16_t vector, std::function<void()> handler) override;
  std::uint32_t interrupt_vectors() const override { return vectors_.vectors(); }

  std::uint16_t controller_id() const { return cntlid_.load(); }
  // Why the connection was lost, or could not be made again; empty while all is well. For messages to people.
  std::string failure() const;

 private:
  struct Completions {
    std::shared_ptr<CompletionRing> ring;
    TcpPump* pump;  // of all queues that complete here
  };
  using Answer = nvme::Status;
  struct OwnResult {
    nvme::Cqe entry;
    std::vector<std::byte> data;
  };

  // Events of the pumps.
  void interrupt(std::uint16_t vector) override { vectors_.fire(vector); }
  void queue_failed(const std::string& reason) override;

  // All with mutex_ held, and never on a pump thread.
  void connect();
  void disconnect();
  void enable(std::uint32_t cc);
  void reset_controller(std::uint32_t cc);
  void take_io_queues();
  void fail(const std::string& reason);
  std::uint64_t property_get(std::uint32_t offset, bool eight_bytes);
  void property_set(std::uint32_t offset, std::uint32_t value);
  // Run a command of our own on a queue; nothing if the controller does not answer, which on the admin queue is the
  // end of the association.
  std::optional<OwnResult> run_own(std::uint16_t qid, TcpPump& pump, const nvme::Sqe& sqe, std::size_t bytes);
  std::optional<OwnResult> run_admin(const nvme::Sqe& sqe, std::size_t bytes);
  std::uint32_t controller_status();
  TcpPump& admin_pump() { return *pumps_.front(); }

  void control_loop();
  Answer execute(const nvme::Sqe& sqe);
  Answer create_completion_queue(const nvme::Sqe& sqe);
  Answer create_submission_queue(const nvme::Sqe& sqe);
  Answer delete_completion_queue(const nvme::Sqe& sqe);
  Answer delete_submission_queue(const nvme::Sqe& sqe);
  Answer connect_queue(const nvme::CreateIoSq& fields, std::uint64_t iova);
  bool identify_controller();

  NvmeTcpOptions options_;
  memory::AddressSpace space_;
  memory::HostMemory doorbells_;  // of every possible queue; pages come as queues are used
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint16_t> cntlid_{0};
  driver::InterruptTable vectors_{kInterruptVectors};
  BlockSizes sizes_;
  std::optional<fabrics::TlsPsk> psk_;  // that authentication has made for this association, guarded by mutex_

  mutable std::mutex failure_mutex_;  // guards failure_
  std::string failure_;
  std::atomic<bool> failed_{false};

  std::mutex mutex_;  // guards registers and queues: register accesses and the control thread's work
  std::uint64_t cap_ = 0;
  std::uint32_t version_ = 0;
  std::uint32_t cc_ = 0;
  std::uint32_t aqa_ = 0;
  std::uint64_t asq_ = 0;
  std::uint64_t acq_ = 0;
  bool connected_ = false;  // the admin queue is in its pump
  bool used_ = false;       // CC.EN has been set since; the next time needs a new association
  // I/O queues as the host created them, by identifier; the value of a submission queue is its completion queue's.
  std::map<std::uint16_t, Completions> completion_queues_;
  std::map<std::uint16_t, std::uint16_t> submission_queues_;
  // Queues that the host has no more, but whose connections must stay until the association ends.
  std::vector<std::unique_ptr<TcpQueue>> parked_;
  bool identified_ = false;
  std::uint32_t in_capsule_bytes_ = 0;
  bool can_disconnect_ = false;  // I/O queues can be deleted one by one
  unsigned next_pump_ = 0;
  std::atomic<std::uint64_t> generation_{0};  // of the host's queues: work for earlier ones is dropped

  std::mutex tasks_mutex_;  // guards tasks_ and stop_
  std::condition_variable tasks_changed_;
  struct Task {
    nvme::Sqe sqe;
    std::uint64_t generation;
  };
  std::deque<Task> tasks_;
  bool stop_ = false;
  std::vector<std::unique_ptr<TcpPump>> pumps_;
  std::thread control_;
};

}  // namespace flashmob::initiator
