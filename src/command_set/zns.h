// The Zoned Namespace command set (NVM Express Zoned Namespace Command Set 1.1): the commands of the NVM command set,
// which here meet a zone, and Zone Append, Zone Management Send and Zone Management Receive. Its zones are in zns/.
//
// Reads need nothing of their zones as long as they may cross from one to the next and none is offline: the engine then
// takes them in runs, as it does those of other namespaces. All else is executed one by one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command_set/command_set.h"

namespace flashmob::command_set {

class ZnsCommandSet final : public CommandSet {
 public:
  nvme::Csi csi() const override { return nvme::Csi::zoned; }
  std::string_view name() const override { return "zns"; }
  void check(const std::string& key, const NamespaceConfig& config) const override;
  void prepare(Namespace& ns, const NamespaceConfig& config) const override;

  void identify_namespace(const Namespace& ns, const NamespaceIdentity& identity, const IoLimits& limits,
                          IdentifyPage& page) const override;
  void identify_controller(const IoLimits& limits, IdentifyPage& page) const override;
  std::span<const nvme::LogPage> log_pages() const override;
  std::vector<std::byte> log_page(nvme::LogPage page, Namespace& ns, bool retain) const override;
  memory::DataShape shape(const Namespace& ns) const override;

  Outcome execute(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context) const override;
  // All that writes into a zone, and what acts on zones: a reset is many steps, and the others come after it.
  bool has_steps(const nvme::Sqe& sqe) const override;
  bool has_several_steps(const nvme::Sqe& sqe) const override;
  std::uint64_t room_of(const nvme::Sqe& sqe, const Namespace& ns) const override;
  std::optional<Outcome> step(const nvme::Sqe& sqe, Namespace& ns, ExecContext& context,
                              Progress& progress) const override;
  void abandon(Namespace& ns, Progress& progress) const override;
  // Compare and Write is for namespaces whose blocks may be written again.
  void execute_fused(const nvme::Sqe& first, const nvme::Sqe& second, Namespace& ns, ExecContext& context,
                     Outcome& first_outcome, Outcome& second_outcome) const override;
};

}  // namespace flashmob::command_set
