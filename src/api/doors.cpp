#include "api/doors.h"

#include <algorithm>
#include <filesystem>

#include "api/socket_address.h"
#include "controller/rights.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"
#include "transport/vfio_user/vfio_user_server.h"
#include "vfio/unix_listener.h"

namespace flashmob::api {
namespace {

using controller::Access;
using controller::HostRights;

// A shared namespace is nobody's to format; a drive that nobody shares is its host's.
HostRights vfio_user_rights(const ServerOptions& options, const SubsystemConfig& subsystem) {
  if (!options.vfio_user_allow.empty())
    return {.access = controller::parse_access(options.vfio_user_allow, "vfio_user_allow")};
  const bool shared = std::any_of(subsystem.namespaces.begin(), subsystem.namespaces.end(),
                                  [](const NamespaceConfig& ns) { return ns.shared; });
  return {.access = shared || !options.tcp_address.empty() ? Access::admin : Access::manage};
}

HostRights tcp_rights(const ServerOptions& options) {
  return {.access =
              options.tcp_allow.empty() ? Access::admin : controller::parse_access(options.tcp_allow, "tcp_allow")};
}

HostRights rights_of(const HostRule& rule, const ServerOptions& options) {
  const std::string key = "the rule for " + rule.host_nqn + ": ";
  HostRights rights = tcp_rights(options);
  if (!rule.allow.empty()) rights.access = controller::parse_access(rule.allow, key + "allow");
  rights.namespaces = rule.namespaces;
  if (!std::all_of(rights.namespaces.begin(), rights.namespaces.end(), controller::is_valid_nsid))
    throw ConfigError(key + "namespaces must be identifiers from 1 to " + std::to_string(controller::kMaxNamespaces));
  if (rights.may_manage() && !rights.namespaces.empty())
    throw ConfigError(key + "a host that may manage works on all namespaces; leave namespaces out, or allow less");
  return rights;
}

vfio::SocketAccess socket_access(const std::string& mode) {
  if (mode.empty() || mode == "0600") return vfio::SocketAccess::owner;
  if (mode == "0660") return vfio::SocketAccess::group;
  throw ConfigError("vfio_user_mode = \"" + mode +
                    "\" is not possible; use \"0660\" (the user and his group) or \"0600\" (the user alone)");
}

class VfioUserDoor final : public Door {
 public:
  VfioUserDoor(const ServerOptions& options, controller::Subsystem& subsystem, engine::Engine& engine,
               const ControllerConfig& config)
      : path_(make_folder_of(options.vfio_user_path, socket_access(options.vfio_user_mode))),
        server_(subsystem, engine, config, path_,
                {.socket_access = socket_access(options.vfio_user_mode),
                 .rights = vfio_user_rights(options, subsystem.config())}) {}
  std::string address() const override { return "vfio-user:" + path_; }

 private:
  static const std::string& make_folder_of(const std::string& path, vfio::SocketAccess access) {
    vfio::make_private_folder(std::filesystem::path(path).parent_path(), access);
    return path;
  }

  std::string path_;
  transport::VfioUserServer server_;
};

class NvmeTcpDoor final : public Door {
 public:
  NvmeTcpDoor(const ServerOptions& options, controller::Subsystem& subsystem, engine::Engine& engine,
              const ControllerConfig& config)
      : host_(parse_socket_address(options.tcp_address).host),
        nqn_(subsystem.config().nqn),
        target_(subsystem, engine, config, target_options(options)) {
    target_.start();
  }
  std::string address() const override { return "nvme-tcp:" + text_of({host_, target_.port()}) + "/" + nqn_; }

 private:
  static transport::NvmeTcpTargetOptions target_options(const ServerOptions& options) {
    const SocketAddress address = parse_socket_address(options.tcp_address);
    transport::NvmeTcpTargetOptions target;
    target.address = address.host;
    target.port = address.port;
    target.rights = tcp_rights(options);
    for (const std::string& nqn : options.host_nqns) target.hosts.push_back({nqn, {}, {}, {}});
    for (const HostSecret& secret : options.host_secrets) {
      const auto same = [&](const transport::NvmeTcpHost& host) { return host.nqn == secret.host_nqn; };
      std::erase_if(target.hosts, same);
      target.hosts.push_back({secret.host_nqn, secret.host_key, secret.controller_key, secret.tls_key});
    }
    for (const HostRule& rule : options.host_rules) {
      auto host = std::find_if(target.hosts.begin(), target.hosts.end(),
                               [&](const transport::NvmeTcpHost& known) { return known.nqn == rule.host_nqn; });
      if (host == target.hosts.end()) host = target.hosts.insert(host, {rule.host_nqn, {}, {}});
      host->rights = rights_of(rule, options);
    }
    if (options.tls == "required")
      target.tls = transport::TlsUse::required;
    else if (options.tls == "allowed")
      target.tls = transport::TlsUse::allowed;
    else if (!options.tls.empty())
      throw ConfigError("tls = \"" + options.tls + "\" is not possible; use \"required\" or \"allowed\"");
    target.tls_key = options.tls_key;
    return target;
  }

  std::string host_;
  std::string nqn_;
  transport::NvmeTcpTarget target_;
};

}  // namespace

std::vector<std::unique_ptr<Door>> open_doors(const ServerOptions& options, controller::Subsystem& subsystem,
                                              engine::Engine& engine, const ControllerConfig& controller) {
  std::vector<std::unique_ptr<Door>> doors;
  if (!options.vfio_user_path.empty())
    doors.push_back(std::make_unique<VfioUserDoor>(options, subsystem, engine, controller));
  if (!options.tcp_address.empty())
    doors.push_back(std::make_unique<NvmeTcpDoor>(options, subsystem, engine, controller));
  return doors;
}

}  // namespace flashmob::api
