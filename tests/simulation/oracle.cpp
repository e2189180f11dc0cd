#include "simulation/oracle.h"

#include <algorithm>
#include <cstring>

namespace flashmob::simulation {
namespace {

constexpr unsigned kMaxCopyDepth = 4;  // copies of copies in flight: beyond this we claim to know nothing

}  // namespace

void fill_block(Token token, std::span<std::byte> block) {
  if (token == kZeroes) {
    std::memset(block.data(), 0, block.size());
    return;
  }
  for (std::size_t i = 0; i * 8 < block.size(); ++i) {
    const std::uint64_t word = token ^ (i * 0x9E3779B97F4A7C15u);
    std::memcpy(block.data() + i * 8, &word, 8);
  }
}

void Oracle::format(std::uint32_t nsid, std::uint64_t blocks, std::uint32_t block_bytes) {
  Namespace& ns = namespaces_[nsid];
  ns.block_bytes = block_bytes;
  ns.blocks.assign(blocks, Block{{Version{kZeroes, 0, kNever, 0, 0, false}}});
  for (auto& [id, write] : writes_) std::erase_if(write.targets, [nsid](const Target& t) { return t.nsid == nsid; });
}

WriteId Oracle::begin_write() {
  writes_[++last_write_] = {now_, {}};
  return last_write_;
}

void Oracle::will_become(WriteId id, std::uint32_t nsid, std::uint64_t lba, Token token) {
  namespaces_.at(nsid).blocks.at(lba).versions.push_back({token, now_, kNever, id, 0, false});
  writes_.at(id).targets.push_back({nsid, lba});
}

void Oracle::will_copy(WriteId id, std::uint32_t nsid, std::uint64_t lba, std::uint64_t source_lba) {
  namespaces_.at(nsid).blocks.at(lba).versions.push_back({kAnything, now_, kNever, id, source_lba, true});
  writes_.at(id).targets.push_back({nsid, lba});
}

Oracle::Version* Oracle::find(const Target& target, WriteId id) {
  for (Version& version : namespaces_.at(target.nsid).blocks.at(target.lba).versions)
    if (version.pending == id) return &version;
  return nullptr;
}

// A command that names a block twice has one version per mention; each is ended in turn.
void Oracle::commit(WriteId id) {
  const Write write = writes_.at(id);
  ++now_;
  // Values are settled before anything is retired: a copy's sources must still be seen as they were.
  for (const Target& target : write.targets) {
    auto& versions = namespaces_.at(target.nsid).blocks.at(target.lba).versions;
    for (Version& version : versions) {
      if (version.pending != id) continue;
      version.token = value(target.nsid, version, 0);
      version.is_copy = false;
    }
  }
  for (const Target& target : write.targets) {
    auto& versions = namespaces_.at(target.nsid).blocks.at(target.lba).versions;
    Version* const own = find(target, id);
    if (own == nullptr) continue;
    for (Version& version : versions) {
      if (&version == own || version.retired != kNever) continue;
      if (version.pending == 0 && version.since <= write.begin) {
        version.retired = now_;
      } else if (torn_ && version.pending != id) {
        own->token = kAnything;
      }
    }
    own->pending = 0;
    own->since = now_;
    if (versions.size() > 6)
      std::erase_if(versions, [this](const Version& version) { return version.retired <= forgotten_; });
  }
  writes_.erase(id);
}

void Oracle::cancel(WriteId id) {
  for (const Target& target : writes_.at(id).targets)
    std::erase_if(namespaces_.at(target.nsid).blocks.at(target.lba).versions,
                  [id](const Version& version) { return version.pending == id; });
  writes_.erase(id);
}

void Oracle::leave_open(WriteId id) {
  ++now_;
  for (const Target& target : writes_.at(id).targets) {
    for (Version& version : namespaces_.at(target.nsid).blocks.at(target.lba).versions) {
      if (version.pending != id) continue;
      version.token = value(target.nsid, version, 0);
      if (torn_) version.token = kAnything;
      version.is_copy = false;
      version.pending = 0;
      version.since = now_;
    }
  }
  writes_.erase(id);
}

// What a version stands for. A pending copy stands for its source's content, if that is one for sure.
Token Oracle::value(std::uint32_t nsid, const Version& version, unsigned depth) const {
  if (!version.is_copy) return version.token;
  if (depth >= kMaxCopyDepth) return kAnything;
  std::vector<Token> tokens;
  collect(nsid, version.copied_from, version.since, tokens, 0, depth + 1);
  return tokens.size() == 1 && tokens[0] != kUncorrectable ? tokens[0] : kAnything;
}

void Oracle::collect(std::uint32_t nsid, std::uint64_t lba, std::uint64_t since, std::vector<Token>& out, WriteId own,
                     unsigned depth) const {
  for (const Version& version : namespaces_.at(nsid).blocks.at(lba).versions) {
    if (version.retired <= since || (own != 0 && version.pending == own)) continue;
    const Token token = value(nsid, version, depth);
    if (std::ranges::find(out, token) == out.end()) out.push_back(token);
  }
}

void Oracle::possible(std::uint32_t nsid, std::uint64_t lba, std::uint64_t since, std::vector<Token>& out,
                      WriteId own) const {
  out.clear();
  collect(nsid, lba, since, out, own, 0);
  if (torn_reads_ && out.size() > 1) out.push_back(kAnything);
}

void Oracle::forget_before(std::uint64_t moment) { forgotten_ = moment; }

}  // namespace flashmob::simulation
