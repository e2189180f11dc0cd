// The commands of the Key Value command set over media that can fail, and against a map of values.
#include "command_set/kv.h"

#include <map>
#include <string>

#include "command_set/kv_state.h"
#include "command_set/nvm_test_support.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob::command_set {
namespace {

using nvme::KvOpcode;

class KvCommands : public NvmCommandTest {
 protected:
  static constexpr std::uint32_t kMaxValue = 8 << 10;
  static constexpr std::uint32_t kGranule = 64;

  explicit KvCommands(std::uint64_t size_bytes = 256 << 10) {
    format(9);
    config_.size_bytes = size_bytes;
    config_.command_set = "kv";
    config_.kv.max_value_bytes = kMaxValue;
    config_.kv.value_granularity_bytes = kGranule;
    config_.kv.lookup_ns = 100;
    config_.kv.list_key_ns = 7;
    kv_.prepare(*ns_, config_);
    ns_->command_set = &kv_;
  }

  Outcome execute(const nvme::Sqe& sqe) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const Outcome outcome = kv_.execute(sqe, *ns_, context);
    reader_.leave();
    return outcome;
  }
  // A command whose data, so many bytes of it, lies `at` bytes behind the start of the guest's memory.
  nvme::Sqe kv_command(KvOpcode opcode, const std::string& key, std::uint32_t bytes = 0, std::uint8_t options = 0,
                       std::uint64_t at = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.cdw10 = bytes;
    sqe.cdw11 = std::uint32_t{options} << 8;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    point(sqe, at, bytes);
    return sqe;
  }
  Outcome put(const std::string& key, const std::string& value, std::uint8_t options = 0) {
    std::memcpy(guest(4), value.data(), value.size());
    return execute(kv_command(KvOpcode::store, key, static_cast<std::uint32_t>(value.size()), options, 4));
  }
  Status store(const std::string& key, const std::string& value, std::uint8_t options = 0) {
    return put(key, value, options).status;
  }
  // What a buffer of so many bytes holds then; what lies behind it stays.
  std::string retrieve(const std::string& key, std::uint32_t room = kMaxValue) {
    std::memset(guest(), 0xEE, 2 * kMaxValue);
    const Outcome outcome = execute(kv_command(KvOpcode::retrieve, key, room));
    EXPECT_EQ(outcome.status, Status::success);
    const auto bytes = std::min<std::uint64_t>(outcome.result, room);
    EXPECT_EQ(outcome.host_read_bytes, bytes);
    EXPECT_EQ(*guest(bytes), std::byte{0xEE});
    return {reinterpret_cast<const char*>(guest()), bytes};
  }
  Status status(KvOpcode opcode, const std::string& key, std::uint32_t bytes = 0) {
    return execute(kv_command(opcode, key, bytes)).status;
  }
  nvme::IdentifyNamespaceKv identify() {
    IdentifyPage page{};
    kv_.identify_namespace(*ns_, {}, limits_, page);
    nvme::IdentifyNamespaceKv n;
    std::memcpy(&n, page.data(), sizeof(n));
    return n;
  }
  std::uint64_t used_bytes() { return identify().nuse; }

  KvCommandSet kv_;
  NamespaceConfig config_;
};

std::string value_of(std::uint64_t seed, std::size_t bytes) {
  Rng rng(seed);
  std::string value(bytes, '\0');
  for (char& c : value) c = static_cast<char>(rng.next());
  return value;
}

TEST_F(KvCommands, WhatIsStoredIsRetrieved) {
  for (const std::size_t bytes : {0u, 1u, 63u, 64u, 65u, 4095u, 4097u, kMaxValue}) {
    const std::string value = value_of(bytes, bytes);
    EXPECT_EQ(store("key", value), Status::success);
    EXPECT_EQ(retrieve("key"), value) << bytes;
    EXPECT_EQ(used_bytes(), std::max<std::size_t>(1, (bytes + 63) / 64) * kGranule);
  }
  EXPECT_EQ(status(KvOpcode::exist, "key"), Status::success);
  EXPECT_EQ(status(KvOpcode::delete_key, "key"), Status::success);
  EXPECT_EQ(status(KvOpcode::exist, "key"), Status::key_does_not_exist);
  EXPECT_EQ(status(KvOpcode::retrieve, "key", 64), Status::key_does_not_exist);
  EXPECT_EQ(status(KvOpcode::delete_key, "key"), Status::key_does_not_exist);
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(KvCommands, AShortBufferGetsTheBeginningAndTheWholeLength) {
  const std::string value = value_of(1, 1000);
  ASSERT_EQ(store("key", value), Status::success);
  for (const std::uint32_t room : {0u, 1u, 64u, 999u, 1000u, 4096u})
    EXPECT_EQ(retrieve("key", room), value.substr(0, room)) << room;
  EXPECT_EQ(execute(kv_command(KvOpcode::retrieve, "key", 10)).result, 1000u);
  EXPECT_EQ(execute(kv_command(KvOpcode::retrieve, "key", 0)).result, 1000u) << "how long is it?";
}

TEST_F(KvCommands, KeysOfEveryLength) {
  for (std::size_t bytes = 1; bytes <= 16; ++bytes)
    EXPECT_EQ(store(std::string(bytes, 'k'), std::to_string(bytes)), Status::success);
  for (std::size_t bytes = 1; bytes <= 16; ++bytes) EXPECT_EQ(retrieve(std::string(bytes, 'k')), std::to_string(bytes));
  for (const KvOpcode opcode : {KvOpcode::store, KvOpcode::retrieve, KvOpcode::delete_key, KvOpcode::exist}) {
    EXPECT_EQ(status(opcode, ""), Status::invalid_key_size);
    EXPECT_EQ(status(opcode, std::string(17, 'k')), Status::invalid_key_size);
    EXPECT_EQ(status(opcode, std::string(255, 'k')), Status::invalid_key_size);
  }
  EXPECT_EQ(status(KvOpcode::list, std::string(17, 'k'), 64), Status::invalid_key_size);
}

TEST_F(KvCommands, ShorterKeysWhereTheNamespaceHasThem) {
  config_.kv.max_key_bytes = 8;
  kv_.prepare(*ns_, config_);
  EXPECT_EQ(store(std::string(8, 'k'), "v"), Status::success);
  EXPECT_EQ(store(std::string(9, 'k'), "v"), Status::invalid_key_size);
}

TEST_F(KvCommands, StoreOptions) {
  EXPECT_EQ(store("k", "1", nvme::kStoreMustExist), Status::key_does_not_exist);
  EXPECT_EQ(store("k", "1", nvme::kStoreMustNotExist), Status::success);
  EXPECT_EQ(store("k", "2", nvme::kStoreMustNotExist), Status::key_exists);
  EXPECT_EQ(retrieve("k"), "1");
  EXPECT_EQ(store("k", "3", nvme::kStoreMustExist | nvme::kStoreCompressionHint), Status::success);
  EXPECT_EQ(store("k", "4", nvme::kStoreMustExist | nvme::kStoreMustNotExist), Status::key_exists);
  EXPECT_EQ(store("k", "4", 1u << 3), Status::invalid_field) << "an append to some vendors";
  EXPECT_EQ(retrieve("k"), "3");
}

TEST_F(KvCommands, ValueLengthsThatAreNotToBeHad) {
  EXPECT_EQ(status(KvOpcode::store, "k", kMaxValue + 1), Status::invalid_value_size);
  limits_.max_transfer_bytes = 4096;
  EXPECT_EQ(identify().kvf[0].vml, kMaxValue) << "of the format, and not of the controller";
  EXPECT_EQ(status(KvOpcode::store, "k", 4097), Status::invalid_field) << "a value may be that long";
  EXPECT_EQ(status(KvOpcode::store, "k", kMaxValue + 1), Status::invalid_value_size);
  EXPECT_EQ(status(KvOpcode::retrieve, "k", 4097), Status::invalid_field);
  EXPECT_EQ(status(KvOpcode::list, "", 4097), Status::invalid_field);
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(KvCommands, BadDataPointersChangeNothing) {
  ASSERT_EQ(store("k", "old"), Status::success);
  nvme::Sqe sqe = kv_command(KvOpcode::store, "k", 100);
  sqe.prp1 = 0x10;  // nothing is mapped there
  EXPECT_EQ(execute(sqe).status, Status::data_transfer_error);
  sqe.prp1 = kGuestIova + 1;
  EXPECT_EQ(execute(sqe).status, Status::prp_offset_invalid);
  sqe.flags = nvme::kFlagPsdtMask;
  EXPECT_EQ(execute(sqe).status, Status::invalid_field);
  sqe.flags = nvme::kFlagPsdtSglBufferMetadata;
  sqe.sgl1 = {.address = kGuestIova, .length_bytes = 99, .reserved = {}, .identifier = 0};
  EXPECT_EQ(execute(sqe).status, Status::data_sgl_length_invalid);
  limits_.sgl_supported = false;
  EXPECT_EQ(execute(sqe).status, Status::invalid_field);
  EXPECT_EQ(retrieve("k"), "old");
  sqe = kv_command(KvOpcode::retrieve, "k", 100);
  sqe.prp1 = 0x10;
  EXPECT_EQ(execute(sqe).status, Status::data_transfer_error);
  sqe = kv_command(KvOpcode::list, "", 100);
  sqe.prp1 = 0x10;
  EXPECT_EQ(execute(sqe).status, Status::data_transfer_error);
}

TEST_F(KvCommands, AWriteProtectedNamespaceIsReadAlone) {
  ASSERT_EQ(store("k", "v"), Status::success);
  ns_->writable = false;
  EXPECT_EQ(store("k", "w"), Status::namespace_is_write_protected);
  EXPECT_EQ(status(KvOpcode::delete_key, "k"), Status::namespace_is_write_protected);
  EXPECT_EQ(retrieve("k"), "v");
}

TEST_F(KvCommands, MediaThatFail) {
  ASSERT_EQ(store("k", "old"), Status::success);
  media_->fail_writes = true;
  EXPECT_EQ(store("k", "new"), Status::write_fault);
  EXPECT_EQ(used_bytes(), kGranule) << "its room is free again";
  media_->fail_writes = false;
  EXPECT_EQ(retrieve("k"), "old");
  media_->fail_reads = true;
  EXPECT_EQ(status(KvOpcode::retrieve, "k", 64), Status::unrecovered_error);
  EXPECT_EQ(status(KvOpcode::exist, "k"), Status::success) << "the index has not failed";
}

TEST_F(KvCommands, CommandsOfOtherSetsAreNone) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    if (nvme::find_io_command(nvme::Csi::key_value, static_cast<std::uint8_t>(opcode)) != nullptr) continue;
    nvme::Sqe sqe = kv_command(KvOpcode::store, "k", 4);
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    EXPECT_EQ(execute(sqe).status, Status::invalid_opcode) << opcode;
  }
  EXPECT_EQ(ns_->runs.load(), Runs::none) << "no Store is taken for a Write";
}

TEST_F(KvCommands, Demands) {
  const Outcome stored = put("k", std::string(1000, 'v'));
  ASSERT_EQ(model_.scheduled.size(), 1u);
  EXPECT_EQ(model_.scheduled[0].kind, DemandKind::write);
  EXPECT_EQ(model_.scheduled[0].first_unit, 1000u);
  EXPECT_EQ(model_.scheduled[0].units, 2u);
  EXPECT_EQ(model_.scheduled[0].sectors, 2u);
  EXPECT_EQ(stored.demand.kind, DemandKind::immediate) << "it was asked for already";
  EXPECT_EQ(stored.host_write_bytes, 1000u);
  EXPECT_EQ(stored.extra_ns, 100u);
  const Outcome read = execute(kv_command(KvOpcode::retrieve, "k", 512));
  ASSERT_EQ(model_.scheduled.size(), 2u);
  EXPECT_EQ(model_.scheduled[1].kind, DemandKind::read);
  EXPECT_EQ(model_.scheduled[1].units, 1u);
  EXPECT_EQ(read.extra_ns, 100u);
  const Outcome looked = execute(kv_command(KvOpcode::exist, "k"));
  EXPECT_EQ(looked.demand.kind, DemandKind::read);
  EXPECT_EQ(looked.demand.units, 1u);
  const Outcome missed = execute(kv_command(KvOpcode::exist, "l"));
  EXPECT_EQ(missed.demand.kind, DemandKind::immediate);
  EXPECT_EQ(missed.extra_ns, 100u) << "it was looked for";
  EXPECT_EQ(execute(kv_command(KvOpcode::list, "", 64)).extra_ns, 107u);
  ASSERT_EQ(store("k", "short"), Status::success);
  ASSERT_EQ(model_.deallocated.size(), 1u);
  EXPECT_EQ(model_.deallocated[0], (std::pair<std::uint64_t, std::uint64_t>(1000, 2))) << "1024 bytes from 0 on";
}

struct Listed {
  std::uint32_t count;
  std::vector<std::string> keys;
};

class KvList : public KvCommands {
 protected:
  Listed list(const std::string& from, std::uint32_t room) {
    std::memset(guest(), 0xEE, room + 16);
    EXPECT_EQ(status(KvOpcode::list, from, room), Status::success);
    EXPECT_EQ(*guest(room), std::byte{0xEE});
    Listed all{};
    std::memcpy(&all.count, guest(), 4);
    std::uint64_t at = 4;
    for (std::uint32_t i = 0; i < all.count; ++i) {
      std::uint16_t length = 0;
      std::memcpy(&length, guest(at), 2);
      all.keys.emplace_back(reinterpret_cast<const char*>(guest(at + 2)), length);
      at += nvme::key_list_entry_bytes(length);
      EXPECT_LE(at, room);
    }
    for (; at < room; ++at) EXPECT_EQ(*guest(at), std::byte{0}) << at;
    return all;
  }
};

TEST_F(KvList, AllOfThemInOrder) {
  std::vector<std::string> sorted;
  for (int i = 0; i < 1000; ++i) sorted.push_back("key" + std::to_string(10'000 + i));
  for (std::size_t i = 0; i < sorted.size(); ++i) store(sorted[i * 7 % sorted.size()], "");
  EXPECT_EQ(list("", 16 << 10).keys, sorted) << "more than are looked up at once";
  EXPECT_EQ(list("key105", 16 << 10).keys, (std::vector<std::string>(sorted.begin() + 500, sorted.end())));
  // Page by page: each begins with the last of the one before.
  std::vector<std::string> paged = {sorted[0]};
  for (std::string from = sorted[0];;) {
    const Listed page = list(from, 100);
    EXPECT_EQ(page.keys.at(0), from);
    if (page.count == 1) break;
    paged.insert(paged.end(), page.keys.begin() + 1, page.keys.end());
    from = page.keys.back();
  }
  EXPECT_EQ(paged, sorted);
}

TEST_F(KvList, ShortBuffers) {
  store("a", "");
  store("bbbbb", "");
  EXPECT_EQ(list("", 4).count, 0u);
  EXPECT_EQ(list("", 7).count, 0u);
  EXPECT_EQ(list("", 8).keys, (std::vector<std::string>{"a"}));
  EXPECT_EQ(list("", 15).count, 1u);
  EXPECT_EQ(list("", 16).keys, (std::vector<std::string>{"a", "bbbbb"}));
  EXPECT_EQ(list("c", 16).count, 0u);
  for (const std::uint32_t room : {0u, 1u, 3u}) EXPECT_EQ(status(KvOpcode::list, "", room), Status::invalid_field);
}

// A namespace of 128 granules of 64 bytes, with values up to 512 bytes: full most of the time.
class KvNearlyFull : public KvCommands {
 protected:
  KvNearlyFull() : KvCommands(256 << 10) {
    config_.size_bytes = 128 * kGranule;
    config_.kv.max_value_bytes = 512;
    kv_.prepare(*ns_, config_);
  }
};

TEST_F(KvNearlyFull, EqualsAMapOfValues) {
  Rng rng(5);
  std::map<std::string, std::string> model;
  std::uint64_t used = 0;
  const auto room_of = [](const std::string& value) { return std::max<std::uint64_t>(1, (value.size() + 63) / 64); };
  unsigned refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    const std::string key = "k" + std::to_string(rng.below(60));
    const auto at = model.find(key);
    const std::uint64_t dice = rng.below(10);
    if (dice < 5) {
      const std::string value = value_of(static_cast<std::uint64_t>(i), rng.below(513));
      const std::uint64_t after = used - (at != model.end() ? room_of(at->second) : 0) + room_of(value);
      const Status wanted = after <= 128 - 8 ? Status::success : Status::capacity_exceeded;
      ASSERT_EQ(store(key, value), wanted) << i;
      refused += wanted != Status::success;
      if (wanted != Status::success) continue;
      used = after;
      model[key] = value;
    } else if (dice < 6) {
      ASSERT_EQ(status(KvOpcode::delete_key, key), at != model.end() ? Status::success : Status::key_does_not_exist);
      if (at == model.end()) continue;
      used -= room_of(at->second);
      model.erase(at);
    } else if (at != model.end()) {
      ASSERT_EQ(retrieve(key, 512), at->second) << i;
    }
    if (i % 1000 == 0) {
      ASSERT_EQ(used_bytes(), used * kGranule);
    }
  }
  EXPECT_GT(refused, 10'000u);
  ns_->state->restart();
  EXPECT_EQ(used_bytes(), 0u);
  EXPECT_EQ(status(KvOpcode::exist, "k1"), Status::key_does_not_exist);
}

TEST_F(KvNearlyFull, AValueThatIsReadStaysUntilThatIsOver) {
  ASSERT_EQ(store("k", std::string(512, 'o')), Status::success);
  KvState& state = KvState::of(*ns_);
  const kv::Value* const value = state.store.find(kv::Key::of({'k'}, 1));
  ASSERT_NE(value, nullptr);
  const kv::Value pinned = *value;
  state.pin(pinned);
  state.pin(pinned);
  const std::uint32_t free = state.store.granules().free();
  ASSERT_EQ(status(KvOpcode::delete_key, "k"), Status::success);
  EXPECT_EQ(state.store.granules().free(), free);
  state.unpin(pinned);
  EXPECT_EQ(state.store.granules().free(), free);
  state.unpin(pinned);
  EXPECT_EQ(state.store.granules().free(), free + 8);
}

// Each retrieved value is one that was stored, whole, whatever other threads do to it meanwhile.
TEST_F(KvNearlyFull, ThreadsSeeWholeValues) {
  constexpr unsigned kThreads = 4;
  std::vector<std::vector<std::byte>> memories(kThreads, std::vector<std::byte>(4096));
  std::array<std::unique_ptr<memory::AddressSpace>, kThreads> spaces;
  std::vector<std::thread> threads;
  std::atomic<unsigned> torn = 0;
  std::unique_ptr<media::Media> media = media::open("memory", config_.size_bytes, 1, 1);
  ns_->media = media.get();
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    spaces[thread] = std::make_unique<memory::AddressSpace>();
    spaces[thread]->map(kGuestIova, 4096, memories[thread].data());
    threads.emplace_back([&, thread] {
      memory::AddressSpace::Reader reader(*spaces[thread]);
      memory::SegmentList segments(64);
      std::vector<std::byte> bounce(kMaxTransferBytes + kPage);
      ExecContext context{reader, segments, bounce, limits_};
      Rng rng(thread);
      std::byte* const data = memories[thread].data();
      for (int i = 0; i < 5000; ++i) {
        const std::string key(1, static_cast<char>('a' + rng.below(4)));
        const bool stores = rng.below(2) == 0;
        const auto letter = static_cast<int>(rng.below(256));
        const auto bytes = static_cast<std::uint32_t>(stores ? 1 + rng.below(512) : 512);
        nvme::Sqe sqe{};
        sqe.opcode = static_cast<std::uint8_t>(stores ? KvOpcode::store : KvOpcode::retrieve);
        sqe.cdw10 = bytes;
        sqe.prp1 = kGuestIova;
        nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
        if (stores) std::memset(data, letter, bytes);
        reader.enter();
        const Outcome outcome = kv_.execute(sqe, *ns_, context);
        reader.leave();
        if (stores || outcome.status != Status::success) continue;
        torn += std::any_of(data, data + outcome.result, [&](std::byte b) { return b != data[0]; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_LE(used_bytes(), 4u * 512);
  ns_->media = media_.get();
}

}  // namespace
}  // namespace flashmob::command_set
