// What every conformance test stands on: a small whole device in virtual time, its driver, buffers, and one way to run
// a command and look at its completion. Also raw rings, for hosts that do what a driver never would.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "driver/data_buffer.h"
#include "driver/names.h"
#include "driver/nvme_driver.h"
#include "nvme/command.h"
#include "nvme/identify.h"
#include "nvme/log_page.h"
#include "nvme/opcode.h"
#include "nvme/registers.h"
#include "nvme/status.h"
#include "support/virtual_device.h"

namespace flashmob::nvme {

// GoogleTest prints a status by its name.
inline void PrintTo(Status status, std::ostream* out) { *out << driver::status_text(to_field(status)); }

}  // namespace flashmob::nvme

namespace flashmob::conformance {

using driver::AdminResult;
using driver::DmaMemory;
using driver::NvmeDriver;
using driver::QueuePair;
using nvme::AdminOpcode;
using nvme::Cqe;
using nvme::NvmOpcode;
using nvme::Sqe;
using nvme::Status;
using suite::Host;
using suite::VirtualDevice;

inline constexpr std::uint32_t kNs512 = 1;   // the small device's namespace with 512-byte blocks
inline constexpr std::uint32_t kNs4096 = 2;  // and the one with 4096-byte blocks
inline constexpr std::uint64_t kNsBytes = 4 << 20;

inline Sqe make(AdminOpcode opcode, std::uint32_t nsid = 0) {
  Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.nsid = nsid;
  return sqe;
}

inline Sqe make(NvmOpcode opcode, std::uint32_t nsid) {
  Sqe sqe{};
  sqe.opcode = static_cast<std::uint8_t>(opcode);
  sqe.nsid = nsid;
  return sqe;
}

// A command on `blocks` blocks from `lba` on, without its data pointer.
inline Sqe make(NvmOpcode opcode, std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks) {
  Sqe sqe = make(opcode, nsid);
  sqe.cdw10 = static_cast<std::uint32_t>(lba);
  sqe.cdw11 = static_cast<std::uint32_t>(lba >> 32);
  sqe.cdw12 = blocks - 1;
  return sqe;
}

inline std::uint16_t field_of(const Cqe& cqe) { return static_cast<std::uint16_t>(cqe.status_phase >> 1); }
inline Status status_of(const Cqe& cqe) { return nvme::status_of(field_of(cqe)); }
inline Status status_of(const AdminResult& result) { return nvme::status_of(result.status_field); }

inline std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = rng.next();
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return data;
}

// A host buffer with PRPs for one command at a time.
class Buffer {
 public:
  Buffer(driver::PciDevice& device, std::size_t bytes)
      : memory_(device, bytes), lists_(device, 1, std::max<std::size_t>(bytes, 4)) {}

  std::byte* data() const { return memory_.data(); }
  std::uint64_t iova() const { return memory_.iova(); }
  std::size_t size() const { return memory_.size(); }
  std::vector<std::byte> copy(std::size_t bytes, std::size_t offset = 0) const {
    return {data() + offset, data() + offset + bytes};
  }
  void fill(std::byte value) { std::memset(data(), static_cast<int>(value), size()); }
  void store(std::span<const std::byte> bytes, std::size_t offset = 0) { std::ranges::copy(bytes, data() + offset); }
  // `sqe` with PRPs for `bytes` bytes at `offset`.
  Sqe attach(Sqe sqe, std::size_t bytes, std::size_t offset = 0) {
    lists_.describe(0, sqe, iova() + offset, bytes);
    return sqe;
  }

 private:
  DmaMemory memory_;
  driver::PrpLists lists_;
};

// A page of host memory with nothing mapped behind it. Buffers that lie side by side in host memory are mapped side by
// side, too, and what begins in one of them may go on in the next.
class LonelyPage {
 public:
  explicit LonelyPage(Host& host, std::byte* memory) : space_(host.controller.address_space()) {
    space_.map(kIova, kBytes, memory);
  }
  ~LonelyPage() { space_.unmap(kIova, kBytes); }
  LonelyPage(const LonelyPage&) = delete;
  LonelyPage& operator=(const LonelyPage&) = delete;
  std::uint64_t iova() const { return kIova; }

 private:
  static constexpr std::uint64_t kIova = std::uint64_t{9} << 40;
  static constexpr std::uint64_t kBytes = 4096;
  memory::AddressSpace& space_;
};

// A completion queue by hand. Entries are consumed one by one, the doorbell moves only on ring().
class RawCq {
 public:
  RawCq(Host& host, std::uint16_t cqid, std::uint32_t entries)
      : host_(host), memory_(host.door, std::size_t{entries} * sizeof(Cqe)), entries_(entries), cqid_(cqid) {}

  std::uint16_t id() const { return cqid_; }
  std::uint64_t iova() const { return memory_.iova(); }
  std::uint32_t entries() const { return entries_; }
  const Cqe& at(std::uint32_t index) const { return reinterpret_cast<const Cqe*>(memory_.data())[index]; }
  bool ready() const { return (at(head_).status_phase & 1) == phase_; }
  Cqe take() {
    const Cqe entry = at(head_);
    if (++head_ == entries_) {
      head_ = 0;
      phase_ ^= 1;
    }
    return entry;
  }
  void ring() { ring(head_); }
  void ring(std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(host_.door.doorbells()[2 * cqid_ + 1]).store(value, std::memory_order_release);
  }

 private:
  Host& host_;
  DmaMemory memory_;
  std::uint32_t entries_;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint16_t cqid_;
};

// A submission queue by hand: any value may be rung.
class RawSq {
 public:
  RawSq(Host& host, std::uint16_t sqid, std::uint32_t entries)
      : host_(host), memory_(host.door, std::size_t{entries} * sizeof(Sqe)), entries_(entries), sqid_(sqid) {}

  std::uint16_t id() const { return sqid_; }
  std::uint64_t iova() const { return memory_.iova(); }
  std::uint32_t entries() const { return entries_; }
  std::uint32_t tail() const { return tail_; }
  void push(Sqe sqe, std::uint16_t cid) {
    sqe.cid = cid;
    reinterpret_cast<Sqe*>(memory_.data())[tail_] = sqe;
    if (++tail_ == entries_) tail_ = 0;
  }
  void ring() { ring(tail_); }
  void ring(std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(host_.door.doorbells()[2 * sqid_]).store(value, std::memory_order_release);
  }

 private:
  Host& host_;
  DmaMemory memory_;
  std::uint32_t entries_;
  std::uint32_t tail_ = 0;
  std::uint16_t sqid_;
};

class DeviceTest : public ::testing::Test {
 protected:
  explicit DeviceTest(const DeviceConfig& config = suite::small_device(), unsigned controllers = 1, bool enable = true)
      : device(config, controllers) {
    if (!enable) return;
    for (unsigned i = 0; i < controllers; ++i) device.host(i).driver.enable();
  }

  Host& host(unsigned index = 0) { return device.host(index); }
  NvmeDriver& driver(unsigned index = 0) { return host(index).driver; }
  std::uint32_t read32(std::uint32_t offset) { return host().door.read32(offset); }
  void write32(std::uint32_t offset, std::uint32_t value) { host().door.write32(offset, value); }
  nvme::Csts csts() { return nvme::decode_csts(read32(nvme::kRegCsts)); }

  Buffer buffer(std::size_t bytes) { return {host().door, bytes}; }

  // --- Admin ---
  Status admin(const Sqe& sqe) { return status_of(driver().admin(sqe, {}, false)); }
  Status admin_read(const Sqe& sqe, std::span<std::byte> out) { return status_of(driver().admin(sqe, out, true)); }
  Status admin_write(const Sqe& sqe, std::span<const std::byte> in) {
    std::vector<std::byte> copy(in.begin(), in.end());
    return status_of(driver().admin(sqe, copy, false));
  }
  // Identify data as one of the nvme structures.
  template <class T>
  T identify(nvme::Cns cns, std::uint32_t nsid = 0, std::uint16_t cntid = 0) {
    T data;
    driver().identify(static_cast<std::uint8_t>(cns), nsid, std::as_writable_bytes(std::span(&data, 1)), cntid);
    return data;
  }
  template <class T>
  T log_page(nvme::LogPage page, std::uint32_t nsid = nvme::kNsidBroadcast) {
    T data;
    driver().log_page(static_cast<std::uint8_t>(page), nsid, 0, std::as_writable_bytes(std::span(&data, 1)));
    return data;
  }

  // Create and delete queues with any arguments, right or wrong. cdw11 as in the command.
  Status create_cq(std::uint32_t cqid, std::uint32_t entries, std::uint64_t iova, std::uint32_t cdw11 = 1) {
    Sqe sqe = make(AdminOpcode::create_io_cq);
    sqe.prp1 = iova;
    sqe.cdw10 = cqid | ((entries - 1) << 16);
    sqe.cdw11 = cdw11;
    return admin(sqe);
  }
  Status create_sq(std::uint32_t sqid, std::uint32_t entries, std::uint64_t iova, std::uint32_t cqid,
                   std::uint32_t flags = 1) {
    Sqe sqe = make(AdminOpcode::create_io_sq);
    sqe.prp1 = iova;
    sqe.cdw10 = sqid | ((entries - 1) << 16);
    sqe.cdw11 = flags | (cqid << 16);
    return admin(sqe);
  }
  Status create(const RawCq& cq, std::uint32_t flags = 1) { return create_cq(cq.id(), cq.entries(), cq.iova(), flags); }
  Status create(const RawSq& sq, const RawCq& cq, std::uint32_t flags = 1) {
    return create_sq(sq.id(), sq.entries(), sq.iova(), cq.id(), flags);
  }
  Status delete_sq(std::uint32_t sqid) {
    Sqe sqe = make(AdminOpcode::delete_io_sq);
    sqe.cdw10 = sqid;
    return admin(sqe);
  }
  Status delete_cq(std::uint32_t cqid) {
    Sqe sqe = make(AdminOpcode::delete_io_cq);
    sqe.cdw10 = cqid;
    return admin(sqe);
  }

  // --- I/O ---
  // The queue pair that run() uses, made when first asked for.
  QueuePair& queue(unsigned index = 0) {
    if (queues_.size() <= index) queues_.resize(index + 1);
    if (queues_[index] == nullptr) queues_[index] = &driver(index).create_queue_pair({.sq_entries = 64});
    return *queues_[index];
  }
  // Runs one I/O command to its end.
  Cqe run(Sqe sqe, unsigned index = 0) {
    QueuePair& pair = queue(index);
    sqe.cid = next_cid_++;
    pair.submit() = sqe;
    pair.ring_sq();
    const auto done = wait(pair, 1);
    EXPECT_EQ(done.size(), 1u) << "the command did not complete";
    if (done.empty()) return {};
    EXPECT_EQ(done[0].cid, sqe.cid);
    return done[0];
  }
  Status io(const Sqe& sqe) { return status_of(run(sqe)); }
  // Waits for `count` completions, or as many as come within a virtual second.
  std::vector<Cqe> wait(QueuePair& pair, std::size_t count) {
    std::vector<Cqe> entries;
    device.pump_until([&] {
      pair.reap(1000, [&](const Cqe& entry) { entries.push_back(entry); });
      pair.ring_cq();
      return entries.size() >= count;
    });
    return entries;
  }
  std::vector<Cqe> wait(RawCq& cq, std::size_t count) {
    std::vector<Cqe> entries;
    device.pump_until([&] {
      while (entries.size() < count && cq.ready()) entries.push_back(cq.take());
      return entries.size() >= count;
    });
    return entries;
  }

  static std::size_t lba_bytes(std::uint32_t nsid) { return nsid == kNs4096 ? 4096 : 512; }
  Status write(std::uint32_t nsid, std::uint64_t lba, std::span<const std::byte> data) {
    Buffer source = buffer(data.size());
    source.store(data);
    const auto blocks = static_cast<std::uint32_t>(data.size() / lba_bytes(nsid));
    return io(source.attach(make(NvmOpcode::write, nsid, lba, blocks), data.size()));
  }
  // Reads blocks; fails the test if the read fails.
  std::vector<std::byte> read(std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks) {
    const std::size_t bytes = blocks * lba_bytes(nsid);
    Buffer target = buffer(bytes);
    EXPECT_EQ(io(target.attach(make(NvmOpcode::read, nsid, lba, blocks), bytes)), Status::success);
    return target.copy(bytes);
  }

  VirtualDevice device;

 private:
  std::vector<QueuePair*> queues_;
  std::uint16_t next_cid_ = 1;
};

// A device that no driver has touched yet.
class UntouchedDeviceTest : public DeviceTest {
 protected:
  UntouchedDeviceTest() : DeviceTest(suite::small_device(), 1, false) {}
};

}  // namespace flashmob::conformance
