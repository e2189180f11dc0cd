// Parts of a served SSD that are lent: who may have which at once, and who gets in.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "driver/nvme_driver.h"
#include "flashmob/error.h"
#include "flashmob/server.h"
#include "initiator/vfio_user/vfio_user_device.h"

namespace flashmob {
namespace {

constexpr std::uint64_t kLeaseMiB = 1 << 20;

DeviceConfig lending_device() {
  DeviceConfig config;
  config.subsystem.namespaces[0].size_bytes = 8 * kLeaseMiB;
  config.controller.max_queue_pairs = 8;
  config.timing.model = "none";
  config.engine.idle_spin_ns = 0;
  return config;
}

driver::Waiter lessee_waiter() {
  return {[] { std::this_thread::yield(); }, [clock = Clock::real()] { return clock.now_ns(); }};
}

class LendingTest : public ::testing::Test {
 protected:
  LendingTest() : folder_(make_folder()) {
    options_.lends = true;
    server_.emplace(lending_device(), options_);
    server_->start();
  }
  ~LendingTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  LeaseOptions part(const std::string& name, std::uint64_t first_byte, std::uint64_t size_bytes) const {
    LeaseOptions lease;
    lease.name = name;
    lease.vfio_user_path = folder_ / name / "cntrl";
    lease.nqn = "nqn.2014-08.org.nvmexpress:" + name;
    lease.serial = name;
    lease.first_byte = first_byte;
    lease.size_bytes = size_bytes;
    lease.uid = geteuid();
    return lease;
  }
  Server& server() { return *server_; }
  LeaseStats stats(const std::string& name) {
    for (const LeaseStats& one : server_->leases())
      if (one.name == name) return one;
    return {};
  }

 private:
  static std::filesystem::path make_folder() {
    std::string path = std::filesystem::temp_directory_path() / "lease-XXXXXX";
    return mkdtemp(path.data());
  }

  std::filesystem::path folder_;
  ServerOptions options_;
  std::optional<Server> server_;
};

TEST_F(LendingTest, PartsThatMayBeWrittenDoNotMeet) {
  server().open_lease(part("a", 2 * kLeaseMiB, 2 * kLeaseMiB));
  EXPECT_THROW(server().open_lease(part("a", 6 * kLeaseMiB, kLeaseMiB)), ConfigError) << "there is one of that name";
  for (const std::uint64_t first : {kLeaseMiB, 2 * kLeaseMiB, 3 * kLeaseMiB}) {
    LeaseOptions reader = part("b", first, 2 * kLeaseMiB);
    EXPECT_THROW(server().open_lease(reader), ConfigError) << first;
    reader.is_read_only = true;
    EXPECT_THROW(server().open_lease(reader), ConfigError) << first;
  }
  server().open_lease(part("b", 0, 2 * kLeaseMiB));
  server().open_lease(part("c", 4 * kLeaseMiB, 0));
  EXPECT_EQ(stats("c").size_bytes, 4 * kLeaseMiB) << "to the end";
  server().close_lease("a");
  LeaseOptions reader = part("r", 2 * kLeaseMiB, 2 * kLeaseMiB), another = part("s", 3 * kLeaseMiB, kLeaseMiB);
  reader.is_read_only = another.is_read_only = true;
  server().open_lease(reader);
  server().open_lease(another);
  EXPECT_THROW(server().open_lease(part("w", 3 * kLeaseMiB, kLeaseMiB)), ConfigError);
  EXPECT_EQ(server().leases().size(), 4u);
  EXPECT_EQ(server().stats().leases.size(), 4u);
}

TEST_F(LendingTest, WhatCannotBeLentIsAConfigurationMistake) {
  LeaseOptions beyond = part("a", 7 * kLeaseMiB, 2 * kLeaseMiB), odd = part("a", 100, kLeaseMiB),
               elsewhere = part("a", 0, kLeaseMiB);
  LeaseOptions none = part("a", 0, kLeaseMiB), many = part("a", 0, kLeaseMiB), fast = part("a", 0, kLeaseMiB);
  elsewhere.nsid = 2;
  none.queue_pairs = 0;
  many.queue_pairs = 9;
  fast.max_commands_per_s = UINT64_MAX;
  for (const LeaseOptions& wrong : {beyond, odd, elsewhere, none, many, fast})
    EXPECT_THROW(server().open_lease(wrong), ConfigError);
  EXPECT_TRUE(server().leases().empty());
  server().close_lease("nobody's");
  server().open_lease(part("a", 0, kLeaseMiB));
}

TEST_F(LendingTest, OnlyAnSsdThatLendsHasLeasesAndItHasNoOtherDoors) {
  ServerOptions door;
  door.tcp_address = "127.0.0.1:0";
  Server served(lending_device(), door);
  served.start();
  EXPECT_THROW(served.open_lease(part("a", 0, kLeaseMiB)), ConfigError);
  door.lends = true;
  EXPECT_THROW(Server(lending_device(), door), ConfigError);
  server().stop();
  EXPECT_THROW(server().open_lease(part("a", 0, kLeaseMiB)), ConfigError);
}

TEST_F(LendingTest, AConsumerHasTheQueuesOfItsLeaseAndLeavesRoomForTheNext) {
  LeaseOptions lease = part("a", 0, kLeaseMiB);
  lease.queue_pairs = 2;
  server().open_lease(lease);
  for (int i = 0; i < 3; ++i) {
    initiator::VfioUserDevice device(lease.vfio_user_path);
    driver::NvmeDriver driver(device, lessee_waiter());
    driver.enable();
    EXPECT_EQ(driver.request_queues(8), 2u);
    EXPECT_TRUE(stats("a").is_attached);
    EXPECT_THROW(initiator::VfioUserDevice(lease.vfio_user_path), std::exception) << "one at a time";
  }
  EXPECT_EQ(stats("a").attached_ever, 3u);
  EXPECT_EQ(stats("a").refused, 3u);
}

TEST_F(LendingTest, AnotherUserIsTurnedAway) {
  LeaseOptions lease = part("a", 0, kLeaseMiB);
  lease.uid = geteuid() + 1;
  server().open_lease(lease);
  EXPECT_THROW(initiator::VfioUserDevice(lease.vfio_user_path), std::exception);
  EXPECT_EQ(stats("a").attached_ever, 0u);
}

TEST_F(LendingTest, ALeaseThatEndsDisconnectsItsConsumer) {
  const LeaseOptions lease = part("a", 0, kLeaseMiB);
  server().open_lease(lease);
  initiator::VfioUserDevice device(lease.vfio_user_path);
  driver::NvmeDriver driver(device, lessee_waiter());
  driver.enable();
  server().close_lease("a");
  EXPECT_FALSE(std::filesystem::exists(lease.vfio_user_path));
  EXPECT_TRUE(server().stats().hosts.empty());
  std::vector<std::byte> page(4096);
  EXPECT_THROW(driver.identify(1, 0, page), std::exception);
  server().open_lease(part("b", 0, kLeaseMiB));
}

}  // namespace
}  // namespace flashmob
