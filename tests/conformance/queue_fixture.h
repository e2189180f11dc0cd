// What the tests of queue creation and deletion share.
#pragma once

#include "conformance/device_fixture.h"

namespace flashmob::conformance {

inline constexpr std::uint32_t kContiguous = 1;
inline constexpr std::uint32_t kInterrupts = 2;
inline constexpr std::uint32_t kMostPairs = 16;
inline constexpr std::uint32_t kMostEntries = 1024;

class QueueCommandTest : public DeviceTest {
 protected:
  // Room for the largest queues, for tests of arguments.
  QueueCommandTest() : rings(host().door, kMostEntries * 64 + kMostEntries * 16) {}
  std::uint64_t sq_ring() const { return rings.iova(); }
  std::uint64_t cq_ring() const { return rings.iova() + kMostEntries * 64; }
  // One read through the pair; true if it completes well.
  bool works(RawSq& sq, RawCq& cq, std::uint16_t cid = 1) {
    Buffer data = buffer(512);
    sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
    sq.ring();
    const auto entries = wait(cq, 1);
    cq.ring();
    return entries.size() == 1 && entries[0].cid == cid && entries[0].sqid == sq.id() && field_of(entries[0]) == 0;
  }

  DmaMemory rings;
};

}  // namespace flashmob::conformance
