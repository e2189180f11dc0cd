#include "api/doors.h"

#include <filesystem>

#include "api/socket_address.h"
#include "transport/nvme_tcp/nvme_tcp_target.h"
#include "transport/vfio_user/vfio_user_server.h"
#include "vfio/unix_listener.h"

namespace flashmob::api {
namespace {

class VfioUserDoor final : public Door {
 public:
  VfioUserDoor(const std::string& path, controller::Subsystem& subsystem, engine::Engine& engine,
               const ControllerConfig& config)
      : path_(make_folder_of(path)), server_(subsystem, engine, config, path) {}
  std::string address() const override { return "vfio-user:" + path_; }

 private:
  static const std::string& make_folder_of(const std::string& path) {
    vfio::make_private_folder(std::filesystem::path(path).parent_path());
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
    for (const std::string& nqn : options.host_nqns) target.hosts.push_back({nqn, {}, {}});
    for (const HostSecret& secret : options.host_secrets) {
      const auto same = [&](const transport::NvmeTcpHost& host) { return host.nqn == secret.host_nqn; };
      std::erase_if(target.hosts, same);
      target.hosts.push_back({secret.host_nqn, secret.host_key, secret.controller_key});
    }
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
    doors.push_back(std::make_unique<VfioUserDoor>(options.vfio_user_path, subsystem, engine, controller));
  if (!options.tcp_address.empty())
    doors.push_back(std::make_unique<NvmeTcpDoor>(options, subsystem, engine, controller));
  return doors;
}

}  // namespace flashmob::api
