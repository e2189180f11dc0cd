// Hosts of a key-value namespace at the NVMe/TCP door, on two service units: values of lengths that no block has, and
// stores of one key by two hosts at once.
#include <algorithm>
#include <atomic>
#include <string>

#include "doors/nvme_tcp_fixture.h"
#include "driver/key_value_queue.h"
#include "nvme/status.h"

namespace flashmob::doors {
namespace {

using driver::KeyValueQueue;
using nvme::KvOpcode;

constexpr std::uint64_t kMaxValueBytes = 64 << 10;

DeviceConfig key_value_ssd() {
  DeviceConfig config = small_ssd();
  config.engine.units = 2;
  config.subsystem.namespaces[0].command_set = "kv";
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.subsystem.namespaces[0].kv.max_value_bytes = kMaxValueBytes;
  return config;
}

KeyValueQueue::Command command(KvOpcode opcode, const std::string& key) {
  return {.opcode = opcode, .nsid = 1, .key = std::as_bytes(std::span(key))};
}

std::vector<std::byte> value_of(std::size_t bytes, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> value(bytes);
  for (std::byte& byte : value) byte = static_cast<std::byte>(rng.next());
  return value;
}

nvme::Status status_of(const KeyValueQueue::Answer& answer) { return nvme::status_of(answer.status_field); }

struct KeyHost {
  explicit KeyHost(const Ssd& ssd)
      : device(host_options(ssd)), driver(device, {[] { std::this_thread::yield(); }, Host::now_ns}) {
    driver.enable();
    driver.request_queues(2);
    queue = std::make_unique<KeyValueQueue>(driver, kMaxValueBytes, stopping);
  }

  initiator::NvmeTcpDevice device;
  driver::NvmeDriver driver;
  std::atomic<bool> stopping{false};  // never set
  std::unique_ptr<KeyValueQueue> queue;
};

TEST(NvmeTcpKeys, ValuesOfManyLengths) {
  Ssd ssd({}, key_value_ssd());
  KeyHost host(ssd);
  const std::string key = "a key";
  for (const std::size_t bytes : {0u, 1u, 3u, 511u, 4097u, 8191u, 8193u, 60'001u}) {
    const auto value = value_of(bytes, bytes);
    ASSERT_EQ(status_of(host.queue->send(command(KvOpcode::store, key), value)), nvme::Status::success) << bytes;
    std::vector<std::byte> read(kMaxValueBytes, std::byte{0xEE});
    const auto answer = host.queue->receive(command(KvOpcode::retrieve, key), read);
    ASSERT_EQ(status_of(answer), nvme::Status::success) << bytes;
    ASSERT_EQ(answer.result, bytes);
    EXPECT_TRUE(std::equal(value.begin(), value.end(), read.begin())) << bytes;
    for (std::size_t at = bytes; at < read.size(); ++at) ASSERT_EQ(read[at], std::byte{0}) << "nothing of others'";
    std::vector<std::byte> part(bytes / 2);
    ASSERT_EQ(host.queue->receive(command(KvOpcode::retrieve, key), part).result, bytes);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), value.begin())) << bytes;
  }
  EXPECT_EQ(status_of(host.queue->receive(command(KvOpcode::exist, key), {})), nvme::Status::success);
  EXPECT_EQ(status_of(host.queue->receive(command(KvOpcode::delete_key, key), {})), nvme::Status::success);
  EXPECT_EQ(status_of(host.queue->receive(command(KvOpcode::exist, key), {})), nvme::Status::key_does_not_exist);
  std::vector<std::byte> list(64, std::byte{0xEE});
  EXPECT_EQ(status_of(host.queue->receive(command(KvOpcode::list, ""), list)), nvme::Status::success);
  EXPECT_EQ(list[0], std::byte{0}) << "no keys";
  std::vector<std::byte> again(100);
  EXPECT_EQ(status_of(host.queue->receive(command(KvOpcode::retrieve, key), again)), nvme::Status::key_does_not_exist);
}

TEST(NvmeTcpKeys, AValueOfTwoHostsIsOneOfTheirs) {
  Ssd ssd({}, key_value_ssd());
  KeyHost one(ssd), other(ssd);
  constexpr std::size_t kBytes = 40'000;
  constexpr int kStores = 100;
  const std::string key = "shared";
  std::thread second([&] {
    const std::vector<std::byte> value(kBytes, std::byte{2});
    for (int i = 0; i < kStores; ++i) other.queue->send(command(KvOpcode::store, key), value);
  });
  const std::vector<std::byte> value(kBytes, std::byte{1});
  int torn = 0;
  for (int i = 0; i < kStores; ++i) {
    one.queue->send(command(KvOpcode::store, key), value);
    std::vector<std::byte> read(kBytes);
    one.queue->receive(command(KvOpcode::retrieve, key), read);
    torn += std::any_of(read.begin(), read.end(), [&](std::byte b) { return b != read[0]; });
  }
  second.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace flashmob::doors
