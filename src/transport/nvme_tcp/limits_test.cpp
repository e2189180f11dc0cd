// Hosts that hold what others need: buffers, queues' memory, connections; and hosts that stop in the midst of
// something.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <thread>

#include "nvme/admin_command.h"
#include "transport/nvme_tcp/context.h"
#include "transport/nvme_tcp/host_queue.h"
#include "transport/nvme_tcp/pdu_test_support.h"

namespace flashmob::transport::testing {
namespace {

constexpr std::uint32_t kMiB = 1 << 20;

void wait_ms(unsigned ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

nvme::Sqe large_write() {
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, kMiB / 512);
  Host::transport_sgl(sqe, kMiB);
  return sqe;
}

NvmeTcpTargetOptions impatient() {
  NvmeTcpTargetOptions options;
  options.stall_timeout_ms = 40;
  return options;
}

// One more host on the same SSD.
struct Neighbour {
  explicit Neighbour(Rig& rig) : admin(rig), io(rig), second_io(rig) {
    EXPECT_TRUE(admin.initialize());
    const std::uint16_t cntlid = admin.attach(0, 0, "nqn.neighbour");
    EXPECT_NE(cntlid, 0);
    const auto data = Host::connect_data(rig.subsystem().config().nqn, cntlid, "nqn.neighbour");
    for (Host* const queue : {&io, &second_io}) {
      EXPECT_TRUE(queue->initialize());
      const std::uint16_t qid = queue == &io ? 1 : 2;
      EXPECT_EQ(queue->connect(Host::connect_sqe(qid, 32), data).status(), Status::success);
    }
  }
  Host admin;
  Host io;
  Host second_io;
};

TEST(NvmeTcpLimits, AHostThatServesNoR2tLeavesBuffersToOthers) {
  Attached a;  // 16 MiB of buffers
  for (int i = 0; i < 16; ++i) a.io.submit(large_write());
  a.rig.pump();
  Neighbour neighbour(a.rig);
  EXPECT_EQ(neighbour.io.write(0, pattern(kMiB, 1)).status(), Status::success);
  EXPECT_EQ(neighbour.io.read(0, kMiB).data, pattern(kMiB, 1));
}

TEST(NvmeTcpLimits, DataThatDoesNotComeEndsItsConnection) {
  Attached a({}, 0, 0, impatient());
  a.io.submit(large_write());
  a.rig.pump();
  for (int i = 0; i < 4; ++i) {
    wait_ms(20);
    a.io.submit(Host::io(nvme::NvmOpcode::flush, 0, 1));  // other commands are no excuse
    a.rig.pump();
  }
  EXPECT_TRUE(a.io.closed());
  EXPECT_EQ(a.admin.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpLimits, AHostThatHasMuchToReadBeforeIsNotLate) {
  NvmeTcpTargetOptions options;
  options.stall_timeout_ms = 200;
  Attached a({}, 0, 0, options);
  nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, kMiB / 512);
  Host::transport_sgl(read, kMiB);
  for (int i = 0; i < 3; ++i) a.io.submit(read);
  a.rig.pump();
  const std::uint16_t cid = a.io.submit(large_write());
  a.rig.pump();
  for (int i = 0; i < 3; ++i) {
    wait_ms(100);
    std::optional<Pdu> pdu;
    do pdu = a.io.receive();
    while (pdu && pdu->type != PduType::c2h_data);
    ASSERT_TRUE(pdu) << "it takes what it is sent, in its own time";
  }
  wait_ms(20);
  EXPECT_EQ(a.io.finish(cid, pattern(kMiB, 1)).status(), Status::success);
}

TEST(NvmeTcpLimits, HalfAPduEndsItsConnection) {
  Attached a({}, 0, 0, impatient());
  const Wire whole = capsule(4096);
  a.io.send(std::span(whole).first(100));
  a.rig.pump();
  wait_ms(80);
  a.rig.pump();
  EXPECT_TRUE(a.io.closed());
  EXPECT_EQ(a.admin.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpLimits, AnswersThatAreNotTakenEndTheirConnection) {
  Attached a({}, 0, 0, impatient());
  nvme::Sqe read = Host::io(nvme::NvmOpcode::read, 0, kMiB / 512);
  Host::transport_sgl(read, kMiB);
  a.io.submit(read);
  a.io.submit(read);
  for (int i = 0; i < 4; ++i) {
    a.rig.pump();
    wait_ms(30);
  }
  a.rig.pump();
  EXPECT_TRUE(a.io.closed());
  EXPECT_EQ(a.admin.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpLimits, AQuietHostIsNoneOfThose) {
  Attached a({}, 0, 0, impatient());
  EXPECT_EQ(a.io.write(0, pattern(kMiB, 1)).status(), Status::success);
  EXPECT_EQ(a.io.read(0, kMiB).data, pattern(kMiB, 1));
  wait_ms(100);
  EXPECT_EQ(a.io.read(0, kMiB).data, pattern(kMiB, 1));
  EXPECT_EQ(a.admin.command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpLimits, QueuesHaveASharedBudget) {
  NvmeTcpTargetOptions options;
  options.queue_memory_bytes = 32 << 20;
  Rig rig(options);
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  std::vector<std::unique_ptr<Host>> hosts;
  unsigned made = 0;
  for (std::uint16_t qid = 1; qid <= 8; ++qid) {
    hosts.push_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(hosts.back()->initialize());
    const Reply reply = hosts.back()->attach_io(cntlid, qid, 256);  // 2 MiB of buffers each
    if (reply.status() == Status::success) ++made;
    if (reply.status() == Status::success) continue;
    EXPECT_EQ(reply.status(), nvme::kConnectControllerBusy);
    EXPECT_EQ(reply.cqe.status_phase & nvme::with_do_not_retry(Status::success) << 1, 0) << "the host may try again";
  }
  EXPECT_GE(made, 5u);
  EXPECT_LE(made, 7u);
  const Neighbour neighbour(rig);
  hosts.clear();
  rig.pump();
  Host again(rig);
  ASSERT_TRUE(again.initialize());
  EXPECT_EQ(again.attach_io(cntlid, 1, 256).status(), Status::success);
}

// What a host of Linux wants that has been told to take all it can: 128 queues of 1,024 entries.
TEST(NvmeTcpLimits, TwoHostsWithFullQueuesFit) {
  const NvmeTcpTargetOptions options;
  const ControllerConfig controller;
  FairShare memory(options.queue_memory_bytes, TargetContext::kMostQueueMemory);
  const HostQueue::Shape shape{.qid = 1,
                               .slots = 1023,
                               .ring_entries = 1024,
                               .small_bytes = options.in_capsule_bytes,
                               .max_transfer_bytes = controller.max_transfer_bytes};
  FairShare::Holder address;
  std::array<FairShare::Holder, 3> hosts{{{.address = &address}, {.address = &address}, {.address = &address}}};
  for (unsigned host = 0; host < 2; ++host)
    for (unsigned queue = 0; queue < 128; ++queue)
      ASSERT_EQ(memory.take(hosts[host], HostQueue::bytes_of(shape)), FairShare::Answer::given) << host << " " << queue;
  for (unsigned queue = 0; queue < 16; ++queue)
    ASSERT_EQ(memory.take(hosts[2], HostQueue::bytes_of(shape)), FairShare::Answer::given) << queue;
}

// One host has what it can get. Another one does not get in, until the first has been idle.
TEST(NvmeTcpLimits, IdleHostsWithoutKeepAliveGiveTheirMemory) {
  NvmeTcpTargetOptions options;
  options.queue_memory_bytes = 32 << 20;
  options.idle_timeout_ms = 50;
  Rig rig(options);
  std::vector<std::unique_ptr<Host>> idle;
  for (unsigned host = 0; host < 2; ++host) {
    idle.push_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(idle.back()->initialize());
    const std::uint16_t cntlid = idle.back()->attach();
    for (std::uint16_t qid = 1; qid <= 8; ++qid) {
      idle.push_back(std::make_unique<Host>(rig));
      ASSERT_TRUE(idle.back()->initialize());
      idle.back()->attach_io(cntlid, qid, 256);
    }
  }
  Host admin(rig);
  ASSERT_TRUE(admin.initialize());
  const std::uint16_t cntlid = admin.attach();
  ASSERT_NE(cntlid, 0) << "this much is every host's own";
  wait_ms(120);
  EXPECT_EQ(admin.command(Host::identify(1)).status(), Status::success);
  std::vector<std::unique_ptr<Host>> queues;
  for (std::uint16_t qid = 1; qid <= 3; ++qid) {
    queues.push_back(std::make_unique<Host>(rig));
    ASSERT_TRUE(queues.back()->initialize());
    EXPECT_EQ(queues.back()->attach_io(cntlid, qid, 256).status(), Status::success) << qid;
  }
  EXPECT_TRUE(idle[0]->closed());
}

struct Visitor {
  Visitor(const Rig& rig, std::uint32_t from) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(rig.target().port());
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Visitor() { ::close(socket); }
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;
  int socket;
};

TEST(NvmeTcpLimits, WhoComesInWaitsForThoseWhoAreIn) {
  Rig rig;
  std::deque<Visitor> visitors;
  for (int i = 0; i < 40; ++i) visitors.emplace_back(rig, INADDR_LOOPBACK);
  rig.target().poll();
  EXPECT_GE(rig.target().connections(), 1u);
  EXPECT_LE(rig.target().connections(), 8u) << "before the others are looked at again";
  rig.pump();
  EXPECT_EQ(rig.target().connections(), 40u);
}

TEST(NvmeTcpLimits, TheLoopbackIsOneAddress) {
  NvmeTcpTargetOptions options;
  options.max_connections = 16;
  Rig rig(options);
  std::deque<Visitor> visitors;
  for (std::uint32_t i = 0; i < 16; ++i) visitors.emplace_back(rig, INADDR_LOOPBACK + i);
  rig.pump();
  EXPECT_EQ(rig.target().connections(), 8u) << "half of all";
}

struct Crowd {
  explicit Crowd(std::uint32_t kato_ms, bool attached) : rig(options()) {
    for (int i = 0; i < 8; ++i) {
      hosts.push_back(std::make_unique<Host>(rig));
      if (!attached) continue;
      EXPECT_TRUE(hosts.back()->initialize());
      EXPECT_NE(hosts.back()->attach(kato_ms), 0);
    }
    rig.pump();
    wait_ms(30);
  }
  // One address may have half of them.
  static NvmeTcpTargetOptions options() {
    NvmeTcpTargetOptions options;
    options.max_connections = 16;
    options.idle_timeout_ms = 15;
    return options;
  }
  Rig rig;
  std::vector<std::unique_ptr<Host>> hosts;
};

TEST(NvmeTcpLimits, WhoSaysNothingGivesWay) {
  Crowd crowd(0, false);
  Host host(crowd.rig);
  ASSERT_TRUE(host.initialize());
  EXPECT_NE(host.attach(), 0);
  EXPECT_TRUE(crowd.hosts[0]->closed());
  EXPECT_TRUE(crowd.hosts[1]->initialize()) << "the others stay";
}

TEST(NvmeTcpLimits, IdleAssociationsWithoutKeepAliveGiveWay) {
  Crowd crowd(0, true);
  EXPECT_EQ(crowd.hosts[0]->command(Host::identify(1)).status(), Status::success);
  Host host(crowd.rig);
  ASSERT_TRUE(host.initialize());
  EXPECT_NE(host.attach(), 0);
  EXPECT_TRUE(crowd.hosts[1]->closed()) << "it has been idle for longest";
  EXPECT_EQ(crowd.hosts[0]->command(Host::identify(1)).status(), Status::success);
}

TEST(NvmeTcpLimits, AssociationsWithKeepAliveDoNot) {
  Crowd crowd(60'000, true);
  Host host(crowd.rig);
  EXPECT_FALSE(host.initialize());
  EXPECT_TRUE(host.closed());
  for (auto& held : crowd.hosts) EXPECT_EQ(held->command(Host::identify(1)).status(), Status::success);
  crowd.hosts.pop_back();
  crowd.rig.pump();
  Host next(crowd.rig);
  EXPECT_TRUE(next.initialize());
}

// 49 days are no keep alive timer that anybody else could wait for.
TEST(NvmeTcpLimits, AssociationsThatAreHardlyEverHeardOfGiveWay) {
  Crowd crowd(UINT32_MAX, true);
  EXPECT_EQ(crowd.hosts[0]->command(Host::identify(1)).status(), Status::success);
  Host host(crowd.rig);
  ASSERT_TRUE(host.initialize());
  EXPECT_NE(host.attach(), 0);
}

// One host fills buffers with bytes that never become part of the namespace. Another one must never see them. Two units
// serve the queues, so that what the first has formatted is news to the second.
class NvmeTcpCanary : public ::testing::Test {
 protected:
  static DeviceConfig two_units() {
    DeviceConfig config = Rig::small_device();
    config.engine.units = 2;
    return config;
  }
  void leave() {
    const std::vector<std::byte> secret(kMiB, std::byte{0xC5});
    nvme::Sqe sqe = large_write();
    sqe.cdw10 = 0x7FFFFFFF;  // far outside
    for (int i = 0; i < 4; ++i) EXPECT_NE(a.io.command(sqe, secret).status(), Status::success);
    Host::transport_sgl(sqe, 96'000);
    EXPECT_NE(a.io.command(sqe, secret).status(), Status::success);
  }
  void format(std::uint32_t index) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::format_nvm);
    sqe.nsid = 1;
    sqe.cdw10 = index;
    Host::transport_sgl(sqe, 0);
    a.admin.submit(sqe);
  }
  static std::uint16_t ask(Host& queue, std::uint32_t blocks, std::uint32_t bytes) {
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::read, 0, blocks);
    Host::transport_sgl(sqe, bytes);
    return queue.submit(sqe);
  }
  static void expect_nothing(Host& queue, std::uint16_t cid) {
    const Reply reply = queue.finish(cid, {});
    EXPECT_EQ(reply.status(), Status::success);
    EXPECT_EQ(std::search_n(reply.data.begin(), reply.data.end(), 8, std::byte{0xC5}), reply.data.end());
  }
  // Fills buffers of the host that reads with bytes that never become part of the namespace, either.
  void leave_own(Host& queue) {
    const std::vector<std::byte> secret(kMiB, std::byte{0xC5});
    nvme::Sqe sqe = large_write();
    sqe.cdw10 = 0x7FFFFFFF;
    EXPECT_NE(queue.command(sqe, secret).status(), Status::success);
  }
  static void expect_nothing(Host& queue, std::uint32_t blocks, std::uint32_t bytes) {
    expect_nothing(queue, ask(queue, blocks, bytes));
  }

  Rig rig{{}, two_units()};
  Neighbour a{rig};
  Neighbour b{rig};
};

TEST_F(NvmeTcpCanary, AReadAcrossAFormat) {
  for (int round = 0; round < 4; ++round) {
    format(1);  // 4,096 bytes
    rig.pump();
    leave();
    // The target takes both commands before the engine sees either.
    format(0);
    const std::uint16_t cid = ask(b.second_io, kMiB / 4096, kMiB);
    for (int i = 0; i < 3; ++i) rig.target().poll();
    for (int i = 0; i < 8; ++i) rig.engine().poll_actor(0);
    rig.pump();
    const Reply reply = b.second_io.finish(cid, {});
    EXPECT_EQ(std::search_n(reply.data.begin(), reply.data.end(), 8, std::byte{0xC5}), reply.data.end());
    EXPECT_EQ(reply.status(), Status::format_in_progress);
  }
}

// The buffer was made for blocks of 4,096 bytes, and the command found some of 512: what it did not fill is nothing
// that the namespace ever held.
TEST_F(NvmeTcpCanary, AReadAcrossAFormatShowsNothingOfItsOwnHostEither) {
  for (int round = 0; round < 4; ++round) {
    format(1);
    rig.pump();
    leave_own(b.second_io);
    format(0);
    const std::uint16_t cid = ask(b.second_io, kMiB / 4096, kMiB);
    for (int i = 0; i < 3; ++i) rig.target().poll();
    for (int i = 0; i < 8; ++i) rig.engine().poll_actor(0);
    rig.pump();
    const Reply reply = b.second_io.finish(cid, {});
    EXPECT_EQ(std::search_n(reply.data.begin(), reply.data.end(), 8, std::byte{0xC5}), reply.data.end());
    EXPECT_EQ(reply.status(), Status::format_in_progress) << "how much was filled is not known";
    EXPECT_EQ(b.second_io.read(0, 4096).status(), Status::success);
  }
}

// Its data was asked for while blocks had 4,096 bytes, and comes when they have 512: all of it or nothing, and never a
// part of it with Success.
TEST_F(NvmeTcpCanary, AWriteAcrossAFormatIsRefused) {
  for (const bool large : {false, true}) {
    const std::vector<std::byte> sent(large ? kMiB : 8192, std::byte{0x41});
    format(1);
    rig.pump();
    nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, static_cast<std::uint32_t>(sent.size() / 4096));
    Host::transport_sgl(sqe, static_cast<std::uint32_t>(sent.size()));
    const std::uint16_t cid = b.second_io.submit(sqe);
    rig.pump();
    format(0);
    rig.pump();
    EXPECT_EQ(b.second_io.finish(cid, sent).status(), Status::format_in_progress);
    const Reply reply = b.second_io.read(0, 8192);
    ASSERT_EQ(reply.status(), Status::success);
    EXPECT_EQ(std::count(reply.data.begin(), reply.data.end(), std::byte{0x41}), 0) << "nothing of it was written";
    EXPECT_EQ(b.second_io.write(0, sent).status(), Status::success) << "the host may ask again";
  }
}

// The target has all of a Write, in its capsule, before the engine sees the Format that comes first.
TEST_F(NvmeTcpCanary, AWriteThatAFormatOvertakesIsNoSuccess) {
  const std::vector<std::byte> data(8192, std::byte{0x41});
  format(1);
  rig.pump();
  format(0);
  nvme::Sqe sqe = Host::io(nvme::NvmOpcode::write, 0, 2);
  Host::capsule_sgl(sqe, 8192);
  const std::uint16_t cid = b.second_io.submit(sqe, data);
  for (int i = 0; i < 3; ++i) rig.target().poll();
  for (int i = 0; i < 8; ++i) rig.engine().poll_actor(0);
  rig.pump();
  EXPECT_EQ(b.second_io.finish(cid, {}).status(), Status::format_in_progress);
}

TEST_F(NvmeTcpCanary, SizesErrorsAndResets) {
  for (const std::uint32_t bytes : {12'288u, 65'536u, 66'048u, 300'032u, kMiB}) {
    leave();
    expect_nothing(b.io, bytes / 512, bytes);
    leave();
    expect_nothing(b.io, 1, bytes);  // a buffer longer than the command
    leave();
    b.io.write(0, pattern(bytes, 0));
    expect_nothing(b.io, 1, bytes);
  }
  // A reset of the first host's controller gives buffers back whose data came in part only.
  a.io.submit(large_write());
  rig.pump();
  EXPECT_EQ(a.admin.enable(false).status(), Status::success);
  expect_nothing(b.io, 1, kMiB);
}

}  // namespace
}  // namespace flashmob::transport::testing
