// What the tests of the NVM command set share: a namespace over media that can fail on request, a guest with memory,
// and builders of commands. Tests only; one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "command_set/nvm.h"
#include "memory/address_space.h"
#include "memory/data_pointer.h"

namespace flashmob::command_set {

using nvme::Status;
using timing::DemandKind;

// Plain bytes; each operation can be told to fail, and counts its calls.
class TestMedia final : public media::Media {
 public:
  explicit TestMedia(std::uint64_t size_bytes) : Media(size_bytes, nullptr), bytes_(size_bytes) {
    for (std::size_t i = 0; i < bytes_.size(); i += 8) {
      const std::uint64_t word = splitmix64(i);
      std::memcpy(&bytes_[i], &word, 8);
    }
  }
  bool read(std::uint64_t offset, std::span<std::byte> out) override {
    ++reads;
    held_at_read = held;
    if (fail_reads) return false;
    std::memcpy(out.data(), at(offset, out.size()), out.size());
    if (yield_after_reads) std::this_thread::yield();
    return true;
  }
  bool write(std::uint64_t offset, std::span<const std::byte> in) override {
    ++writes;
    held_at_write = held;
    if (fail_writes) return false;
    written.emplace_back(offset, in.size());
    std::memcpy(at(offset, in.size()), in.data(), in.size());
    return true;
  }
  bool deallocate(std::uint64_t offset, std::uint64_t bytes) override {
    ++deallocates;
    if (fail_deallocates) return false;
    std::memset(at(offset, bytes), 0, bytes);
    return true;
  }
  bool flush() override {
    ++flushes;
    return !fail_flushes;
  }
  bool sync(std::uint64_t, std::uint64_t) override { return flush(); }
  void hold(std::uint64_t offset, std::uint64_t bytes) override { held = {offset, bytes}; }
  void let_go(std::uint64_t, std::uint64_t) override { held = {}; }
  std::string describe() const override { return "test"; }

  std::byte* at(std::uint64_t offset, std::uint64_t bytes) {
    EXPECT_LE(offset, bytes_.size());
    EXPECT_LE(bytes, bytes_.size() - offset);
    return bytes_.data() + offset;
  }
  std::vector<std::byte> copy() const { return bytes_; }

  using Range = std::pair<std::uint64_t, std::uint64_t>;  // offset and bytes
  std::vector<Range> written;
  Range held{}, held_at_read{}, held_at_write{};
  int reads = 0, writes = 0, deallocates = 0, flushes = 0;
  bool fail_reads = false, fail_writes = false, fail_deallocates = false, fail_flushes = false;
  bool yield_after_reads = false;  // invites another thread in between a read and what follows from it

 private:
  std::vector<std::byte> bytes_;
};

// Remembers what it is told.
class TestModel final : public timing::TimingModel {
 public:
  void schedule(std::span<const timing::Demand> batch, std::uint64_t, std::span<std::uint64_t>) override {
    scheduled.insert(scheduled.end(), batch.begin(), batch.end());
  }
  void reset() override {}
  void set_path_ns(std::uint64_t) override {}
  std::string describe() const override { return "test"; }
  void deallocate(std::uint64_t first_unit, std::uint64_t units, std::uint64_t) override {
    deallocated.emplace_back(first_unit, units);
  }

  std::vector<timing::Demand> scheduled;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> deallocated;
};

class NvmCommandTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kBlocks = 4096;
  static constexpr std::uint64_t kGuestIova = 0x1000000;
  static constexpr std::uint64_t kGuestBytes = 2 << 20;
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kListIova = kGuestIova + kGuestBytes - kPage;  // where PRP lists are built
  static constexpr std::uint32_t kMaxTransferBytes = 64 * 1024;

  NvmCommandTest() { format(9); }

  // Starts over with a namespace of `kBlocks` blocks of 2^lba_shift bytes.
  void format(std::uint8_t lba_shift) {
    media_ = std::make_unique<TestMedia>(kBlocks << lba_shift);
    ns_ = std::make_unique<Namespace>();
    ns_->blocks = kBlocks;
    ns_->nsid = 1;
    ns_->lba_shift = lba_shift;
    ns_->unit_shift = 9;
    ns_->unit_base = 1000;
    ns_->command_set = &commands_;
    ns_->media = media_.get();
  }

  std::byte* guest(std::uint64_t offset = 0) { return guest_.data() + offset; }
  void fill_guest(std::uint64_t bytes, std::uint64_t seed) {
    Rng rng(seed);
    for (std::uint64_t i = 0; i < bytes; ++i) guest_[i] = static_cast<std::byte>(rng.next());
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    std::memcpy(guest(), values.data(), values.size() * sizeof(T));
  }

  // A command on blocks [slba, slba + blocks) whose data lies at the start of the guest's memory.
  nvme::Sqe command(nvme::NvmOpcode opcode, std::uint64_t slba, std::uint32_t blocks) {
    nvme::Sqe sqe{};
    sqe.opcode = static_cast<std::uint8_t>(opcode);
    sqe.nsid = 1;
    nvme::set_lba_range(sqe, slba, blocks);
    point(sqe, 0, std::uint64_t{blocks} << ns_->lba_shift);
    return sqe;
  }
  // Points the command at `bytes` of guest memory from `offset` on, by PRPs.
  void point(nvme::Sqe& sqe, std::uint64_t offset, std::uint64_t bytes) {
    const std::uint64_t first = kGuestIova + offset;
    const std::uint64_t next = (first / kPage + 1) * kPage;
    sqe.prp1 = first;
    sqe.prp2 = 0;
    if (first + bytes <= next) return;
    sqe.prp2 = next;
    if (first + bytes <= next + kPage) return;
    sqe.prp2 = kListIova;
    std::uint64_t slot = 0;
    for (std::uint64_t page = next; page < first + bytes && slot < kPage / 8; page += kPage, ++slot)
      std::memcpy(guest(kGuestBytes - kPage + slot * 8), &page, 8);
  }

  Outcome run(const nvme::Sqe& sqe) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_, &model_};
    reader_.enter();
    const Outcome outcome = commands_.execute(sqe, *ns_, context);
    reader_.leave();
    return outcome;
  }
  std::pair<Outcome, Outcome> run_fused(const nvme::Sqe& first, const nvme::Sqe& second) {
    ExecContext context{reader_, segments_, bounce_, limits_, nullptr, write_through_};
    std::pair<Outcome, Outcome> outcomes;
    reader_.enter();
    commands_.execute_fused(first, second, *ns_, context, outcomes.first, outcomes.second);
    reader_.leave();
    return outcomes;
  }
  Status status_of(const nvme::Sqe& sqe) { return run(sqe).status; }

  std::byte* stored(std::uint64_t lba, std::uint64_t blocks = 1) {
    return media_->at(lba << ns_->lba_shift, blocks << ns_->lba_shift);
  }
  bool is_zero(std::uint64_t lba, std::uint64_t blocks) {
    const std::byte* bytes = stored(lba, blocks);
    return std::all_of(bytes, bytes + (blocks << ns_->lba_shift), [](std::byte b) { return b == std::byte{0}; });
  }
  // What must be durable before the answer.
  void expect_sync(const Outcome& outcome, std::uint64_t lba, std::uint64_t blocks, bool is_write) {
    EXPECT_EQ(outcome.sync_offset, lba << ns_->lba_shift);
    EXPECT_EQ(outcome.sync_bytes, blocks << ns_->lba_shift);
    EXPECT_EQ(outcome.sync_is_of_write, is_write);
  }
  static void expect_immediate(const Outcome& outcome) { EXPECT_EQ(outcome.demand.kind, DemandKind::immediate); }
  // The demand for blocks of 512 bytes in units of 512 bytes.
  static void expect_demand(const Outcome& outcome, DemandKind kind, std::uint64_t slba, std::uint32_t blocks) {
    EXPECT_EQ(outcome.demand.kind, kind);
    EXPECT_EQ(outcome.demand.first_unit, 1000 + slba);
    EXPECT_EQ(outcome.demand.units, blocks);
  }

  std::vector<std::byte> guest_ = std::vector<std::byte>(kGuestBytes);
  memory::AddressSpace space_;
  // Maps the guest's memory before the reader looks at it first.
  const bool mapped_ = (space_.map(kGuestIova, kGuestBytes, guest_.data()), true);
  memory::AddressSpace::Reader reader_{space_};
  memory::SegmentList segments_{1024};
  std::vector<std::byte> bounce_ = std::vector<std::byte>(kMaxTransferBytes + kPage);
  IoLimits limits_{{}, kMaxTransferBytes, true, true};
  bool write_through_ = false;
  TestModel model_;
  NvmCommandSet commands_;
  std::unique_ptr<TestMedia> media_;
  std::unique_ptr<Namespace> ns_;
};

}  // namespace flashmob::command_set
