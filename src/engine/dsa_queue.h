// A work queue of Intel's Data Streaming Accelerator that a program submits to from user space, and how to find one.
//
// Source: Intel DSA Architecture Specification (341204), "Work queues" and "Work queue portals"; Intel SDM volume 2,
// MOVDIR64B and ENQCMD; Linux, Documentation/ABI/stable/sysfs-driver-dma-idxd. A queue belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/dsa_wire.h"

namespace flashmob::engine::dsa {

struct QueueInfo {
  std::string name;  // as the kernel names it: wq0.1
  bool shared = false;  // else dedicated to one client
  std::uint32_t size = 0;  // descriptors it holds
  std::uint32_t max_batch = 0;  // descriptors in a batch
  std::uint64_t max_transfer_bytes = 0;
};

class WorkQueue {
 public:
  virtual ~WorkQueue() = default;
  virtual const QueueInfo& info() const = 0;
  // Hands a descriptor to the device, without waiting. False if the queue is full (only a shared one tells; of a
  // dedicated one the client knows how much it has in flight).
  virtual bool submit(const Descriptor& descriptor) = 0;
  // When it returns, no descriptor handed over before will read or write memory any more. Nothing is submitted after.
  virtual void close() = 0;
};

// Where the kernel shows queues, and where their portals are; other folders in tests.
struct Paths {
  std::filesystem::path sysfs = "/sys/bus/dsa/devices";
  std::filesystem::path devices = "/dev/dsa";
};

// Enabled queues of type user, dedicated ones first. Empty where there are none.
std::vector<QueueInfo> find_queues(const Paths& paths = {});

// The first queue that can be had: a dedicated one that nobody has, else a shared one, in turn. Throws ConfigError with
// one sentence that says what is missing.
std::unique_ptr<WorkQueue> open_queue(const Paths& paths = {});

// Whether this CPU has the instruction for dedicated queues (MOVDIR64B), and for shared ones (ENQCMD).
bool cpu_has_movdir64b();
bool cpu_has_enqcmd();

// Writes a descriptor to a dedicated queue's portal, or to any memory aligned to 64 bytes. Needs cpu_has_movdir64b().
void submit_dedicated(void* portal, const Descriptor& descriptor);
// Writes one to a shared queue's portal; false if the queue is full. Needs cpu_has_enqcmd().
bool submit_shared(void* portal, const Descriptor& descriptor);

}  // namespace flashmob::engine::dsa
