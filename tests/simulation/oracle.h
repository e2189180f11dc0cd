// What every block of the simulated device may hold: the truth that completions are checked against.
//
// A block's content is named by a token, from which all its bytes follow. Commands in flight make several tokens
// possible at once; a completion narrows them again. The rules are those of any disk: a write that completed before
// another began is gone for good, writes that overlap in time may end in either order, and a write that was aborted or
// lost in a reset has either happened or not, block by block. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace flashmob::simulation {

using Token = std::uint64_t;
inline constexpr Token kZeroes = 0;
inline constexpr Token kUncorrectable = ~std::uint64_t{0};
inline constexpr Token kAnything = ~std::uint64_t{0} - 1;  // nothing is known about the block

// The bytes of a block named by a token, which is neither kUncorrectable nor kAnything.
void fill_block(Token token, std::span<std::byte> block);

using WriteId = std::uint64_t;

class Oracle {
 public:
  // `torn`: overlapping writes may mix within a block, because several threads move data. `torn_reads`: a read may also
  // see a block half written, because a device beside the threads moves data and the CPU finishes what it leaves.
  Oracle(bool torn, bool torn_reads) : torn_(torn || torn_reads), torn_reads_(torn_reads) {}

  // All blocks read as zeroes; what was in flight is forgotten.
  void format(std::uint32_t nsid, std::uint64_t blocks, std::uint32_t block_bytes);
  std::uint64_t blocks(std::uint32_t nsid) const { return namespaces_.at(nsid).blocks.size(); }
  std::uint32_t block_bytes(std::uint32_t nsid) const { return namespaces_.at(nsid).block_bytes; }
  Token new_token() { return ++last_token_; }

  // Moments, to say since when something has been in flight.
  std::uint64_t now() const { return now_; }

  // A command that changes blocks, from its submission on.
  WriteId begin_write();
  void will_become(WriteId id, std::uint32_t nsid, std::uint64_t lba, Token token);
  void will_copy(WriteId id, std::uint32_t nsid, std::uint64_t lba, std::uint64_t source_lba);
  // ... and its end: it has happened, it has not, nobody knows.
  void commit(WriteId id);
  void cancel(WriteId id);
  void leave_open(WriteId id);

  // Every token that the block may have held at some moment after `since`; `own` does not count.
  void possible(std::uint32_t nsid, std::uint64_t lba, std::uint64_t since, std::vector<Token>& out,
                WriteId own = 0) const;

  // Nothing in flight began before this moment: what was overwritten earlier need not be remembered.
  void forget_before(std::uint64_t moment);

 private:
  struct Version {
    Token token;
    std::uint64_t since;              // when it became possible; when committed: when that was known
    std::uint64_t retired;            // when it became impossible
    WriteId pending;                  // 0: committed
    std::uint64_t copied_from;        // source LBA of a pending copy
    bool is_copy;
  };
  struct Block {
    std::vector<Version> versions;
  };
  struct Namespace {
    std::vector<Block> blocks;
    std::uint32_t block_bytes = 512;
  };
  struct Target {
    std::uint32_t nsid;
    std::uint64_t lba;
  };
  struct Write {
    std::uint64_t begin;
    std::vector<Target> targets;
  };
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  Version* find(const Target& target, WriteId id);
  Token value(std::uint32_t nsid, const Version& version, unsigned depth) const;
  void collect(std::uint32_t nsid, std::uint64_t lba, std::uint64_t since, std::vector<Token>& out, WriteId own,
               unsigned depth) const;

  bool torn_;
  bool torn_reads_;
  std::uint64_t now_ = 1;
  Token last_token_ = 0;
  WriteId last_write_ = 0;
  std::uint64_t forgotten_ = 0;
  std::map<std::uint32_t, Namespace> namespaces_;
  std::map<WriteId, Write> writes_;
};

}  // namespace flashmob::simulation
