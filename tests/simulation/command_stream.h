// Random commands, each with all that is needed to judge its completion: legal ones of every kind, and illegal ones
// with exactly one thing wrong, so that exactly one status is right. For one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "nvme/command.h"
#include "nvme/status.h"
#include "simulation/oracle.h"
#include "simulation/transfer.h"

namespace flashmob::simulation {

inline constexpr std::uint32_t kNamespaces = 2;  // NSIDs 1 and 2; 3 exists for nobody

enum class Kind : std::uint8_t {
  read,
  write,
  flush,
  compare,
  write_zeroes,
  write_uncorrectable,
  dataset_management,
  verify,
  copy,
  fused_compare,
  fused_write,
  lone_first,   // first half of a fused pair that no second half follows
  lone_second,
  garbage,      // 64 random bytes with a valid identifier
};
const char* name_of(Kind kind);

// What the halves of a fused pair must agree on.
struct FusedPair {
  bool first_done = false;
  nvme::Status first = nvme::Status::success;
  bool disturbed = false;  // an abort, or the deletion of the queue, may have torn it apart
};

struct Command {
  Kind kind = Kind::read;
  nvme::Sqe sqe{};
  std::uint32_t nsid = 0;
  std::uint64_t lba = 0;
  std::uint32_t blocks = 0;
  bool to_host = false;
  nvme::Status defect = nvme::Status::success;  // the one thing wrong with it
  Slot* slot = nullptr;
  WriteId write = 0;          // what it may change, 0: nothing
  std::uint64_t begun = 0;    // moment of the oracle
  unsigned epoch = 0;         // of its namespace's attachment
  std::vector<Token> tokens;  // of a write, or expected by a compare
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sources;  // of a copy
  std::shared_ptr<FusedPair> pair;
  unsigned aborts_pending = 0;  // sent and not answered
  bool abort_confirmed = false;
  bool queue_deleted = false;   // or about to be
};

// Which namespaces a host's controller has. The epoch counts changes: commands that see one may go either way.
struct Attachment {
  bool attached = true;
  unsigned epoch = 0;
};
using Attachments = std::array<Attachment, kNamespaces + 1>;  // by NSID

class CommandStream {
 public:
  CommandStream(std::uint64_t seed, Oracle& oracle, SlotPool& slots, std::uint64_t max_transfer_bytes,
                const Attachments& attachments)
      : rng_(seed),
        oracle_(oracle),
        slots_(slots),
        max_transfer_bytes_(max_transfer_bytes),
        attachments_(attachments) {}

  // The next commands of one queue: one, or both halves of a fused pair; none when no slot is free. `half_open`: the
  // queue's last command is a lone first half. `halves`: whether the queue has room for commands of two halves.
  std::vector<std::unique_ptr<Command>> next(bool half_open, bool halves);
  // A read of a given range; no slot must be in use.
  std::unique_ptr<Command> read_of(std::uint32_t nsid, std::uint64_t lba, std::uint32_t blocks);
  // Checks a completion and tells the oracle what it means. Returns what is wrong with it, or nothing.
  std::string judge(Command& command, nvme::Status status);
  // The command will never complete: a reset or the deletion of its queue swallowed it.
  void lose(Command& command);

 private:
  bool chance(unsigned one_in) { return rng_.below(one_in) == 0; }
  std::unique_ptr<Command> begin(Kind kind);
  void pick_range(Command& command, std::uint64_t max_blocks);
  bool give_data(Command& command, bool damage);
  void write_tokens(Command& command);
  bool make_transfer(Command& command);
  bool make_dataset(Command& command);
  bool make_copy(Command& command);
  void make_garbage(Command& command);
  void spoil(Command& command);
  std::vector<std::unique_ptr<Command>> make_pair();

  struct Uncorrectable {
    bool possible = false;
    bool certain = false;
  };
  Uncorrectable uncorrectable(const Command& command, std::uint64_t lba, std::uint64_t blocks);
  Uncorrectable uncorrectable(const Command& command);
  std::string judge_status(Command& command, nvme::Status status);
  std::string judge_read(Command& command, nvme::Status status);
  std::string judge_compare(Command& command, nvme::Status status);
  std::string judge_fused_write(Command& command, nvme::Status status);
  bool content_possible(const Command& command, std::string& why);
  void settle(Command& command, nvme::Status status);

  Rng rng_;
  Oracle& oracle_;
  SlotPool& slots_;
  std::uint64_t max_transfer_bytes_;
  const Attachments& attachments_;
  std::vector<Token> scratch_;
};

}  // namespace flashmob::simulation
