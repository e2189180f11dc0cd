// A PCI NVMe function in another process, reached over a vfio-user socket (QEMU's docs/interop/vfio-user): registers by
// messages, doorbells and DMA memory shared, so that the way of an I/O request knows neither message nor kernel.
//
// Register, DMA and interrupt calls may come from any thread; they take turns on the socket. Doorbells are shared
// memory. A server that is gone looks like a function gone from the bus: registers read as all ones, writes are lost,
// and the driver above throws NvmeFatal. Interrupt handlers run on one thread of the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "driver/pci_device.h"
#include "vfio/bus_error_guard.h"
#include "vfio/message_socket.h"
#include "vfio/protocol.h"

namespace flashmob::initiator {

class VfioUserDevice final : public driver::PciDevice {
 public:
  // `path` is the server's socket, or a folder that holds it under the name `cntrl`. Throws ConfigError where nobody
  // serves there or what is served is no NVMe function with mappable doorbells. A server that does not answer in time
  // is gone; once `is_hurried` says so it has but a moment. That outlives the device.
  explicit VfioUserDevice(const std::string& path, int timeout_ms = 10'000,
                          const std::atomic<bool>* is_hurried = nullptr);
  // The same over a connected socket; `name` is for what is said of it.
  VfioUserDevice(vfio::UniqueFd socket, std::string name, int timeout_ms = 10'000,
                 const std::atomic<bool>* is_hurried = nullptr);
  ~VfioUserDevice() override;

  std::uint32_t read32(std::uint32_t offset) override;
  std::uint64_t read64(std::uint32_t offset) override;
  void write32(std::uint32_t offset, std::uint32_t value) override;
  void write64(std::uint32_t offset, std::uint64_t value) override;
  std::uint32_t* doorbells() override { return doorbells_; }
  std::size_t doorbell_bytes() const override { return doorbell_bytes_; }
  bool needs_shared_memory() const override { return true; }
  // Always throws: without a memory file the server cannot reach what it is told of.
  void dma_map(std::uint64_t iova, void* host, std::size_t bytes) override;
  void dma_map_file(std::uint64_t iova, void* host, std::size_t bytes, int fd) override;
  // Returns when the server no longer touches the memory, or is gone.
  void dma_unmap(std::uint64_t iova, std::size_t bytes) override;
  void set_interrupt(std::uint16_t vector, std::function<void()> handler) override;
  std::uint32_t interrupt_vectors() const override { return vectors_; }
  bool reset() override;

  // False once the server has closed the connection, fallen silent or sent what cannot be understood.
  bool connected() const { return !lost_.load(std::memory_order_acquire); }

 private:
  struct Vector {
    vfio::UniqueFd event;
    std::function<void()> handler;
  };

  // Sends a command and waits for its reply: nothing if the server is gone. A reply that reports an error has
  // vfio::kFlagError set.
  std::optional<vfio::Message> exchange(vfio::Command command, std::span<const std::byte> payload,
                                        std::span<const int> fds = {});
  // The same for a payload that is one structure.
  template <class T>
  std::optional<vfio::Message> send_structure(vfio::Command command, const T& structure,
                                              std::span<const int> fds = {}) {
    return exchange(command, std::as_bytes(std::span(&structure, 1)), fds);
  }
  bool refuse_command(const vfio::Message& message, int timeout_ms);
  void negotiate();
  void examine_device();
  void enable_function();
  void map_doorbells();
  bool read_region(std::uint32_t region, std::uint64_t offset, std::span<std::byte> out);
  bool write_region(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> data);
  [[noreturn]] void fail(const std::string& why) const;
  void interrupt_loop();

  const std::string path_;
  const int timeout_ms_;
  const std::atomic<bool>* const is_hurried_;  // or nullptr
  std::mutex socket_mutex_;  // one exchange at a time
  std::optional<vfio::MessageSocket> socket_;
  std::uint16_t next_id_ = 1;
  std::atomic<bool> lost_{false};
  std::uint32_t vectors_ = 0;
  std::uint32_t* doorbells_ = nullptr;
  std::size_t doorbell_bytes_ = 0;  // that the server maps
  std::optional<vfio::BusErrorGuard> doorbells_guard_;

  // Held while handlers run, and recursive because a handler may change its own vector: when set_interrupt() returns,
  // the handler that it replaced is not running.
  std::recursive_mutex handlers_mutex_;
  std::map<std::uint16_t, Vector> handlers_;
  vfio::UniqueFd poller_;  // epoll
  vfio::UniqueFd stop_;  // eventfd
  std::thread interrupts_;
};

}  // namespace flashmob::initiator
