// Keys and values through flashmob::Ssd: what a command answers, and what a reset and a lost command leave.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "flashmob/ssd.h"

namespace flashmob {
namespace {

using Kind = KeyValueRequest::Kind;

DeviceConfig key_value_config() {
  DeviceConfig config;
  config.timing.model = "none";
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  config.subsystem.namespaces[0].command_set = "kv";
  config.subsystem.namespaces[0].kv.max_value_bytes = 64 << 10;
  return config;
}

KeyValueAnswer store(Ssd& ssd, const std::string& key, const std::string& value, bool must_not_exist = false) {
  return ssd.key_value({.kind = Kind::store, .key = key, .value = value, .must_not_exist = must_not_exist});
}

KeyValueAnswer retrieve(Ssd& ssd, const std::string& key, std::uint32_t buffer_bytes = 64 << 10) {
  return ssd.key_value({.kind = Kind::retrieve, .key = key, .buffer_bytes = buffer_bytes});
}

std::uint16_t code(const KeyValueAnswer& answer) { return answer.status_field & 0x7FF; }

TEST(KeyValueApi, WhatIsStoredIsRetrieved) {
  Ssd ssd(key_value_config());
  const std::string value(10'001, 'v');
  EXPECT_EQ(store(ssd, "key", value).status_field, 0);
  EXPECT_EQ(retrieve(ssd, "key").data, value);
  const KeyValueAnswer part = retrieve(ssd, "key", 10);
  EXPECT_EQ(part.data, value.substr(0, 10));
  EXPECT_EQ(part.value_bytes, value.size());
  EXPECT_EQ(code(store(ssd, "key", "", true)), 0x089);
  EXPECT_EQ(code(store(ssd, "", "")), 0x086);
  EXPECT_EQ(ssd.key_value({.kind = Kind::exist, .key = "key"}).status_field, 0);
  const std::string list = ssd.key_value({.kind = Kind::list, .key = {}, .buffer_bytes = 12}).data;
  EXPECT_EQ(list, std::string("\1\0\0\0\3\0key\0\0\0", 12));
  EXPECT_EQ(ssd.key_value({.kind = Kind::delete_key, .key = "key"}).status_field, 0);
  const KeyValueAnswer missing = retrieve(ssd, "key");
  EXPECT_EQ(code(missing), 0x087);
  EXPECT_TRUE(missing.data.empty());
  EXPECT_THROW(store(ssd, "key", std::string((1 << 20) + 1, 'v')), std::length_error);
  EXPECT_THROW(store(ssd, std::string(256, 'k'), ""), std::length_error);
}

TEST(KeyValueApi, ResetsAndLostCommandsLeaveTheKeys) {
  Ssd ssd(key_value_config());
  ASSERT_EQ(store(ssd, "key", "value").status_field, 0);
  ssd.reset();
  EXPECT_EQ(retrieve(ssd, "key").data, "value");
  ssd.set_timeout(200'000'000);
  ssd.set_faults({"lose on=retrieve"});
  EXPECT_THROW(retrieve(ssd, "key"), TimeoutError);
  ssd.set_faults({"error on=read"});
  ssd.set_timeout(10'000'000'000);
  EXPECT_EQ(retrieve(ssd, "key").data, "value");
  ssd.close();
  EXPECT_THROW(retrieve(ssd, "key"), std::runtime_error);
}

// What it waits for never comes, and its time-out is beyond what the test may take.
TEST(KeyValueApi, ResetAndCloseEndACallThatWaits) {
  for (const bool closes : {false, true}) {
    Ssd ssd(key_value_config());
    ssd.set_timeout(3'600'000'000'000);
    ASSERT_EQ(store(ssd, "key", "value").status_field, 0);
    ssd.set_faults({"lose on=retrieve"});
    std::thread caller([&] { EXPECT_THROW(retrieve(ssd, "key"), std::runtime_error); });
    while (ssd.faults().at(0).injected == 0) std::this_thread::yield();
    closes ? ssd.close() : ssd.reset();
    caller.join();
    if (closes) continue;
    ssd.set_faults({});
    EXPECT_EQ(retrieve(ssd, "key").data, "value");
  }
}

// Neither comes what it waits for, nor is the time-out over while the test may run.
TEST(KeyValueApi, ACallThatWaitsCanBeInterrupted) {
  Ssd ssd(key_value_config());
  ssd.set_timeout(3'600'000'000'000);
  ASSERT_EQ(store(ssd, "key", "value").status_field, 0);
  ssd.set_faults({"lose on=retrieve times=1"});
  const KeyValueRequest request{.kind = Kind::retrieve, .key = "key", .buffer_bytes = 64};
  std::atomic<bool> ends = false;
  std::thread first([&] { EXPECT_THROW(ssd.key_value(request, [&] { return ends.load(); }), std::runtime_error); });
  while (ssd.faults().at(0).injected == 0) std::this_thread::yield();
  EXPECT_THROW(ssd.key_value(request, [] { return true; }), std::runtime_error) << "another thread has its turn";
  ends = true;
  first.join();
  EXPECT_EQ(ssd.key_value(request, [] { return false; }).data, "value");
}

TEST(KeyValueApi, LostAdminCommandsKeepNobodyFromClosing) {
  Ssd ssd(key_value_config());
  ssd.set_timeout(3'600'000'000'000);
  ASSERT_EQ(store(ssd, "key", "value").status_field, 0);
  ssd.set_faults({"lose on=admin"});
  ssd.close();
}

}  // namespace
}  // namespace flashmob
