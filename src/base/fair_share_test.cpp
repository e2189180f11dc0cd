#include "base/fair_share.h"

#include <gtest/gtest.h>

#include <array>

namespace flashmob {
namespace {

using Answer = FairShare::Answer;

// How much the holder gets, one at a time.
unsigned fill(FairShare& share, FairShare::Holder& holder) {
  unsigned got = 0;
  while (share.take(holder, 1) == Answer::given) ++got;
  return got;
}

TEST(FairShare, TheFirstGreedyAddressesLeaveEachOtherTheirOwnPart) {
  FairShare share(1024);
  std::array<FairShare::Holder, FairShare::kAddresses> addresses;
  EXPECT_EQ(fill(share, addresses[0]), 32 + 384u);
  EXPECT_EQ(fill(share, addresses[1]), 32 + 192u);
  for (FairShare::Holder& address : addresses) {
    fill(share, address);
    EXPECT_GE(address.held, 32u);
  }
  FairShare::Holder late;
  EXPECT_LE(fill(share, late), 3u);
  share.give(addresses[0], 100);
  EXPECT_GE(fill(share, late), 45u) << "who came too late for a part of its own has what is shared";
}

TEST(FairShare, HostsOfOneAddressHaveTheirPartsToo) {
  FairShare share(1024, 4);
  FairShare::Holder address;
  std::array<FairShare::Holder, FairShare::kHosts> hosts;
  for (FairShare::Holder& host : hosts) host.address = &address;
  EXPECT_EQ(fill(share, hosts[0]), 4 + 585u) << "16 parts of 21 of what is shared";
  for (FairShare::Holder& host : hosts) {
    fill(share, host);
    EXPECT_GE(host.held, 4u);
  }
  FairShare::Holder elsewhere;
  EXPECT_GE(fill(share, elsewhere), 100u);
  share.give(hosts[0], 500);
  EXPECT_GE(fill(share, hosts[1]), 250u);
}

TEST(FairShare, WhoWaitsForMuchIsNotOvertakenExceptInWhatIsEverybodysOwn) {
  FairShare share(1024, 1, 512);
  std::array<FairShare::Holder, 3> addresses;
  fill(share, addresses[0]);
  EXPECT_EQ(share.take(addresses[1], 512), Answer::exhausted);
  EXPECT_EQ(share.take(addresses[2], 32, true), Answer::given);
  EXPECT_EQ(share.take(addresses[2], 1, true), Answer::exhausted);
  EXPECT_EQ(share.take(addresses[2], 1), Answer::given);
}

TEST(FairShare, APortionIsGivenBackOnce) {
  FairShare share(128, 1, 128);
  FairShare::Holder address;
  FairShare::Holder host{.address = &address};
  {
    ASSERT_EQ(share.take(host, 128), Answer::given) << "one piece, however large, where nobody holds anything";
    FairShare::Portion portion(share, host, 128);
    const FairShare::Portion moved(std::move(portion));
    EXPECT_EQ(share.free(), 0u);
  }
  EXPECT_EQ(share.free(), 128u);
  EXPECT_EQ(address.held + address.own + host.own, 0u);
}

}  // namespace
}  // namespace flashmob
