// libFuzzer target: a hostile host at the control plane. The input is a sequence of register writes, admin commands
// with guest memory behind them, engine answers that come late or never, events and time. Nothing may crash, no command
// may complete twice, and what CSTS says must agree with the state the controller is in.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "controller/controller_test_support.h"
#include "fuzz/input.h"

namespace {

using namespace flashmob;
using flashmob::fuzz::Input;
using namespace flashmob::controller;
using namespace flashmob::controller::testing;

constexpr std::uint64_t kFuzzGuestBytes = 64 * kPage;
constexpr std::uint32_t kRegisters[] = {nvme::kRegCap, nvme::kRegVs,   nvme::kRegIntms,     nvme::kRegIntmc,
                                        nvme::kRegCc,  nvme::kRegCsts, nvme::kRegNssr,      nvme::kRegAqa,
                                        nvme::kRegAsq, nvme::kRegAcq,  nvme::kRegDoorbells, nvme::kRegCrto};
constexpr std::uint8_t kOpcodes[] = {0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09,
                                     0x0A, 0x0C, 0x0D, 0x15, 0x18, 0x7C, 0x80, 0xFF};

class Attack {
 public:
  explicit Attack(Input input)
      : input_(input),
        guest_(kFuzzGuestBytes),
        subsystem_(subsystem_config(), 1, 512),
        first_(subsystem_, controller_config(), host_),
        second_(subsystem_, controller_config(), host_) {
    for (Controller* c : {&first_, &second_}) c->address_space().map(kGuestBase, kFuzzGuestBytes, guest_.data());
    enable(first_);
  }

  void run() {
    while (!input_.empty()) {
      step();
      check();
    }
    // Whatever happened, a reset brings the controller back.
    host_.hold = false;
    host_.reply_all();
    for (Controller* c : {&first_, &second_}) {
      c->write_register(nvme::kRegCc, 4, TestDevice::cc({.en = true}));
      c->write_register(nvme::kRegCc, 4, TestDevice::cc());
      c->poll(now_ns_);
      c->poll(now_ns_);
      FLASHMOB_CHECK(c->state() == ControllerState::disabled);
      enable(*c);
      FLASHMOB_CHECK(c->state() == ControllerState::ready);
    }
  }

 private:
  static SubsystemConfig subsystem_config() {
    SubsystemConfig config;
    config.namespaces = {NamespaceConfig{.size_bytes = 64 << 10},
                         NamespaceConfig{.size_bytes = 64 << 10, .media = "generated", .shared = false}};
    config.spare_capacity_bytes = 256 << 10;
    return config;
  }
  static ControllerConfig controller_config() {
    ControllerConfig config;
    config.max_queue_pairs = 4;
    config.max_queue_entries = 64;
    config.interrupt_vectors = 5;
    config.max_transfer_bytes = 64 << 10;
    config.abort_limit = 2;
    config.async_event_limit = 3;
    return config;
  }

  void enable(Controller& c) {
    c.write_register(nvme::kRegAqa, 4, nvme::encode_aqa({.asqs = 31, .acqs = 31}));
    c.write_register(nvme::kRegAsq, 8, kGuestBase);
    c.write_register(nvme::kRegAcq, 8, kGuestBase + kPage);
    c.write_register(nvme::kRegCc, 4, TestDevice::cc({.en = true}));
    c.poll(now_ns_);
  }

  void step() {
    const auto choice = input_.take<std::uint8_t>();
    Controller& c = (choice & 0x80) != 0 ? second_ : first_;
    switch (choice % 10) {
      case 0: {
        const auto which = input_.take<std::uint8_t>();
        const std::uint32_t offset =
            which < 192 ? kRegisters[which % std::size(kRegisters)] + which / 64 * 4 : input_.take<std::uint16_t>();
        c.write_register(offset, which % 3 == 0 ? 8 : 4, input_.take<std::uint64_t>());
        c.read_register(offset, which % 2 == 0 ? 8 : 4);
        break;
      }
      case 1:
      case 2:
      case 3:
        command(c);
        break;
      case 4: {
        const std::uint64_t offset = input_.take<std::uint16_t>() % (kFuzzGuestBytes - 256);
        input_.copy(guest_.data() + offset, input_.take<std::uint8_t>());
        break;
      }
      case 5:
        now_ns_ += input_.take<std::uint32_t>() * 1000ull;
        c.poll(now_ns_);
        break;
      case 6:
        if (!host_.held.empty()) host_.reply();
        break;
      case 7:
        host_.hold = (choice & 0x40) != 0;
        host_.abort_finds = (choice & 0x20) != 0;
        break;
      case 8:
        c.raise_error_event(static_cast<nvme::AsyncErrorInfo>(input_.take<std::uint8_t>() % 5));
        c.record_error(1, 2, nvme::Status::write_fault, input_.take<std::uint8_t>(), 3);
        break;
      case 9:
        enable(c);
        break;
    }
  }

  void command(Controller& c) {
    nvme::Sqe sqe{};
    const auto shape = input_.take<std::uint8_t>();
    sqe.opcode = (shape & 0x80) != 0 ? input_.take<std::uint8_t>() : kOpcodes[shape % std::size(kOpcodes)];
    if ((shape & 0x40) != 0) sqe.flags = input_.take<std::uint8_t>();
    sqe.cid = ++cid_;
    sqe.nsid = (shape & 0x20) != 0 ? input_.take<std::uint32_t>() : input_.take<std::uint8_t>() % 4u;
    sqe.prp1 = pointer();
    sqe.prp2 = pointer();
    sqe.cdw10 = input_.take<std::uint32_t>();
    sqe.cdw11 = input_.take<std::uint32_t>();
    if ((shape & 0x10) != 0) {
      sqe.cdw12 = input_.take<std::uint32_t>();
      sqe.cdw13 = input_.take<std::uint32_t>();
      sqe.cdw14 = input_.take<std::uint32_t>();
    }
    if (c.state() == ControllerState::ready) ++executed_;
    c.execute_admin(sqe, now_ns_);
  }

  // Mostly a page of guest memory, sometimes anything at all.
  std::uint64_t pointer() {
    const auto value = input_.take<std::uint16_t>();
    if (value >= 0xF000) return input_.take<std::uint64_t>();
    return kGuestBase + value % 64 * kPage + (value >= 0xE000 ? value % 1024 * 4u : 0);
  }

  void check() {
    FLASHMOB_CHECK(host_.completions.size() <= executed_);
    for (; checked_ < host_.completions.size(); ++checked_) {
      const std::uint16_t field = host_.completions[checked_].status_field;
      FLASHMOB_CHECK(field == 0 || (field & nvme::kStatusMore) != 0);
    }
    for (const Controller* c : {&first_, &second_}) {
      const nvme::Csts csts = nvme::decode_csts(static_cast<std::uint32_t>(c->read_register(nvme::kRegCsts, 4)));
      const ControllerState state = c->state();
      FLASHMOB_CHECK(csts.cfs == (state == ControllerState::fatal) || state == ControllerState::disabling);
      if (state == ControllerState::ready) FLASHMOB_CHECK(csts.rdy);
      if (state == ControllerState::disabled || state == ControllerState::enabling) FLASHMOB_CHECK(!csts.rdy);
    }
  }

  Input input_;
  memory::HostMemory guest_;
  FakeHost host_;
  Subsystem subsystem_;
  Controller first_;
  Controller second_;
  std::uint64_t now_ns_ = 1;
  std::uint64_t executed_ = 0;
  std::size_t checked_ = 0;
  std::uint16_t cid_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Attack(Input(data, size)).run();
  return 0;
}
