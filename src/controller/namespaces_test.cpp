// Format NVM, Namespace Management and Namespace Attachment.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "controller/controller_test_support.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

constexpr std::uint32_t kAll = 0xFFFFFFFF;

class NamespaceCommands : public ::testing::Test {
 protected:
  NamespaceCommands() : d(two_controllers()) {
    d.enable(0);
    d.enable(1);
  }
  static DeviceOptions two_controllers() {
    DeviceOptions options;
    options.controllers = 2;
    options.subsystem.namespaces = {NamespaceConfig{.size_bytes = 1 << 20},
                                    NamespaceConfig{.size_bytes = 1 << 20, .media = "generated"}};
    return options;
  }
  Status format(std::uint32_t nsid, nvme::FormatNvm fields, unsigned i = 0) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::format_nvm, nsid);
    nvme::encode_format_nvm(fields, sqe);
    return d.run(sqe, i).status();
  }
  static nvme::IdentifyNamespace wanted(std::uint64_t blocks, std::uint8_t flbas = 0, bool shared = true) {
    nvme::IdentifyNamespace n{};
    n.nsze = n.ncap = blocks;
    n.flbas = flbas;
    n.nmic = shared ? 1 : 0;
    return n;
  }
  FakeHost::Completion create(const nvme::IdentifyNamespace& n, std::uint32_t nsid = 0, std::uint8_t csi = 0) {
    d.put(n);
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceCreate;
    sqe.cdw11 = std::uint32_t{csi} << 24;
    d.attach_buffer(sqe, kPage);
    return d.run(sqe);
  }
  Status remove(std::uint32_t nsid, unsigned i = 0) {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return d.run(sqe, i).status();
  }
  Status attachment(std::uint8_t select, std::uint32_t nsid, const std::vector<std::uint16_t>& ids) {
    nvme::ControllerList list{};
    list.num = static_cast<std::uint16_t>(ids.size());
    std::copy(ids.begin(), ids.end(), list.identifier);
    return attachment(select, nsid, list);
  }
  Status attachment(std::uint8_t select, std::uint32_t nsid, const nvme::ControllerList& list) {
    d.put(list);
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_attachment, nsid);
    sqe.cdw10 = select;
    d.attach_buffer(sqe, kPage);
    return d.run(sqe).status();
  }
  Status attach(std::uint32_t nsid, const std::vector<std::uint16_t>& ids) {
    return attachment(nvme::kNamespaceAttach, nsid, ids);
  }
  Status detach(std::uint32_t nsid, const std::vector<std::uint16_t>& ids) {
    return attachment(nvme::kNamespaceDetach, nsid, ids);
  }
  std::vector<std::uint32_t> changed(unsigned i) {
    d.log_page(nvme::LogPage::changed_namespace_list, kPage, {}, kAll, i);
    const auto page = d.data<nvme::ChangedNamespaceList>();
    return {page.nsid, std::find(page.nsid, page.nsid + 1024, 0u)};
  }
  std::uint64_t unallocated() {
    d.identify(nvme::Cns::identify_controller);
    return d.data<nvme::IdentifyController>().unvmcap.low;
  }
  using Ids = std::vector<std::uint32_t>;
  TestDevice d;
};

TEST_F(NamespaceCommands, FormatErasesAndChangesTheBlockSize) {
  command_set::Namespace* before = d.controller().attached(1);
  before->base[12345] = std::byte{0xAB};
  ASSERT_EQ(format(1, {.lbaf = 1, .ses = 1}), Status::success);
  command_set::Namespace* after = d.controller().attached(1);
  ASSERT_NE(after, before) << "requests in flight keep the old description";
  EXPECT_EQ(before->lba_shift, 9);
  EXPECT_EQ(after->lba_shift, 12);
  EXPECT_EQ(after->blocks, 256u);
  EXPECT_EQ(after->unit_base, before->unit_base);
  EXPECT_EQ(after->base[12345], std::byte{0});
  EXPECT_EQ(d.controller(1).attached(1), after);
  EXPECT_EQ(changed(0), Ids{1});
  EXPECT_EQ(changed(1), Ids{1});
  d.identify(nvme::Cns::identify_namespace, 1);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().flbas, 1);
  EXPECT_EQ(format(1, {.lbaf = 0}), Status::success);
  EXPECT_EQ(d.controller().attached(1)->blocks, 2048u);
}

TEST_F(NamespaceCommands, FormatRefusals) {
  EXPECT_EQ(format(0, {}), Status::invalid_namespace_or_format);
  EXPECT_EQ(format(257, {}), Status::invalid_namespace_or_format);
  EXPECT_EQ(format(9, {}), Status::invalid_field) << "inactive";
  EXPECT_EQ(format(1, {.lbaf = 2}), Status::invalid_format);
  EXPECT_EQ(format(1, {.lbaf = 63}), Status::invalid_format);
  EXPECT_EQ(format(1, {.mset = true}), Status::invalid_format);
  EXPECT_EQ(format(1, {.pi = 1}), Status::invalid_format);
  EXPECT_EQ(format(1, {.ses = 2}), Status::invalid_field) << "no cryptographic erase";
  EXPECT_EQ(format(1, {.ses = 7}), Status::invalid_field);
  EXPECT_EQ(format(2, {}), Status::namespace_is_write_protected) << "generated content";
  EXPECT_TRUE(changed(0).empty());
}

TEST_F(NamespaceCommands, FormatAllFormatsWhatIsAttached) {
  EXPECT_EQ(format(kAll, {.lbaf = 1}), Status::namespace_is_write_protected) << "one of them cannot be";
  EXPECT_EQ(d.controller().attached(1)->lba_shift, 9) << "and so none was";
  ASSERT_EQ(detach(2, {1, 2}), Status::success);
  ASSERT_EQ(create(wanted(100)).dw0, 3u);
  ASSERT_EQ(attach(3, {1}), Status::success);
  EXPECT_EQ(format(kAll, {.lbaf = 1}), Status::success);
  EXPECT_EQ(d.controller().attached(1)->lba_shift, 12);
  EXPECT_EQ(d.controller().attached(3)->lba_shift, 12);
  EXPECT_EQ(d.controller().attached(3)->blocks, 12u) << "50 KiB hold twelve whole blocks";
}

TEST_F(NamespaceCommands, FormatToLargerBlocksThanTheNamespace) {
  ASSERT_EQ(create(wanted(1)).dw0, 3u);
  ASSERT_EQ(attach(3, {1}), Status::success);
  EXPECT_EQ(format(3, {.lbaf = 1}), Status::invalid_format);
  EXPECT_EQ(d.controller().attached(3)->blocks, 1u);
}

TEST_F(NamespaceCommands, CreateAttachUseDetachDelete) {
  EXPECT_EQ(unallocated(), 4u << 20);
  const auto made = create(wanted(512, 1));
  ASSERT_EQ(made.status_field, 0);
  EXPECT_EQ(made.dw0, 3u);
  EXPECT_EQ(unallocated(), 2u << 20);
  EXPECT_EQ(d.controller().attached(3), nullptr) << "creation does not attach";
  ASSERT_EQ(attach(3, {1, 2}), Status::success);
  ASSERT_NE(d.controller().attached(3), nullptr);
  EXPECT_EQ(d.controller(1).attached(3), d.controller().attached(3));
  EXPECT_EQ(d.controller().attached(3)->lba_shift, 12);
  EXPECT_EQ(d.controller().attached(3)->blocks, 512u);
  EXPECT_EQ(changed(0), Ids{3});
  EXPECT_EQ(changed(1), Ids{3});
  ASSERT_EQ(detach(3, {2}), Status::success);
  EXPECT_EQ(d.controller(1).attached(3), nullptr);
  EXPECT_NE(d.controller().attached(3), nullptr);
  EXPECT_EQ(changed(0), Ids{});
  EXPECT_EQ(changed(1), Ids{3});
  ASSERT_EQ(remove(3), Status::success);
  EXPECT_EQ(d.controller().attached(3), nullptr);
  EXPECT_EQ(unallocated(), 4u << 20);
  EXPECT_EQ(changed(0), Ids{3}) << "it was attached here";
  EXPECT_EQ(changed(1), Ids{});
}

TEST_F(NamespaceCommands, AReusedIdentifierNamesAnotherNamespace) {
  ASSERT_EQ(create(wanted(100)).dw0, 3u);
  d.identify(nvme::Cns::allocated_namespace, 3);
  const auto first = d.data<nvme::IdentifyNamespace>();
  ASSERT_EQ(remove(3), Status::success);
  ASSERT_EQ(create(wanted(100)).dw0, 3u);
  d.identify(nvme::Cns::allocated_namespace, 3);
  EXPECT_NE(std::memcmp(first.nguid, d.data<nvme::IdentifyNamespace>().nguid, 16), 0);
}

TEST_F(NamespaceCommands, CreateRefusals) {
  EXPECT_EQ(create(wanted(8), 1).status(), Status::invalid_field) << "the NSID is not the host's to choose";
  EXPECT_EQ(create(wanted(8), 0, 2).status(), Status::io_command_set_not_supported);
  EXPECT_EQ(create(wanted(0)).status(), Status::invalid_field);
  auto n = wanted(8);
  n.ncap = 9;
  EXPECT_EQ(create(n).status(), Status::invalid_field);
  n.ncap = 7;
  EXPECT_EQ(create(n).status(), Status::thin_provisioning_not_supported);
  EXPECT_EQ(create(wanted(8, 2)).status(), Status::invalid_format);
  EXPECT_EQ(create(wanted(8, 0x20)).status(), Status::invalid_format) << "format 16";
  EXPECT_EQ(create(wanted(8, nvme::kFlbasExtendedMetadata)).status(), Status::invalid_format);
  n = wanted(8);
  n.dps = 1;
  EXPECT_EQ(create(n).status(), Status::invalid_format);
  n = wanted(8);
  n.nmic = 2;
  EXPECT_EQ(create(n).status(), Status::invalid_field);
  n = wanted(8);
  n.anagrpid = 1;
  EXPECT_EQ(create(n).status(), Status::invalid_field);
  n = wanted(8);
  n.nvmsetid = 1;
  EXPECT_EQ(create(n).status(), Status::invalid_field);
  EXPECT_EQ(create(wanted((4 << 20) / 512 + 1)).status(), Status::namespace_insufficient_capacity);
  EXPECT_EQ(create(wanted(UINT64_MAX)).status(), Status::namespace_insufficient_capacity) << "must not wrap around";
  EXPECT_EQ(create(wanted(UINT64_MAX / 512 + 2)).status(), Status::namespace_insufficient_capacity);
  EXPECT_EQ(create(wanted((4 << 20) / 512)).status(), Status::success) << "all that is left";
  EXPECT_EQ(create(wanted(1)).status(), Status::namespace_insufficient_capacity);
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_management);
  sqe.prp1 = kUnmapped;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error);
  sqe.cdw10 = 2;
  EXPECT_EQ(d.run(sqe).status(), Status::invalid_field) << "neither create nor delete";
}

TEST_F(NamespaceCommands, IdentifiersRunOut) {
  for (std::uint32_t nsid = 3; nsid <= kMaxNamespaces; ++nsid) ASSERT_EQ(create(wanted(1)).dw0, nsid);
  EXPECT_EQ(create(wanted(1)).status(), Status::namespace_identifier_unavailable);
  EXPECT_EQ(remove(77), Status::success);
  EXPECT_EQ(create(wanted(1)).dw0, 77u);
}

TEST_F(NamespaceCommands, Delete) {
  EXPECT_EQ(remove(0), Status::invalid_namespace_or_format);
  EXPECT_EQ(remove(257), Status::invalid_namespace_or_format);
  EXPECT_EQ(remove(3), Status::invalid_field) << "not allocated";
  EXPECT_EQ(remove(1, 1), Status::success);
  EXPECT_EQ(remove(1), Status::invalid_field);
  EXPECT_EQ(create(wanted(8)).dw0, 1u);
  EXPECT_EQ(remove(kAll), Status::success);
  EXPECT_EQ(unallocated(), 5u << 20) << "the generated one has taken its 1 MiB along: it was no memory";
  d.identify(nvme::Cns::allocated_namespace_list);
  EXPECT_EQ(d.data<nvme::NamespaceList>().nsid[0], 0u);
  EXPECT_EQ(remove(kAll), Status::success) << "nothing left to delete";
}

TEST_F(NamespaceCommands, AttachmentRefusals) {
  EXPECT_EQ(attachment(2, 1, std::vector<std::uint16_t>{1}), Status::invalid_field) << "neither attach nor detach";
  EXPECT_EQ(attach(0, {1}), Status::invalid_namespace_or_format);
  EXPECT_EQ(attach(257, {1}), Status::invalid_namespace_or_format);
  EXPECT_EQ(attach(kAll, {1}), Status::invalid_field);
  EXPECT_EQ(attach(3, {1}), Status::invalid_field) << "not allocated";
  EXPECT_EQ(attach(1, {}), Status::controller_list_invalid);
  EXPECT_EQ(attach(1, {3}), Status::controller_list_invalid) << "no such controller";
  EXPECT_EQ(detach(1, {2, 1}), Status::controller_list_invalid) << "not in order";
  EXPECT_EQ(detach(1, {1, 1}), Status::controller_list_invalid);
  nvme::ControllerList list{};
  list.num = 2048;
  EXPECT_EQ(attachment(nvme::kNamespaceAttach, 1, list), Status::controller_list_invalid);
  EXPECT_EQ(attach(1, {1}), Status::namespace_already_attached);
  EXPECT_EQ(detach(1, {1}), Status::success);
  EXPECT_EQ(detach(1, {1}), Status::namespace_not_attached);
  EXPECT_EQ(detach(1, {1, 2}), Status::namespace_not_attached);
  EXPECT_NE(d.controller(1).attached(1), nullptr) << "all or nothing";
  EXPECT_EQ(attach(1, {1, 2}), Status::namespace_already_attached);
  EXPECT_EQ(d.controller(0).attached(1), nullptr);
  nvme::Sqe sqe = TestDevice::command(AdminOpcode::namespace_attachment, 1);
  sqe.prp1 = kUnmapped;
  EXPECT_EQ(d.run(sqe).status(), Status::data_transfer_error);
}

TEST_F(NamespaceCommands, PrivateNamespacesHaveOneController) {
  ASSERT_EQ(create(wanted(8, 0, false)).dw0, 3u);
  EXPECT_EQ(attach(3, {1, 2}), Status::namespace_is_private);
  EXPECT_EQ(attach(3, {2}), Status::success);
  EXPECT_EQ(attach(3, {1}), Status::namespace_is_private);
  EXPECT_EQ(detach(3, {2}), Status::success);
  EXPECT_EQ(attach(3, {1}), Status::success);
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

TEST_F(NamespaceCommands, ComeAndGoAsOftenAsAHostLikes) {
  const auto come_and_go = [&] {
    if (create(wanted(8)).status() != Status::success || attach(3, {1}) != Status::success) return false;
    if (format(3, {.lbaf = 1}) != Status::success || remove(3) != Status::success) return false;
    d.host.completions.clear();
    return true;
  };
  ASSERT_TRUE(come_and_go());
  const std::size_t before = mappings();
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(come_and_go()) << i;
  // A sanitizer's allocator maps some for itself.
  EXPECT_LT(mappings(), before + 1'000);
}

TEST_F(NamespaceCommands, WhatCommandsMayStillTouchStaysAndIsBounded) {
  d.host.knows_all = true;
  std::vector<media::Media*> gone;
  Status last = Status::success;
  while (gone.size() < 10'000) {
    last = create(wanted(8)).status();
    if (last != Status::success) break;
    gone.push_back(d.subsystem.info(3).media);
    ASSERT_EQ(remove(3), Status::success);
  }
  EXPECT_EQ(last, Status::namespace_insufficient_capacity);
  EXPECT_GT(gone.size(), 4000u);
  std::byte first{1};
  for (media::Media* media : gone) ASSERT_TRUE(media->read(0, {&first, 1}));
  d.host.knows_all = false;
  EXPECT_EQ(create(wanted(8)).status(), Status::success) << "they are forgotten now";
}

// Two hosts change attachments through their controllers at once while an I/O thread looks namespaces up.
TEST_F(NamespaceCommands, ConcurrentControlAndIo) {
  std::atomic<bool> done{false};
  std::thread io([&] {
    std::uint64_t blocks = 0;
    // On a busy machine everything may be over before this thread runs for the first time.
    do {
      for (std::uint32_t nsid = 1; nsid <= 3; ++nsid) {
        if (const auto* ns = d.controller(0).attached(nsid); ns != nullptr) blocks += ns->blocks;
      }
    } while (!done);
    EXPECT_GT(blocks, 0u);
  });
  FakeHost quiet;
  Controller third(d.subsystem, DeviceOptions().controller, quiet);
  third.address_space().map(kGuestBase, TestDevice::kGuestBytes, d.guest.data());
  third.write_register(nvme::kRegAqa, 4, nvme::encode_aqa({.asqs = 31, .acqs = 31}));
  third.write_register(nvme::kRegAsq, 8, kAdminSq);
  third.write_register(nvme::kRegAcq, 8, kAdminCq);
  third.write_register(nvme::kRegCc, 4, TestDevice::cc({.en = true}));
  third.poll(1);
  // One command at a time: that an attachment waits for a Format under way is for NamespaceChangesTest to see.
  std::mutex commands;
  std::thread other([&] {
    nvme::Sqe sqe = TestDevice::command(AdminOpcode::format_nvm, 1);
    for (int i = 0; i < 200; ++i) {
      const std::lock_guard lock(commands);
      third.execute_admin(sqe, 2);
    }
  });
  for (int i = 0; i < 200; ++i) {
    const std::lock_guard lock(commands);
    EXPECT_EQ(detach(1, {1}), Status::success);
    EXPECT_EQ(attach(1, {1}), Status::success);
  }
  other.join();
  done = true;
  io.join();
  for (const auto& completion : quiet.completions) EXPECT_EQ(completion.status_field, 0);
}

}  // namespace
}  // namespace flashmob::controller::testing
