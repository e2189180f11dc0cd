// Namespace Attachment (Base 2.0c, 5.22): who sees a namespace, and who is told.
#include "conformance/namespaces_fixture.h"
#include "nvme/async_event.h"

namespace flashmob::conformance {
namespace {

using NamespaceAttachmentTest = NamespacesTest;

TEST_F(NamespaceAttachmentTest, AttachmentErrors) {
  EXPECT_EQ(attach(kNs512, {id(0)}), Status::namespace_already_attached);
  EXPECT_EQ(detach(3, {id(0)}), Status::invalid_field) << "not allocated";
  EXPECT_EQ(attach(5000, {id(0)}), Status::invalid_namespace_or_format);
  const std::uint32_t nsid = create(1024);
  EXPECT_EQ(detach(nsid, {id(0)}), Status::namespace_not_attached);
  EXPECT_EQ(attach(nsid, {}), Status::controller_list_invalid);
  EXPECT_EQ(attach(nsid, {id(0), 99}), Status::controller_list_invalid);
  EXPECT_EQ(attach(nsid, {id(1), id(0)}), Status::controller_list_invalid) << "identifiers must increase";
  EXPECT_EQ(touch(nsid), Status::invalid_field) << "an attachment that fails attaches nobody";
}

TEST_F(NamespaceAttachmentTest, PrivateNamespacesBelongToOneController) {
  const std::uint32_t nsid = create(1024, 0, false);
  EXPECT_EQ(attach(nsid, {id(0), id(1)}), Status::namespace_is_private);
  EXPECT_EQ(attach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(attach(nsid, {id(1)}), Status::namespace_is_private);
  EXPECT_EQ(detach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(attach(nsid, {id(1)}), Status::success);
}

TEST_F(NamespaceAttachmentTest, ListsFollow) {
  EXPECT_EQ(active(0), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(active(1), (std::vector<std::uint32_t>{1, 2}));
  ASSERT_EQ(detach(1, {id(1)}), Status::success);
  EXPECT_EQ(active(0), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(active(1), (std::vector<std::uint32_t>{2}));
  const auto who = identify<nvme::ControllerList>(nvme::Cns::namespace_controller_list, 1);
  EXPECT_EQ(who.num, 1);
  EXPECT_EQ(who.identifier[0], id(0));
}

TEST_F(NamespaceAttachmentTest, OtherHostsAreTold) {
  std::vector<AdminResult> events;
  driver(1).set_feature(0x0B, 1u << 8);
  driver(1).admin_async(make(AdminOpcode::async_event_request), [&](AdminResult result) { events.push_back(result); });
  const std::uint32_t nsid = create(1024);
  ASSERT_EQ(attach(nsid, {id(1)}), Status::success);
  device.pump_for(1'000'000);
  driver(1).poll_admin();
  ASSERT_EQ(events.size(), 1u);
  const nvme::AsyncEvent event = nvme::decode_async_event(events[0].dw0);
  EXPECT_EQ(event.type, nvme::AsyncEventType::notice);
  EXPECT_EQ(event.info, static_cast<std::uint8_t>(nvme::AsyncNoticeInfo::namespace_attribute_changed));
  EXPECT_EQ(event.log_page, nvme::LogPage::changed_namespace_list);
  nvme::ChangedNamespaceList changed;
  const auto read_log = [&] {
    driver(1).log_page(4, nvme::kNsidBroadcast, 0, std::as_writable_bytes(std::span(&changed, 1)));
  };
  read_log();
  EXPECT_EQ(changed.nsid[0], nsid);
  EXPECT_EQ(changed.nsid[1], 0u);
  read_log();
  EXPECT_EQ(changed.nsid[0], 0u) << "reading the list clears it";
}

TEST_F(NamespaceAttachmentTest, AttachingUnderLoadDisturbsNobody) {
  QueuePair& pair = queue(1);
  Buffer data(host(1).door, 512);
  for (std::uint16_t cid = 0; cid < 60; ++cid) {
    Sqe sqe = data.attach(make(NvmOpcode::read, kNs512, cid, 1), 512);
    sqe.cid = cid;
    pair.submit() = sqe;
  }
  pair.ring_sq();
  ASSERT_EQ(detach(kNs512, {id(1)}), Status::success);
  const auto done = wait(pair, 60);
  ASSERT_EQ(done.size(), 60u);
  for (const Cqe& cqe : done) EXPECT_TRUE(status_of(cqe) == Status::success || status_of(cqe) == Status::invalid_field);
}

}  // namespace
}  // namespace flashmob::conformance
