// libFuzzer target: commands of a hostile guest against the Key Value command set, held against a map of what it has
// stored. The namespace is small, so that it is full most of the time.
//
// Input: one byte chooses what the controller offers, then commands of 65 bytes each (a control byte and a raw
// submission queue entry) and, behind them, the guest's memory. The control byte may make a key short and of few
// letters, a length one that fits, and pull addresses into the guest's memory, without which few commands would meet.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "command_set/kv.h"
#include "media/media.h"
#include "memory/address_space.h"
#include "memory/data_pointer.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace {

using namespace flashmob;
using nvme::KvOpcode;
using nvme::Status;

constexpr std::uint32_t kGranuleBytes = 64, kGranules = 48, kMaxValueBytes = 1024, kMaxKeys = 24;
constexpr std::uint64_t kGuestIova = 0x100000;
constexpr std::uint64_t kGuestBytes = 16 * 1024;
constexpr std::uint64_t kMaxTransferBytes = 4096;
constexpr std::size_t kMaxCommands = 32;
constexpr std::size_t kCommandBytes = 1 + sizeof(nvme::Sqe);

// Control byte.
constexpr std::uint8_t kLegalOpcode = 0x01;
constexpr std::uint8_t kFewKeys = 0x02;
constexpr std::uint8_t kLegalLength = 0x04;
constexpr std::uint8_t kLegalAddresses = 0x08;

constexpr std::array kOpcodes{KvOpcode::store, KvOpcode::retrieve, KvOpcode::delete_key, KvOpcode::exist,
                              KvOpcode::list};

class Device {
 public:
  Device() {
    space_.map(kGuestIova, kGuestBytes, guest_.data());
    config_.size_bytes = std::uint64_t{kGranules} * kGranuleBytes;
    config_.command_set = "kv";
    config_.kv.max_value_bytes = kMaxValueBytes;
    config_.kv.max_keys = kMaxKeys;
    config_.kv.value_granularity_bytes = kGranuleBytes;
    commands_.check("namespace", config_);
    media_ = media::open("memory", config_.size_bytes, 1, 7);
    ns_.nsid = 1;
    ns_.blocks = config_.size_bytes >> ns_.lba_shift;
    ns_.base = media_->base();
    ns_.media = media_.get();
    ns_.command_set = &commands_;
    commands_.prepare(ns_, config_);
  }

  void run(std::uint8_t choice, std::span<const std::uint8_t> input) {
    ns_.state->restart();
    stored_.clear();
    command_set::IoLimits limits;
    limits.max_transfer_bytes = (choice & 1) != 0 ? 512 : kMaxTransferBytes;
    limits.sgl_supported = (choice & 2) == 0;
    const std::size_t count = std::min(kMaxCommands, input.size() / kCommandBytes);
    const auto memory = input.subspan(count * kCommandBytes);
    std::ranges::fill(guest_, std::byte{0});
    if (!memory.empty()) std::memcpy(guest_.data(), memory.data(), std::min(memory.size(), guest_.size()));
    memory::AddressSpace::Reader reader(space_);
    command_set::ExecContext context{reader, segments_, bounce_, limits};
    context.model = &model_;
    reader.enter();
    for (std::size_t i = 0; i < count; ++i) {
      const nvme::Sqe sqe = command_at(input, i);
      const std::vector<std::byte> before = guest_;
      model_.asked = 0;
      check(sqe, commands_.execute(sqe, ns_, context), before);
    }
    reader.leave();
  }

 private:
  static nvme::Sqe command_at(std::span<const std::uint8_t> input, std::size_t index) {
    const std::uint8_t control = input[index * kCommandBytes];
    nvme::Sqe sqe;
    std::memcpy(&sqe, input.data() + index * kCommandBytes + 1, sizeof(sqe));
    if ((control & kLegalOpcode) != 0) sqe.opcode = static_cast<std::uint8_t>(kOpcodes[sqe.opcode % kOpcodes.size()]);
    if ((control & kFewKeys) != 0) {
      sqe.cdw2 &= 0x03010301;
      sqe.cdw11 = (sqe.cdw11 & 0x700) | (1 + sqe.cdw11 % 4);
    }
    if ((control & kLegalLength) != 0) sqe.cdw10 %= kMaxValueBytes + 2;
    if ((control & kLegalAddresses) != 0) {
      sqe.flags = 0;
      sqe.prp1 = kGuestIova + sqe.prp1 % (kGuestBytes / 2) / 4 * 4;
      sqe.prp2 = (sqe.prp1 + 4096) / 4096 * 4096;
    }
    return sqe;
  }

  static std::string key_of(const nvme::Sqe& sqe) {
    const auto key = nvme::kv_key(sqe);
    return {key.begin(), key.begin() + std::min<std::size_t>(nvme::kv_key_bytes(sqe), key.size())};
  }
  // Where the bytes of a legal PRP transfer of up to a page and a bit lie: one after the other.
  const std::byte* data_of(const nvme::Sqe& sqe) const { return guest_.data() + (sqe.prp1 - kGuestIova); }
  static bool is_plain(const nvme::Sqe& sqe) {
    return (sqe.flags & nvme::kFlagPsdtMask) == 0 && sqe.prp2 == (sqe.prp1 + 4096) / 4096 * 4096 &&
           sqe.prp1 >= kGuestIova && sqe.prp1 + kMaxValueBytes + 4096 <= kGuestIova + kGuestBytes;
  }

  void check(const nvme::Sqe& sqe, const command_set::Outcome& outcome, const std::vector<std::byte>& before) {
    const bool good = outcome.status == Status::success;
    const bool looks = outcome.demand.kind != timing::DemandKind::immediate;
    FLASHMOB_CHECK(good == (looks || model_.asked != 0));
    if (looks) model_.expect_inside(outcome.demand.first_unit, outcome.demand.units);
    const std::string key = key_of(sqe);
    const auto at = nvme::kv_key_bytes(sqe) <= nvme::kMaxKeyBytes ? stored_.find(key) : stored_.end();
    switch (static_cast<KvOpcode>(sqe.opcode)) {
      case KvOpcode::store:
        if (!good) break;
        FLASHMOB_CHECK(!key.empty() && sqe.cdw10 <= kMaxValueBytes);
        stored_[key] = is_plain(sqe) ? std::string(reinterpret_cast<const char*>(data_of(sqe)), sqe.cdw10)
                                     : retrieved(key, sqe.cdw10);
        break;
      case KvOpcode::retrieve:
        FLASHMOB_CHECK(!good || at != stored_.end());
        FLASHMOB_CHECK(outcome.status != Status::key_does_not_exist || at == stored_.end());
        if (!good) break;
        FLASHMOB_CHECK(outcome.result == at->second.size());
        if (is_plain(sqe))
          FLASHMOB_CHECK(
              std::memcmp(data_of(sqe), at->second.data(), std::min<std::size_t>(sqe.cdw10, outcome.result)) == 0);
        break;
      case KvOpcode::delete_key:
        FLASHMOB_CHECK(good == (at != stored_.end()));
        if (good) stored_.erase(at);
        break;
      case KvOpcode::exist:
        FLASHMOB_CHECK(good == (at != stored_.end()));
        break;
      default:
        break;
    }
    const auto opcode = static_cast<KvOpcode>(sqe.opcode);
    if (opcode != KvOpcode::retrieve && opcode != KvOpcode::list) FLASHMOB_CHECK(guest_ == before);
    check_room();
  }

  // What a Store whose data lay in pieces has stored, to be the same from then on.
  std::string retrieved(const std::string& key, std::uint32_t bytes) {
    std::vector<std::byte> target(8192);
    memory::AddressSpace space;
    space.map(kGuestIova, target.size(), target.data());
    memory::AddressSpace::Reader reader(space);
    const command_set::IoLimits limits;
    command_set::ExecContext context{reader, segments_, bounce_, limits};
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(KvOpcode::retrieve);
    sqe.prp1 = kGuestIova;
    sqe.cdw10 = bytes;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    reader.enter();
    const command_set::Outcome outcome = commands_.execute(sqe, ns_, context);
    reader.leave();
    FLASHMOB_CHECK(outcome.status == Status::success && outcome.result == bytes);
    return {reinterpret_cast<const char*>(target.data()), bytes};
  }

  void check_room() {
    command_set::IdentifyPage page{};
    commands_.identify_namespace(ns_, {}, {}, page);
    nvme::IdentifyNamespaceKv n;
    std::memcpy(&n, page.data(), sizeof(n));
    std::uint64_t granules = 0;
    for (const auto& [key, value] : stored_)
      granules += std::max<std::uint64_t>(1, (value.size() + kGranuleBytes - 1) / kGranuleBytes);
    FLASHMOB_CHECK(n.nuse == granules * kGranuleBytes && n.nuse <= n.nsze && stored_.size() <= kMaxKeys);
  }

  // Is asked for nothing, and told of nothing, that lies beyond the medium.
  class Model final : public timing::TimingModel {
   public:
    void schedule(std::span<const timing::Demand> batch, std::uint64_t, std::span<std::uint64_t>) override {
      asked += batch.size();
      for (const timing::Demand& demand : batch) expect_inside(demand.first_unit, demand.units);
    }
    void reset() override {}
    void set_path_ns(std::uint64_t) override {}
    std::string describe() const override { return "fuzz"; }
    void deallocate(std::uint64_t first_unit, std::uint64_t units, std::uint64_t) override {
      expect_inside(first_unit, units);
    }
    void expect_inside(std::uint64_t first_unit, std::uint64_t units) const {
      FLASHMOB_CHECK(units != 0 && first_unit + units <= std::uint64_t{kGranules} * kGranuleBytes >> 9);
    }
    std::size_t asked = 0;
  };
  Model model_;

  std::vector<std::byte> guest_ = std::vector<std::byte>(kGuestBytes);
  std::vector<std::byte> bounce_ = std::vector<std::byte>((1 << 20) + 4096);
  memory::AddressSpace space_;
  memory::SegmentList segments_{64};
  command_set::KvCommandSet commands_;
  NamespaceConfig config_;
  std::unique_ptr<media::Media> media_;
  command_set::Namespace ns_;
  std::map<std::string, std::string> stored_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Device device;
  if (size != 0) device.run(data[0], {data + 1, size - 1});
  return 0;
}
