// Namespace Management and Namespace Attachment (Base 2.0c, 5.22 and 5.23), with several controllers on one subsystem.
#include <algorithm>

#include "conformance/device_fixture.h"
#include "nvme/async_event.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::conformance {
namespace {

class NamespacesTest : public DeviceTest {
 protected:
  explicit NamespacesTest(unsigned controllers = 2) : DeviceTest(suite::small_device(), controllers) {}

  // The new namespace's identifier, or 0 with `status` set.
  std::uint32_t create(std::uint64_t blocks, std::uint8_t flbas, Status& status, bool shared = true) {
    nvme::IdentifyNamespace data{};
    data.nsze = data.ncap = blocks;
    data.flbas = flbas;
    data.nmic = shared ? nvme::kNmicShared : 0;
    Sqe sqe = make(AdminOpcode::namespace_management);
    const AdminResult result = driver().admin(sqe, std::as_writable_bytes(std::span(&data, 1)), false);
    status = status_of(result);
    return status == Status::success ? result.dw0 : 0;
  }
  std::uint32_t create(std::uint64_t blocks, std::uint8_t flbas = 0, bool shared = true) {
    Status status;
    const std::uint32_t nsid = create(blocks, flbas, status, shared);
    EXPECT_EQ(status, Status::success);
    return nsid;
  }
  Status remove(std::uint32_t nsid) {
    Sqe sqe = make(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = 1;
    return admin(sqe);
  }
  Status attach(std::uint32_t nsid, const std::vector<std::uint16_t>& controllers, bool detach = false) {
    nvme::ControllerList list{};
    list.num = static_cast<std::uint16_t>(controllers.size());
    std::copy(controllers.begin(), controllers.end(), list.identifier);
    Sqe sqe = make(AdminOpcode::namespace_attachment, nsid);
    sqe.cdw10 = detach ? 1 : 0;
    return admin_write(sqe, std::as_bytes(std::span(&list, 1)));
  }
  Status detach(std::uint32_t nsid, const std::vector<std::uint16_t>& controllers) {
    return attach(nsid, controllers, true);
  }
  std::uint16_t id(unsigned index) { return host(index).controller.cntlid(); }
  std::uint64_t unallocated() { return identify<nvme::IdentifyController>(nvme::Cns::identify_controller).unvmcap.low; }
  // One read of block 0 through a controller's queue.
  Status touch(std::uint32_t nsid, unsigned index = 0) {
    Buffer target(host(index).door, 4096);
    return status_of(run(target.attach(make(NvmOpcode::read, nsid, 0, 1), 4096), index));
  }
  std::vector<std::uint32_t> active(unsigned index) {
    nvme::NamespaceList list;
    driver(index).identify(static_cast<std::uint8_t>(nvme::Cns::active_namespace_list), 0,
                           std::as_writable_bytes(std::span(&list, 1)));
    return {list.nsid, std::find(std::begin(list.nsid), std::end(list.nsid), 0u)};
  }
};

TEST_F(NamespacesTest, CreateAttachUseDetachDelete) {
  const std::uint64_t free_bytes = unallocated();
  const std::uint32_t nsid = create(2048);
  EXPECT_EQ(nsid, 3u);
  EXPECT_EQ(unallocated(), free_bytes - 2048 * 512);
  EXPECT_EQ(touch(nsid), Status::invalid_field) << "allocated, but not attached";
  EXPECT_EQ(identify<nvme::IdentifyNamespace>(nvme::Cns::allocated_namespace, nsid).nsze, 2048u);

  ASSERT_EQ(attach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(touch(nsid), Status::success);
  EXPECT_EQ(touch(nsid, 1), Status::invalid_field) << "the other controller does not have it";
  const auto data = noise(512, 1);
  ASSERT_EQ(write(nsid, 2047, data), Status::success);
  EXPECT_TRUE(read(nsid, 2047, 1) == data);

  ASSERT_EQ(detach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(touch(nsid), Status::invalid_field);
  ASSERT_EQ(remove(nsid), Status::success);
  EXPECT_EQ(unallocated(), free_bytes);
  EXPECT_EQ(remove(nsid), Status::invalid_field) << "there is nothing to delete any more";
}

TEST_F(NamespacesTest, ANewNamespaceHasNoOldData) {
  for (int round = 0; round < 2; ++round) {
    const std::uint32_t nsid = create(1024);
    ASSERT_EQ(attach(nsid, {id(0)}), Status::success);
    EXPECT_TRUE(read(nsid, 0, 8) == std::vector<std::byte>(8 * 512)) << round;
    ASSERT_EQ(write(nsid, 0, noise(8 * 512, 1)), Status::success);
    ASSERT_EQ(remove(nsid), Status::success);
  }
}

TEST_F(NamespacesTest, CreationLimits) {
  Status status;
  EXPECT_EQ(create((16 << 20) / 512 + 1, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity);
  EXPECT_EQ(create(~std::uint64_t{0}, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity) << "as bytes the size wraps";
  EXPECT_EQ(create(0, 0, status), 0u);
  EXPECT_NE(status, Status::success);
  EXPECT_EQ(create(8, 9, status), 0u);
  EXPECT_EQ(status, Status::invalid_format);
  EXPECT_NE(create((16 << 20) / 512, 0, status), 0u) << "exactly what is left";
  EXPECT_EQ(create(8, 0, status), 0u);
  EXPECT_EQ(status, Status::namespace_insufficient_capacity);
}

TEST_F(NamespacesTest, AttachmentErrors) {
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

TEST_F(NamespacesTest, PrivateNamespacesBelongToOneController) {
  const std::uint32_t nsid = create(1024, 0, false);
  EXPECT_EQ(attach(nsid, {id(0), id(1)}), Status::namespace_is_private);
  EXPECT_EQ(attach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(attach(nsid, {id(1)}), Status::namespace_is_private);
  EXPECT_EQ(detach(nsid, {id(0)}), Status::success);
  EXPECT_EQ(attach(nsid, {id(1)}), Status::success);
}

TEST_F(NamespacesTest, ListsFollow) {
  EXPECT_EQ(active(0), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(active(1), (std::vector<std::uint32_t>{1, 2}));
  ASSERT_EQ(detach(1, {id(1)}), Status::success);
  EXPECT_EQ(active(0), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(active(1), (std::vector<std::uint32_t>{2}));
  const auto who = identify<nvme::ControllerList>(nvme::Cns::namespace_controller_list, 1);
  EXPECT_EQ(who.num, 1);
  EXPECT_EQ(who.identifier[0], id(0));
}

TEST_F(NamespacesTest, OtherHostsAreTold) {
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

TEST_F(NamespacesTest, SharedNamespacesHoldOneTruth) {
  const auto data = noise(4096, 5);
  ASSERT_EQ(write(kNs4096, 10, data), Status::success);
  Buffer target(host(1).door, 4096);
  EXPECT_EQ(status_of(run(target.attach(make(NvmOpcode::read, kNs4096, 10, 1), 4096), 1)), Status::success);
  EXPECT_TRUE(target.copy(4096) == data);
}

TEST_F(NamespacesTest, ControllersAreResetOneByOne) {
  queue(0);
  EXPECT_EQ(touch(kNs512, 1), Status::success);
  driver(0).enable();
  EXPECT_EQ(touch(kNs512, 1), Status::success);
  EXPECT_NE(id(0), id(1));
  EXPECT_FALSE(driver(1).fatal());
}

TEST_F(NamespacesTest, AttachingUnderLoadDisturbsNobody) {
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
