// The other half of CommandStream: whether a completion is right, and what the oracle learns from it.
#include <algorithm>
#include <cstring>

#include "driver/names.h"
#include "simulation/command_stream.h"

namespace flashmob::simulation {
namespace {

using nvme::Status;

std::string unexpected(const Command& command, Status status, const std::string& expected) {
  return std::string(name_of(command.kind)) + " of namespace " + std::to_string(command.nsid) + ", blocks " +
         std::to_string(command.lba) + "+" + std::to_string(command.blocks) + ", completed with " +
         driver::status_text(nvme::to_field(status)) + "; expected " + expected;
}

std::string named(Status status) { return driver::status_text(nvme::to_field(status)); }

}  // namespace

CommandStream::Uncorrectable CommandStream::uncorrectable(const Command& command, std::uint64_t lba,
                                                          std::uint64_t blocks) {
  Uncorrectable result;
  for (std::uint64_t i = 0; i < blocks && lba + i < oracle_.blocks(command.nsid); ++i) {
    oracle_.possible(command.nsid, lba + i, command.begun, scratch_, command.write);
    const auto is_bad = [](Token token) { return token == kUncorrectable; };
    result.possible |= std::ranges::any_of(scratch_, [&](Token token) { return is_bad(token) || token == kAnything; });
    result.certain |= std::ranges::all_of(scratch_, is_bad);
  }
  return result;
}

CommandStream::Uncorrectable CommandStream::uncorrectable(const Command& command) {
  if (command.kind != Kind::copy) return uncorrectable(command, command.lba, command.blocks);
  Uncorrectable all;
  for (const auto& [lba, blocks] : command.sources) {
    const Uncorrectable one = uncorrectable(command, lba, blocks);
    all.possible |= one.possible;
    all.certain |= one.certain;
  }
  return all;
}

// Compares every byte that arrived with every content that its block may have had.
bool CommandStream::content_possible(const Command& command, std::string& why) {
  const std::uint32_t block = oracle_.block_bytes(command.nsid);
  const std::size_t bytes = std::size_t{command.blocks} * block;
  std::vector<std::byte> data(bytes);
  const auto known = std::make_unique<bool[]>(bytes);
  command.slot->gather(data, {known.get(), bytes});
  std::vector<std::byte> expected(block);
  for (std::uint32_t i = 0; i < command.blocks; ++i) {
    oracle_.possible(command.nsid, command.lba + i, command.begun, scratch_);
    const bool found = std::ranges::any_of(scratch_, [&](Token token) {
      if (token == kAnything) return true;
      if (token == kUncorrectable) return false;
      fill_block(token, expected);
      const std::size_t at = std::size_t{i} * block;
      if (std::memcmp(&data[at], expected.data(), block) == 0) return true;
      for (std::size_t k = 0; k < block; ++k)
        if (known[at + k] && data[at + k] != expected[k]) return false;
      return true;
    });
    if (found) continue;
    std::uint64_t first_word;
    std::memcpy(&first_word, &data[std::size_t{i} * block], 8);
    why = "LBA " + std::to_string(command.lba + i) + " of namespace " + std::to_string(command.nsid) +
          " holds what it cannot: it begins with token " + std::to_string(first_word) + "; possible:";
    for (const Token token : scratch_) why.append(" ").append(std::to_string(token));
    return false;
  }
  return true;
}

std::string CommandStream::judge_read(Command& command, Status status) {
  const Uncorrectable bad = uncorrectable(command);
  if (status == Status::unrecovered_read_error && bad.possible) return {};
  if (status != Status::success || bad.certain)
    return unexpected(command, status, bad.certain ? named(Status::unrecovered_read_error) : "success");
  std::string why;
  if (command.kind == Kind::read && !content_possible(command, why)) return why;
  return {};
}

std::string CommandStream::judge_compare(Command& command, Status status) {
  const Uncorrectable bad = uncorrectable(command);
  if (status == Status::unrecovered_read_error && bad.possible) return {};
  bool may_be_equal = !bad.certain;
  bool must_be_equal = true;
  for (std::uint32_t i = 0; i < command.blocks; ++i) {
    oracle_.possible(command.nsid, command.lba + i, command.begun, scratch_, command.write);
    const auto equal = [&](Token token) { return token == command.tokens[i]; };
    may_be_equal &= std::ranges::any_of(scratch_, [&](Token token) { return equal(token) || token == kAnything; });
    must_be_equal &= std::ranges::all_of(scratch_, equal);
  }
  if (status == Status::success && may_be_equal) return {};
  if (status == Status::compare_failure && !must_be_equal) return {};
  return unexpected(command, status,
                    must_be_equal  ? "success"
                    : may_be_equal ? "success or a compare failure"
                                   : "a compare failure");
}

std::string CommandStream::judge_fused_write(Command& command, Status status) {
  const FusedPair& pair = *command.pair;
  // Completions of a pair come in order, unless the first half went its own way by an abort.
  if (!pair.first_done && !pair.disturbed) return "a fused Write completed before its Compare";
  if (pair.disturbed) return {};
  const Status expected = pair.first == Status::success ? Status::success : Status::aborted_failed_fused;
  return status == expected ? std::string() : unexpected(command, status, named(expected));
}

std::string CommandStream::judge_status(Command& command, Status status) {
  if (status == Status::abort_requested && (command.aborts_pending != 0 || command.abort_confirmed)) return {};
  if (status == Status::aborted_sq_deletion && command.queue_deleted) return {};
  if (status == Status::abort_requested || status == Status::aborted_sq_deletion)
    return unexpected(command, status, "no abort, for there was no reason");
  if (command.abort_confirmed) return unexpected(command, status, "Command Abort Requested, as Abort had promised");
  if (command.kind == Kind::garbage) return {};

  const bool attachment_known =
      command.sqe.nsid == 0 || command.sqe.nsid > kNamespaces || attachments_[command.nsid].epoch == command.epoch;
  const bool attached = attachments_[command.nsid].attached;
  const bool names_namespace = command.sqe.nsid == command.nsid;
  if (names_namespace && (!attachment_known || !attached)) {
    // Fused halves and wrong commands may be found wrong before or after the namespace is missed.
    if (status == Status::invalid_field || command.pair != nullptr || command.defect != Status::success ||
        command.kind == Kind::lone_first || command.kind == Kind::lone_second)
      return {};
    if (attachment_known) return unexpected(command, status, "Invalid Field: the namespace is not attached");
  }
  if (command.defect != Status::success) {
    if (status == command.defect) return {};
    if (status == Status::unrecovered_read_error && uncorrectable(command).possible) return {};
    return unexpected(command, status, named(command.defect));
  }
  switch (command.kind) {
    case Kind::read:
    case Kind::verify:
    case Kind::copy:
      return judge_read(command, status);
    case Kind::compare:
      return judge_compare(command, status);
    case Kind::fused_compare:
      return command.pair->disturbed ? std::string() : judge_compare(command, status);
    case Kind::fused_write:
      return judge_fused_write(command, status);
    case Kind::lone_first:
    case Kind::lone_second:
      return status == Status::aborted_missing_fused
                 ? std::string()
                 : unexpected(command, status, named(Status::aborted_missing_fused));
    default:
      return status == Status::success ? std::string() : unexpected(command, status, "success");
  }
}

void CommandStream::settle(Command& command, Status status) {
  if (command.pair != nullptr && command.kind == Kind::fused_compare) {
    command.pair->first_done = true;
    command.pair->first = status;
    return;  // the write is the other half's
  }
  if (command.write == 0) return;
  if (status == Status::success)
    oracle_.commit(command.write);
  else if (status == Status::abort_requested || status == Status::aborted_sq_deletion)
    oracle_.leave_open(command.write);
  else
    oracle_.cancel(command.write);
}

std::string CommandStream::judge(Command& command, Status status) {
  std::string why = judge_status(command, status);
  if (why.empty() && command.slot != nullptr) {
    // A command that failed has moved nothing; one that was aborted may have; one that reads moved only its pieces.
    const bool moved =
        status == Status::success || status == Status::abort_requested || status == Status::aborted_sq_deletion;
    if (command.to_host && !command.slot->intact(!moved))
      why =
          std::string(name_of(command.kind)) + " wrote outside its buffer, or although it failed with " + named(status);
  }
  settle(command, status);
  if (command.slot != nullptr) slots_.give(command.slot);
  command.slot = nullptr;
  return why;
}

void CommandStream::lose(Command& command) {
  if (command.write != 0 && command.kind != Kind::fused_compare) oracle_.leave_open(command.write);
  if (command.slot != nullptr) slots_.give(command.slot);
  command.slot = nullptr;
}

}  // namespace flashmob::simulation
