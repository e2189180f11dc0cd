// Memory that runs out at any point of the target's work: the host concerned may lose its connection, and no other
// does.
#include <cstdlib>
#include <new>

#include "nvme/admin_command.h"
#include "transport/nvme_tcp/pdu_test_support.h"

// A sanitizer has operators of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLASHMOB_OWN_NEW 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FLASHMOB_OWN_NEW 0
#endif
#endif
#ifndef FLASHMOB_OWN_NEW
#define FLASHMOB_OWN_NEW 1
#endif

namespace {

// The allocation that fails, counted from now on; negative: none. The engine, which the target asks to forget queues,
// needs a few bytes for that: what is smaller than this is always there.
[[maybe_unused]] constexpr std::size_t kSmallest = 512;
thread_local long to_fail = -1;

}  // namespace

#if FLASHMOB_OWN_NEW
void* operator new(std::size_t bytes) {
  if (bytes >= kSmallest && to_fail >= 0 && to_fail-- == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace flashmob::transport::testing {
namespace {

class Life {
 public:
  explicit Life(Rig& rig) : rig_(rig) {}

  // The life of a host, in which the nth larger allocation fails. False: there were not so many.
  bool run(long nth) {
    to_fail_ = nth;
    const std::string nqn = rig_.subsystem().config().nqn;
    Host admin(rig_);
    Host io(rig_);
    Host discovery(rig_);
    for (Host* const host : {&admin, &io, &discovery}) host->send_pdu(Host::ic_req());
    step();
    const std::uint16_t attach = submit(admin, Host::connect_sqe(0, 64), Host::connect_data(nqn));
    submit(discovery, Host::connect_sqe(0, 32), Host::connect_data(nvme::kDiscoveryNqn));
    for (Host* const host : {&admin, &discovery}) host->submit(enable());
    step();
    const auto cntlid = static_cast<std::uint16_t>(admin.finish(attach, {}).cqe.dw0);
    submit(io, Host::connect_sqe(1, 64), Host::connect_data(nqn, cntlid));
    for (int i = 0; i < 8; ++i) {
      nvme::Sqe log{};
      log.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::get_log_page);
      nvme::encode_get_log_page({.lid = nvme::kLidDiscovery, .numd = 16'383}, log);
      Host::transport_sgl(log, 65'536);
      discovery.submit(log);
      nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, 256);
      Host::transport_sgl(read, 131'072);
      io.submit(read);
      nvme::Sqe write = Host::io(nvme::NvmOpcode::write, 0, 256);
      Host::transport_sgl(write, 131'072);
      io.submit(write);
      step();
    }
    const bool failed = to_fail_ < 0;
    admin.hang_up();
    io.hang_up();
    discovery.hang_up();
    step();
    return failed;
  }

 private:
  static nvme::Sqe enable() {
    nvme::Sqe sqe = nvme::fabrics_sqe(nvme::FabricsType::property_set);
    nvme::encode_property({false, nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4})}, sqe);
    return sqe;
  }
  static std::uint16_t submit(Host& host, nvme::Sqe sqe, const nvme::ConnectData& data) {
    Host::capsule_sgl(sqe, sizeof(data));
    return host.submit(sqe, std::as_bytes(std::span(&data, 1)));
  }
  // Only the target's memory runs out.
  void step() {
    for (int i = 0; i < 8; ++i) {
      to_fail = to_fail_;
      rig_.target().poll();
      to_fail_ = to_fail;
      to_fail = -1;
      for (unsigned actor = 0; actor < rig_.engine().actors(); ++actor) rig_.engine().poll_actor(actor);
      rig_.pass_ns(1000);
    }
  }

  Rig& rig_;
  long to_fail_ = -1;
};

TEST(NvmeTcpAllocation, WhoeverItFailsForIsTheOnlyOneToGo) {
  if (FLASHMOB_OWN_NEW == 0) GTEST_SKIP() << "the sanitizer's operator new does not fail";
  Rig rig;
  Host witness(rig);
  ASSERT_TRUE(witness.initialize());
  ASSERT_EQ(witness.attach(), 1);
  long allocations = 0;
  for (; allocations < 1000; ++allocations) {
    const bool failed = Life(rig).run(allocations);
    rig.pump();
    ASSERT_EQ(witness.command(Host::identify(1)).status(), Status::success) << allocations;
    ASSERT_EQ(rig.controllers(), 1u) << allocations;
    if (!failed) break;
  }
  EXPECT_GE(allocations, 10);
  EXPECT_LT(allocations, 1000);
}

}  // namespace
}  // namespace flashmob::transport::testing
