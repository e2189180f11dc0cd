// libFuzzer target: I/O commands of a hostile guest against the NVM command set, over media that can be written
// (memory) and media that cannot (generated), in both block formats.
//
// Input: one byte chooses the namespace and what the controller offers, then commands of 65 bytes each (a control byte
// and a raw submission queue entry) and, behind them, the guest's memory. The control byte may pull the entry's
// addresses and blocks into the legal area, without which almost every command would fail at its first check.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "command_set/nvm.h"
#include "media/media.h"
#include "memory/address_space.h"
#include "memory/data_pointer.h"

namespace {

using namespace flashmob;

constexpr std::uint64_t kMediaBytes = 1 << 20;
constexpr std::uint64_t kGuestIova = 0x100000;
constexpr std::uint64_t kGuestBytes = 128 * 1024;
constexpr std::uint64_t kReadOnlyIova = 0x800000;
constexpr std::uint64_t kReadOnlyBytes = 16 * 1024;
constexpr std::uint64_t kMaxTransferBytes = 32 * 1024;
constexpr std::size_t kMaxCommands = 16;
constexpr std::size_t kCommandBytes = 1 + sizeof(nvme::Sqe);

// Control byte.
constexpr std::uint8_t kLegalOpcode = 0x01;
constexpr std::uint8_t kLegalBlocks = 0x02;
constexpr std::uint8_t kLegalAddresses = 0x04;
constexpr std::uint8_t kAligned = 0x08;
constexpr std::uint8_t kLegalDword12 = 0x10;
constexpr std::uint8_t kFusedWithNext = 0x20;

constexpr std::array kOpcodes{nvme::NvmOpcode::flush,   nvme::NvmOpcode::write,
                              nvme::NvmOpcode::read,    nvme::NvmOpcode::write_uncorrectable,
                              nvme::NvmOpcode::compare, nvme::NvmOpcode::write_zeroes,
                              nvme::NvmOpcode::verify,  nvme::NvmOpcode::dataset_management,
                              nvme::NvmOpcode::copy};

struct Store {
  std::unique_ptr<media::Media> media;
  command_set::Namespace ns;
};

// Everything that outlives one input; only the uncorrectable marks are taken back between inputs.
class Device {
 public:
  Device() {
    space_.map(kGuestIova, kGuestBytes, guest_.data());
    space_.map(kReadOnlyIova, kReadOnlyBytes, read_only_.data(), false);
    std::uint32_t nsid = 1;
    for (const char* spec : {"memory", "generated"}) {
      for (const std::uint8_t lba_shift : {std::uint8_t{9}, std::uint8_t{12}}) {
        Store& store = stores_[nsid - 1];
        store.media = media::open(spec, kMediaBytes, nsid, 7);
        store.ns.blocks = kMediaBytes >> lba_shift;
        store.ns.base = store.media->base();
        store.ns.nsid = nsid++;
        store.ns.lba_shift = lba_shift;
        store.ns.writable = store.media->writable();
        store.ns.command_set = &commands_;
        store.ns.media = store.media.get();
      }
    }
  }

  void run(std::uint8_t choice, std::span<const std::uint8_t> input) {
    Store& store = stores_[choice & 3];
    store.ns.uncorrectable.clear();
    store.ns.unit_shift = choice & 0x04 ? 12 : 9;
    command_set::IoLimits limits;
    limits.max_transfer_bytes = kMaxTransferBytes;
    limits.sgl_supported = (choice & 0x08) == 0;
    limits.volatile_write_cache = (choice & 0x10) == 0;

    const std::size_t count = std::min(kMaxCommands, input.size() / kCommandBytes);
    const auto memory = input.subspan(count * kCommandBytes);
    std::memset(guest_.data(), 0, guest_.size());
    if (!memory.empty()) std::memcpy(guest_.data(), memory.data(), std::min(memory.size(), guest_.size()));

    memory::AddressSpace::Reader reader(space_);
    command_set::ExecContext context{reader, segments_, bounce_, limits};
    reader.enter();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint8_t control = input[i * kCommandBytes];
      const nvme::Sqe sqe = command_at(input, i, store.ns);
      command_set::Transfer transfer{};
      if (command_set::is_read_or_write(sqe.opcode) &&
          command_set::decode_read_write(sqe, store.ns, limits, transfer) == nvme::Status::success)
        FLASHMOB_CHECK(transfer.bytes <= kMaxTransferBytes && transfer.media_offset <= kMediaBytes - transfer.bytes);
      if ((control & kFusedWithNext) != 0 && i + 1 < count) {
        command_set::Outcome first, second;
        commands_.execute_fused(sqe, command_at(input, ++i, store.ns), store.ns, context, first, second);
        check(first, store.ns);
        check(second, store.ns);
        FLASHMOB_CHECK(second.status != nvme::Status::success || first.status == nvme::Status::success);
      } else {
        check(commands_.execute(sqe, store.ns, context), store.ns);
      }
    }
    reader.leave();
    for (const std::byte byte : read_only_) FLASHMOB_CHECK(byte == std::byte{0xA5});
  }

 private:
  static nvme::Sqe command_at(std::span<const std::uint8_t> input, std::size_t index,
                              const command_set::Namespace& ns) {
    const std::uint8_t control = input[index * kCommandBytes];
    nvme::Sqe sqe;
    std::memcpy(&sqe, input.data() + index * kCommandBytes + 1, sizeof(sqe));
    if (control & kLegalOpcode) sqe.opcode = static_cast<std::uint8_t>(kOpcodes[sqe.opcode % kOpcodes.size()]);
    if (control & kLegalDword12) sqe.cdw12 &= 0xC200000F;
    if (control & kLegalBlocks) {
      sqe.cdw10 %= static_cast<std::uint32_t>(ns.blocks + 2);
      sqe.cdw11 = sqe.opcode == static_cast<std::uint8_t>(nvme::NvmOpcode::dataset_management) ? sqe.cdw11 & 7 : 0;
    }
    if (control & kLegalAddresses) {
      const std::uint64_t mask = control & kAligned ? ~std::uint64_t{4095} : ~std::uint64_t{3};
      sqe.prp1 = kGuestIova + (sqe.prp1 % kGuestBytes & mask);
      if ((sqe.flags & nvme::kFlagPsdtMask) == 0) sqe.prp2 = kGuestIova + (sqe.prp2 % kGuestBytes & mask);
    }
    return sqe;
  }

  static void check(const command_set::Outcome& outcome, const command_set::Namespace& ns) {
    using nvme::Status;
    using timing::DemandKind;
    const timing::Demand& demand = outcome.demand;
    if (outcome.status != Status::success && outcome.status != Status::compare_failure) {
      FLASHMOB_CHECK(demand.kind == DemandKind::immediate);
      FLASHMOB_CHECK(outcome.host_read_bytes == 0 && outcome.host_write_bytes == 0);
    }
    if (demand.kind == DemandKind::read || demand.kind == DemandKind::write) {
      FLASHMOB_CHECK(demand.units >= 1);
      FLASHMOB_CHECK(demand.first_unit + demand.units <= kMediaBytes >> ns.unit_shift);
    }
    FLASHMOB_CHECK(ns.writable || (demand.kind != DemandKind::write && outcome.host_write_bytes == 0));
  }

  std::vector<std::byte> guest_ = std::vector<std::byte>(kGuestBytes);
  std::vector<std::byte> read_only_ = std::vector<std::byte>(kReadOnlyBytes, std::byte{0xA5});
  std::vector<std::byte> bounce_ = std::vector<std::byte>(kMaxTransferBytes + 4096);
  memory::AddressSpace space_;
  memory::SegmentList segments_{64};
  command_set::NvmCommandSet commands_;
  std::array<Store, 4> stores_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Device device;
  if (size != 0) device.run(data[0], {data + 1, size - 1});
  return 0;
}
