// One rule of fault injection: which commands, how often, and what happens to them. Written as text, the same in
// profiles, on the command line and in Python: "error on=read p=0.01 status=0x281" (docs/guide/faults.md).
//
// Plain data; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nvme/command.h"
#include "nvme/identify.h"
#include "nvme/status.h"

namespace flashmob::engine {

enum class FaultKind : std::uint8_t {
  none,
  error,    // completed with a status, not carried out
  delay,    // completed later
  reorder,  // completed later by a random time, so that later ones overtake it
  lose,     // carried out, never completed
  corrupt,  // a bit of its data is turned
  drop,     // its host's connection ends
  fatal,    // its controller goes to Controller Fatal Status
};

struct FaultRule {
  std::string text;  // as it was written
  FaultKind kind = FaultKind::none;
  // Which commands.
  bool admin = false;
  std::optional<std::uint8_t> opcode;  // of admin commands; none: every one
  std::string command;  // of I/O: its name, which says what it is in a command set; empty: any
  std::uint32_t nsid = 0;              // 0: any
  std::optional<std::uint64_t> first_lba;
  std::uint64_t last_lba = 0;
  // How often, of those.
  double probability = 1;
  std::uint64_t every = 0;                 // each n-th; 0: not counted
  std::uint64_t at = 0;                    // the n-th alone; 0: not counted
  std::uint64_t times = UINT64_MAX;        // at most so many
  std::uint64_t seed = 1;
  // What.
  std::optional<nvme::Status> status;
  std::uint64_t delay_ns = 0;

  // Throws ConfigError that names the word and the fix.
  static FaultRule parse(const std::string& text);
  // Whether the rule is meant for this command, of a namespace of set `csi`; how often it hits is not its business.
  bool is_meant_for(const nvme::Sqe& sqe, bool is_admin, nvme::Csi csi = nvme::Csi::nvm) const;
};

}  // namespace flashmob::engine
