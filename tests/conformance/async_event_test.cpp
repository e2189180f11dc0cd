// Asynchronous Event Request (Base 2.0c, 5.2): requests wait, events find them, and a type stays masked until read.
#include "nvme/async_event.h"
#include "conformance/device_fixture.h"
#include "nvme/features.h"

namespace flashmob::conformance {
namespace {

class AsyncEventTest : public DeviceTest {
 protected:
  std::uint16_t request() {
    return driver().admin_async(make(AdminOpcode::async_event_request),
                                [this](AdminResult result) { events.push_back(result); });
  }
  // Pumps, and polls for events.
  std::size_t events_after(std::uint64_t duration_ns) {
    device.pump_for(duration_ns);
    driver().poll_admin();
    return events.size();
  }
  nvme::AsyncEvent event(std::size_t index) { return nvme::decode_async_event(events.at(index).dw0); }
  void set_temperature_threshold(std::uint16_t kelvins) {
    driver().set_feature(0x04, nvme::encode_temperature_threshold({kelvins, 0, nvme::kThresholdOver}));
  }
  void ring_bad_doorbell(QueuePair& pair, std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(host().door.doorbells()[2 * pair.qid()]).store(value);
  }

  std::vector<AdminResult> events;
};

TEST_F(AsyncEventTest, RequestsWaitUntilSomethingHappens) {
  request();
  EXPECT_EQ(events_after(2'000'000'000), 0u);
  driver().get_feature(1);
  EXPECT_TRUE(events.empty());
}

TEST_F(AsyncEventTest, MoreRequestsThanTheLimitAreRefused) {
  const unsigned limit = device.config().controller.async_event_limit;
  for (unsigned i = 0; i < limit; ++i) request();
  EXPECT_EQ(events_after(1'000'000), 0u);
  request();
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(status_of(events[0]), Status::async_event_limit_exceeded);
}

TEST_F(AsyncEventTest, AnEventBeforeItsRequestIsNotLost) {
  QueuePair& pair = queue();
  ring_bad_doorbell(pair, 64);
  device.pump_for(1'000'000);
  request();
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(event(0).type, nvme::AsyncEventType::error);
}

TEST_F(AsyncEventTest, InvalidSubmissionDoorbell) {
  QueuePair& pair = queue();
  request();
  request();
  ring_bad_doorbell(pair, 64);  // one past the last entry
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(status_of(events[0]), Status::success);
  EXPECT_EQ(event(0).type, nvme::AsyncEventType::error);
  EXPECT_EQ(event(0).info, static_cast<std::uint8_t>(nvme::AsyncErrorInfo::invalid_doorbell_value));
  EXPECT_EQ(event(0).log_page, nvme::LogPage::error_information);

  // The type is masked until the host has read the log.
  ring_bad_doorbell(pair, 65);
  EXPECT_EQ(events_after(1'000'000), 1u);
  log_page<nvme::ErrorInformationEntry>(nvme::LogPage::error_information);
  EXPECT_EQ(events_after(1'000'000), 2u);
}

TEST_F(AsyncEventTest, AQueueWithABadDoorbellHarmsNoOther) {
  QueuePair& bad = queue();
  QueuePair& good = driver().create_queue_pair({});
  ring_bad_doorbell(bad, 0xFFFFFFFF);
  Buffer data = buffer(512);
  good.submit() = data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512);
  good.ring_sq();
  EXPECT_EQ(wait(good, 1).size(), 1u);
  EXPECT_FALSE(driver().fatal());
  // A right value brings the queue back.
  ring_bad_doorbell(bad, 0);
  EXPECT_EQ(io(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512)), Status::success);
}

TEST_F(AsyncEventTest, InvalidCompletionDoorbell) {
  RawCq cq(host(), 1, 4);
  RawSq sq(host(), 1, 16);
  ASSERT_EQ(create(cq), Status::success);
  ASSERT_EQ(create(sq, cq), Status::success);
  request();
  Buffer data = buffer(512);
  cq.ring(4);  // one past the last entry; noticed at the latest when the queue has no more room
  for (std::uint16_t cid = 0; cid < 6; ++cid) sq.push(data.attach(make(NvmOpcode::read, kNs512, 0, 1), 512), cid);
  sq.ring();
  ASSERT_EQ(events_after(10'000'000), 1u);
  EXPECT_EQ(event(0).info, static_cast<std::uint8_t>(nvme::AsyncErrorInfo::invalid_doorbell_value));
}

TEST_F(AsyncEventTest, DoorbellsOfQueuesThatDoNotExist) {
  request();
  // Through the trapped register; the mapped page cannot see writes to words that nobody polls.
  host().controller.write_register(nvme::kRegDoorbells + 8 * 5, 4, 1);
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(event(0).info, static_cast<std::uint8_t>(nvme::AsyncErrorInfo::write_to_invalid_doorbell));
}

TEST_F(AsyncEventTest, TemperatureThreshold) {
  request();
  driver().set_feature(0x0B, nvme::kCriticalWarningTemperature);
  EXPECT_EQ(events_after(1'000'000), 0u);
  set_temperature_threshold(280);
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(event(0).type, nvme::AsyncEventType::smart_health);
  EXPECT_EQ(event(0).info, static_cast<std::uint8_t>(nvme::AsyncSmartInfo::temperature_threshold));
  EXPECT_EQ(event(0).log_page, nvme::LogPage::smart_health);
  EXPECT_EQ(log_page<nvme::SmartHealth>(nvme::LogPage::smart_health).critical_warning,
            nvme::kCriticalWarningTemperature);
  set_temperature_threshold(400);
  EXPECT_EQ(log_page<nvme::SmartHealth>(nvme::LogPage::smart_health).critical_warning, 0);
}

TEST_F(AsyncEventTest, EventsThatAreSwitchedOffStaySilent) {
  request();
  driver().set_feature(0x0B, 0);
  set_temperature_threshold(280);
  EXPECT_EQ(events_after(1'000'000), 0u);
}

TEST_F(AsyncEventTest, AbortEndsARequest) {
  const std::uint16_t cid = request();
  request();
  EXPECT_TRUE(driver().abort(0, cid));
  ASSERT_EQ(events_after(1'000'000), 1u);
  EXPECT_EQ(status_of(events[0]), Status::abort_requested);
}

TEST_F(AsyncEventTest, RequestsEndWithTheirController) {
  for (int i = 0; i < 8; ++i) request();
  device.pump_for(1'000'000);
  driver().disable();
  driver().enable();
  for (int i = 0; i < 8; ++i) request();
  EXPECT_EQ(events_after(1'000'000), 0u) << "requests of the former life still count";
}

}  // namespace
}  // namespace flashmob::conformance
