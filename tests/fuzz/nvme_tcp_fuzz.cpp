// libFuzzer target: a hostile host on the network. The input is a sequence of actions on several connections of one
// target, over socket pairs: PDUs that are right but for what the input changes, raw bytes, pieces of
// PDUs, hang-ups, and time. Nothing may crash or hang, no other host's connection may end, and when every connection
// has gone, so have the controllers and their buffers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "fuzz/input.h"
#include "fuzz/kept_mappings.h"
#include "fuzz/socket_pairs.h"
#include "transport/nvme_tcp/target_test_support.h"

namespace {

using namespace flashmob;
using flashmob::fuzz::Input;
using namespace flashmob::transport;
using namespace flashmob::transport::testing;
using nvme::tcp::PduType;

constexpr std::size_t kConnections = 4;
constexpr int kMaxSteps = 256;

// The input's own bytes, but for what would reset the subsystem: that would end the witness's association, and rightly.
std::vector<std::byte> without_reset(std::vector<std::byte> bytes) {
  if (bytes.empty()) return bytes;
  constexpr std::uint32_t kReset = nvme::kNssrReset;
  const auto* reset = reinterpret_cast<const std::byte*>(&kReset);
  if (auto* const found = static_cast<std::byte*>(memmem(bytes.data(), bytes.size(), reset, sizeof(kReset))))
    *found = std::byte{0};
  return bytes;
}

// Data that says nothing, made once: instrumented code takes longer to make it than the target to serve it.
constexpr std::size_t kMostData = 1 << 20;  // no transfer is larger
std::span<const std::byte> some_data(std::size_t bytes) {
  static const std::vector<std::byte> all = pattern(kMostData, 1);
  return std::span(all).first(std::min(bytes, kMostData));
}

NvmeTcpTargetOptions options(bool authenticated) {
  NvmeTcpTargetOptions o;
  if (authenticated) {
    o.hosts.push_back({.nqn = kHostNqn,
                       .dhchap_secret = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
                       .dhchap_controller_secret = {}});
    o.hosts.push_back({.nqn = "nqn.witness", .dhchap_secret = {}, .dhchap_controller_secret = {}});
  }
  return o;
}

DeviceConfig device() {
  DeviceConfig config = Rig::small_device();
  config.subsystem.namespaces[0].size_bytes = 1 << 20;
  return config;
}

// The engine lives as long as the process; the SSD and its target, which hosts can change for good, are each input's
// own.
std::shared_ptr<RigEngine> shared_engine() {
  static const auto shared = std::make_shared<RigEngine>(device());
  return shared;
}

class Attack {
 public:
  explicit Attack(Input input)
      : input_(input),
        rig_(shared_engine(), options((input_.take<std::uint8_t>() & 1) != 0), device()),
        witness_(rig_) {
    FLASHMOB_CHECK(witness_.initialize().has_value());
    cntlid_ = witness_.attach(0, 0, "nqn.witness");
    FLASHMOB_CHECK(cntlid_ != 0);
  }

  void run() {
    for (int steps = 0; steps < kMaxSteps && !input_.empty(); ++steps) step();
    FLASHMOB_CHECK(witness_.command(Host::identify(1)).status() == nvme::Status::success);
    for (auto& host : hosts_) host.reset();
    rig_.pump();
    FLASHMOB_CHECK(rig_.controllers() == 1);
  }

 private:
  Host& host(std::uint8_t which) {
    auto& held = hosts_[which % kConnections];
    if (!held) held = std::make_unique<Host>(rig_);
    return *held;
  }

  void step() {
    const auto choice = input_.take<std::uint8_t>();
    const std::uint8_t which = choice >> 6;
    switch (choice % 12) {
      case 0: {
        const auto flags = input_.take<std::uint8_t>();
        host(which).initialize({(flags & 1) != 0, (flags & 2) != 0}, flags >> 3);
        break;
      }
      case 1:
        attach(host(which));
        break;
      case 2:
      case 3:
      case 4:
        command(host(which));
        break;
      case 5:
        data(host(which));
        break;
      case 6:
        host(which).send(without_reset(input_.bytes(input_.take<std::uint8_t>())));
        break;
      case 7:
        raw_pdu(host(which));
        break;
      case 8:
        hosts_[which % kConnections].reset();
        break;
      case 9:
        rig_.pass_ns(input_.take<std::uint32_t>());
        rig_.pump();
        break;
      case 10:
        answers(host(which));
        break;
      case 11:
        if ((choice & 0x30) != 0)
          rig_.target().poll();
        else
          rig_.engine().poll_actor(0);
        break;
    }
  }

  void attach(Host& host) {
    const auto how = input_.take<std::uint8_t>();
    auto data = Host::connect_data((how & 0x80) != 0 ? nvme::kDiscoveryNqn : rig_.subsystem().config().nqn,
                                   (how & 7) == 0 ? nvme::kCntlidDynamic : last_cntlid_);
    auto sqe = Host::connect_sqe(how & 7, static_cast<std::uint16_t>(1 + (how & 0x18)), (how & 0x40) != 0 ? 5 : 0,
                                 (how & 0x20) != 0 ? nvme::kConnectAttrNoFlowControl : 0);
    if (input_.take<std::uint8_t>() == 1) {
      const auto at = input_.take<std::uint16_t>() % sizeof(data);
      reinterpret_cast<std::uint8_t*>(&data)[at] = input_.take<std::uint8_t>();
    }
    const Reply reply = host.connect(sqe, data);
    if (reply.status() != nvme::Status::success || (how & 7) != 0) return;
    last_cntlid_ = static_cast<std::uint16_t>(reply.cqe.dw0);
    if ((how & 0x10) != 0) host.enable(true);
  }

  void command(Host& host) {
    auto pdu = fabrics::make_pdu<nvme::tcp::CapsuleCmd>(PduType::capsule_cmd);
    nvme::Sqe& sqe = pdu.sqe;
    const auto shape = input_.take<std::uint8_t>();
    sqe.opcode = (shape & 0x80) != 0 ? nvme::kOpcodeFabrics : input_.take<std::uint8_t>();
    sqe.nsid = input_.take<std::uint8_t>() % 10u;
    sqe.cid = input_.take<std::uint8_t>();
    sqe.cdw10 = input_.take<std::uint16_t>();
    sqe.cdw11 = input_.take<std::uint8_t>();
    sqe.cdw12 = input_.take<std::uint16_t>();
    if ((shape & 0x40) != 0) {
      sqe.cdw10 |= std::uint32_t{input_.take<std::uint16_t>()} << 16;
      sqe.cdw11 = input_.take<std::uint32_t>();
      sqe.cdw13 = input_.take<std::uint32_t>();
    }
    const std::uint32_t bytes = input_.take<std::uint16_t>() * 4u;
    const std::size_t inside = (shape & 0x20) != 0 ? std::min<std::size_t>(bytes, 8200) : 0;
    if ((shape & 0x10) != 0)
      Host::capsule_sgl(sqe, bytes, input_.take<std::uint8_t>() * 4u);
    else
      Host::transport_sgl(sqe, bytes);
    if ((shape & 0x08) != 0) sqe.flags = input_.take<std::uint8_t>();
    if ((shape & 0x04) != 0) sqe.sgl1.identifier = input_.take<std::uint8_t>();
    host.send_pdu(pdu, some_data(inside));
    if ((shape & 0x02) != 0) rig_.pump();
  }

  void data(Host& host) {
    nvme::tcp::R2t r2t{};
    r2t.cccid = input_.take<std::uint8_t>();
    r2t.ttag = input_.take<std::uint8_t>() % 40;
    const std::uint32_t offset = input_.take<std::uint16_t>() * 4u;
    const std::uint32_t bytes = input_.take<std::uint16_t>() * 4u;
    const auto pdu = Host::h2c(r2t, offset, bytes, (input_.take<std::uint8_t>() & 1) != 0);
    // What is more than a transfer's part says no more, and takes long to send.
    host.send_pdu(pdu, some_data(std::min(bytes, 20'000u)));
  }

  // A header of the input's own, in a body of the right length.
  void raw_pdu(Host& host) {
    nvme::tcp::CommonHeader head{};
    head.type = static_cast<PduType>(input_.take<std::uint8_t>() % 12);
    head.flags = input_.take<std::uint8_t>();
    head.hlen = input_.take<std::uint8_t>();
    head.pdo = input_.take<std::uint8_t>();
    head.plen = input_.take<std::uint16_t>();
    auto wire = without_reset(input_.bytes(std::min<std::size_t>(head.plen, 400)));
    wire.resize(std::max<std::size_t>(wire.size(), sizeof(head)));
    std::memcpy(wire.data(), &head, sizeof(head));
    host.send(wire);
  }

  // Reads what came, and gives what is asked for.
  void answers(Host& host) {
    const auto pdu = host.receive();
    if (!pdu || pdu->type != PduType::r2t) return;
    const auto r2t = pdu->as<nvme::tcp::R2t>();
    FLASHMOB_CHECK(r2t.r2tl <= kMostData);
    host.answer(r2t, some_data(r2t.r2tl), 4096u + input_.take<std::uint8_t>() * 1024u);
  }

  Input input_;
  Rig rig_;
  Host witness_;
  std::uint16_t cntlid_ = 0;
  std::uint16_t last_cntlid_ = 0;
  std::array<std::unique_ptr<Host>, kConnections> hosts_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::prefer_small_pages();
  fuzz::keep_mappings();
  fuzz::keep_sockets_here();
  Attack(Input(data, size)).run();
  return 0;
}
