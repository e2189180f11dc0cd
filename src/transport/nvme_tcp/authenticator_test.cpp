// The thread that authentications are made on, when it stands still: nobody else does, and no host is shut out for what
// we take.
#include "transport/nvme_tcp/authenticator.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fabrics/dhchap.h"
#include "gtest/gtest.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace flashmob::transport::testing {
namespace {

using nvme::Status;

constexpr char kProven[] = "nqn.proven";
constexpr char kProvenSecret[] = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

constexpr std::uint64_t kTimeoutMs = 2000;

NvmeTcpTargetOptions one_with_a_secret() {
  NvmeTcpTargetOptions options;
  options.authentication_timeout_ms = kTimeoutMs;
  options.hosts = {{.nqn = kHostNqn, .dhchap_secret = {}, .dhchap_controller_secret = {}},
                   {.nqn = kProven, .dhchap_secret = kProvenSecret, .dhchap_controller_secret = {}}};
  return options;
}

struct NvmeTcpAuthenticator : ::testing::Test {
  NvmeTcpAuthenticator() { rig.target().authenticate_by(&authenticator); }
  ~NvmeTcpAuthenticator() override {
    rig.target().stop();
    go_on();
  }
  // A host that has completed Connect and has sent its first message: what comes of that, its authenticator decides.
  std::unique_ptr<Host> asking() {
    const std::string nqn = rig.subsystem().config().nqn;
    auto host = std::make_unique<Host>(rig);
    EXPECT_TRUE(host->initialize());
    const auto data = Host::connect_data(nqn, nvme::kCntlidDynamic, kProven);
    EXPECT_EQ(host->connect(Host::connect_sqe(0, 32), data).status(), Status::success);
    fabrics::DhchapHost dhchap({kProven, nqn, fabrics::DhchapSecret(kProvenSecret), std::nullopt});
    dhchap.offer({nvme::AuthHash::sha256}, {nvme::AuthDhGroup::ffdhe2048});
    const fabrics::Bytes message = dhchap.negotiate(1);
    nvme::Sqe send = nvme::fabrics_sqe(nvme::FabricsType::authentication_send);
    nvme::encode_authentication({.length_bytes = static_cast<std::uint32_t>(message.size())}, send);
    Host::capsule_sgl(send, static_cast<std::uint32_t>(message.size()));
    cid = host->submit(send, std::as_bytes(std::span(message)));
    rig.pump();
    return host;
  }
  void go_on() {
    if (!std::exchange(goes_on_, true)) may_go_on_.set_value();
  }

 private:
  std::promise<void> may_go_on_;
  bool goes_on_ = false;

 public:
  // After its first step the thread stands still.
  Authenticator authenticator{[stands = may_go_on_.get_future().share()] { stands.wait(); }};
  Rig rig{one_with_a_secret()};
  std::uint16_t cid = 0;  // of the latest host's message
};

TEST_F(NvmeTcpAuthenticator, OthersAreServedWhileItStandsStill) {
  Host admin(rig), io(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  ASSERT_TRUE(io.initialize());
  ASSERT_EQ(io.attach_io(cntlid).status(), Status::success);
  const auto first = asking(), second = asking();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(io.read(0, 512).status(), Status::success);
  EXPECT_EQ(second->finish(cid, {}).status(), Status{Host::kLost}) << "its step has not been made";
}

TEST_F(NvmeTcpAuthenticator, AHostsTimeIsItsOwn) {
  const auto first = asking(), second = asking();
  ASSERT_EQ(second->finish(cid, {}).status(), Status{Host::kLost});
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kTimeoutMs));
  rig.pump();
  go_on();
  Reply reply;
  reply.cqe.status_phase = Host::kLost << 1;
  for (int looks = 0; looks < 20'000 && reply.status() == Status{Host::kLost}; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reply = second->finish(cid, {});
  }
  ASSERT_EQ(reply.status(), Status::success);
  bool is_closed = false;
  for (int looks = 0; looks < 20'000 && !is_closed; ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    is_closed = second->closed();
  }
  EXPECT_TRUE(is_closed) << "its own is up, too";
}

}  // namespace
}  // namespace flashmob::transport::testing
