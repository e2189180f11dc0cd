// What key-value commands ask of the timing model, wherever values lie, and what becomes of those that are carried out
// in steps and stopped between two.
#include <deque>
#include <functional>
#include <set>
#include <string>

#include "command_set/kv.h"
#include "command_set/kv_state.h"
#include "command_set/nvm_test_support.h"
#include "nvme/kv.h"
#include "nvme/opcode.h"

namespace flashmob::command_set {
namespace {

using nvme::KvOpcode;

class KvSteps : public NvmCommandTest {
 protected:
  static constexpr std::uint32_t kMaxValue = 512 << 10;

  KvSteps() { restart(kBlocks << 9, 64, kMaxValue); }

  void restart(std::uint64_t size_bytes, std::uint32_t granule_bytes, std::uint32_t max_value_bytes) {
    format(9);
    ns_->unit_shift = 12;
    config_.size_bytes = size_bytes;
    config_.command_set = "kv";
    config_.kv.max_value_bytes = max_value_bytes;
    config_.kv.value_granularity_bytes = granule_bytes;
    kv_.prepare(*ns_, config_);
    ns_->command_set = &kv_;
    limits_.max_transfer_bytes = 1 << 20;
  }
  nvme::Sqe kv_command(KvOpcode opcode, const std::string& key, std::uint32_t bytes = 0) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    sqe.cdw10 = bytes;
    nvme::set_kv_key(sqe, std::as_bytes(std::span(key)));
    point(sqe, 0, bytes);
    return sqe;
  }
  std::optional<Outcome> step(const nvme::Sqe& sqe, Progress& progress) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const auto outcome = kv_.step(sqe, *ns_, context, progress);
    reader_.leave();
    return outcome;
  }
  Outcome execute(const nvme::Sqe& sqe) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const Outcome outcome = kv_.execute(sqe, *ns_, context);
    reader_.leave();
    return outcome;
  }
  Status store(const std::string& key, std::uint32_t bytes, int letter = 'v') {
    std::memset(guest(), letter, bytes);
    return execute(kv_command(KvOpcode::store, key, bytes)).status;
  }
  Status retrieve(const std::string& key, std::uint32_t room = 1) {
    return execute(kv_command(KvOpcode::retrieve, key, room)).status;
  }
  KvState& state() { return KvState::of(*ns_); }
  std::uint32_t free() { return state().store.granules().free(); }

  // The units of the timing model that bytes of the medium lie in.
  template <class Ranges>
  static std::set<std::uint64_t> units_of(const Ranges& ranges) {
    std::set<std::uint64_t> units;
    for (const auto& [offset, bytes] : ranges)
      for (std::uint64_t at = offset >> 12; at <= (offset + bytes - 1) >> 12; ++at) units.insert(1000 + at);
    return units;
  }
  std::set<std::uint64_t> units_asked_for(DemandKind kind) const {
    std::set<std::uint64_t> units;
    for (const timing::Demand& demand : model_.scheduled)
      if (demand.kind == kind)
        for (std::uint32_t i = 0; i < demand.units; ++i) units.insert(demand.first_unit + i);
    return units;
  }
  // Of all values that there are.
  std::set<std::uint64_t> units_in_use() {
    std::vector<TestMedia::Range> ranges;
    const kv::Store& store = state().store;
    store.for_each_from({}, [&](const kv::Key& key) {
      const kv::Value* const value = store.find(key);
      std::uint64_t left = value->bytes;
      return store.granules().for_each_run(value->last, [&](std::uint32_t first, std::uint32_t count) {
        const std::uint64_t here = std::min<std::uint64_t>(left, count * config_.kv.value_granularity_bytes);
        ranges.emplace_back(std::uint64_t{first} * config_.kv.value_granularity_bytes, here);
        left -= here;
        return true;
      });
    });
    return units_of(ranges);
  }

  KvCommandSet kv_;
  NamespaceConfig config_;
};

// Values of all lengths in a store that is nearly full, so that they lie in pieces, and up to the medium's end.
TEST_F(KvSteps, TheModelHearsWhatTheMediumDoes) {
  for (const std::uint32_t granule : {64u, 512u, 8192u}) {
    restart(256 << 10, granule, 48 << 10);
    Rng rng(granule);
    std::set<std::uint64_t> written;
    bool reached_the_end = false, was_scattered = false;
    // All of the medium has been used, its end by what replaces a value in a full store.
    for (int i = 0; store("k" + std::to_string(i), 48 << 10) == Status::success;) ++i;
    ASSERT_EQ(store("rest", 16 << 10), Status::success);
    ASSERT_EQ(store("k0", 48 << 10), Status::success);
    ASSERT_EQ(execute(kv_command(KvOpcode::delete_key, "rest")).status, Status::success);
    written = units_in_use();
    for (int i = 0; i < 2000; ++i) {
      model_.scheduled.clear();
      model_.deallocated.clear();
      media_->written.clear();
      const std::string key = "k" + std::to_string(rng.below(40));
      const auto bytes = static_cast<std::uint32_t>(1 + rng.below(rng.below(2) == 0 ? 4096 : 48 << 10));
      if (rng.below(4) == 0) {
        execute(kv_command(KvOpcode::delete_key, key));
      } else if (store(key, bytes) == Status::success) {
        ASSERT_EQ(units_asked_for(DemandKind::write), units_of(media_->written));
        std::uint64_t sectors = 0;
        for (const timing::Demand& demand : model_.scheduled) sectors += demand.sectors;
        ASSERT_GE(sectors * 512, bytes);
        ASSERT_LE(sectors * 512, bytes + 1022 * model_.scheduled.size());
        was_scattered |= model_.scheduled.size() > 1;
        written.merge(units_asked_for(DemandKind::write));
        reached_the_end |= written.contains(1000 + (256 << 10 >> 12) - 1);
        model_.scheduled.clear();
        ASSERT_EQ(retrieve(key, bytes), Status::success);
        ASSERT_EQ(units_asked_for(DemandKind::read), units_of(media_->written));
      }
      for (const auto& [first, count] : model_.deallocated)
        for (std::uint64_t unit = first; unit < first + count; ++unit) written.erase(unit);
      ASSERT_EQ(written, units_in_use()) << "nothing is left that no value lies in";
    }
    EXPECT_TRUE(reached_the_end && was_scattered) << granule;
  }
}

TEST_F(KvSteps, TheIndexIsLookedAtWhereThereIsRoom) {
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(store("key" + std::to_string(i), 0), Status::success);
  for (int i = 0; i < 1000; ++i) {
    const Outcome listed = execute(kv_command(KvOpcode::list, "key" + std::to_string(i), 4096));
    EXPECT_GE(listed.demand.units, (listed.host_read_bytes + 4095) / 4096);
    EXPECT_LE(listed.demand.first_unit + listed.demand.units, 1000 + (kBlocks << 9 >> 12));
  }
}

TEST_F(KvSteps, NoStepMovesMuch) {
  for (const std::uint32_t granule : {64u, 512u, 65536u}) {
    restart(kBlocks << 9, granule, kMaxValue);
    std::memset(guest(), 'v', kMaxValue);
    for (const KvOpcode opcode : {KvOpcode::store, KvOpcode::retrieve, KvOpcode::delete_key}) {
      const nvme::Sqe sqe = kv_command(opcode, "k", opcode == KvOpcode::delete_key ? 0 : kMaxValue);
      Progress progress;
      unsigned steps = 1;
      for (media_->written.clear(); !step(sqe, progress); ++steps) {
        std::uint64_t bytes = 0;
        for (const auto& range : media_->written) bytes += range.second;
        EXPECT_LE(bytes, 68u << 10);
        media_->written.clear();
      }
      const std::uint32_t granules = kMaxValue / granule;
      EXPECT_GE(steps, opcode == KvOpcode::delete_key ? granules / 576 : kMaxValue >> 16) << granule;
    }
    EXPECT_EQ(free(), (kBlocks << 9) / granule);
  }
}

TEST_F(KvSteps, AStoreIsSeenWhenItsLastStepIsDone) {
  ASSERT_EQ(store("k", 1), Status::success);
  const std::uint32_t before = free();
  const nvme::Sqe sqe = kv_command(KvOpcode::store, "k", kMaxValue);
  Progress progress;
  std::optional<Outcome> outcome;
  while (!(outcome = step(sqe, progress))) {
    if (state().store.find(kv::Key::of({'k'}, 1))->bytes == kMaxValue) continue;
    EXPECT_EQ(execute(kv_command(KvOpcode::retrieve, "k", 0)).result, 1u);
    EXPECT_EQ(free(), before - kMaxValue / 64) << "nobody else gets what it still needs";
  }
  EXPECT_EQ(outcome->status, Status::success);
  EXPECT_EQ(execute(kv_command(KvOpcode::retrieve, "k", 0)).result, kMaxValue);
}

TEST_F(KvSteps, WhatIsAbandonedLeavesNothing) {
  ASSERT_EQ(store("k", kMaxValue), Status::success);
  const std::uint32_t before = free();
  for (const KvOpcode opcode : {KvOpcode::store, KvOpcode::retrieve, KvOpcode::list}) {
    for (unsigned steps = 1; steps < 8; ++steps) {
      const nvme::Sqe sqe = kv_command(opcode, opcode == KvOpcode::store ? "l" : "k", kMaxValue);
      Progress progress;
      for (unsigned i = 0; i < steps; ++i) ASSERT_FALSE(step(sqe, progress)) << i;
      kv_.abandon(*ns_, progress);
      EXPECT_EQ(free(), before);
      EXPECT_EQ(retrieve("l"), Status::key_does_not_exist);
      EXPECT_EQ(retrieve("k"), Status::success);
    }
  }
  // Its value is freed by the last reader, though that never ends.
  Progress reader;
  ASSERT_FALSE(step(kv_command(KvOpcode::retrieve, "k", kMaxValue), reader));
  ASSERT_EQ(execute(kv_command(KvOpcode::delete_key, "k")).status, Status::success);
  EXPECT_EQ(free(), before);
  kv_.abandon(*ns_, reader);
  EXPECT_EQ(free(), (kBlocks << 9) / 64);
  ns_->state->restart();
}

TEST_F(KvSteps, ARetrieveHasTheValueThatItBeganWith) {
  ASSERT_EQ(store("k", kMaxValue, 'a'), Status::success);
  const nvme::Sqe sqe = kv_command(KvOpcode::retrieve, "k", kMaxValue);
  Progress progress;
  ASSERT_FALSE(step(sqe, progress));
  // Written by another, from memory of its own.
  std::vector<std::byte> here(guest(), guest() + kMaxValue);
  ASSERT_EQ(store("k", kMaxValue, 'b'), Status::success);
  ASSERT_EQ(store("l", kMaxValue, 'c'), Status::success);
  std::copy(here.begin(), here.end(), guest());
  std::optional<Outcome> outcome;
  while (!outcome) outcome = step(sqe, progress);
  EXPECT_EQ(outcome->status, Status::success);
  EXPECT_TRUE(std::all_of(guest(), guest() + kMaxValue, [](std::byte b) { return b == std::byte{'a'}; }));
}

TEST_F(KvSteps, WhatGoesWrongHalfWayChangesNothing) {
  ASSERT_EQ(store("k", 1), Status::success);
  const std::uint32_t before = free();
  const nvme::Sqe sqe = kv_command(KvOpcode::store, "k", kMaxValue);
  const auto ends_with = [&](const std::function<void()>& mishap) {
    Progress progress;
    EXPECT_FALSE(step(sqe, progress));
    mishap();
    const auto outcome = step(sqe, progress);
    EXPECT_EQ(free(), before);
    return outcome ? outcome->status : Status::success;
  };
  EXPECT_EQ(ends_with([&] { ns_->writable = false; }), Status::namespace_is_write_protected);
  ns_->writable = true;
  EXPECT_EQ(ends_with([&] { media_->fail_writes = true; }), Status::write_fault);
  media_->fail_writes = false;
  EXPECT_EQ(ends_with([&] { space_.unmap(kGuestIova, kGuestBytes); }), Status::data_transfer_error);
  space_.map(kGuestIova, kGuestBytes, guest_.data());
  EXPECT_EQ(execute(kv_command(KvOpcode::retrieve, "k", 0)).result, 1u);
  ASSERT_EQ(store("k", kMaxValue), Status::success);
  Progress progress;
  ASSERT_FALSE(step(kv_command(KvOpcode::retrieve, "k", kMaxValue), progress));
  media_->fail_reads = true;
  EXPECT_EQ(step(kv_command(KvOpcode::retrieve, "k", kMaxValue), progress)->status, Status::unrecovered_error);
  ns_->state->restart();
}

// Room for four values, of which three may be stored.
class KvRoom : public KvSteps {
 protected:
  static constexpr std::uint32_t kGranules = 4 * kMaxValue / 512;

  KvRoom() { restart(4 * kMaxValue, 512, kMaxValue); }

  struct Command {
    nvme::Sqe sqe;
    Progress progress;
    std::optional<Outcome> outcome;
  };
  Command& begin(const std::string& key, std::uint32_t bytes = kMaxValue) {
    Command& command = commands_.emplace_back();
    command.sqe = kv_command(KvOpcode::store, key, bytes);
    command.outcome = step(command.sqe, command.progress);
    return command;
  }
  // One more step of each that is under way, in their order.
  bool go_on() {
    bool any = false;
    for (Command& command : commands_) {
      if (command.outcome) continue;
      command.outcome = step(command.sqe, command.progress);
      any = true;
    }
    return any;
  }
  static bool is_under_way(Command& command) {
    return !command.outcome && command.progress.has_begun() && !kv_commands::is_waiting(command.progress);
  }
  void finish(Command& command) {
    while (!command.outcome) command.outcome = step(command.sqe, command.progress);
  }

  std::deque<Command> commands_;
};

TEST_F(KvRoom, StoresThatFindNoneWaitForThoseThatHaveIt) {
  for (int i = 0; i < 20; ++i) begin(i % 2 == 0 ? "k" : "small" + std::to_string(i), i % 2 == 0 ? kMaxValue : 4096);
  unsigned rounds = 0;
  while (go_on()) ASSERT_LT(++rounds, 10'000u);
  for (const Command& command : commands_) EXPECT_EQ(command.outcome->status, Status::success);
  EXPECT_EQ(state().store.keys(), 11u);
  EXPECT_EQ(free(), kGranules - kMaxValue / 512 - 10 * 8);
}

TEST_F(KvRoom, WhoWaitsIsPassedByFew) {
  std::vector<Command*> first;
  for (int i = 0; i < 3; ++i) first.push_back(&begin("k"));
  Command& half = begin("half", kMaxValue / 2);
  Command& waiting = begin("k");
  EXPECT_FALSE(waiting.outcome || is_under_way(waiting));
  unsigned passed = 0;
  for (; passed < 1000; ++passed) {
    Command& small = begin("small", 512);
    if (!is_under_way(small) && !small.outcome) break;
    finish(small);
  }
  EXPECT_GE(passed, 10u) << "they need none of what it needs";
  EXPECT_LT(passed, 1000u);
  for (Command* const command : first) finish(*command);
  Command& last = commands_.back();
  last.outcome = step(last.sqe, last.progress);
  EXPECT_FALSE(last.outcome || is_under_way(last)) << "not before the one that has waited for longer";
  waiting.outcome = step(waiting.sqe, waiting.progress);
  EXPECT_TRUE(is_under_way(waiting));
  finish(last);
  finish(half);
  finish(waiting);
  for (const Command& command : commands_) EXPECT_EQ(command.outcome->status, Status::success);
}

TEST_F(KvRoom, WhoWaitsFailsWhereWhatIsStoredLeavesNone) {
  for (const char* const key : {"a", "b", "c"}) begin(key);
  Command& replacing = begin("a");
  Command& waiting = begin("d");
  Command& later = begin("a");
  EXPECT_FALSE(waiting.outcome || later.outcome);
  for (int i = 0; i < 3; ++i) finish(commands_[static_cast<std::size_t>(i)]);
  EXPECT_EQ(step(waiting.sqe, waiting.progress)->status, Status::capacity_exceeded);
  waiting.outcome = Outcome();
  finish(replacing);
  finish(later);
  EXPECT_EQ(later.outcome->status, Status::success) << "it replaces one";
  EXPECT_EQ(free(), kMaxValue / 512);
  EXPECT_EQ(store("d", 0), Status::capacity_exceeded);
}

TEST_F(KvRoom, WhoGoesWhileWaitingMakesWayForTheNext) {
  for (int i = 0; i < 4; ++i) begin("k");
  for (const bool is_protected : {false, true}) {
    Command& waiting = begin("k");
    Command& next = begin("k");
    EXPECT_TRUE(waiting.progress.has_begun());
    EXPECT_FALSE(next.progress.has_begun()) << "it takes no place in the meantime";
    ns_->writable = !is_protected;
    if (is_protected) {
      EXPECT_EQ(step(waiting.sqe, waiting.progress)->status, Status::namespace_is_write_protected);
    } else {
      kv_.abandon(*ns_, waiting.progress);
    }
    waiting.outcome = Outcome();
    ns_->writable = true;
    EXPECT_FALSE(step(next.sqe, next.progress));
    EXPECT_TRUE(next.progress.has_begun());
    kv_.abandon(*ns_, next.progress);
    next.outcome = Outcome();
  }
  EXPECT_EQ(store("k", kMaxValue), Status::capacity_exceeded) << "carried out at once, it cannot wait";
  for (int i = 0; i < 4; ++i) finish(commands_[static_cast<std::size_t>(i)]);
  EXPECT_EQ(free(), kGranules - kMaxValue / 512);
  ns_->state->restart();
}

TEST_F(KvSteps, ALongListIsOneOfManySteps) {
  std::set<std::string> keys;
  for (int i = 0; i < 3000; ++i) keys.insert("key" + std::to_string(i));
  for (const std::string& key : keys) ASSERT_EQ(store(key, 0), Status::success);
  constexpr std::uint32_t kRoom = 256 << 10;
  std::memset(guest(), 0xEE, kRoom + 1);
  const nvme::Sqe sqe = kv_command(KvOpcode::list, "", kRoom);
  Progress progress;
  unsigned steps = 1;
  for (; !step(sqe, progress); ++steps) EXPECT_EQ(*guest(), std::byte{0xEE}) << "how many there are comes last";
  EXPECT_GE(steps, 3000u / 512);
  std::uint32_t count = 0;
  std::memcpy(&count, guest(), 4);
  ASSERT_EQ(count, keys.size());
  std::uint64_t at = 4;
  for (const std::string& key : keys) {
    std::uint16_t length = 0;
    std::memcpy(&length, guest(at), 2);
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(guest(at + 2)), length), key);
    at += nvme::key_list_entry_bytes(length);
  }
  for (; at < kRoom; ++at) ASSERT_EQ(*guest(at), std::byte{0}) << at;
  EXPECT_EQ(*guest(kRoom), std::byte{0xEE});
}

}  // namespace
}  // namespace flashmob::command_set
