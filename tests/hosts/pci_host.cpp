// Uses an NVMe drive that vfio-pci has, inside of a guest:
//
//   pci_host ADDRESS              Identify, writes and reads at several depths, interrupts, a reset, and again
//   pci_host ADDRESS until-gone   reads until the drive is pulled, and says how that ended
//
// Prints one line for each step; exit status 0 says that all went well. The first namespace is overwritten.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "driver/block_queue.h"
#include "driver/namespaces.h"
#include "driver/nvme_driver.h"
#include "initiator/vfio_pci/vfio_pci_device.h"
#include "nvme/opcode.h"

namespace {

using namespace flashmob;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

driver::Waiter waiter() {
  return {[] { std::this_thread::yield(); }, now_ns};
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Each block's first words say which one it is, and in which round it was written.
void mark(std::byte* data, std::uint64_t bytes, std::uint64_t lba, std::uint64_t lba_bytes, std::uint64_t round) {
  for (std::uint64_t at = 0; at < bytes; at += lba_bytes) {
    const std::array<std::uint64_t, 2> words{lba + at / lba_bytes, round};
    std::memset(data + at, static_cast<int>(round & 0xFF), lba_bytes);
    std::memcpy(data + at, words.data(), sizeof(words));
  }
}

void write_and_verify(driver::NvmeDriver& nvme, const driver::BlockNamespace& ns, std::uint32_t depth) {
  constexpr std::uint64_t kBytes = 64 << 10;
  constexpr std::uint64_t kRequests = 200;
  const std::uint64_t blocks = kBytes >> ns.lba_shift;
  driver::BlockQueue queue(nvme, {.slots = depth, .slot_bytes = kBytes});
  unsigned bad = 0;
  std::vector<std::byte> data(kRequests * kBytes);
  std::vector<std::byte> back(kRequests * kBytes);
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    std::byte* const from = data.data() + i * kBytes;
    mark(from, kBytes, i * blocks, ns.lba_bytes(), depth);
    queue.write(ns, i * blocks, from, kBytes, [&bad](std::uint16_t status) { bad += status != 0; });
  }
  queue.wait_until([&queue] { return queue.requests() == 0; });
  queue.flush(ns.nsid, [&bad](std::uint16_t status) { bad += status != 0; });
  for (std::uint64_t i = 0; i < kRequests; ++i)
    queue.read(ns, i * blocks, back.data() + i * kBytes, kBytes, [&bad](std::uint16_t status) { bad += status != 0; });
  queue.wait_until([&queue] { return queue.requests() == 0; });
  require(bad == 0, std::to_string(bad) + " requests failed");
  require(data == back, "what was read is not what was written");
  std::printf("depth %u: %u requests written, read and compared\n", depth, static_cast<unsigned>(kRequests));
}

void take_interrupts(driver::NvmeDriver& nvme, initiator::VfioPciDevice& device, const driver::BlockNamespace& ns) {
  require(device.interrupt_vectors() >= 2, "the drive has too few interrupt vectors");
  std::atomic<unsigned> interrupts{0};
  device.set_interrupt(1, [&interrupts] { interrupts.fetch_add(1); });
  driver::QueuePair& pair = nvme.create_queue_pair({.sq_entries = 16, .interrupts = true, .vector = 1});
  driver::DmaMemory buffer(device, 4096);
  constexpr unsigned kReads = 20;
  for (unsigned i = 0; i < kReads; ++i) {
    nvme::Sqe& sqe = pair.submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(nvme::NvmOpcode::read);
    sqe.cid = static_cast<std::uint16_t>(i);
    sqe.nsid = ns.nsid;
    sqe.prp1 = buffer.iova();
    const unsigned before = interrupts.load();
    pair.ring_sq();
    for (const std::uint64_t start = now_ns(); interrupts.load() == before;) {
      require(now_ns() - start < 20'000'000'000, "no interrupt came");
      std::this_thread::yield();
    }
    require(pair.has_completion(), "an interrupt came before its completion");
    pair.reap(1, [](const nvme::Cqe&) {});
    pair.ring_cq();
  }
  device.set_interrupt(1, {});
  nvme.delete_queue_pair(pair);
  std::printf("interrupts: %u of %u\n", interrupts.load(), kReads);
}

driver::BlockNamespace first_namespace(driver::NvmeDriver& nvme) {
  const std::vector<std::uint32_t> found = driver::active_namespaces(nvme);
  require(!found.empty(), "the drive has no namespace");
  return driver::identify_namespace(nvme, found.front());
}

void use(driver::NvmeDriver& nvme, initiator::VfioPciDevice& device) {
  nvme.enable();
  nvme.request_queues(4);
  const driver::BlockNamespace ns = first_namespace(nvme);
  std::printf("namespace %u: %llu blocks of %llu bytes\n", ns.nsid, static_cast<unsigned long long>(ns.blocks),
              static_cast<unsigned long long>(ns.lba_bytes()));
  for (const std::uint32_t depth : {1u, 8u, 32u}) write_and_verify(nvme, ns, depth);
  take_interrupts(nvme, device, ns);
}

int read_until_gone(driver::NvmeDriver& nvme, const initiator::VfioPciDevice& device) {
  nvme.enable();
  const driver::BlockNamespace ns = first_namespace(nvme);
  std::puts("reading");
  std::fflush(stdout);
  try {
    driver::BlockQueue queue(nvme, {.slots = 8, .slot_bytes = 4096});
    std::array<std::byte, 4096> data{};
    for (;;) {
      const std::uint16_t status = queue.run(nvme::NvmOpcode::read, ns, 0, data.data(), data.size());
      if (status != 0 || nvme.fatal()) throw driver::NvmeFatal("the controller is gone");
    }
  } catch (const driver::NvmeFatal& error) {
    std::printf("gone: %s; %s\n", error.what(), device.present() ? "not asked for" : "the kernel asked for it");
    return 0;
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  try {
    initiator::VfioPciDevice device(words[1]);
    driver::NvmeDriver nvme(device, waiter());
    if (count > 2 && std::string_view(words[2]) == "until-gone") return read_until_gone(nvme, device);
    use(nvme, device);
    const bool was_reset = device.reset();
    std::printf("reset: %s\n", was_reset ? "done" : "not offered");
    use(nvme, device);
    nvme.shutdown(false);
    std::puts("all well");
    return 0;
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    return 1;
  }
}
