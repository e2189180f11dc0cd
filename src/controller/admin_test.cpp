// The dispatcher, Abort, Asynchronous Event Request, Keep Alive and Doorbell Buffer Config.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "controller/controller_test_support.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

constexpr std::uint32_t kInvalidDoorbellValue = 0x010100;  // type error, information 01h, log page 01h
constexpr std::uint32_t kTemperature = 0x020101;
constexpr std::uint32_t kNamespaceChanged = 0x040002;

class Admin : public ::testing::Test {
 protected:
  Admin() { d.enable(); }
  void request_event(std::uint16_t cid) { d.start(TestDevice::command(AdminOpcode::async_event_request), cid); }
  FakeHost::Completion abort(std::uint16_t sqid, std::uint16_t cid) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::abort);
    nvme::encode_abort({.sqid = sqid, .cid = cid}, sqe);
    return d.run(sqe);
  }
  std::vector<FakeHost::Completion>& completions() { return d.host.completions; }
  TestDevice d;
};

TEST_F(Admin, UnknownOpcodesFailAndSayThatMoreIsInTheLog) {
  for (const unsigned opcode : {0x03u, 0x07u, 0x0Bu, 0x10u, 0x11u, 0x14u, 0x19u, 0x1Cu, 0x7Fu, 0x81u, 0xC0u, 0xFFu}) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    const auto done = d.run(sqe);
    EXPECT_EQ(done.status(), Status::invalid_opcode) << opcode;
    EXPECT_EQ(done.status_field & nvme::kStatusDoNotRetry, nvme::kStatusDoNotRetry);
    EXPECT_EQ(done.status_field & nvme::kStatusMore, nvme::kStatusMore);
  }
}

TEST_F(Admin, FusedOrSglCommandsAreInvalid) {
  for (const unsigned flags : {0x01u, 0x02u, 0x03u, 0x40u, 0x80u, 0xC0u}) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::keep_alive);
    sqe.flags = static_cast<std::uint8_t>(flags);
    EXPECT_EQ(d.run(sqe).status(), Status::invalid_field) << flags;
  }
}

TEST_F(Admin, KeepAliveWithoutATimerSucceeds) {
  EXPECT_EQ(d.run(TestDevice::command(AdminOpcode::keep_alive)).status_field, 0);
}

TEST_F(Admin, AbortAsksTheEngineAndWaits) {
  d.create_cq(1);
  d.create_sq(1, 1);
  d.host.hold = true;
  d.host.abort_finds = true;
  abort(1, 77);
  const QueueRequest& request = d.host.requests.back();
  EXPECT_EQ(request.op, QueueOp::abort_command);
  EXPECT_EQ(request.sq.sqid, 1);
  EXPECT_EQ(request.cid, 77);
  const std::size_t before = completions().size();
  d.host.reply();
  ASSERT_EQ(completions().size(), before + 1);
  EXPECT_EQ(completions().back().status_field, 0);
  EXPECT_EQ(completions().back().dw0, 0u) << "aborted";
  d.host.hold = false;
  d.host.abort_finds = false;
  EXPECT_EQ(abort(1, 77).dw0, nvme::kAbortNotDone);
}

TEST_F(Admin, AbortOfWhatIsNotThere) {
  for (const auto& [sqid, cid] : {std::pair<int, int>{0, 5}, {1, 5}, {8, 0}, {9, 0}, {0xFFFF, 0xFFFF}}) {
    const auto done = abort(static_cast<std::uint16_t>(sqid), static_cast<std::uint16_t>(cid));
    EXPECT_EQ(done.status_field, 0) << sqid;
    EXPECT_EQ(done.dw0, nvme::kAbortNotDone) << sqid;
  }
}

TEST_F(Admin, AbortLimit) {
  d.create_cq(1);
  d.create_sq(1, 1);
  d.host.hold = true;
  for (std::uint16_t i = 0; i < 8; ++i) abort(1, i);
  const auto ninth = abort(1, 8);
  EXPECT_EQ(ninth.status(), Status::abort_limit_exceeded);
  EXPECT_EQ(ninth.status_field & nvme::kStatusDoNotRetry, 0) << "later it may work";
  d.host.reply();
  EXPECT_EQ(abort(1, 9).cid, 0xFFFF) << "under way";
  EXPECT_EQ(d.host.held.size(), 8u);
  // A reset forgets them all.
  d.disable();
  d.host.reply_all();
  d.host.hold = false;
  d.enable();
  d.create_cq(1);
  d.create_sq(1, 1);
  EXPECT_EQ(abort(1, 0).status_field, 0);
}

TEST_F(Admin, AbortOfAnEventRequestCompletesBoth) {
  request_event(21);
  request_event(22);
  EXPECT_EQ(abort(0, 21).dw0, 0u);
  ASSERT_EQ(completions().size(), 2u);
  EXPECT_EQ(completions()[0].cid, 21);
  EXPECT_EQ(completions()[0].status(), Status::abort_requested);
  d.controller().raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
  d.poll();
  EXPECT_EQ(completions().back().cid, 22);
}

TEST_F(Admin, EventRequestLimit) {
  for (std::uint16_t i = 0; i < 8; ++i) request_event(i);
  EXPECT_TRUE(completions().empty());
  EXPECT_EQ(d.run(TestDevice::command(AdminOpcode::async_event_request)).status(), Status::async_event_limit_exceeded);
}

TEST_F(Admin, EventsWaitForRequestsAndRequestsForEvents) {
  request_event(1);
  d.poll();
  EXPECT_TRUE(completions().empty());
  d.controller().raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
  EXPECT_TRUE(completions().empty()) << "delivered by the admin thread only";
  d.poll();
  ASSERT_EQ(completions().size(), 1u);
  EXPECT_EQ(completions()[0].cid, 1);
  EXPECT_EQ(completions()[0].status_field, 0);
  EXPECT_EQ(completions()[0].dw0, kInvalidDoorbellValue);

  d.set_feature(nvme::Feature::async_event_configuration, nvme::kAsyncEventNamespaceAttribute);
  completions().clear();
  d.controller().notify_namespace_changed(1);
  d.poll();
  request_event(2);
  ASSERT_EQ(completions().size(), 1u) << "the event had been waiting";
  EXPECT_EQ(completions()[0].dw0, kNamespaceChanged);
}

TEST_F(Admin, AReportedTypeIsMaskedUntilItsLogPageIsRead) {
  for (std::uint16_t i = 0; i < 4; ++i) request_event(i);
  d.controller().raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
  d.poll();
  ASSERT_EQ(completions().size(), 1u);
  d.controller().raise_error_event(nvme::AsyncErrorInfo::write_to_invalid_doorbell);
  d.controller().raise_error_event(nvme::AsyncErrorInfo::write_to_invalid_doorbell);
  d.poll();
  EXPECT_EQ(completions().size(), 1u) << "masked";
  completions().clear();
  d.log_page(nvme::LogPage::error_information, 64, {.rae = true});
  EXPECT_EQ(completions().size(), 1u) << "RAE keeps the mask: only the log page command completed";
  d.log_page(nvme::LogPage::smart_health, 512);
  EXPECT_EQ(completions().size(), 2u) << "another log page does not unmask";
  d.log_page(nvme::LogPage::error_information, 64);
  ASSERT_EQ(completions().size(), 4u);
  EXPECT_EQ(completions().back().dw0, 0x010000u) << "once, though it was raised twice";
  d.log_page(nvme::LogPage::error_information, 64);
  EXPECT_EQ(completions().size(), 5u) << "nothing is left";
}

TEST_F(Admin, AFailedLogPageReadKeepsTheMask) {
  request_event(1);
  request_event(2);
  d.controller().raise_error_event(nvme::AsyncErrorInfo::diagnostic_failure);
  d.poll();
  d.controller().raise_error_event(nvme::AsyncErrorInfo::transient_internal_error);
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::get_log_page, nvme::kNsidBroadcast);
  nvme::encode_get_log_page({.lid = 1, .numd = 15}, sqe);
  sqe.prp1 = kUnmapped;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error);
  d.poll();
  EXPECT_EQ(completions().size(), 2u);
}

TEST_F(Admin, DifferentTypesAreReportedIndependently) {
  for (std::uint16_t i = 0; i < 4; ++i) request_event(i);
  d.set_feature(nvme::Feature::async_event_configuration,
                nvme::kAsyncEventNamespaceAttribute | nvme::kCriticalWarningTemperature);
  completions().clear();
  d.controller().raise_error_event(nvme::AsyncErrorInfo::persistent_internal_error);
  d.controller().notify_namespace_changed(1);
  d.poll();
  ASSERT_EQ(completions().size(), 2u);
  EXPECT_EQ(completions()[0].dw0, 0x010300u);
  EXPECT_EQ(completions()[1].dw0, kNamespaceChanged);
  d.set_feature(nvme::Feature::temperature_threshold, 300);
  EXPECT_EQ(completions().back().dw0, kTemperature);
}

TEST_F(Admin, NamespaceNoticesOnlyWhenConfigured) {
  request_event(1);
  d.controller().notify_namespace_changed(1);
  d.poll();
  EXPECT_TRUE(completions().empty());
  d.set_feature(nvme::Feature::async_event_configuration, nvme::kAsyncEventNamespaceAttribute);
  d.poll();
  EXPECT_EQ(completions().size(), 1u) << "a change before it was configured is not reported";
  d.controller().notify_namespace_changed(1);
  d.poll();
  EXPECT_EQ(completions().size(), 2u);
}

TEST_F(Admin, TemperatureEventComesOncePerCrossing) {
  for (std::uint16_t i = 0; i < 4; ++i) request_event(i);
  d.set_feature(nvme::Feature::temperature_threshold, 300);
  EXPECT_EQ(completions().size(), 1u) << "not configured yet";
  d.set_feature(nvme::Feature::async_event_configuration, nvme::kCriticalWarningTemperature);
  ASSERT_EQ(completions().size(), 3u) << "the warning is up when the host first asks to hear of it";
  EXPECT_EQ(completions()[2].dw0, kTemperature);
  d.log_page(nvme::LogPage::smart_health, 512);
  EXPECT_EQ(completions().size(), 4u) << "reading the page does not report the same warning again";
  d.set_feature(nvme::Feature::temperature_threshold, 350);
  d.set_feature(nvme::Feature::temperature_threshold,
                nvme::encode_temperature_threshold({.tmpth = 320, .tmpsel = 0, .thsel = 1}));
  EXPECT_EQ(completions().back().dw0, kTemperature) << "now too cold";
}

TEST_F(Admin, EventsFromOtherThreadsAllArrive) {
  d.set_feature(nvme::Feature::async_event_configuration, nvme::kAsyncEventNamespaceAttribute);
  completions().clear();
  std::atomic<bool> done{false};
  std::thread units([&] {
    for (int i = 0; i < 500; ++i) {
      d.controller().raise_error_event(nvme::AsyncErrorInfo::invalid_doorbell_value);
      d.controller().record_error(1, static_cast<std::uint16_t>(i), Status::lba_out_of_range, 1, 5);
      d.controller().notify_namespace_changed(1 + static_cast<std::uint32_t>(i) % 200);
    }
    done = true;
  });
  std::uint16_t cid = 0;
  while (!done) {
    d.poll();
    if (cid < 8) request_event(cid++);
  }
  units.join();
  while (cid < 8) request_event(cid++);
  d.poll();
  EXPECT_EQ(completions().size(), 2u) << "one of each type, then masked";
  d.log_page(nvme::LogPage::error_information, 64);
  EXPECT_EQ(d.data<nvme::ErrorInformationEntry>().error_count, 500u);
}

TEST_F(Admin, DoorbellBufferConfig) {
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::doorbell_buffer_config);
  sqe.prp1 = kData;
  sqe.prp2 = kData + kPage;
  EXPECT_EQ(d.run(sqe).status_field, 0);
  ASSERT_EQ(d.host.shadow_calls.size(), 1u);
  EXPECT_EQ(d.host.shadow_calls[0], std::make_pair(kData, kData + kPage));
  for (const auto& [prp1, prp2] : {std::pair<std::uint64_t, std::uint64_t>{kData + 8, kData + kPage},
                                   {kData, kData + kPage + 4},
                                   {0, kData},
                                   {kData, 0},
                                   {kUnmapped, kData},
                                   {kData, kUnmapped}}) {
    sqe.prp1 = prp1;
    sqe.prp2 = prp2;
    EXPECT_EQ(d.run(sqe).status(), Status::invalid_field);
  }
  d.host.shadow_status = Status::data_transfer_error;
  sqe.prp1 = kData;
  sqe.prp2 = kData + kPage;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error) << "the engine's answer is passed on";
  d.disable();
  EXPECT_EQ(d.host.shadow_calls.back(), std::make_pair(std::uint64_t{0}, std::uint64_t{0}))
      << "a reset switches it off";
}

TEST_F(Admin, ABufferOutsideGuestMemoryFailsTheCommand) {
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::identify);
  nvme::encode_identify({.cns = 1}, sqe);
  sqe.prp1 = kUnmapped;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error);
  sqe.prp1 = kData + 2;
  EXPECT_EQ(d.run(sqe).status(), Status::prp_offset_invalid);
  sqe.prp1 = kData + 2048;
  sqe.prp2 = kData + 8 * kPage;
  EXPECT_EQ(d.run(sqe).status_field, 0) << "split over two pages";
  std::uint16_t power = 0;  // PSD0's MP at byte 2048 of the structure: the first of the second page
  std::memcpy(&power, d.at(kData + 8 * kPage), 2);
  EXPECT_EQ(power, 2500);
}

}  // namespace
}  // namespace flashmob::controller::testing
