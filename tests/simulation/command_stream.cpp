#include "simulation/command_stream.h"

#include <algorithm>
#include <cstring>

#include "nvme/dataset.h"
#include "nvme/io_command.h"
#include "nvme/opcode.h"

namespace flashmob::simulation {
namespace {

using nvme::NvmOpcode;
using nvme::Status;

constexpr std::uint32_t kMaxMappingBlocks = 40;
constexpr std::uint32_t kMaxRanges = 4;

NvmOpcode opcode_of(Kind kind) {
  switch (kind) {
    case Kind::read:
      return NvmOpcode::read;
    case Kind::write:
    case Kind::fused_write:
    case Kind::lone_second:
      return NvmOpcode::write;
    case Kind::flush:
      return NvmOpcode::flush;
    case Kind::compare:
    case Kind::fused_compare:
    case Kind::lone_first:
      return NvmOpcode::compare;
    case Kind::write_zeroes:
      return NvmOpcode::write_zeroes;
    case Kind::write_uncorrectable:
      return NvmOpcode::write_uncorrectable;
    case Kind::dataset_management:
      return NvmOpcode::dataset_management;
    case Kind::verify:
      return NvmOpcode::verify;
    case Kind::copy:
      return NvmOpcode::copy;
    case Kind::garbage:
      break;
  }
  return NvmOpcode::flush;
}

bool has_transfer(Kind kind) {
  return kind == Kind::read || kind == Kind::write || kind == Kind::compare || kind == Kind::fused_compare ||
         kind == Kind::fused_write || kind == Kind::lone_first || kind == Kind::lone_second;
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {
      "Read",   "Write", "Flush",         "Compare",     "Write Zeroes", "Write Uncorrectable", "Deallocate",
      "Verify", "Copy",  "fused Compare", "fused Write", "lone Compare", "lone Write",          "garbage"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::unique_ptr<Command> CommandStream::begin(Kind kind) {
  auto command = std::make_unique<Command>();
  command->kind = kind;
  command->nsid = static_cast<std::uint32_t>(1 + rng_.below(kNamespaces));
  command->begun = oracle_.now();
  command->epoch = attachments_[command->nsid].epoch;
  command->to_host = kind == Kind::read;
  command->sqe.opcode = static_cast<std::uint8_t>(opcode_of(kind));
  command->sqe.nsid = command->nsid;
  return command;
}

void CommandStream::pick_range(Command& command, std::uint64_t max_blocks) {
  const std::uint64_t total = oracle_.blocks(command.nsid);
  command.blocks =
      static_cast<std::uint32_t>(1 + rng_.below(chance(4) ? max_blocks : std::min<std::uint64_t>(max_blocks, 4)));
  // Half of all commands crowd into a few blocks, so that they meet.
  const std::uint64_t span = chance(2) ? std::min<std::uint64_t>(total, 16 + command.blocks) : total;
  command.lba = rng_.below(span - command.blocks + 1);
  nvme::set_lba_range(command.sqe, command.lba, command.blocks);
}

// A slot for the command's data, filled for commands that send some.
bool CommandStream::give_data(Command& command, bool damage) {
  command.slot = slots_.take();
  if (command.slot == nullptr) return false;
  const std::uint32_t block = oracle_.block_bytes(command.nsid);
  const std::uint64_t bytes = std::min<std::uint64_t>(std::uint64_t{command.blocks} * block, max_transfer_bytes_);
  command.slot->paint();
  command.defect = command.slot->describe(rng_, command.sqe, bytes, command.to_host, damage);
  if (command.to_host) return true;
  std::vector<std::byte> data(std::uint64_t{command.blocks} * block);
  for (std::size_t i = 0; i < command.tokens.size(); ++i)
    fill_block(command.tokens[i], std::span(data).subspan(i * block, block));
  command.slot->scatter(std::span(data).first(bytes));
  return true;
}

// Read, Write, Compare and halves of fused pairs.
bool CommandStream::make_transfer(Command& command) {
  pick_range(command, max_transfer_bytes_ / oracle_.block_bytes(command.nsid));
  const bool writes =
      command.kind == Kind::write || command.kind == Kind::fused_write || command.kind == Kind::lone_second;
  for (std::uint32_t i = 0; i < command.blocks && !command.to_host; ++i) {
    Token token = oracle_.new_token();
    if (!writes && !chance(16)) {
      // A compare mostly expects what is there.
      oracle_.possible(command.nsid, command.lba + i, command.begun, scratch_);
      if (scratch_[0] != kUncorrectable && scratch_[0] != kAnything) token = scratch_[0];
    }
    command.tokens.push_back(token);
  }
  if (chance(8)) command.sqe.cdw12 |= nvme::kIoForceUnitAccess;
  return give_data(command, command.kind <= Kind::compare && chance(25));
}

bool CommandStream::make_dataset(Command& command) {
  std::vector<nvme::DatasetRange> ranges(1 + rng_.below(kMaxRanges));
  for (auto& range : ranges) {
    pick_range(command, kMaxMappingBlocks / 2);
    range = {static_cast<std::uint32_t>(rng_.next()), chance(10) ? 0 : command.blocks, command.lba};
    if (range.nlb != 0) command.sources.emplace_back(range.slba, range.nlb);
  }
  command.slot = slots_.take();
  if (command.slot == nullptr) return false;
  command.slot->paint();
  command.defect = command.slot->describe(rng_, command.sqe, ranges.size() * sizeof ranges[0], false, chance(25));
  if (command.defect == Status::success && chance(15)) {
    ranges.back() = {0, 2, oracle_.blocks(command.nsid) - 1};
    command.defect = Status::lba_out_of_range;
  }
  command.slot->scatter(std::as_bytes(std::span(ranges)));
  command.sqe.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
  command.sqe.cdw11 = nvme::kDatasetDeallocate | static_cast<std::uint32_t>(rng_.below(4));
  command.sqe.cdw12 = 0;
  return true;
}

bool CommandStream::make_copy(Command& command) {
  std::vector<nvme::CopySourceRange> ranges(1 + rng_.below(kMaxRanges));
  std::uint32_t total = 0;
  for (auto& range : ranges) {
    pick_range(command, 8);
    range = {};
    range.slba = command.lba;
    range.nlb = static_cast<std::uint16_t>(command.blocks - 1);
    command.sources.emplace_back(command.lba, command.blocks);
    total += command.blocks;
  }
  command.slot = slots_.take();
  if (command.slot == nullptr) return false;
  command.slot->paint();
  command.defect = command.slot->describe(rng_, command.sqe, ranges.size() * sizeof ranges[0], false, chance(25));
  command.blocks = total;
  command.lba = rng_.below(oracle_.blocks(command.nsid) - total + 1);
  if (command.defect == Status::success && chance(15)) {
    command.lba = oracle_.blocks(command.nsid) - total + 1;
    command.defect = Status::lba_out_of_range;
  }
  command.slot->scatter(std::as_bytes(std::span(ranges)));
  nvme::set_lba_range(command.sqe, command.lba, 1);
  command.sqe.cdw12 = static_cast<std::uint32_t>(ranges.size() - 1);
  return true;
}

// Random bytes. Its addresses name no memory and its LBA no block, so that it cannot have an effect.
void CommandStream::make_garbage(Command& command) {
  for (std::size_t i = 0; i < sizeof command.sqe; i += 8) {
    const std::uint64_t word = rng_.next();
    std::memcpy(reinterpret_cast<std::byte*>(&command.sqe) + i, &word, 8);
  }
  command.sqe.flags = static_cast<std::uint8_t>(command.sqe.flags & ~nvme::kFlagFuseMask);
  command.sqe.cdw11 |= 1u << 31;
  if (chance(2)) command.sqe.nsid = command.nsid;
}

// Makes one thing wrong with a command that is right.
void CommandStream::spoil(Command& command) {
  const std::uint64_t total = oracle_.blocks(command.nsid);
  switch (rng_.below(8)) {
    case 0: {
      constexpr std::uint8_t kUnknown[] = {0x03, 0x06, 0x0A, 0x20, 0x7F, 0x80, 0xFF};
      command.sqe.opcode = kUnknown[rng_.below(std::size(kUnknown))];
      command.defect = Status::invalid_opcode;
      break;
    }
    case 1:
      command.sqe.nsid = chance(2) ? 0 : static_cast<std::uint32_t>(257 + rng_.below(0xFFFFFFFE - 257));
      command.defect = Status::invalid_namespace_or_format;
      break;
    case 2:
      command.sqe.nsid = 3;
      command.defect = Status::invalid_field;
      break;
    case 3:
      command.sqe.flags |= nvme::kFlagFuseMask;
      command.defect = Status::invalid_field;
      break;
    case 4:
      if (command.kind != Kind::read && command.kind != Kind::write && command.kind != Kind::compare) break;
      command.sqe.cdw12 |= 1u << (26 + rng_.below(4));  // PRINFO
      command.defect = Status::invalid_field;
      break;
    case 5:
      if (!has_transfer(command.kind)) break;
      nvme::set_lba_range(command.sqe, 0,
                          static_cast<std::uint32_t>(max_transfer_bytes_ / oracle_.block_bytes(command.nsid) + 1));
      command.defect = Status::invalid_field;
      break;
    default:
      if (command.kind == Kind::flush || command.kind == Kind::dataset_management || command.kind == Kind::copy) break;
      nvme::set_lba_range(command.sqe, chance(2) ? total - command.blocks + 1 : rng_.next() | (std::uint64_t{1} << 63),
                          command.blocks);
      command.defect = Status::lba_out_of_range;
      break;
  }
}

std::vector<std::unique_ptr<Command>> CommandStream::make_pair() {
  auto first = begin(Kind::fused_compare);
  first->sqe.flags |= nvme::kFlagFuseFirst;
  if (!make_transfer(*first)) return {};
  auto second = begin(Kind::fused_write);
  second->sqe.flags |= nvme::kFlagFuseSecond;
  second->nsid = second->sqe.nsid = first->nsid;
  second->epoch = first->epoch;
  second->lba = first->lba;
  second->blocks = first->blocks;
  nvme::set_lba_range(second->sqe, second->lba, second->blocks);
  for (std::uint32_t i = 0; i < second->blocks; ++i) second->tokens.push_back(oracle_.new_token());
  if (!give_data(*second, false)) {
    slots_.give(first->slot);
    return {};
  }
  write_tokens(*second);
  first->pair = second->pair = std::make_shared<FusedPair>();
  first->write = second->write;  // only to leave it out of what the compare may have seen
  std::vector<std::unique_ptr<Command>> both;
  both.push_back(std::move(first));
  both.push_back(std::move(second));
  return both;
}

void CommandStream::write_tokens(Command& command) {
  command.write = oracle_.begin_write();
  for (std::uint32_t i = 0; i < command.blocks; ++i)
    oracle_.will_become(command.write, command.nsid, command.lba + i, command.tokens[i]);
}

std::unique_ptr<Command> CommandStream::read_of(std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks) {
  auto command = begin(Kind::read);
  command->nsid = command->sqe.nsid = nsid;
  command->epoch = attachments_[nsid].epoch;
  command->lba = lba;
  command->blocks = blocks;
  nvme::set_lba_range(command->sqe, lba, blocks);
  give_data(*command, false);
  return command;
}

std::vector<std::unique_ptr<Command>> CommandStream::next(bool half_open, bool halves) {
  constexpr Kind kDeck[] = {
      Kind::read,    Kind::read,   Kind::read,         Kind::read,  Kind::read,          Kind::write,
      Kind::write,   Kind::write,  Kind::write,        Kind::write, Kind::flush,         Kind::compare,
      Kind::compare, Kind::verify, Kind::write_zeroes, Kind::copy,  Kind::fused_compare, Kind::dataset_management};
  Kind kind = kDeck[rng_.below(std::size(kDeck))];
  if (chance(40)) kind = Kind::write_uncorrectable;
  if (chance(60) && halves) kind = Kind::lone_first;
  if (chance(60) && !half_open) kind = Kind::lone_second;
  if (chance(50)) kind = Kind::garbage;
  if (kind == Kind::fused_compare) return halves ? make_pair() : std::vector<std::unique_ptr<Command>>();

  auto command = begin(kind);
  bool good = true;
  switch (kind) {
    case Kind::flush:
      break;
    case Kind::garbage:
      make_garbage(*command);
      break;
    case Kind::dataset_management:
      good = make_dataset(*command);
      break;
    case Kind::copy:
      good = make_copy(*command);
      break;
    case Kind::write_zeroes:
    case Kind::write_uncorrectable:
    case Kind::verify:
      pick_range(*command, kMaxMappingBlocks);
      break;
    default:
      good = make_transfer(*command);
      break;
  }
  if (!good) return {};
  if (kind == Kind::lone_first) command->sqe.flags |= nvme::kFlagFuseFirst;
  if (kind == Kind::lone_second) command->sqe.flags |= nvme::kFlagFuseSecond;
  if (kind <= Kind::copy && command->defect == Status::success && chance(12)) spoil(*command);
  if (command->defect == Status::success) {
    if (kind == Kind::write) write_tokens(*command);
    if (kind == Kind::write_zeroes || kind == Kind::write_uncorrectable) {
      command->tokens.assign(command->blocks, kind == Kind::write_zeroes ? kZeroes : kUncorrectable);
      write_tokens(*command);
    }
    if (kind == Kind::dataset_management || kind == Kind::copy) {
      command->write = oracle_.begin_write();
      std::uint64_t to = command->lba;
      for (const auto& [lba, blocks] : command->sources) {
        for (std::uint32_t i = 0; i < blocks; ++i) {
          if (kind == Kind::copy)
            oracle_.will_copy(command->write, command->nsid, to++, lba + i);
          else
            oracle_.will_become(command->write, command->nsid, lba + i, kZeroes);
        }
      }
    }
  }
  std::vector<std::unique_ptr<Command>> one;
  one.push_back(std::move(command));
  return one;
}

}  // namespace flashmob::simulation
