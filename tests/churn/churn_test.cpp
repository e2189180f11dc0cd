// Namespaces that are created, formatted and deleted for a long time: each is as new, and nothing is left of them.
//
// FLASHMOB_CHURN=100000 makes that many rounds; 500 otherwise.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <thread>

#include "api/device.h"
#include "driver/dma_memory.h"
#include "driver/nvme_driver.h"
#include "nvme/admin_command.h"
#include "nvme/identify.h"
#include "nvme/identify_controller.h"
#include "nvme/identify_namespace.h"
#include "nvme/opcode.h"
#include "soak/server_watch.h"

namespace flashmob {
namespace {

using nvme::AdminOpcode;
using nvme::NvmOpcode;

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kPages = 64;  // of a namespace
constexpr std::uint32_t kFileNs = 1;

// A sanitizer holds back what is freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kGrowthMib = 256;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr std::uint64_t kGrowthMib = 256;
#else
constexpr std::uint64_t kGrowthMib = 8;
#endif
#else
constexpr std::uint64_t kGrowthMib = 8;
#endif

std::uint64_t rounds() {
  const char* const asked = std::getenv("FLASHMOB_CHURN");
  return asked != nullptr ? std::max(1ll, std::atoll(asked)) : 500;
}

// A drive with a namespace on a file, and room for others in memory.
class Churn : public testing::Test {
 protected:
  Churn() {
    folder_ = (std::filesystem::temp_directory_path() / "flashmob_churn_XXXXXX").string();
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    DeviceConfig config;
    config.subsystem.namespaces[0] = {.size_bytes = kPages * kPageBytes, .media = "file:" + folder_ + "/image"};
    config.subsystem.spare_capacity_bytes = 2 * kPages * kPageBytes;
    config.controller.max_queue_pairs = 2;
    config.controller.interrupt_vectors = 3;
    config.timing.model = "none";
    config.engine.units = 2;
    config.engine.idle_spin_ns = 20'000;
    config.engine.idle_sleep_ns = 20'000;  // every round waits for both units several times
    device_ = std::make_unique<api::Device>(config, clock_);
    device_->start();
    const driver::Waiter waiter{[] { std::this_thread::yield(); }, [this] { return clock_.now_ns(); }};
    driver_ = std::make_unique<driver::NvmeDriver>(device_->pci(), waiter);
    // A Format's fdatasync() beside a build takes what it takes.
    driver_->least_ready_timeout_ns = driver_->shutdown_timeout_ns = driver_->admin_timeout_ns = 120'000'000'000;
    driver_->enable();
    queue_ = &driver_->create_queue_pair({.sq_entries = 4});
    page_ = std::make_unique<driver::DmaMemory>(device_->pci(), kPageBytes);
    nvme::IdentifyController data;
    driver_->identify(static_cast<std::uint8_t>(nvme::Cns::identify_controller), 0,
                      std::as_writable_bytes(std::span(&data, 1)));
    controllers_.num = 1;
    controllers_.identifier[0] = data.cntlid;
  }
  ~Churn() override {
    driver_->shutdown(false);
    page_.reset();
    driver_.reset();
    device_.reset();
    std::filesystem::remove_all(folder_);
  }

  unsigned admin(AdminOpcode opcode, std::uint32_t nsid, std::uint32_t cdw10, std::span<std::byte> data = {}) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    sqe.cdw10 = cdw10;
    const driver::AdminResult result = driver_->admin(sqe, data, false);
    dw0_ = result.dw0;
    return result.status_field & 0x7FF;
  }
  std::uint32_t create() {
    nvme::IdentifyNamespace data{};
    data.nsze = data.ncap = kPages * kPageBytes / 512;
    EXPECT_EQ(admin(AdminOpcode::namespace_management, 0, 0, std::as_writable_bytes(std::span(&data, 1))), 0u);
    const std::uint32_t nsid = dw0_;
    EXPECT_EQ(admin(AdminOpcode::namespace_attachment, nsid, 0, std::as_writable_bytes(std::span(&controllers_, 1))),
              0u);
    return nsid;
  }
  // One page, by a namespace's blocks.
  unsigned run(NvmOpcode opcode, std::uint32_t nsid, std::uint64_t page, std::uint32_t lba_bytes) {
    nvme::Sqe& sqe = queue_->submit();
    sqe = {};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = nsid;
    sqe.prp1 = page_->iova();
    sqe.cdw10 = static_cast<std::uint32_t>(page * kPageBytes / lba_bytes);
    sqe.cdw12 = static_cast<std::uint32_t>(kPageBytes) / lba_bytes - 1;
    queue_->ring_sq();
    unsigned status = ~0u;
    while (queue_->reap(1, [&](const nvme::Cqe& entry) { status = (entry.status_phase >> 1) & 0x7FF; }) == 0)
      std::this_thread::yield();
    queue_->ring_cq();
    return status;
  }
  void expect_zero_then_fill(std::uint32_t nsid, std::uint64_t page, std::uint32_t lba_bytes) {
    std::memset(page_->data(), 0xEE, kPageBytes);
    ASSERT_EQ(run(NvmOpcode::read, nsid, page, lba_bytes), 0u);
    const std::byte* const data = page_->data();
    ASSERT_TRUE(data[0] == std::byte{0} && std::memcmp(data, data + 1, kPageBytes - 1) == 0) << "namespace " << nsid;
    std::memset(page_->data(), 0xA5, kPageBytes);
    ASSERT_EQ(run(NvmOpcode::write, nsid, page, lba_bytes), 0u);
  }
  void one_round(std::uint64_t round) {
    const std::uint32_t nsid = create();
    expect_zero_then_fill(nsid, round % kPages, 512);
    ASSERT_EQ(admin(AdminOpcode::format_nvm, nsid, 1), 0u);
    expect_zero_then_fill(nsid, round % kPages, 4096);
    ASSERT_EQ(admin(AdminOpcode::namespace_management, nsid, nvme::kNamespaceDelete), 0u);
    // Each change of a namespace on a file is saved and synced, which a disk does not do as often.
    if (round % 100 != 0) return;
    const std::uint32_t format = round / 100 % 2;
    ASSERT_EQ(admin(AdminOpcode::format_nvm, kFileNs, format), 0u);
    expect_zero_then_fill(kFileNs, round % kPages, format == 0 ? 512 : 4096);
  }

  Clock clock_ = Clock::real();
  std::string folder_;
  std::unique_ptr<api::Device> device_;
  std::unique_ptr<driver::NvmeDriver> driver_;
  std::unique_ptr<driver::DmaMemory> page_;
  driver::QueuePair* queue_ = nullptr;
  nvme::ControllerList controllers_{};
  std::uint32_t dw0_ = 0;
};

TEST_F(Churn, CreatingFormattingAndDeletingLeavesNothing) {
  soak::ServerUse before;
  const std::uint64_t count = rounds(), warm = std::min<std::uint64_t>(count / 4, 1000);
  for (std::uint64_t round = 0; round < count; ++round) {
    if (round == warm) before = soak::look_at(::getpid());
    one_round(round);
    if (round % 10'000 == 9'999) std::cout << round + 1 << ": " << text(soak::look_at(::getpid())) << std::endl;
    if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "in round " << round;
  }
  const soak::ServerUse after = soak::look_at(::getpid());
  std::cout << count << " rounds: from " << text(before) << " to " << text(after) << "\n";
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 8);
  EXPECT_LE(after.memory_bytes, before.memory_bytes + (kGrowthMib << 20));
}

}  // namespace
}  // namespace flashmob
