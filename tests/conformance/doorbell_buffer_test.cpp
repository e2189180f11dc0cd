// Doorbell Buffer Config (Base 2.0c, 5.10): shadow doorbells in host memory and EventIdx values.
#include "conformance/device_fixture.h"

namespace flashmob::conformance {
namespace {

class DoorbellBufferTest : public DeviceTest {
 protected:
  Status configure(std::uint64_t shadow, std::uint64_t events) {
    Sqe sqe = make(AdminOpcode::doorbell_buffer_config);
    sqe.prp1 = shadow;
    sqe.prp2 = events;
    return admin(sqe);
  }
  std::uint32_t& shadow(std::uint32_t word) { return reinterpret_cast<std::uint32_t*>(pages_.data())[word]; }
  std::uint32_t& event_index(std::uint32_t word) {
    return reinterpret_cast<std::uint32_t*>(pages_.data() + 4096)[word];
  }
  std::uint64_t iova() const { return pages_.iova(); }

 private:
  Buffer pages_ = buffer(8192);
};

TEST_F(DoorbellBufferTest, PagesMustBeAlignedAndMapped) {
  // 5.10: addresses that are not valid are an invalid field.
  EXPECT_EQ(configure(iova() + 4, iova() + 4096), Status::invalid_field);
  EXPECT_EQ(configure(iova(), iova() + 4097), Status::invalid_field);
  EXPECT_EQ(configure(0x1000, iova()), Status::invalid_field);
  EXPECT_EQ(configure(iova(), 0x1000), Status::invalid_field);
}

TEST_F(DoorbellBufferTest, QueuesFollowTheShadow) {
  ASSERT_EQ(configure(iova(), iova() + 4096), Status::success);
  RawCq cq(host(), 1, 8);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  for (std::uint16_t cid = 0; cid < 30; ++cid) {
    sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
    shadow(2) = sq.tail();
    const auto entries = wait(cq, 1);
    ASSERT_EQ(entries.size(), 1u) << cid;
    EXPECT_EQ(entries[0].cid, cid);
    EXPECT_EQ(event_index(2), sq.tail()) << "the controller says what it has seen";
    shadow(3) = (cid + 1u) % 8;
  }
  EXPECT_EQ(host().door.doorbells()[2], 0u) << "the register was never touched";
}

// Shadow doorbells go before their queues, and the register that was never touched is no tail.
TEST_F(DoorbellBufferTest, AResetFindsNothingThatWasNotFetched) {
  ASSERT_EQ(configure(iova(), iova() + 4096), Status::success);
  RawCq cq(host(), 1, 8);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  Buffer data = buffer(512);
  for (std::uint16_t cid = 0; cid < 3; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
  shadow(2) = sq.tail();
  ASSERT_EQ(wait(cq, 3).size(), 3u);
  driver().disable();
  device.pump_for(1'000'000);
  EXPECT_EQ(device.engine().stats(engine::kWarmUp).wait_ns.count(), 3u);
}

TEST_F(DoorbellBufferTest, AdminCommandsKeepTheirRegister) {
  ASSERT_EQ(configure(iova(), iova() + 4096), Status::success);
  for (int i = 0; i < 200; ++i) driver().get_feature(1);
}

TEST_F(DoorbellBufferTest, AResetSwitchesThemOff) {
  ASSERT_EQ(configure(iova(), iova() + 4096), Status::success);
  driver().disable();
  driver().enable();
  Buffer data = buffer(512);
  QueuePair& pair = driver().create_queue_pair({});
  pair.submit() = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  pair.ring_sq();
  EXPECT_EQ(wait(pair, 1).size(), 1u);
}

TEST_F(DoorbellBufferTest, GarbageInTheShadowIsAnInvalidDoorbell) {
  ASSERT_EQ(configure(iova(), iova() + 4096), Status::success);
  RawCq cq(host(), 1, 8);
  RawSq sq(host(), 1, 8);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  std::vector<AdminResult> events;
  driver().admin_async(make(AdminOpcode::async_event_request), [&](AdminResult result) { events.push_back(result); });
  shadow(2) = 0xDEADBEEF;
  device.pump_for(1'000'000);
  driver().poll_admin();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].dw0 & 0xFF07, 0x0100u) << "error, invalid doorbell value";
}

TEST_F(DoorbellBufferTest, PagesThatGoAwayAreSurvived) {
  RawCq cq(host(), 1, 8);
  RawSq sq(host(), 1, 8);
  {
    DmaMemory pages(host().door, 8192);
    ASSERT_EQ(configure(pages.iova(), pages.iova() + 4096), Status::success);
    ASSERT_EQ(create(cq), Status::success);
    ASSERT_EQ(create(sq, cq), Status::success);
  }
  // The controller falls back to its registers.
  Buffer data = buffer(512);
  sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), 1);
  sq.ring();
  EXPECT_EQ(wait(cq, 1).size(), 1u);
}

}  // namespace
}  // namespace flashmob::conformance
