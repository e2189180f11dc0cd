// Namespace Write Protection (feature 84h; NVMe Base 2.0c, 8.12): its states, and what it keeps hosts from.
#include <gtest/gtest.h>

#include "controller/controller_test_support.h"
#include "nvme/identify_namespace.h"

namespace flashmob::controller::testing {
namespace {

using nvme::AdminOpcode;
using nvme::Feature;
using nvme::Status;
using State = nvme::WriteProtection;

DeviceOptions device() {
  DeviceOptions options;
  options.subsystem.namespaces = {NamespaceConfig{.size_bytes = 1 << 20}, NamespaceConfig{.size_bytes = 1 << 20},
                                  NamespaceConfig{.size_bytes = 1 << 20, .media = "generated"}};
  options.controllers = 2;
  return options;
}

class WriteProtection : public ::testing::Test {
 protected:
  WriteProtection() : d(device()) {
    d.enable(0);
    d.enable(1);
  }
  Status set(State state, std::uint32_t nsid = 1) {
    return d.set_feature(Feature::namespace_write_protection, static_cast<std::uint32_t>(state), false, nsid).status();
  }
  State get(std::uint32_t nsid = 1) {
    const auto done = d.get_feature(Feature::namespace_write_protection, 0, 0, nsid);
    EXPECT_EQ(done.status(), Status::success);
    return static_cast<State>(done.dw0);
  }
  bool is_writable(std::uint32_t nsid, unsigned i = 0) {
    return command_set::may_write(*d.controller(i).attached(nsid), d.controller(i).io_limits());
  }
  Status format(std::uint32_t nsid, std::uint32_t format = 0) {
    nvme::Sqe sqe = d.command(AdminOpcode::format_nvm, nsid);
    sqe.cdw10 = format;
    return d.run(sqe).status();
  }
  Status remove(std::uint32_t nsid) {
    nvme::Sqe sqe = d.command(AdminOpcode::namespace_management, nsid);
    sqe.cdw10 = nvme::kNamespaceDelete;
    return d.run(sqe).status();
  }
  TestDevice d;
};

TEST_F(WriteProtection, HoldsForAllHostsUntilItIsTakenAway) {
  EXPECT_EQ(get(), State::none);
  EXPECT_EQ(set(State::protect), Status::success);
  EXPECT_EQ(get(), State::protect);
  EXPECT_FALSE(is_writable(1, 0));
  EXPECT_FALSE(is_writable(1, 1));
  EXPECT_TRUE(is_writable(2));
  ASSERT_EQ(d.identify(nvme::Cns::identify_namespace, 1, 0, 0, 1).status(), Status::success);
  EXPECT_EQ(d.data<nvme::IdentifyNamespace>().nsattr, nvme::kNsattrWriteProtected);
  EXPECT_EQ(set(State::none), Status::success);
  EXPECT_TRUE(is_writable(1, 1));
}

TEST_F(WriteProtection, OutlivesAResetOfTheController) {
  EXPECT_EQ(set(State::protect), Status::success);
  d.disable();
  d.enable();
  EXPECT_EQ(get(), State::protect);
  EXPECT_FALSE(is_writable(1));
}

TEST_F(WriteProtection, ProtectsFromFormatAndDeletion) {
  EXPECT_EQ(set(State::protect), Status::success);
  EXPECT_EQ(format(1), Status::namespace_is_write_protected);
  EXPECT_EQ(remove(1), Status::namespace_is_write_protected);
  EXPECT_EQ(remove(nvme::kNsidBroadcast), Status::namespace_is_write_protected);
  EXPECT_NE(d.subsystem.info(2).current, nullptr);
  EXPECT_EQ(format(2), Status::success);
  EXPECT_EQ(set(State::none), Status::success);
  EXPECT_EQ(format(1), Status::success);
}

TEST_F(WriteProtection, CoversBothFormatsOfANamespace) {
  EXPECT_EQ(format(1, 1), Status::success);
  EXPECT_EQ(format(1, 0), Status::success);
  EXPECT_EQ(set(State::protect), Status::success);
  EXPECT_EQ(set(State::none), Status::success);
  EXPECT_EQ(format(1, 1), Status::success);
  EXPECT_TRUE(is_writable(1));
}

TEST_F(WriteProtection, TwoStatesEndWithThePowerAlone) {
  for (const State state : {State::until_power_cycle, State::permanent}) {
    const std::uint32_t nsid = state == State::permanent ? 2 : 1;
    EXPECT_EQ(set(state, nsid), Status::success);
    for (const State other : {State::none, State::protect, State::until_power_cycle, State::permanent})
      EXPECT_EQ(set(other, nsid), other == state ? Status::success : Status::feature_not_changeable);
    EXPECT_EQ(get(nsid), state);
  }
}

TEST_F(WriteProtection, WhatCannotBeWrittenIsPermanent) {
  EXPECT_EQ(get(3), State::permanent);
  EXPECT_EQ(set(State::none, 3), Status::feature_not_changeable);
  EXPECT_EQ(remove(3), Status::success);
}

TEST_F(WriteProtection, AllOrNone) {
  EXPECT_EQ(set(State::protect, nvme::kNsidBroadcast), Status::feature_not_changeable);  // the third cannot change
  EXPECT_EQ(get(1), State::none);
  EXPECT_EQ(remove(3), Status::success);
  EXPECT_EQ(set(State::protect, nvme::kNsidBroadcast), Status::success);
  EXPECT_EQ(get(1), State::protect);
  EXPECT_EQ(get(2), State::protect);
}

TEST_F(WriteProtection, IllegalFields) {
  EXPECT_EQ(set(static_cast<State>(4)), Status::invalid_field);
  EXPECT_EQ(set(State::protect, 0), Status::invalid_namespace_or_format);
  EXPECT_EQ(set(State::protect, 9), Status::invalid_field);
  EXPECT_EQ(d.set_feature(Feature::namespace_write_protection, 1, true, 1).status(), Status::feature_not_saveable);
  constexpr unsigned kDefault = 1;
  EXPECT_EQ(set(State::protect), Status::success);
  EXPECT_EQ(d.get_feature(Feature::namespace_write_protection, kDefault, 0, 1).dw0, 0u);
}

TEST_F(WriteProtection, OtherHostsAreTold) {
  d.start(d.command(AdminOpcode::async_event_request), 7, 1);
  nvme::Sqe wish = d.command(AdminOpcode::set_features);
  wish.cdw10 = static_cast<std::uint32_t>(Feature::async_event_configuration);
  wish.cdw11 = nvme::kAsyncEventNamespaceAttribute;
  ASSERT_EQ(d.run(wish, 1).status(), Status::success);
  EXPECT_EQ(set(State::protect), Status::success);
  d.poll(1);
  EXPECT_EQ(d.host.completions.back().cid, 7);
  ASSERT_EQ(d.log_page(nvme::LogPage::changed_namespace_list, 4096, {}, nvme::kNsidBroadcast, 1).status(),
            Status::success);
  EXPECT_EQ(d.data<nvme::ChangedNamespaceList>().nsid[0], 1u);
}

}  // namespace
}  // namespace flashmob::controller::testing
