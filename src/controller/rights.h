// What the host of one controller may do (docs/decisions/0010). Plain values, fixed for a controller's life; no thread
// rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "nvme/opcode.h"

namespace flashmob::controller {

// Each with all of those before it.
enum class Access : std::uint8_t {
  read_only,  // Read, and the admin commands that a driver needs
  io,         // everything that writes blocks
  admin,      // what tells of other hosts, and what outlives the controller
  manage,     // what changes the subsystem under other hosts
};

struct HostRights {
  Access access = Access::manage;
  std::vector<std::uint32_t> namespaces = {};  // those that the host sees; empty: all
  // What its I/O queues may ask for, all together (base/rate_gate.h); 0: as much as there is.
  std::uint64_t max_commands_per_s = 0;
  std::uint64_t max_bytes_per_s = 0;

  bool may_write() const { return access >= Access::io; }
  bool may_save() const { return access >= Access::admin; }
  bool may_list() const { return access >= Access::admin; }
  // What is of the whole subsystem, namespaces that the host does not see included.
  bool may_list_all() const { return may_list() && namespaces.empty(); }
  bool may_manage() const { return access >= Access::manage; }
  bool sees(std::uint32_t nsid) const {
    return namespaces.empty() || std::find(namespaces.begin(), namespaces.end(), nsid) != namespaces.end();
  }
  // Without the right to it, a command does not exist.
  bool may_send(nvme::AdminOpcode opcode) const {
    if (opcode == nvme::AdminOpcode::directive_send) return may_write();
    return may_manage() ||
           (opcode != nvme::AdminOpcode::format_nvm && opcode != nvme::AdminOpcode::namespace_management &&
            opcode != nvme::AdminOpcode::namespace_attachment);
  }
};

// "read-only", "io", "admin" or "manage". Throws ConfigError naming `key`.
Access parse_access(const std::string& text, const std::string& key);

}  // namespace flashmob::controller
