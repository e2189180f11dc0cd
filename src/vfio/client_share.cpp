#include "vfio/client_share.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace flashmob::vfio {
namespace {

std::size_t most_mappings() {
  std::size_t most = 65530;  // the kernel's default
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  return most;
}

std::size_t most_descriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<std::size_t>(limit.rlim_cur) : 1024;
}

std::uint64_t most_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ClientBudgets::kAddressBytes;
  return std::min<std::uint64_t>(ClientBudgets::kAddressBytes, limit.rlim_cur / 2);
}

ucred peer_of(int socket) {
  ucred peer{.pid = 0, .uid = geteuid(), .gid = 0};
  socklen_t bytes = sizeof(peer);
  (void)getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return peer;
}

}  // namespace

ClientBudgets& ClientBudgets::of_process() {
  static ClientBudgets budgets(most_mappings() / 3, most_descriptors() / 2, most_addresses());
  return budgets;
}

std::shared_ptr<ClientBudgets::Process> ClientBudgets::process_of(pid_t pid, uid_t uid) {
  const std::lock_guard lock(mutex_);
  std::erase_if(processes_, [](const auto& known) { return known.second.expired(); });
  const bool by_user = pid == 0 || uid != geteuid();
  std::weak_ptr<Process>& known = processes_[{by_user, by_user ? uid : static_cast<std::uint64_t>(pid)}];
  std::shared_ptr<Process> process = known.lock();
  if (!process) known = process = std::make_shared<Process>();
  return process;
}

ClientShare::ClientShare(ClientBudgets& budgets, pid_t pid, uid_t uid)
    : budgets_(budgets),
      process_(budgets.process_of(pid, uid)),
      mappings_{.address = &process_->mappings},
      descriptors_{.address = &process_->descriptors},
      addresses_{.address = &process_->addresses} {}

ClientShare::ClientShare(int socket)
    : ClientShare(ClientBudgets::of_process(), peer_of(socket).pid, peer_of(socket).uid) {}

}  // namespace flashmob::vfio
