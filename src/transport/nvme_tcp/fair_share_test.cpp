#include "transport/nvme_tcp/fair_share.h"

#include <array>

#include "gtest/gtest.h"

namespace flashmob::transport {
namespace {

using Answer = FairShare::Answer;

// How much the holder gets, one at a time.
unsigned fill(FairShare& share, FairShare::Holder& holder) {
  unsigned got = 0;
  while (share.take(holder, 1) == Answer::given) ++got;
  return got;
}

TEST(FairShare, AFewGreedyAddressesLeaveSomethingForTheNext) {
  FairShare share(1024);
  std::array<FairShare::Holder, 6> addresses;
  unsigned expected = 512;
  for (FairShare::Holder& address : addresses) {
    EXPECT_EQ(fill(share, address), expected);
    expected /= 2;
  }
  FairShare::Holder next;
  EXPECT_EQ(share.take(next, share.free()), Answer::given) << "who holds nothing may have what is there";
  FairShare::Holder late;
  EXPECT_EQ(share.take(late, 1), Answer::exhausted);
  share.give(addresses[0], 512);
  EXPECT_EQ(fill(share, late), 256u);
  EXPECT_EQ(share.take(late, 1), Answer::over_share);
}

TEST(FairShare, HostsOfOneAddressShareWhatItMayHave) {
  FairShare share(900);
  FairShare::Holder address;
  FairShare::Holder first{.address = &address};
  FairShare::Holder second{.address = &address};
  EXPECT_EQ(fill(share, first), 300u);
  EXPECT_EQ(fill(share, second), 100u);
  EXPECT_EQ(address.held, 400u);
  share.give(first, 300);
  EXPECT_GE(fill(share, second), 150u);
  FairShare::Holder elsewhere;
  EXPECT_GE(fill(share, elsewhere), 200u);
}

TEST(FairShare, APortionIsGivenBackOnce) {
  FairShare share(10);
  FairShare::Holder address;
  FairShare::Holder host{.address = &address};
  {
    ASSERT_EQ(share.take(host, 10), Answer::given) << "one piece, however large, where nobody holds anything";
    FairShare::Portion portion(share, host, 10);
    const FairShare::Portion moved(std::move(portion));
    EXPECT_EQ(share.free(), 0u);
  }
  EXPECT_EQ(share.free(), 10u);
  EXPECT_EQ(address.held, 0u);
}

}  // namespace
}  // namespace flashmob::transport
