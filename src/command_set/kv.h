// The Key Value command set (NVM Express Key Value Command Set 1.0): Store, Retrieve, Delete, Exist and List. Its index
// is in kv/. Append, and keys of more than 16 bytes, are vendors' extensions, and not in it.
//
// A Store is one step for all others: whoever retrieves the key has the value before or this one, whole. One that fails
// has changed nothing.
#pragma once

#include <optional>
#include <string>

#include "command_set/command_set.h"

namespace flashmob::command_set {

// Demands on the timing model: Store writes and Retrieve reads what it moves, each piece of it where it lies; Delete,
// Exist and List look at the index, which is to read one unit, List at least as much as it returns.
class KvCommandSet : public CommandSet {
 public:
  nvme::Csi csi() const override { return nvme::Csi::key_value; }
  std::string_view name() const override { return "kv"; }
  void check(const std::string& key, const NamespaceConfig& config) const override;
  void prepare(Namespace& ns, const NamespaceConfig& config) const override;
  bool has_logical_blocks() const override { return false; }
  unsigned formats() const override { return 1; }

  void identify_namespace(const Namespace& ns, const NamespaceIdentity& identity, const IoLimits& limits,
                          IdentifyPage& page) const override;

  Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const override;
  bool has_steps(const nvme::Sqe& sqe) const override;
  std::optional<Outcome> step(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                              Progress& progress) const override;
  void abandon(Namespace& ns, Progress& progress) const override;
  // The specification has no fused operations for it.
  void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                     Outcome& first_outcome, Outcome& second_outcome) const override;
};

}  // namespace flashmob::command_set
