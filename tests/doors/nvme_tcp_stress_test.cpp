// Hosts that come, go, reset and fall silent without end, several at once and under load, while somebody watches the
// SSD. Whoever connects must be served within the initiator's timeout, whatever the others do. A few seconds unless
// FLASHMOB_STRESS_SECONDS says otherwise.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string>

#include "doors/nvme_tcp_load.h"
#include "fabrics/pdu.h"
#include "initiator/nvme_tcp/fabrics_channel.h"
#include "nvme/registers.h"
#include "nvme/tcp.h"

namespace flashmob::doors {
namespace {

// The judge of a hang: no connection and no register may take longer. Sanitizers and shared cores are slow.
constexpr std::uint32_t kPatienceMs = 20'000;

std::uint64_t stress_ns() {
  const char* const seconds = std::getenv("FLASHMOB_STRESS_SECONDS");
  return seconds == nullptr ? 1'500'000'000 : std::strtoull(seconds, nullptr, 10) * 1'000'000'000;
}

struct Tally {
  std::atomic<std::uint64_t> connects{0};
  std::atomic<std::uint64_t> resets{0};
  std::atomic<std::uint64_t> vanished{0};
  std::atomic<std::uint64_t> half_open{0};
  std::atomic<std::uint64_t> silent{0};
  std::atomic<std::uint64_t> looks{0};
  std::atomic<std::uint64_t> counted{0};  // reads, by each look anew
};

// One host after another in the same seat: load, then a reset, a deleted queue, a goodbye, or none.
void sit(Ssd& ssd, unsigned seat, unsigned seats, std::uint64_t until_ns, Tally& tally) {
  Rng rng(splitmix64(seat + 17));
  while (Host::now_ns() < until_ns && !testing::Test::HasFailure()) {
    initiator::NvmeTcpOptions options = host_options(ssd);
    options.host_nqn = "nqn.2014-08.org.nvmexpress:seat-" + std::to_string(seat);
    options.header_digest = rng.below(2) == 0;
    options.data_digest = rng.below(4) == 0;
    options.timeout_ms = kPatienceMs;
    try {
      Host host(options, 1 + static_cast<unsigned>(rng.below(3)), 8);
      ++tally.connects;
      Load load(host, rng.next(), seat, seats);
      for (std::uint64_t turns = rng.below(6); turns != 0 && Host::now_ns() < until_ns; --turns) {
        EXPECT_TRUE(load.run(20 + static_cast<unsigned>(rng.below(60)))) << host.device.failure();
        load.refill();
        host.ring();
        host.bring_up();
        ++tally.resets;
        load.forget();
      }
      EXPECT_TRUE(load.check_all()) << host.device.failure();
      load.refill();
      host.ring();
      if (rng.below(3) == 0) {
        EXPECT_TRUE(host.drain());
        host.driver.delete_queue_pair(*host.pairs[0]);
        host.driver.shutdown(false);
      } else {
        ++tally.vanished;  // with commands in flight
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seat " << seat << ": " << error.what();
    }
  }
}

// Connections that never become a queue: nothing sent, half an ICReq, an ICReq and nothing after it.
void loiter(Ssd& ssd, std::uint64_t until_ns, Tally& tally) {
  Rng rng(99);
  std::array<std::byte, fabrics::kMaxWireHeaderBytes> bytes;
  const auto request = fabrics::make_pdu<nvme::tcp::IcReq>(nvme::tcp::PduType::ic_req);
  const std::size_t length = fabrics::write_header(bytes.data(), request, 0, {});
  std::vector<int> sockets;
  while (Host::now_ns() < until_ns && !testing::Test::HasFailure()) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(ssd.target->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::send(fd, bytes.data(), rng.below(length + 1), MSG_NOSIGNAL);
    sockets.push_back(fd);
    ++tally.half_open;
    if (sockets.size() > 20) {
      for (const int each : sockets) {
        // Now and then the end is a reset, not a goodbye.
        const linger now{.l_onoff = 1, .l_linger = 0};
        if (rng.below(2) == 0) ::setsockopt(each, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        ::close(each);
      }
      sockets.clear();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const int each : sockets) ::close(each);
}

// Hosts that enable a controller and then fall silent, until its keep alive timer has run out and it ends them.
void fall_silent(Ssd& ssd, std::uint64_t until_ns, Tally& tally) {
  initiator::NvmeTcpOptions options = initiator::completed(host_options(ssd));
  options.timeout_ms = kPatienceMs;
  while (Host::now_ns() < until_ns && !testing::Test::HasFailure()) {
    try {
      initiator::FabricsChannel channel(options);
      channel.connect({.qid = 0, .sqsize = 31, .cattr = 0, .kato_ms = 100}, options.subsystem_nqn,
                      nvme::kCntlidDynamic);
      channel.set_property(nvme::kRegCc, nvme::encode_cc({.en = true, .iosqes = 6, .iocqes = 4}));
      while (!nvme::decode_csts(static_cast<std::uint32_t>(channel.property(nvme::kRegCsts, false))).rdy)
        std::this_thread::yield();
      ++tally.silent;
      std::byte none;
      const int fd = channel.release().socket();
      pollfd end{fd, POLLIN, 0};
      EXPECT_EQ(::poll(&end, 1, kPatienceMs), 1) << "the target does not end a host that is silent";
      EXPECT_LE(::recv(fd, &none, 1, MSG_DONTWAIT), 0);
      ::close(fd);
    } catch (const std::exception& error) {
      // Its 100 ms may pass before it has said all that it wants to say.
      EXPECT_NE(std::string(error.what()).find("closed"), std::string::npos) << error.what();
    }
  }
}

// What `flashmob serve` does beside: it reads every controller's counters, and parks the engine to read
// statistics.
void watch(Ssd& ssd, std::uint64_t until_ns, Tally& tally) {
  while (Host::now_ns() < until_ns && !testing::Test::HasFailure()) {
    {
      const std::lock_guard lock(ssd.subsystem.mutex());
      for (controller::Controller* const one : ssd.subsystem.controllers())
        tally.counted += one->counters().read_commands;
    }
    ssd.engine.set_phase(tally.looks % 2 == 0 ? engine::kMeasured : engine::kWarmUp);
    ++tally.looks;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void stress(Ssd& ssd, unsigned seats) {
  Tally tally;
  const std::uint64_t until_ns = Host::now_ns() + stress_ns();
  std::vector<std::thread> threads;
  for (unsigned seat = 0; seat < seats; ++seat)
    threads.emplace_back([&, seat] { sit(ssd, seat, seats, until_ns, tally); });
  threads.emplace_back([&] { loiter(ssd, until_ns, tally); });
  threads.emplace_back([&] { fall_silent(ssd, until_ns, tally); });
  threads.emplace_back([&] { watch(ssd, until_ns, tally); });
  for (std::thread& thread : threads) thread.join();
  std::cout << tally.connects << " hosts, " << tally.resets << " resets under load, " << tally.vanished
            << " vanished under load, " << tally.half_open << " half-open connections, " << tally.silent
            << " silent hosts, " << tally.looks << " looks\n";
  // Nothing of them is left: no connection, no controller.
  const std::uint64_t patience_ns = Host::now_ns() + 15'000'000'000;
  const auto controllers = [&] {
    const std::lock_guard lock(ssd.subsystem.mutex());
    return ssd.subsystem.controllers().size();
  };
  while ((ssd.target->connections() != 0 || controllers() != 0) && Host::now_ns() < patience_ns)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(ssd.target->connections(), 0u);
  EXPECT_EQ(controllers(), 0u);
  Host last(host_options(ssd), 1, 2);
  EXPECT_EQ(last.run(nvme::NvmOpcode::read, 0, 4096), 0);
}

TEST(NvmeTcpStress, HostsComeAndGoWithoutEnd) {
  Ssd ssd;
  stress(ssd, 3);
}

TEST(NvmeTcpStress, HostsComeAndGoWithoutEndOnTwoUnits) {
  DeviceConfig config = small_ssd();
  config.engine.units = 2;
  config.engine.workers = 1;
  config.timing.model = "simple";
  config.engine.idle_spin_ns = 0;
  Ssd ssd({}, config);
  stress(ssd, 3);
}

}  // namespace
}  // namespace flashmob::doors
