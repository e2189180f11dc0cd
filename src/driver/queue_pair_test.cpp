#include "driver/queue_pair.h"

#include <gtest/gtest.h>

#include <vector>

#include "driver/fake_nvme.h"

namespace flashmob::driver {
namespace {

// A queue pair with its device side played by hand.
struct Rings {
  explicit Rings(std::uint32_t sq_entries, std::uint32_t cq_entries = 0)
      : sq(sq_entries),
        cq(cq_entries != 0 ? cq_entries : sq_entries),
        pair(device, 3, sq.data(), sq_entries, cq.data(), static_cast<std::uint32_t>(cq.size())) {}

  void post(std::uint16_t cid) {
    cq[tail].cid = cid;
    cq[tail].status_phase = phase;
    if (++tail == cq.size()) {
      tail = 0;
      phase ^= 1;
    }
  }
  std::vector<std::uint16_t> reap(std::uint32_t limit = 1000) {
    std::vector<std::uint16_t> cids;
    pair.reap(limit, [&](const nvme::Cqe& entry) { cids.push_back(entry.cid); });
    return cids;
  }

  FakeNvme device;
  std::vector<nvme::Sqe> sq;
  std::vector<nvme::Cqe> cq;
  QueuePair pair;
  std::size_t tail = 0;
  std::uint16_t phase = 1;
};

TEST(QueuePair, DoorbellsMoveOncePerBatchAndOnlyWhenRung) {
  Rings rings(8);
  EXPECT_EQ(rings.pair.free_slots(), 7u);
  for (std::uint16_t i = 0; i < 5; ++i) rings.pair.submit().cid = i;
  EXPECT_EQ(rings.pair.free_slots(), 2u);
  EXPECT_EQ(rings.device.doorbells()[6], 0u);
  rings.pair.ring_sq();
  EXPECT_EQ(rings.device.doorbells()[6], 5u);
  rings.device.doorbells()[6] = 99;
  rings.pair.ring_sq();  // nothing new: the doorbell is not written again
  EXPECT_EQ(rings.device.doorbells()[6], 99u);

  rings.post(0);
  EXPECT_EQ(rings.reap(), std::vector<std::uint16_t>{0});
  EXPECT_EQ(rings.device.doorbells()[7], 0u);
  rings.pair.ring_cq();
  EXPECT_EQ(rings.device.doorbells()[7], 1u);
  EXPECT_EQ(rings.pair.outstanding(), 4u);
}

TEST(QueuePair, PhaseTurnsOverAtEveryWrap) {
  Rings rings(4, 3);
  for (std::uint16_t i = 0; i < 50; ++i) {
    rings.pair.submit().cid = i;
    rings.pair.ring_sq();
    EXPECT_EQ(rings.sq[i % 4].cid, i);
    EXPECT_TRUE(rings.reap().empty());
    rings.post(i);
    EXPECT_EQ(rings.reap(), std::vector<std::uint16_t>{i});
    EXPECT_TRUE(rings.reap().empty()) << "an entry of the last lap was taken for a new one";
    rings.pair.ring_cq();
    EXPECT_EQ(rings.device.doorbells()[6], (i + 1u) % 4);
    EXPECT_EQ(rings.device.doorbells()[7], (i + 1u) % 3);
  }
}

TEST(QueuePair, ReapHonoursItsLimit) {
  Rings rings(8);
  for (std::uint16_t i = 0; i < 6; ++i) {
    rings.pair.submit();
    rings.post(i);
  }
  EXPECT_EQ(rings.reap(4), (std::vector<std::uint16_t>{0, 1, 2, 3}));
  EXPECT_EQ(rings.reap(4), (std::vector<std::uint16_t>{4, 5}));
  EXPECT_EQ(rings.pair.outstanding(), 0u);
}

TEST(QueuePair, WakesADeviceThatSleeps) {
  Rings rings(8);
  rings.pair.submit();
  rings.pair.ring_sq();
  EXPECT_EQ(rings.device.wakes, 0u);
  rings.device.sleeping_flag = 1;
  rings.pair.ring_sq();  // nothing new, nothing to wake for
  EXPECT_EQ(rings.device.wakes, 0u);
  rings.pair.submit();
  rings.pair.ring_sq();
  EXPECT_EQ(rings.device.wakes, 1u);
  rings.post(0);
  rings.reap();
  rings.pair.ring_cq();
  EXPECT_EQ(rings.device.wakes, 2u);
}

}  // namespace
}  // namespace flashmob::driver
