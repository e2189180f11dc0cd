#include "controller/effects.h"

#include "nvme/io_commands.h"
#include "nvme/opcode.h"

namespace flashmob::controller {

nvme::CommandsSupportedAndEffects command_effects(nvme::Csi csi, bool fabrics, bool basic_commands_only,
                                                  const HostRights& rights, bool has_placement) {
  using nvme::AdminOpcode;
  nvme::CommandsSupportedAndEffects page{};
  const auto admin = [&](AdminOpcode opcode, std::uint32_t effects) {
    if (rights.may_send(opcode)) page.acs[static_cast<std::size_t>(opcode)] = nvme::kEffectSupported | effects;
  };
  for (const AdminOpcode opcode :
       {AdminOpcode::get_log_page, AdminOpcode::identify, AdminOpcode::abort, AdminOpcode::get_features,
        AdminOpcode::async_event_request, AdminOpcode::keep_alive}) {
    admin(opcode, kScopeController);
  }
  if (!fabrics) {
    for (const AdminOpcode opcode : {AdminOpcode::delete_io_sq, AdminOpcode::create_io_sq, AdminOpcode::delete_io_cq,
                                     AdminOpcode::create_io_cq, AdminOpcode::doorbell_buffer_config}) {
      admin(opcode, kScopeController);
    }
  }
  if (has_placement) {
    admin(AdminOpcode::directive_receive, kScopeNamespace);
    admin(AdminOpcode::directive_send, kScopeNamespace);
  }
  admin(AdminOpcode::set_features, nvme::kEffectControllerCapability | kScopeController);
  admin(AdminOpcode::namespace_management,
        nvme::kEffectNamespaceInventory | nvme::kEffectLogicalBlockContent | kScopeSubsystem);
  admin(AdminOpcode::namespace_attachment, nvme::kEffectNamespaceInventory | kScopeSubsystem);
  admin(AdminOpcode::format_nvm, nvme::kEffectLogicalBlockContent | nvme::kEffectNamespaceCapability |
                                     nvme::kEffectSubmissionPerNamespace | kScopeNamespace);

  for (const nvme::IoCommand& command : nvme::io_commands(csi)) {
    if ((basic_commands_only && !command.basic) || (command.of_placement && !has_placement)) continue;
    page.iocs[command.opcode] =
        nvme::kEffectSupported | kScopeNamespace | (command.changes_blocks ? nvme::kEffectLogicalBlockContent : 0);
  }
  return page;
}

FeatureIdentifiersEffects feature_effects(const Features& features) {
  FeatureIdentifiersEffects page{};
  for (unsigned fid = 0; fid < 256; ++fid) {
    const auto capabilities = features.capabilities(static_cast<std::uint8_t>(fid));
    if (!capabilities) continue;
    page.fid[fid] = nvme::kEffectSupported | (capabilities->namespace_specific ? kScopeNamespace : kScopeController);
  }
  return page;
}

}  // namespace flashmob::controller
